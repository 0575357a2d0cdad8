from __future__ import annotations

import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path

import pytest

import servegate_action.report as room
from servegate_action.analysis.judgement import Judgement
from servegate_action.records import Side
from servegate_action.report import comment, view
from servegate_action.report.sections import sections
from servegate_action.report.wording import Wording, wording
from tests.support import judgements, recordings

EN, ES = wording("en"), wording("es")
TEXTS = [field.name for field in fields(Wording) if isinstance(getattr(EN, field.name), str)]


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("name", TEXTS)
def test_both_languages_say_it_with_the_same_placeholders(name: str) -> None:
    english, spanish = getattr(EN, name), getattr(ES, name)
    assert english.strip()
    assert spanish.strip()
    assert placeholders(english) == placeholders(spanish)


@pytest.mark.parametrize("name", ["words", "word_meaning", "outcomes", "evidence", "mark_words", "sides", "metrics"])
def test_both_languages_have_a_word_for_every_member(name: str) -> None:
    english, spanish = getattr(EN, name), getattr(ES, name)
    assert isinstance(english, Mapping)
    assert set(english) == set(spanish) == set(next(iter(english)).__class__.__members__.values())


def test_every_phrase_is_used() -> None:
    folder = Path(room.__file__).parent
    sources = "".join(
        path.read_text()
        for path in folder.rglob("*")
        if path.suffix in {".py", ".html"} and "wording" not in path.parts
    )
    unused = [name for name in TEXTS if name != "code" and not re.search(rf"\bw\.{name}\b", sources)]
    assert unused == []


def test_english_says_every_sentence_as_it_is() -> None:
    assert EN.say("anything at all") == "anything at all"


def test_spanish_says_what_it_knows_and_leaves_the_rest() -> None:
    assert ES.say("anything at all") == "anything at all"
    assert ES.translated("anything at all") is None
    assert ES.say("quantization") == "cuantización"
    assert ES.say("check failed: the run did not come to its end: its state is `running`") == (
        "comprobación fallida: la ejecución no llegó a su fin: su estado es `running`"
    )


@dataclass(frozen=True)
class Listening(Wording):
    """Spanish that keeps what it was asked to say and did not know, the parts of sentences too."""

    unknown: set[str] = field(default_factory=set)

    def say(self, sentence: str) -> str:
        said = self.translated(sentence)
        if said is None:
            self.unknown.add(sentence)
        return said or sentence


# What stacks, machines and errors are called, and numbers: nobody translates these.
NAMES = re.compile(
    r"|[\d., ]+(e\+\d+)?%?( GiB)?|bf16|fp8_e4m3|(\w+: )?/server_info|GPM SM_UTIL|AMD EPYC 9R14|NVIDIA H100 80GB HBM3|GPU-[\w-]+"
    r"|vLLM 0\.33|vllm|Luminal build 412|vllm serve .*|python serve\.py .*|max_num_seqs( = 64)?|sha256:b+|meta-llama/\S+ a+"
    r"|thermal slowdown for 4 s|12x the stream ended without a finish_reason|use more client processes: load\.processes: 4"
)
SCENES = {
    "killed": recordings.killed(),
    "of endpoints": recordings.passing(endpoint=True),
    "other answers": recordings.passing(numerics_passed=False),
    "memory kept": recordings.passing(release_real=False, scale_to_zero=True, requests_per_hour=20.0),
    "a slow client": recordings.passing(certificate_passed=False),
    "other prompts": recordings.passing(extra_prompt_tokens=3),
    "in open loop": recordings.passing(
        cells=(recordings.SceneCell("chat@2", None, rate=2.0),), electricity=False, requests_per_hour=7200.0
    ),
    "another batch": recordings.passing(batch_cap={Side.BASELINE: 64, Side.CANDIDATE: 32}),
}
MADE: dict[str, Callable[[], Judgement]] = {
    **{word.value: make for word, make in judgements.ALL.items()},
    **{
        make.__name__: make
        for make in (judgements.slower, judgements.on_cpu, judgements.without_power, judgements.with_failures)
    },
    "without rounds": judgements.without_rounds,
    **{name: partial(recordings.judged, scene) for name, scene in SCENES.items()},
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE.keys())
def test_spanish_knows_whatever_a_report_says(make: Callable[[], Judgement]) -> None:
    """Every name of a check, every label, note and sentence, of whatever kind of run."""
    j = make()
    listening = Listening(**{one.name: getattr(ES, one.name) for one in fields(Wording)})
    view.headline(j, listening)
    assert len(sections(j, listening)) > 3
    for check in j.checks:
        view.check_name(check, listening)
    assert sorted(text for text in listening.unknown if not NAMES.fullmatch(text)) == []


def test_sentences_in_a_row_and_with_their_place_are_known_when_each_is() -> None:
    assert ES.translated("round 2, candidate, chat/1: no slo is declared; and 3 more") == (
        "ronda 2, candidato, chat/1: no se ha declarado ningún SLO; y 3 más"
    )
    assert ES.translated("no slo is declared; anything at all") is None
    assert ES.translated("chat/1: anything at all") is None
    assert ES.translated("somewhere: no slo is declared") is None


def test_spanish_headlines_are_built_from_the_metric_that_the_english_one_names() -> None:
    reject = view.headline(judgements.rejected(), ES).whole
    assert reject == (
        "p95 de TPOT long/2: +10,3 % (intervalo del 96 %: +9,4 … +11,2, 6 rondas), permitido +5 % (y 1 más)"
    )
    open_ = view.headline(judgements.inconclusive(), ES).whole
    assert open_.startswith("8 de 8 rondas usadas. p95 de TPOT: +1,1 %")
    assert open_.endswith("; unas 16 rondas lo decidirían")
    passed = view.headline(judgements.passed(), ES).whole
    assert passed.startswith(
        "Las 16 métricas están dentro de sus límites. La más ajustada: p95 de TTFT con arranques en frío: "
    )
    assert view.headline(judgements.invalid(), ES).whole.startswith("Difiere: cuantización; referencia pesos bf16, ")


def test_a_spanish_comment_speaks_spanish_in_all_its_own_words() -> None:
    text = comment(judgements.rejected(), language="es")
    for phrase in ("rechazado", "Referencia **vLLM 0.33**", "Permitido", "Por qué, y qué hacer", "Ruido y método"):
        assert phrase in text
    for english in ("Baseline", "Verdict", "allowed", "What to do", "rounds,"):
        assert english not in text.partition("<details>")[0]


def test_a_slower_pass_is_worded_as_such() -> None:
    assert view.headline(judgements.slower(), ES).whole.startswith("Más lento, dentro de lo permitido: ")
