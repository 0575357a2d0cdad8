"""Whatever a run left behind, judging it neither fails nor passes what was not shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from servegate_action.analysis.checklist import judge, trace_csv, void_reason
from servegate_action.analysis.judgement import Judgement, Word
from servegate_action.analysis.metrics import LaunchData
from servegate_action.analysis.rounds import NO_DATA
from servegate_action.records import Absent, LaunchRecord, LaunchState, Recording, RequestRecord, Side
from tests.support.recordings import Built, SceneCell, build, passing

CELLS = (
    SceneCell("chat/2", 2, output_tokens=6, requests=72, ttft_ms=100, tpot_ms=40),
    SceneCell("rag@5", None, rate=5.0, output_tokens=4, requests=72, ttft_ms=30, tpot_ms=6),
)
WHOLE = build(
    passing(
        cells=CELLS,
        rounds=2,
        looks=(2,),
        noise=0.0002,
        request_noise=0.0002,
        scale_to_zero=True,
        slo_ttft_p95_ms=60_000,
    )
)

Launches = tuple[LaunchRecord, ...]


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that can be missing or wrong; `shows` is False when a PASS could still be right."""

    name: str
    of: Callable[[Built], Built]
    shows: bool = True


def recording(**changes: object) -> Callable[[Built], Built]:
    return lambda built: Built(built.config, built.recording.model_copy(update=changes), built.data)


def launches(change: Callable[[LaunchRecord], LaunchRecord | None]) -> Callable[[Built], Built]:
    def of(built: Built) -> Built:
        kept = [new for one in built.recording.launches if (new := change(one)) is not None]
        return Built(built.config, built.recording.model_copy(update={"launches": tuple(kept)}), built.data)

    return of


def files(change: Callable[[LaunchData], LaunchData]) -> Callable[[Built], Built]:
    return lambda built: Built(built.config, built.recording, {name: change(one) for name, one in built.data.items()})


def requests(change: Callable[[RequestRecord], RequestRecord | None]) -> Callable[[Built], Built]:
    def of(data: LaunchData) -> LaunchData:
        kept = tuple(new for one in data.requests if (new := change(one)) is not None)
        return LaunchData(kept, data.telemetry, data.samples)

    return files(of)


def one_side(side: Side, **changes: object) -> Callable[[Built], Built]:
    return launches(lambda one: one.model_copy(update=changes) if one.side is side else one)


DAMAGES = (
    Damage("killed", recording(state="running")),
    Damage("cancelled", recording(state="cancelled")),
    Damage("no identity", recording(identities={})),
    Damage("no numerics", recording(numerics=Absent(absent="not probed"))),
    Damage("no certificate", recording(certificates=())),
    Damage("no floor", recording(floor=None)),
    Damage("no counters", recording(telemetry=Absent(absent="no driver")), shows=False),
    Damage("no dialect", recording(dialect=None), shows=False),
    Damage("no launch", recording(launches=())),
    Damage("half a round", launches(lambda one: None if (one.round, one.side) == (2, Side.CANDIDATE) else one)),
    Damage("a failed launch", one_side(Side.CANDIDATE, state=LaunchState.FAILED, reason="it died")),
    Damage("a running launch", one_side(Side.BASELINE, state=LaunchState.RUNNING)),
    Damage("no cold start", one_side(Side.CANDIDATE, cold_start=None)),
    Damage("no idle block", one_side(Side.CANDIDATE, idle=None)),
    Damage("no release", one_side(Side.CANDIDATE, release=None), shows=False),
    Damage("no cells", one_side(Side.CANDIDATE, cells=())),
    Damage("no files", lambda built: Built(built.config, built.recording, {})),
    Damage("no samples", files(lambda data: LaunchData(data.requests, data.telemetry, ()))),
    Damage("no telemetry", files(lambda data: LaunchData(data.requests, Absent(absent="no file"), data.samples))),
    Damage("no requests", files(lambda data: LaunchData((), data.telemetry, data.samples))),
    Damage("a cut file", files(lambda data: LaunchData(data.requests[:-9], data.telemetry, data.samples))),
    Damage("no token", requests(lambda one: one.model_copy(update={"token_ns": (), "first_answer_ns": None}))),
    Damage("no usage", requests(lambda one: one.model_copy(update={"output_tokens": None, "token_source": None}))),
    Damage("all failed", requests(lambda one: one.model_copy(update={"ok": False, "error": "HTTP 500"}))),
    Damage("nothing sent", requests(lambda one: one.model_copy(update={"sent_ns": None}))),
    Damage(
        "one moment", requests(lambda one: one.model_copy(update={"token_ns": one.token_ns[:1] * len(one.token_ns)}))
    ),
    Damage("only warm-up", requests(lambda one: one if one.phase == "warmup" else None)),
)


def judged(built: Built) -> Judgement:
    return judge(built.config, built.recording, built.data)


def test_the_undamaged_run_passes() -> None:
    assert judged(WHOLE).word is Word.PASS, judged(WHOLE).headline


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=3, unique_by=lambda one: one.name))
def test_a_damaged_run_is_judged_in_full_and_never_passes(damages: list[Damage]) -> None:
    built = WHOLE
    for damage in damages:
        built = damage.of(built)
    judgement = judged(built)
    assert [row.number for row in judgement.rows] == list(range(1, 9))
    assert Judgement.model_validate_json(judgement.model_dump_json()) == judgement
    assert judgement.headline.startswith(judgement.word.value)
    if any(damage.shows for damage in damages):
        assert judgement.word is not Word.PASS
        assert judgement.headline
    trace_csv(built.recording, built.data)
    for record in built.recording.launches:
        void_reason(record, built.data.get(record.directory, NO_DATA), floor=built.recording.floor)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 40), st.sampled_from(list(Side)))
def test_a_run_cut_off_at_any_launch_is_judged_on_what_it_has(kept: int, side: Side) -> None:
    some = WHOLE.recording.launches[: kept % 5]
    cut: Recording = WHOLE.recording.model_copy(update={"launches": some, "state": "running"})
    data = {record.directory: WHOLE.data[record.directory] for record in some if record.side is side or kept % 2}
    judgement = judge(WHOLE.config, cut, data)
    assert judgement.word in (Word.INCONCLUSIVE, Word.INVALID)
    assert judgement.rounds_used <= len(some) // 2
