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


CANDIDATE = 'candidate: {label: b, process: {command: [b, "{port}"]}}'


def with_candidate(more: str, *, kind: str = 'process: {command: [b, "{port}"]}') -> str:
    """The base's file with another candidate."""
    return BASE.replace(CANDIDATE, f"candidate: {{label: b, {kind}{more}}}")


def endpoint(url: str, launches: str = "fixed") -> str:
    """The base's file with a candidate that already runs."""
    return with_candidate("", kind=f"endpoint: {{url: '{url}', launches: {launches}}}")


def test_what_the_candidate_now_says_of_itself_counts_and_is_told() -> None:
    merged = merge(BASE, BASE.replace("{label: b,", "{label: b, gpu_count: 2, quantization: fp8,"), file="f")
    assert merged.config.stacks.candidate.gpu_count == 2
    assert merged.edits == ()
    assert merged.claims == (
        "stacks.candidate.gpu_count: 1 → 2",
        "stacks.candidate.quantization: (not set) → fp8",
    )


@pytest.mark.parametrize(
    ("more", "claim"),
    [
        (", engine: vllm", "stacks.candidate.engine: auto → vllm"),
        (", served_model: other", "stacks.candidate.served_model: (not set) → other"),
        (", gpu_uuids: [GPU-1, GPU-2]", "stacks.candidate.gpu_uuids: (not set) → GPU-1, GPU-2"),
        (", env: [HF_TOKEN, KEY=s3cret]", "stacks.candidate.env: (not set) → HF_TOKEN, KEY=…"),
    ],
)
def test_each_thing_that_a_reviewer_should_see_is_told(more: str, claim: str) -> None:
    assert merge(BASE, with_candidate(more), file="f").claims == (claim,)


def test_another_value_of_a_variable_is_told_and_not_shown() -> None:
    merged = merge(with_candidate(", env: [KEY=old]"), with_candidate(", env: [KEY=n3w]"), file="f")
    assert merged.claims == ("stacks.candidate.env: KEY=… → KEY=… (other values)",)


def test_another_kind_of_stack_is_told_with_what_it_brings() -> None:
    head = with_candidate("", kind="endpoint: {url: 'https://evil.example', api_key_env: HF_TOKEN}")
    assert merge(BASE, head, file="f").claims == (
        "stacks.candidate: process → endpoint",
        "stacks.candidate.endpoint.url: (not set) → https://evil.example",
        "stacks.candidate.endpoint.api_key_env: (not set) → HF_TOKEN",
    )


def test_the_gpus_that_a_container_is_given_are_told() -> None:
    image = "a@sha256:" + "0" * 64
    base, head = (with_candidate("", kind=f"container: {{image: '{image}', gpus: {count}}}") for count in (1, 2))
    assert merge(base, head, file="f").claims == ("stacks.candidate.container.gpus: 1 → 2",)


def test_the_baseline_of_the_head_is_an_edit_and_does_not_count() -> None:
    merged = merge(BASE, BASE.replace("[a,", "[sleep,"), file="f")
    assert merged.config.stacks.baseline.process is not None
    assert merged.config.stacks.baseline.process.command[0] == "a"
    assert len(merged.edits) == 1


def test_a_candidate_cannot_choose_a_pool_of_its_own() -> None:
    """With two pools named, the two stacks need not run on the same accelerators."""
    merged = merge(BASE, with_candidate(", gpu_pool: faster"), file="f")
    assert merged.config.stacks.candidate.gpu_pool is None
    assert merged.edits == ("stacks.candidate.gpu_pool: (not set) → faster",)
    assert merged.claims == ()


def test_a_candidate_cannot_leave_the_pool_that_the_base_gives_it() -> None:
    merged = merge(with_candidate(", gpu_pool: h200"), BASE, file="f")
    assert merged.config.stacks.candidate.gpu_pool == "h200"
    assert merged.edits == ("stacks.candidate.gpu_pool: h200 → (not set)",)


@pytest.mark.parametrize(
    "base",
    [BASE, endpoint("http://10.0.0.7:8000", "unknown"), endpoint("http://10.0.0.8:8000")],
    ids=["a process", "not said to be fixed", "another address"],
)
def test_a_candidate_cannot_say_by_itself_that_its_launches_are_fixed(base: str) -> None:
    merged = merge(base, endpoint("http://10.0.0.7:8000"), file="f")
    assert merged.config.stacks.candidate.endpoint is not None
    assert merged.config.stacks.candidate.endpoint.launches == "unknown"
    assert merged.edits == ("stacks.candidate.endpoint.launches: unknown → fixed",)
    assert "INCONCLUSIVE" in merged.held


def test_launches_that_the_base_says_are_fixed_stay_so() -> None:
    base = endpoint("http://10.0.0.7:8000")
    merged = merge(base, base.replace("label: b", "label: new"), file="f")
    assert merged.config.stacks.candidate.endpoint is not None
    assert merged.config.stacks.candidate.endpoint.launches == "fixed"
    assert (merged.edits, merged.claims, merged.held) == ((), (), "")
