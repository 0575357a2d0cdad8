"""The sentences that the analysis writes in English, in Spanish. What is not in here is shown in English, and marked so.

`TERMS` are whole texts; `SENTENCES` have variable parts, which may be known texts themselves.
"""

from __future__ import annotations

from typing import Final

from servegate_action.report.wording import Sentence

TERMS: Final[dict[str, str]] = {
    # what a line is about
    "model": "modelo",
    "quantization": "cuantización",
    "batch size": "tamaño de lote",
    "model, quantization, batch size": "mismo modelo, misma cuantización, mismo tamaño de lote",
    "engine": "motor",
    "image": "imagen",
    "process": "proceso",
    "port": "puerto",
    "healthy": "listo",
    "dropped": "vaciados",
    "as found": "como estaban",
    "unknown": "desconocido",
    "engine version": "versión del motor",
    "answers": "respuestas",
    "answers to long prompts": "respuestas a textos largos",
    "answers to many at once": "respuestas a muchos a la vez",
    "container": "contenedor",
    "driver": "controlador",
    "command": "orden de arranque",
    "kind of stack": "tipo de servicio",
    "GPU pool": "grupo de GPU",
    "GPUs held": "GPU reservadas",
    "CPU utilization": "utilización de la CPU",
    "GPU-seconds per 1M output tokens": "segundos de GPU por 1M de tokens de salida",
    "effective tokens per GPU-hour": "tokens efectivos por hora de GPU",
    "failed requests": "peticiones fallidas",
    "goodput": "peticiones dentro de los SLO",
    "input tok/s": "tok/s de entrada",
    "decode tok/s, server": "tok/s de decodificación, servidor",
    "decode tok/s per user": "tok/s de decodificación por usuario",
    "utilization": "utilización",
    "utilization of the least used accelerator": "utilización del acelerador menos usado",
    "power while serving": "potencia en servicio",
    "power ready and idle": "potencia lista y sin carga",
    "memory held": "memoria ocupada",
    "time at the power limit": "tiempo en el límite de potencia",
    "validity": "validez",
    "p95 TTFT, successes only": "p95 de TTFT, solo con éxito",
    "p95 TPOT, successes only": "p95 de TPOT, solo con éxito",
    "p95 time to first answer token": "p95 hasta el primer token de respuesta",
    "service level, p95 TTFT": "nivel de servicio, p95 de TTFT",
    "service level, p95 TPOT": "nivel de servicio, p95 de TPOT",
    "service level, p95 TTFT with cold starts": "nivel de servicio, p95 de TTFT con arranques en frío",
    "busy only, GPU money only": "solo ocupada, solo GPU",
    "per 1M input and output tokens": "por 1M de tokens de entrada y salida",
    "per month": "al mes",
    "busy": "ocupada",
    "warm idle": "en espera",
    "kept warm": "mantenida en espera",
    "loading": "cargando",
    "power": "electricidad",
    "power penalty": "pérdida eléctrica",
    "migration": "migración",
    "time busy": "tiempo ocupada",
    "time warm and idle": "tiempo en espera",
    "time loading": "tiempo cargando",
    "time off": "tiempo apagada",
    "tokens per joule, at the board": "tokens por julio, en la placa",
    "tokens per joule, at the grid": "tokens por julio, en la red",
    "energy at the board": "energía en la placa",
    "energy at the grid": "energía en la red",
    "cold start to first token": "arranque en frío hasta el primer token",
    "output tok/s of the mix": "tok/s de salida de la mezcla",
    "traffic served": "tráfico atendido",
    "same run, same accelerator, alternating rounds": "misma ejecución, mismo acelerador, rondas alternas",
    "alternating order": "orden alterno",
    "same accelerator": "mismo acelerador",
    "same work": "mismo trabajo",
    "load generator": "generador de carga",
    "load generator, certified": "generador de carga, certificado",
    "prefix cache": "caché de prefijos",
    "launches": "arranques",
    "run": "ejecución",
    "gated metrics": "métricas sujetas a límite",
    "tokens as the servers count them": "tokens según los propios servidores",
    # checks
    "capacity": "capacidad",
    "client": "generador de carga",
    "client certificate": "certificado del generador de carga",
    "complete": "ejecución completa",
    "failed share": "peticiones fallidas",
    "gpus held": "GPU reservadas",
    "hardware": "acelerador",
    "identity": "identidad",
    "identity batch": "mismo tamaño de lote",
    "identity declared": "conforme a lo declarado",
    "identity model": "mismo modelo",
    "identity quantization": "misma cuantización",
    "load equal": "misma carga",
    "numerics": "respuestas",
    "numerics long": "respuestas a textos largos",
    "numerics together": "respuestas a muchos a la vez",
    "order": "orden",
    "server counts": "recuento de los servidores",
    "telemetry": "telemetría",
    "slo ttft p95": "SLO de p95 de TTFT",
    "slo tpot p95": "SLO de p95 de TPOT",
    "slo ttft p95 with cold starts": "SLO de p95 de TTFT con arranques en frío",
    # notes beside a number
    "median": "mediana",
    "p5": "percentil 5",
    "p95 TTFT": "p95 de TTFT",
    "p95 TPOT": "p95 de TPOT",
    "p95 TTFT with cold starts": "p95 de TTFT con arranques en frío",
    "meets every slo": "cumple todos los SLO",
    "from the real send": "desde el envío real",
    "over billed GPU-hours, idle and loading included": "sobre las horas de GPU facturadas, con espera y carga",
    # what a cell says
    "ok": "bien",
    "equal": "igual",
    "none": "ninguno",
    "none may regress": "ninguna puede empeorar",
    "proven": "probado",
    "declared": "declarado",
    "other": "otro",
    "the workspace": "el espacio de trabajo",
    "not said": "no lo dice",
    "not declared": "no declarado",
    "differs": "difiere",
    "differs, migration cost": "difiere, coste de migración",
    "measured": "medido",
    "not measured": "sin medir",
    "endpoint": "servicio ya en marcha",
    "keep warm": "mantener en espera",
    "kept warm, at the rate of arrivals of the workload": "mantenida en espera, al ritmo de llegadas de la carga",
    "how much a stack can serve shows in closed loop only: add a cell with a `concurrency` to the workload": "cuánto puede servir un servicio solo se ve en bucle cerrado: añadir a la carga una celda con `concurrency`",
    "no closed-loop cell: at a fixed arrival rate a faster stack should idle more": "sin celda en bucle cerrado: a un ritmo fijo de llegadas, un servicio más rápido debe descansar más",
    "recorded": "grabada",
    "INCONCLUSIVE": "INCONCLUSIVE",
    "INVALID": "INVALID",
    "about the other side": "sobre el otro lado",
    # whole sentences
    "the run came to its end": "la ejecución llegó a su fin",
    "no complete round": "ninguna ronda completa",
    "no prompt was served from a cache by accident": "ningún texto se sirvió por accidente desde una caché",
    "no throttling, no memory error, no foreign process was seen": "sin limitación de reloj, sin errores de memoria, sin procesos ajenos",
    "a CPU has no counters that would tell": "una CPU no tiene contadores que lo digan",
    "not a GPU": "no es una GPU",
    "no RAPL energy counter is readable on this machine": "en esta máquina no se puede leer ningún contador de energía RAPL",
    "CPU share of the stack's process tree": "parte de la CPU del árbol de procesos del servicio",
    "safetensors header and config.json": "cabecera de safetensors y config.json",
    "servegate did not start this stack": "servegate no arrancó este servicio",
    "a process, not a container": "un proceso, no un contenedor",
    "the launch is running": "el arranque sigue en curso",
    "stopped before its end": "detenida antes de su fin",
    "no further round was run": "no se ejecutó ninguna ronda más",
    "the load generator was not certified": "el generador de carga no se certificó",
    "rounds": "rondas",
    "round": "ronda",
    "attempt": "intento",
    "its idle time is priced as if it kept warm": "su tiempo sin carga se paga como en espera",
    "both cost the same at every traffic": "ambos cuestan lo mismo con cualquier tráfico",
    "without declared traffic there is no break-even": "sin tráfico declarado no hay punto de equilibrio",
    "none declared: priced as if always busy": "ninguno declarado: precio como si siempre estuviera ocupada",
    "no prices are declared: GPU-seconds per 1M tokens are tokens per GPU-hour turned over": "no se han declarado precios: los segundos de GPU por 1M de tokens son los tokens por hora de GPU, invertidos",
    "without a GPU, a GPU-hour or GPU-second here is one of the whole machine": "sin GPU, una hora o un segundo de GPU es aquí de la máquina entera",
    "no slo is declared": "no se ha declarado ningún SLO",
    "no gated metric was measured in two rounds": "ninguna métrica sujeta a límite se midió en dos rondas",
    "no prices are declared: the configuration has no `cost` block": "no se han declarado precios: la configuración no tiene bloque `cost`",
    "cells weigh in the mix by their share of the requests; the mix is the time that those take": "las celdas pesan en la mezcla por su parte de las peticiones; la mezcla es el tiempo que estas ocupan",
    "tokens after the first, over the time with a decode in flight; prefill is not in it": "tokens posteriores al primero, sobre el tiempo con una decodificación en curso; sin el prefill",
    "over all attempted requests, a failed one counts as infinite; nearest rank, n beside each value": "sobre todas las peticiones intentadas; una fallida cuenta como infinita; rango más próximo, n junto a cada valor",
    "moving brings a migration cost; none is declared": "el cambio conlleva un coste de migración; no se ha declarado ninguno",
    "run it again; what was measured is kept in the run directory": "ejecutar de nuevo; lo medido se conserva en el directorio de la ejecución",
    "run it again; with a larger rounds.budget_minutes if the budget ended it": "ejecutar de nuevo; con un rounds.budget_minutes mayor si se agotó el presupuesto",
    "replay more requests, lower the load, or declare a larger limit for the undecided metrics": "repetir más peticiones, bajar la carga o declarar un límite mayor para las métricas sin decidir",
    "compare sampling defaults, chat template, tokenizer and precision of the two stacks": "comparar el muestreo por defecto, la plantilla de chat, el tokenizador y la precisión de los dos servicios",
    "mend what regressed; where it is meant, raise its limit in a change of its own: limits are read from the base, so that no change can loosen those that it is judged by": "arreglar lo que ha empeorado; si es lo que se quiere, subir su límite en un cambio aparte: los límites se leen de la base, de modo que ningún cambio afloja los suyos",
    "declare gpu_pool for both stacks, or gpu_uuids where the endpoint's GPUs are this machine's": "declarar gpu_pool en los dos servicios, o gpu_uuids si las GPU del endpoint son de esta máquina",
    "compare the longest context, position scaling, sliding windows and truncation of the two stacks": "comparar el contexto máximo, el escalado de posiciones, las ventanas deslizantes y el truncado de los dos servicios",
    "look for requests that share state in the candidate: batching, the KV cache, prefix reuse": "buscar en el candidato peticiones que comparten estado: lotes, caché KV, reutilización de prefijos",
    "correct the declaration, or the stack": "corregir la declaración o el servicio",
    "free and cool the accelerator, check that the sampler can reach it, and measure again": "liberar y enfriar el acelerador, comprobar que se puede leer y medir de nuevo",
    "read server.log of that launch": "leer el server.log de ese arranque",
    "read server.log of the candidate's launches; a failed request counts as an infinite latency": "leer el server.log de los arranques del candidato; una petición fallida cuenta como latencia infinita",
    "mend the baseline or lower the load: a baseline that fails is no reference": "arreglar la referencia o bajar la carga: una referencia que falla no sirve de referencia",
    "make it faster, lower the load per replica, or change the level in the gate's policy": "hacerlo más rápido, bajar la carga por réplica o cambiar el nivel en la política",
    "declare more replicas, or the traffic of one replica": "declarar más réplicas, o el tráfico de una réplica",
    "declare gpu_count, the GPUs that the stack holds, and gpu_uuids, which ones": "declarar gpu_count, las GPU que el servicio reserva, y gpu_uuids, cuáles",
    "measure both on the same accelerators, or declare gpu_pool for both stacks": "medir ambos en los mismos aceleradores, o declarar gpu_pool para ambos servicios",
    "raise load.processes, lower the concurrency, or run the load generator on more cores": "subir load.processes, bajar la concurrencia o dar más núcleos al generador de carga",
    "let servegate start both stacks (process or container), or declare `launches: fixed` for the endpoints": "dejar que servegate arranque ambos servicios (proceso o contenedor), o declarar `launches: fixed` para los que ya están en marcha",
    "CPU utilization: an idle core is not an idle GPU, so it is shown and not gated": "utilización de la CPU: un núcleo libre no es una GPU libre, por eso se muestra sin límite",
    "its state is `running`": "su estado es `running`",
    # notes on who says what
    (
        "the candidate's endpoint says `launches: fixed`, which the base commit does not say of this url: "
        "it does not count yet, and the best verdict is INCONCLUSIVE"
    ): (
        "el servicio ya en marcha del candidato dice `launches: fixed`, y el commit base no lo dice de esta url: "
        "aún no cuenta, y el mejor veredicto es INCONCLUSIVE"
    ),
    "baseline": "referencia",
    "candidate": "candidato",
    "above": "encima",
    "below": "debajo",
}

SENTENCES: Final[tuple[Sentence, ...]] = tuple(
    Sentence.of(english, here)
    for english, here in (
        (
            "{used} of {planned} rounds used, the run did not come to its end: {why}",
            "{used} de {planned} rondas usadas, la ejecución no llegó a su fin: {why}",
        ),
        ("{used} of {planned} rounds used, {why}. {rest}", "{used} de {planned} rondas usadas, {why}. {rest}"),
        ("{used} of {planned} rounds used. {rest}", "{used} de {planned} rondas usadas. {rest}"),
        ("the run did not come to its end: {why}", "la ejecución no llegó a su fin: {why}"),
        (
            "the {side} exited with code {code} in round {round}",
            "el {side} terminó con código {code} en la ronda {round}",
        ),
        ("{sentence} (and {count} more)", "{sentence} (y {count} más)"),
        ("check failed: {sentence}", "comprobación fallida: {sentence}"),
        ("n = {count}", "n = {count}"),
        ("mean of {count}", "media de {count}"),
        ("max of {count}", "máximo de {count}"),
        ("item: {name}", "concepto: {name}"),
        (
            "whether the declared traffic can be served was not checked: {why}",
            "no se comprobó si se puede servir el tráfico declarado: {why}",
        ),
        ("none declared: priced as if {policy}", "no declarado: precio como {policy}"),
        ("counter: {name}", "contador: {name}"),
        ("no counter: {why}", "sin contador: {why}"),
        ("no line item: {why}", "sin desglose: {why}"),
        ("no cost: {why}", "sin coste: {why}"),
        ("traffic: {text}", "tráfico: {text}"),
        ("{count} complete rounds", "{count} rondas completas"),
        ("{metrics} distinct metrics, {rounds} rounds", "{metrics} métricas distintas, {rounds} rondas"),
        (
            "{good} of {all} within their limit, {bad} regressed, {open} undecided",
            "{good} de {all} dentro de su límite, {bad} empeoradas, {open} sin decidir",
        ),
        (
            "{bad} of {all} requests failed, allowed {allowed} of them",
            "fallaron {bad} de {all} peticiones, permitidas {allowed}",
        ),
        (
            "{bad} of {all} requests failed ({reasons}), allowed {allowed} of them",
            "fallaron {bad} de {all} peticiones ({reasons}), permitidas {allowed}",
        ),
        (
            "{level} is {value} ms, its service level is {most} ms",
            "{level}: {value} ms, su nivel de servicio es {most} ms",
        ),
        (
            "{level} is a failed request, its service level is {most} ms",
            "{level}: una petición fallida, su nivel de servicio es {most} ms",
        ),
        (
            "GPUs used: {first} by the baseline, {second} by the candidate, none more than declared",
            "GPU usadas: {first} por la referencia, {second} por el candidato, ninguna más de las declaradas",
        ),
        (
            "the clocks of {device} were slowed down ({why}) in {share} of the readings",
            "los relojes de {device} se frenaron ({why}) en el {share} de las lecturas",
        ),
        (
            "servegate does not start the baseline and the candidate: what is measured holds for these two launches only",
            "servegate no arranca la referencia ni el candidato: lo medido vale solo para estos dos arranques",
        ),
        (
            "servegate does not start the {side}: what is measured holds for these two launches only",
            "servegate no arranca el lado {side}: lo medido vale solo para estos dos arranques",
        ),
        (
            (
                "at {streams} streams and {events} events/s: stamp error p99 {stamp} ms, p95 TTFT error {ttft} ms, dispatch "
                "lag p99 {lag} ms, {reads} of reads shared, {core} of a core per process"
            ),
            (
                "con {streams} flujos y {events} eventos/s: error de las marcas p99 {stamp} ms, error del p95 de TTFT {ttft} ms, "
                "retraso de envío p99 {lag} ms, {reads} de las lecturas compartidas, {core} de un núcleo por proceso"
            ),
        ),
        (
            "{count} of {all} requests have other prompt_tokens on the two stacks",
            "{count} de {all} peticiones tienen otros prompt_tokens en los dos servicios",
        ),
        (
            "tokenizer, chat template or stop conditions differ: compare how {baseline} and {candidate} are started",
            "difieren el tokenizador, la plantilla de chat o las condiciones de parada: comparar cómo arrancan {baseline} y {candidate}",
        ),
        ("{count} of {all} answers differ", "{count} de {all} respuestas difieren"),
        ("and {count} more", "y {count} más"),
        ("none ({reason})", "ninguno ({reason})"),
        ("server {setting}", "servidor: {setting}"),
        ("Poisson arrivals, {rate} requests/h", "llegadas de Poisson, {rate} peticiones/h"),
        ("{rate} requests/h", "{rate} peticiones/h"),
        ("scale to zero after {seconds} s", "a cero tras {seconds} s"),
        ("baseline: {baseline}; candidate: {candidate}", "referencia: {baseline}; candidato: {candidate}"),
        ("both stacks on {device}", "ambos servicios en {device}"),
        (
            "{side}: {count} requests met a connection that the server had just closed, and were sent again",
            "{side}: {count} peticiones encontraron una conexión que el servidor acababa de cerrar, y se enviaron de nuevo",
        ),
        (
            "{cell}: {share} of {count} answers under load have the same text on both stacks",
            "{cell}: {share} de {count} respuestas bajo carga tienen el mismo texto en ambos servicios",
        ),
        (
            "{side}: the batch size is declared as {cap}, and {seen} requests were decoded at once",
            "{side}: el tamaño de lote declarado es {cap}, y se decodificaron {seen} peticiones a la vez",
        ),
        ("{count} rounds, the two stacks in alternating order", "{count} rondas, los dos servicios en orden alterno"),
        (
            "both stacks answered the same {count} requests: prompt tokens and output tokens agree one by one",
            "ambos servicios respondieron a las mismas {count} peticiones: los tokens de entrada y salida coinciden uno a uno",
        ),
        (
            "the load generator kept up; dispatch lag p99 {lag} ms at most",
            "el generador de carga dio abasto; retraso de envío p99 de {lag} ms como máximo",
        ),
        (
            "the load generator keeps up at {count} operating points of this run",
            "el generador de carga da abasto en {count} puntos de trabajo de esta ejecución",
        ),
        (
            "the declared traffic needs {first} of the baseline's time and {second} of the candidate's",
            "el tráfico declarado necesita el {first} del tiempo de la referencia y el {second} del candidato",
        ),
        (
            "the {side} is cheaper at every traffic from {low} to {high}",
            "el {side} es más barato con cualquier tráfico, de {low} a {high}",
        ),
        (
            (
                "the {below} is cheaper below {point}, the {above} above it; the declared {rate} is {away} {where} that, within "
                "{share}: the saving is fragile"
            ),
            (
                "por debajo de {point} es más barato: {below}; por encima: {above}; el tráfico declarado, {rate}, está un {away} "
                "por {where}, a menos del {share}: el ahorro es frágil"
            ),
        ),
        (
            "the {below} is cheaper below {point}, the {above} above it; the declared {rate} is {away} {where} that",
            (
                "por debajo de {point} es más barato: {below}; por encima: {above}; el tráfico declarado, {rate}, está un {away} "
                "por {where}"
            ),
        ),
        (
            (
                "{waiting} of the requests wait for a cold start ({starting} trigger one); it took {most} s at most in "
                "{launches} launches, too few to bound its p95 ({enough} would)"
            ),
            (
                "el {waiting} de las peticiones espera un arranque en frío (el {starting} provoca uno); tardó {most} s como máximo "
                "en {launches} arranques, pocos para acotar su p95 (harían falta {enough})"
            ),
        ),
        (
            (
                "{waiting} of the requests wait for a cold start ({starting} trigger one); it took {most} s at most in "
                "{launches} launches"
            ),
            (
                "el {waiting} de las peticiones espera un arranque en frío (el {starting} provoca uno); tardó {most} s como máximo "
                "en {launches} arranques"
            ),
        ),
        ("scale-to-zero: not real, {why}", "la escala a cero no es real: {why}"),
        (
            "{held} of GPU memory still held after {seconds} s",
            "{held} de memoria de GPU aún ocupados tras {seconds} s",
        ),
        (
            (
                "scaling to zero is dearer than staying warm at this traffic ({asleep} against {warm} USD per 1M output "
                "tokens)"
            ),
            (
                "escalar a cero es más caro que seguir en espera con este tráfico ({asleep} frente a {warm} USD por 1M de tokens "
                "de salida)"
            ),
        ),
        (
            "scaling to zero uses more energy than staying warm ({asleep} against {warm} kWh a month)",
            "escalar a cero gasta más energía que seguir en espera ({asleep} frente a {warm} kWh al mes)",
        ),
        (
            (
                "closed form for Poisson arrivals at this mean rate: {usd} USD per 1M output tokens, off {off}, {waiting} of "
                "the requests wait"
            ),
            (
                "fórmula cerrada para llegadas de Poisson a esta tasa media: {usd} USD por 1M de tokens de salida, apagada el "
                "{off}, espera el {waiting} de las peticiones"
            ),
        ),
        ("one request per {seconds} s", "una petición cada {seconds} s"),
        ("the answers agree: {reason}", "las respuestas coinciden: {reason}"),
        (
            (
                "log-probabilities of the same tokens differ by {mean} on average, by {own} when the baseline is asked twice "
                "({same} of {all} tokens are the same)"
            ),
            (
                "las log-probabilidades de los mismos tokens difieren en {mean} de media, en {own} al preguntar dos veces a la "
                "referencia ({same} de {all} tokens son iguales)"
            ),
        ),
        ("log-probabilities were not compared ({reason})", "no se compararon log-probabilidades ({reason})"),
        ("the answers differ: {reason}", "las respuestas difieren: {reason}"),
        ("the answers to long prompts agree: {reason}", "las respuestas a textos largos coinciden: {reason}"),
        ("the answers to long prompts differ: {reason}", "las respuestas a textos largos difieren: {reason}"),
        ("the answers to many at once agree: {reason}", "las respuestas a muchos a la vez coinciden: {reason}"),
        ("the answers to many at once differ: {reason}", "las respuestas a muchos a la vez difieren: {reason}"),
        (
            "the answers to long prompts were not compared: {reason}",
            "no se compararon las respuestas a textos largos: {reason}",
        ),
        (
            "the answers to many at once were not compared: {reason}",
            "no se compararon las respuestas a muchos a la vez: {reason}",
        ),
        (
            "which accelerator serves the two stacks cannot be seen: an endpoint may be served by any machine",
            "no se ve qué acelerador sirve a los dos servicios: a un endpoint lo puede servir cualquier máquina",
        ),
        (
            "which accelerator serves the {side} cannot be seen: an endpoint may be served by any machine",
            "no se ve qué acelerador sirve a: {side}; a un endpoint lo puede servir cualquier máquina",
        ),
        (
            "which processes are the {side}'s own was not told: one that came before its first cell is taken for its own",
            "no se dijo qué procesos son propios ({side}): uno que llegó antes de su primera celda se toma por propio",
        ),
        ("both stacks in the pool {pool}, as declared", "los dos servicios en el grupo {pool}, según lo declarado"),
        ("{same} of {all} answers are the same", "{same} de {all} respuestas son iguales"),
        ("same {part} on both sides, {evidence}: {value}", "{part} igual en ambos lados, {evidence}: {value}"),
        (
            "the {part} differs: baseline {baseline}, candidate {candidate} ({evidence})",
            "difiere: {part}; referencia {baseline}, candidato {candidate} ({evidence})",
        ),
        (
            "serve the same {part} on both sides; a change of it is a different question from a change of engine",
            "servir lo mismo en ambos lados ({part}); cambiarlo es otra pregunta que cambiar de motor",
        ),
        ("moving brings a migration cost of {usd} USD", "el cambio conlleva un coste de migración de {usd} USD"),
        (
            "set rounds.max to {rounds}: at this noise about that many rounds would decide",
            "poner rounds.max a {rounds}: con este ruido, unas tantas rondas lo decidirían",
        ),
        ("the candidate now says of itself: {claim}", "el candidato dice ahora de sí mismo: {claim}"),
        (
            (
                "the baseline's command is that of the base commit {base}, but it was started in {place}: whatever this change "
                "does to files that both stacks run, it does to both. Check the base commit out beside it and name it as the "
                "baseline's cwd, or run the baseline as a container by digest (docs/github.md)"
            ),
            (
                "la orden de la referencia es la del commit base {base}, pero se arrancó en {place}: lo que este cambio haga a "
                "archivos que ejecutan ambos servicios, se lo hace a los dos. Traer el commit base al lado y nombrarlo como cwd "
                "de la referencia, o ejecutar la referencia como contenedor por su digest (docs/github.md)"
            ),
        ),
        (
            (
                "the baseline's container mounts {source}, where files of {place} are: whatever this change does to files that "
                "both stacks run, it does to both. Check the base commit out beside it and mount that, or put the files into "
                "the image (docs/github.md)"
            ),
            (
                "el contenedor de la referencia monta {source}, donde hay archivos ({place}): lo que este cambio haga a "
                "archivos que ejecutan ambos servicios, se lo hace a los dos. Traer el commit base al lado y montar ese, o "
                "poner los archivos en la imagen (docs/github.md)"
            ),
        ),
        (
            (
                "the baseline's image {image} is named by a tag: where it is built on the runner, it may be built from this "
                "change, on both sides. Build it from the base commit, or name it by digest (docs/github.md)"
            ),
            (
                "la imagen {image} de la referencia se nombra por una etiqueta: si se construye en el runner, puede estar "
                "construida con este cambio, en ambos lados. Construirla del commit base, o nombrarla por su digest "
                "(docs/github.md)"
            ),
        ),
        ("a checkout of {commit}", "una copia de {commit}"),
        ("model: {text}", "modelo: {text}"),
        ("quantization: {text}", "cuantización: {text}"),
        ("batch size: {text}", "tamaño de lote: {text}"),
        ("container: {text}", "contenedor: {text}"),
        ("command: {text}", "orden de arranque: {text}"),
        ("server: {text}", "servidor: {text}"),
        ("sha256 of {count} files", "sha256 de {count} archivos"),
        ("{source}, at most {count} decoded at once", "{source}, como máximo {count} decodificándose a la vez"),
        (
            "round {round}, attempt {attempt}, {side}: {reason}",
            "ronda {round}, intento {attempt}, {side}: {reason}",
        ),
        ("round {round}, {side}: {reason}", "ronda {round}, {side}: {reason}"),
        ("{device} at {watts} W", "{device} a {watts} W"),
        (
            "weights {weights}, activations {activations}, kv cache {cache}, compute {compute}",
            "pesos {weights}, activaciones {activations}, caché KV {cache}, cómputo {compute}",
        ),
        (
            "{model}; weights {weights}, activations {activations}, kv cache {cache}, compute {compute}; {batch}",
            "{model}; pesos {weights}, activaciones {activations}, caché KV {cache}, cómputo {compute}; {batch}",
        ),
        (
            (
                "Each round starts both stacks anew and replays the identical requests, in alternating order. Per metric the "
                "log-ratio of each round (points for utilization) goes into a paired t-test, looked at after {looks} rounds, at "
                "levels that rise with the look ({level} at this one); the noise is estimated from the {noise}. A metric passes when the upper end of its interval is within its limit, so "
                "that a candidate which is worse than a limit passes at most 5 % of the time; a regression beyond a limit "
                "rejects after Holm's correction over {count} distinct metrics, so that an unchanged build is "
                "rejected at most 5 % of the time over all metrics together."
            ),
            (
                "Cada ronda arranca de nuevo ambos servicios y repite las mismas peticiones, en orden alterno. De cada métrica, "
                "el logaritmo del cociente de cada ronda (puntos, en la utilización) entra en una prueba t pareada, que se mira "
                "tras {looks} rondas, con niveles que suben de una mirada a otra ({level} en esta); el ruido se estima con: {noise}. "
                "Una métrica aprueba cuando el extremo malo de su intervalo está "
                "dentro del límite, de modo que un candidato peor que un límite aprueba como mucho un 5 % de las veces; un "
                "empeoramiento mayor que un límite rechaza tras la corrección de Holm sobre {count} métricas distintas, de modo "
                "que una versión sin cambios se rechaza como mucho un 5 % de las veces entre todas las métricas."
            ),
        ),
    )
)
