"""Policy from the base, the candidate from the head."""

from __future__ import annotations

import pytest

from servegate_action.config.merge import merge
from servegate_action.errors import ConfigError

BASE = """\
version: 1
gate: g
model: {name: m}
stacks:
  baseline: {label: a, process: {command: [a, "{port}"]}}
  candidate: {label: b, process: {command: [b, "{port}"]}}
workload: {cells: [{name: c, prompt_tokens: 9, output_tokens: 9, concurrency: 1}]}
limits: {ttft_p95: 5%}
"""


def test_the_candidate_comes_from_the_head() -> None:
    merged = merge(BASE, BASE.replace("label: b", "label: new"), file="f")
    assert merged.config.stacks.candidate.label == "new"
    assert merged.edits == ()


def test_a_loosened_limit_is_announced_and_does_not_count() -> None:
    merged = merge(BASE, BASE.replace("5%", "50%"), file="f")
    assert str(merged.config.limits.ttft_p95) == "5%"
    assert merged.edits == ("limits.ttft_p95: 5% → 50%",)


def test_keys_that_appear_or_vanish_are_edits() -> None:
    merged = merge(BASE, BASE.replace("limits: {ttft_p95: 5%}", "slo: {ttft_p95_ms: 900}"), file="f")
    assert merged.edits == ("limits: {'ttft_p95': '5%'} → (not set)", "slo: (not set) → {'ttft_p95_ms': 900}")


def test_a_broken_policy_in_the_head_is_an_edit_and_no_error() -> None:
    assert merge(BASE, BASE.replace("5%", "none"), file="f").edits == ("limits.ttft_p95: 5% → none",)


def test_a_broken_candidate_in_the_head_is_an_error_at_its_line() -> None:
    with pytest.raises(ConfigError, match=r"f:6: stacks.candidate.lable: unknown key"):
        merge(BASE, BASE.replace("label: b", "lable: b"), file="f")


def test_a_head_without_a_candidate_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"stacks.candidate: required key is missing"):
        merge(BASE, BASE.replace('  candidate: {label: b, process: {command: [b, "{port}"]}}\n', ""), file="f")


def test_a_broken_base_is_an_error_that_says_base() -> None:
    with pytest.raises(ConfigError, match=r"f \(base\):8"):
        merge(BASE.replace("5%", "none"), BASE, file="f")


def test_a_head_that_is_no_yaml_is_an_error() -> None:
    with pytest.raises(ConfigError, match="not YAML"):
        merge(BASE, "a: [", file="f")


def test_long_values_are_shortened_in_the_announcement() -> None:
    (edit,) = merge(BASE, BASE.replace("name: m", f"name: {'m' * 90}"), file="f").edits
    assert edit.endswith("…")


def test_what_the_candidate_now_says_of_itself_counts_and_is_told() -> None:
    merged = merge(BASE, BASE.replace("{label: b,", "{label: b, gpu_count: 2, quantization: fp8,"), file="f")
    assert merged.config.stacks.candidate.gpu_count == 2
    assert merged.edits == ()
    assert merged.claims == (
        "stacks.candidate.gpu_count: (not set) → 2",
        "stacks.candidate.quantization: (not set) → fp8",
    )
