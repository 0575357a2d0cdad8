"""What a running server says of itself, for the engines that we know: name, version, model, numbers, batch cap.

Only what an engine answers over HTTP counts here. Sources: vLLM `/version`, `/v1/models`, `/server_info` (only with
VLLM_SERVER_DEV_MODE=1), `/metrics`; SGLang `/server_info` or `/get_server_info`, `/model_info` or `/get_model_info`;
TensorRT-LLM `/version`, `/metrics`; llama.cpp `/props`, `/v1/models`. Everything read is foreign text: kept flat, short
and without control characters. It refuses to guess an engine that does not identify itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from servegate_action import client
from servegate_action.config.stacks import Engine
from servegate_action.identity import metrics
from servegate_action.identity.facts import Fact, Numbers, proven
from servegate_action.identity.formats import FLOATS

MOST_FACTS = 150
LONGEST_FACT = 300
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_SECRET = re.compile(
    r"(api_?keys?$|(auth|access|hf|admin|bearer)_?token|secret|passw|credential|keyfile|private)", re.IGNORECASE
)
Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ReadBack:
    """A server's own account. `model` is the path or name of the weights that it loaded."""

    engine: Engine
    version: str | None = None
    model: str | None = None
    numbers: Numbers = field(default_factory=Numbers)
    cap: int | None = None
    cap_source: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask, and how."""

    base_url: str
    headers: Mapping[str, str]

    def json(self, path: str) -> Json:
        """An object, empty when the path answers with anything else."""
        value = client.get_json(client.api_root(self.base_url) + path, headers=self.headers, timeout_s=5.0)
        return value if isinstance(value, dict) else {}

    def text(self, path: str) -> str:
        """The body of a 2xx answer, else empty."""
        reply = client.get_text(client.api_root(self.base_url) + path, headers=self.headers, timeout_s=5.0)
        return reply.text if isinstance(reply, client.Answered) and reply.ok else ""


def read_back(server: Server, *, engine: Engine, served_model: str | None = None) -> ReadBack:
    """Ask the server. AUTO finds the engine by what it answers; a configured one is asked in its own way only.

    Of several models that it lists, the one named `served_model` is meant.
    """
    models = _entry(server.json("/v1/models"), served_model)
    asked = {
        Engine.LLAMA_CPP: _llama_cpp,
        Engine.VLLM: _vllm,
        Engine.SGLANG: _sglang,
        Engine.TENSORRT_LLM: _tensorrt_llm,
    }
    for kind, ask in asked.items():
        if engine in (Engine.AUTO, kind):
            found = ask(server, models)
            if found is not None:
                return found
    return ReadBack(Engine.OTHER, facts=flatten({"v1_models": models}))


def flatten(answers: Json) -> dict[str, str]:
    """Nested answers as `a.b.c: text`, secrets out, bounded in number and length."""
    found: dict[str, str] = {}
    pending: list[tuple[str, object]] = [(str(key), value) for key, value in reversed(list(answers.items()))]
    while pending and len(found) < MOST_FACTS:
        name, value = pending.pop()
        if isinstance(value, dict):
            pending += [(f"{name}.{key}", part) for key, part in reversed(list(value.items()))]
        elif value is not None and value != "":
            shown = "***" if _SECRET.search(name) else clean(str(value))
            found[clean(name)] = shown
    return found


def clean(text: str) -> str:
    """Foreign text on one short line, without control characters and direction marks."""
    plain = _CONTROL.sub(" ", text).strip()
    return plain if len(plain) <= LONGEST_FACT else plain[:LONGEST_FACT] + "…"


# ---------------------------------------------------------------- one function per engine


def _llama_cpp(server: Server, models: Json) -> ReadBack | None:
    props = server.json("/props")
    if "total_slots" not in props and models.get("owned_by") != "llamacpp":
        return None
    meta = _object(models, "meta")
    kept = {
        key: props[key]
        for key in ("total_slots", "model_path", "model_ftype", "build_info", "bos_token", "eos_token", "is_sleeping")
        if key in props
    }
    kept["n_ctx"] = _object(props, "default_generation_settings").get("n_ctx")
    template = props.get("chat_template")
    kept["chat_template"] = template[:80] if isinstance(template, str) else None
    weights = proven(_file_type(_text(props, "model_ftype") or _text(meta, "ftype")), "/props model_ftype")
    own = "llama.cpp's own choice by tensor type and backend"
    return ReadBack(
        engine=Engine.LLAMA_CPP,
        version=_text(props, "build_info"),
        model=_text(props, "model_path"),
        numbers=Numbers(weights=weights, activations=_given(own), compute=_given(own)),
        cap=_number(props, "total_slots"),
        cap_source="/props total_slots",
        facts=flatten({"props": kept, "v1_models": {"id": models.get("id"), "meta": meta}}),
    )


def _vllm(server: Server, models: Json) -> ReadBack | None:
    page = server.text("/metrics")
    if models.get("owned_by") != "vllm" and "vllm:" not in page:
        return None
    version = _text(server.json("/version"), "version")
    info = server.json("/server_info?config_format=json")
    config = _object(info, "vllm_config")
    cache = metrics.labels(page, "vllm:cache_config_info")
    cap = _number(_object(config, "scheduler_config"), "max_num_seqs")
    model = _object(config, "model_config")
    compute = proven(model.get("dtype"), "/server_info model_config.dtype")
    cache_dtype = _object(config, "cache_config").get("cache_dtype", cache.get("cache_dtype"))
    numbers = Numbers(
        weights=_quantized(model.get("quantization"), "/server_info model_config.quantization"),
        kv_cache=proven(cache_dtype, "cache_dtype of /metrics vllm:cache_config_info")
        or _as_compute(cache_dtype, compute),
        compute=compute,
    )
    kept = {key: config[key] for key in ("model_config", "cache_config", "scheduler_config") if key in config}
    return ReadBack(
        engine=Engine.VLLM,
        version=version,
        model=_text(models, "root") or _text(model, "model"),
        numbers=numbers,
        cap=cap,
        cap_source="/server_info scheduler_config.max_num_seqs",
        facts=flatten({"version": version, "v1_models": models, "cache_config_info": cache, **kept}),
    )


def _sglang(server: Server, models: Json) -> ReadBack | None:
    info = server.json("/server_info") or server.json("/get_server_info")
    model = server.json("/model_info") or server.json("/get_model_info")
    if models.get("owned_by") != "sglang" and "mem_fraction_static" not in info:
        return None
    compute = proven(info.get("dtype"), "/server_info dtype")
    numbers = Numbers(
        weights=_quantized(info.get("quantization"), "/server_info quantization"),
        kv_cache=proven(info.get("kv_cache_dtype"), "/server_info kv_cache_dtype")
        or _as_compute(info.get("kv_cache_dtype"), compute),
        compute=compute,
    )
    cap, source = _sglang_cap(info)
    states = info.get("internal_states")
    plain = {key: value for key, value in info.items() if not isinstance(value, dict | list)}
    return ReadBack(
        engine=Engine.SGLANG,
        version=_text(info, "version"),
        model=_text(model, "model_path") or _text(info, "model_path"),
        numbers=numbers,
        cap=cap,
        cap_source=source,
        facts=flatten(
            {
                **{key: plain.pop(key) for key in _SGLANG_FIRST if key in plain},
                "model_info": model,
                "internal_states": len(states) if isinstance(states, list) else None,
                **plain,
            }
        ),
    )


_SGLANG_FIRST = (
    "version",
    "model_path",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "max_running_requests",
    "max_total_num_tokens",
    "context_length",
    "attention_backend",
    "tp_size",
    "dp_size",
)


def _sglang_cap(info: Json) -> tuple[int | None, str]:
    """The cap in effect per data-parallel replica times their number, where given; else the flag's echo."""
    states = info.get("internal_states")
    per_replica = [
        number
        for state in (states if isinstance(states, list) else [])
        if isinstance(state, dict) and (number := _number(state, "effective_max_running_requests_per_dp")) is not None
    ]
    if per_replica:
        return sum(per_replica), "/server_info internal_states effective_max_running_requests_per_dp"
    return _number(info, "max_running_requests"), "/server_info max_running_requests"


def _tensorrt_llm(server: Server, models: Json) -> ReadBack | None:
    version = _text(server.json("/version"), "version")
    page = server.text("/metrics")
    if models.get("owned_by") != "tensorrt_llm" and not (version and page.lstrip().startswith("[")):
        return None
    figures = metrics.parse(page)
    cap = figures.get("trtllm:maxBatchSizeStatic", 0.0) or figures.get("trtllm:maxNumActiveRequests", 0.0)
    return ReadBack(
        engine=Engine.TENSORRT_LLM,
        version=version,
        model=_text(models, "root") or None,
        cap=int(cap) or None,
        cap_source="/metrics maxBatchSizeStatic",
        facts=flatten({"version": version, "v1_models": models, "metrics": figures}),
    )


# ---------------------------------------------------------------- small readings


def _entry(listed: Json, name: str | None) -> Json:
    """The model of that name in `/v1/models`, else the first."""
    data = listed.get("data")
    entries = [one for one in data if isinstance(one, dict)] if isinstance(data, list) else []
    return next((one for one in entries if one.get("id") == name), entries[0] if entries else {})


def _object(parent: Json, key: str) -> Json:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _text(parent: Json, key: str) -> str | None:
    value = parent.get(key)
    return clean(value) if isinstance(value, str) and value else None


def _number(parent: Json, key: str) -> int | None:
    value = parent.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _file_type(shown: str | None) -> str | None:
    """llama.cpp's words for a file type (`Q4_K - Medium`, `all F32`, `mostly Q8_0`) as its short name."""
    if shown is None:
        return None
    plain = shown.lower().removeprefix("all ").removeprefix("mostly ").removesuffix(" (guessed)")
    return re.sub(r" - (small|medium|large)", lambda match: f"_{match[1][0]}", plain)


def _given(value: str) -> Fact | None:
    return proven(value, "llama.cpp")


def _quantized(value: object, source: str) -> Fact | None:
    """An engine's name of a method that changes weights at load time (`fp8`); a dtype is none."""
    fact = proven(value, source)
    return None if fact is not None and fact.value in FLOATS else fact


def _as_compute(cache_dtype: object, compute: Fact | None) -> Fact | None:
    """`auto` means the compute dtype, in vLLM as in SGLang."""
    if cache_dtype == "auto" and compute is not None:
        return Fact(compute.value, compute.evidence, f"kv cache auto = {compute.source}")
    return None
