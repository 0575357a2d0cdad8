"""Are both stacks the same model, quantization and batch size, and what else differs?"""

from __future__ import annotations

from typing import Any

import pytest

from servegate_action.analysis.identity_check import (
    differences,
    identity_checks,
    identity_summaries,
    sameness,
    weaker,
)
from servegate_action.analysis.judgement import HardCheck
from servegate_action.analysis.rounds import gather
from servegate_action.config.models import Config
from servegate_action.records import Absent, Evidence, Recording, Side
from tests.support.recordings import Built, build, passing

UNKNOWN = Absent(absent="the server does not say")


def recorded(part: str, side: Side, **changes: object) -> Recording:
    """The passing run with one part of one stack's identity changed."""
    recording = build(passing(rounds=0)).recording
    identity = recording.identities[side]
    changed = identity.model_copy(update={part: getattr(identity, part).model_copy(update=changes)})
    return recording.model_copy(update={"identities": {**recording.identities, side: changed}})


def checks(recording: Recording, config: Config | None = None) -> dict[str, HardCheck]:
    return {check.name: check for check in identity_checks(config or build(passing(rounds=0)).config, recording)}


def test_the_weaker_grade_of_evidence_counts() -> None:
    assert weaker(Evidence.PROVEN, Evidence.DECLARED) is Evidence.DECLARED
    assert weaker(Evidence.UNKNOWN, Evidence.PROVEN) is Evidence.UNKNOWN


def test_equal_and_proven_holds() -> None:
    found = checks(build(passing(rounds=0)).recording)
    assert all(check.ok for check in found.values())
    assert found["identity_model"].detail == (
        "same model on both sides, proven: meta-llama/Llama-3.1-8B-Instruct aaaaaaaaaaaa"
    )


@pytest.mark.parametrize(
    "part, changes, name, words",
    [
        ("model", {"digest": "c" * 64}, "identity_model", "the model differs"),
        ("quantization", {"weights": "fp8_e4m3"}, "identity_quantization", "the quantization differs"),
        ("quantization", {"kv_cache": "fp8_e5m2"}, "identity_quantization", "kv cache fp8_e5m2"),
        ("batch", {"cap": 32}, "identity_batch", "the batch size differs: baseline 64, candidate 32"),
    ],
)
def test_a_known_difference_is_invalid(part: str, changes: dict[str, Any], name: str, words: str) -> None:
    check = checks(recorded(part, Side.CANDIDATE, **changes))[name]
    assert not check.ok
    assert check.kind == "invalid"
    assert words in check.detail
    assert check.advice


@pytest.mark.parametrize(
    "part, changes, name, kind",
    [
        ("model", {"digest": UNKNOWN, "evidence": Evidence.UNKNOWN}, "identity_model", "invalid"),
        (
            "quantization",
            {"weights": UNKNOWN, "evidence": Evidence.UNKNOWN},
            "identity_quantization",
            "invalid",
        ),
        ("batch", {"cap": UNKNOWN, "evidence": Evidence.UNKNOWN}, "identity_batch", "inconclusive"),
    ],
)
def test_what_nobody_knows_or_declares_allows_no_pass(part: str, changes: dict[str, Any], name: str, kind: str) -> None:
    check = checks(recorded(part, Side.CANDIDATE, **changes))[name]
    assert not check.ok
    assert check.kind == kind
    assert "is unknown" in check.detail
    assert check.advice.startswith("declare ")


def test_a_digest_that_one_side_only_declares_is_compared_by_the_model_s_name() -> None:
    declared = {"digest": UNKNOWN, "evidence": Evidence.DECLARED}
    assert checks(recorded("model", Side.CANDIDATE, **declared))["identity_model"].ok
    other = checks(recorded("model", Side.CANDIDATE, name="other/model", **declared))["identity_model"]
    assert not other.ok
    assert other.kind == "invalid"


def test_parts_of_the_tuple_that_one_side_does_not_tell_are_named() -> None:
    recording = recorded("quantization", Side.CANDIDATE, activations=UNKNOWN, evidence=Evidence.DECLARED)
    parts = sameness(recording)
    assert not isinstance(parts, Absent)
    assert parts[1].same
    assert parts[1].detail.endswith("not known on both sides: activations")
    assert checks(recording)["identity_quantization"].ok


@pytest.mark.parametrize("known, holds", [("fp8_e4m3", False), ("q8_0", False), ("bf16", True)])
def test_a_quantized_cache_on_one_side_is_not_excused_by_a_declaration_of_the_weights(known: str, holds: bool) -> None:
    recording = recorded("quantization", Side.CANDIDATE, kv_cache=known, evidence=Evidence.DECLARED)
    ours = recording.identities[Side.BASELINE]
    silent = ours.quantization.model_copy(update={"kv_cache": UNKNOWN, "evidence": Evidence.DECLARED})
    identities = {**recording.identities, Side.BASELINE: ours.model_copy(update={"quantization": silent})}
    check = checks(recording.model_copy(update={"identities": identities}))["identity_quantization"]
    assert check.ok is holds
    assert check.kind == "invalid"
    assert (f"the KV cache is {known} on one side, and nobody says" in check.detail) is not holds


@pytest.mark.parametrize(
    "evidence, seen, holds",
    [
        (Evidence.DECLARED, 64, True),
        (Evidence.DECLARED, 127, True),
        (Evidence.DECLARED, 128, False),
        (Evidence.PROVEN, 128, True),
    ],
)
def test_a_declared_cap_is_held_against_the_batch_that_ran(evidence: Evidence, seen: int, holds: bool) -> None:
    recording = recorded("batch", Side.CANDIDATE, evidence=evidence)
    found = identity_checks(build(passing(rounds=0)).config, recording, {Side.BASELINE: 8, Side.CANDIDATE: seen})
    said = [check.detail for check in found if not check.ok]
    expected = f"candidate: the batch size is declared as 64, and {seen} requests were decoded at once"
    assert said == ([] if holds else [expected])


def test_stacks_that_were_not_identified_allow_no_pass() -> None:
    recording = build(passing(rounds=0)).recording.model_copy(update={"identities": {}})
    assert sameness(recording) == Absent(absent="the stacks were not identified")
    found = checks(recording)
    assert found["identity"].kind == "inconclusive"
    assert not found["identity"].ok
    assert identity_summaries(recording, dict.fromkeys(Side, 0)) == ()


def test_answers_that_differ_are_invalid() -> None:
    check = checks(build(passing(rounds=0, numerics_passed=False)).recording)["numerics"]
    assert not check.ok
    assert check.kind == "invalid"
    assert check.detail == "the answers differ: 14 of 20 answers differ"


def test_log_probabilities_are_told_beside_answers_that_agree_or_why_they_are_not() -> None:
    recording = build(passing(rounds=0)).recording
    assert checks(recording)["numerics"].detail.endswith(
        "; log-probabilities of the same tokens differ by 0.0012 on average, by 0.0003 when the baseline is asked twice "
        "(255 of 256 tokens are the same)"
    )
    assert not isinstance(recording.numerics, Absent)
    silent = recording.numerics.model_copy(update={"logprobs": Absent(absent="the candidate: it gives none")})
    check = checks(recording.model_copy(update={"numerics": silent}))["numerics"]
    assert check.ok
    assert check.detail.endswith("; log-probabilities were not compared (the candidate: it gives none)")


def test_answers_that_were_not_compared_allow_no_pass() -> None:
    recording = build(passing(rounds=0)).recording
    absent = recording.model_copy(update={"numerics": Absent(absent="the run ended before")})
    check = checks(absent)["numerics"]
    assert not check.ok
    assert check.kind == "inconclusive"


NOT_ASKED = Absent(absent="nobody asked")


@pytest.mark.parametrize("name", ["long", "together"])
def test_answers_that_differ_only_when_asked_otherwise_are_invalid(name: str) -> None:
    scene = build(passing(rounds=0))
    assert not isinstance(scene.recording.numerics, Absent)
    bad = scene.recording.numerics.alone.model_copy(update={"passed": False, "reason": "0% of 8 are the same"})
    probe = scene.recording.numerics.model_copy(update={name: bad})
    found = checks(scene.recording.model_copy(update={"numerics": probe}))
    assert found["numerics"].ok
    check = found[f"numerics_{name}"]
    assert (check.ok, check.kind) == (False, "invalid")
    assert check.detail.endswith(" differ: 0% of 8 are the same")
    assert check.advice


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("long", {"prompt_tokens": 64.0}, True),
        ("long", {"prompt_tokens": 63.0}, False),
        ("together", {"concurrency": 2}, True),
        ("together", {"concurrency": None, "rate_per_second": 3.0}, True),
        ("together", {"concurrency": 1}, False),
    ],
)
def test_a_way_of_asking_is_missed_only_where_the_workload_wants_it(
    name: str, shape: dict[str, object], wanted: bool
) -> None:
    scene = build(passing(rounds=0))
    recording, probe = scene.recording, scene.recording.numerics
    assert not isinstance(probe, Absent)
    plan = recording.plan.model_copy(update={"cells": (recording.plan.cells[0].model_copy(update=shape),)})
    unasked = recording.model_copy(update={"plan": plan, "numerics": probe.model_copy(update={name: NOT_ASKED})})
    found = checks(unasked)
    assert (f"numerics_{name}" in found) is wanted
    if wanted:
        check = found[f"numerics_{name}"]
        assert (check.ok, check.kind) == (False, "inconclusive")
        assert check.detail.endswith("were not compared: nobody asked")
    numerics = scene.config.numerics.model_copy(update={"also": ()})
    assert f"numerics_{name}" not in checks(unasked, scene.config.model_copy(update={"numerics": numerics}))


def test_a_gate_without_the_numerics_probe_does_not_ask_for_it() -> None:
    config = build(passing(rounds=0)).config
    off = config.model_copy(update={"numerics": config.numerics.model_copy(update={"enabled": False})})
    absent = build(passing(rounds=0)).recording.model_copy(update={"numerics": Absent(absent="switched off")})
    assert "numerics" not in checks(absent, off)


def test_a_summary_tells_each_part_with_its_evidence_and_source() -> None:
    ours, theirs = identity_summaries(build(passing(rounds=0)).recording, {Side.BASELINE: 4, Side.CANDIDATE: 0})
    assert ours.engine == "vllm 0.33.0"
    assert theirs.engine == "other unknown"
    assert ours.batch == "64"
    assert "container: none (a process, not a container)" in theirs.details
    assert "server: max_num_seqs = 64" in ours.details


# ---------------------------------------------------------------- differences


def found(built: Built) -> dict[str, bool]:
    evidence = gather(built.config, built.recording, built.data)
    return {one.what: one.migration for one in differences(built.config, built.recording, evidence)}


def test_another_container_brings_the_migration_cost_and_another_engine_does_not() -> None:
    assert found(build(passing(rounds=1))) == {
        "kind of stack": False,
        "container": True,
        "engine": False,
        "engine version": False,
        "command": False,
        "server max_num_seqs": False,
    }


def test_two_processes_with_the_same_identity_differ_in_nothing() -> None:
    built = build(passing(rounds=1))
    identity = built.recording.identities[Side.CANDIDATE]
    recording = built.recording.model_copy(update={"identities": dict.fromkeys(Side, identity)})
    stacks = built.config.stacks.model_copy(update={"baseline": built.config.stacks.candidate})
    assert found(Built(built.config.model_copy(update={"stacks": stacks}), recording, built.data)) == {}


def test_another_pool_number_of_gpus_or_driver_is_told() -> None:
    built = build(passing(rounds=1))
    candidate = built.config.stacks.candidate.model_copy(update={"gpu_pool": "h200", "gpu_count": 2})
    stacks = built.config.stacks.model_copy(update={"candidate": candidate})
    data = dict(built.data)
    theirs = data["rounds/01-candidate"]
    assert not isinstance(theirs.telemetry, Absent)
    static = theirs.telemetry.model_copy(update={"driver": "590.10"})
    data["rounds/01-candidate"] = type(theirs)(theirs.requests, static, theirs.samples)
    moved = found(Built(built.config.model_copy(update={"stacks": stacks}), built.recording, data))
    assert moved["GPU pool"]
    assert moved["driver"]
    assert not moved["GPUs held"]


def test_without_a_driver_on_both_sides_nothing_is_said_of_it() -> None:
    assert "driver" not in found(build(passing(rounds=1, accelerator="cpu")))


def test_before_identification_only_the_configuration_differs() -> None:
    built = build(passing(rounds=0, endpoint=True))
    recording = built.recording.model_copy(update={"identities": {}})
    assert found(Built(built.config, recording, {})) == {}
    assert found(build(passing(rounds=0))).keys() >= {"kind of stack"}


@pytest.mark.parametrize(
    ("ours", "theirs", "shown"),
    [
        ("serve --ctx 256 --port 1", "serve --ctx 512 --port 1", ("… --ctx 256 …", "… --ctx 512 …")),
        ("serve --port 1", "serve --port 1 --fast", ("… 1", "… 1 --fast")),
        ("serve a a b", "serve a b", ("… a a …", "… a …")),
        ("old x", "new x", ("old …", "new …")),
        ("serve", "", ("serve", "")),
        ("serve x", "serve x", ("… x", "… x")),
    ],
)
def test_commands_are_shown_where_they_differ(ours: str, theirs: str, shown: tuple[str, str]) -> None:
    identities = {
        side: identity.model_copy(update={"command": tuple(command.split())})
        for command, (side, identity) in zip(
            (ours, theirs), build(passing(rounds=0)).recording.identities.items(), strict=True
        )
    }
    built = build(passing(rounds=0))
    recording = built.recording.model_copy(update={"identities": identities})
    evidence = gather(built.config, recording, built.data)
    found = [one for one in differences(built.config, recording, evidence) if one.what == "command"]
    assert [(one.baseline, one.candidate) for one in found] == ([] if shown[0] == shown[1] else [shown])
