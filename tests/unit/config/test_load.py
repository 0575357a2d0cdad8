"""Reading `.servegate.yml`: every problem at once, at its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servegate_action.config.limits import Limits, MetricName, Rounds
from servegate_action.config.load import dump, load, read_tree
from servegate_action.config.models import Config
from servegate_action.config.starter import GATE
from servegate_action.config.workload import Lognormal, Uniform
from servegate_action.errors import ConfigError, ExitCode
from servegate_action.records import Side

GOOD = """\
version: 1
gate: g
model: {name: m}
stacks:
  baseline:
    label: a
    process: {command: [a, "{port}"]}
  candidate:
    label: b
    endpoint: {url: "http://10.0.0.7:8000"}
workload:
  cells:
    - {name: chat, prompt_tokens: 512, output_tokens: "uniform(1, 9)", concurrency: [1, 16], weight: 6}
    - name: long
      prompt_tokens: lognormal(900, 0.5)
      output_tokens: 7
      rate_per_second: 2.5
"""


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, file="f.yml")
    assert caught.value.exit_code is ExitCode.USAGE
    return [str(problem) for problem in caught.value.problems]


def only(text: str) -> str:
    (found,) = problems(text)
    return found


def test_a_good_file_is_read_with_its_defaults() -> None:
    config = load(GOOD, file="f.yml")
    chat, long = config.workload.cells
    assert chat.output_tokens == Uniform(low=1, high=9)
    assert long.prompt_tokens == Lognormal(mean=900, sigma=0.5)
    assert chat.concurrency == (1, 16)
    assert config.rounds.looks == (4, 6, 8)
    assert config.status_context == "servegate/g"
    assert config.limits.of(MetricName.TTFT_P95, in_cell=True).value == 0.10
    assert config.stacks.of(Side.CANDIDATE).label == "b"


def test_what_is_dumped_reads_back_equal() -> None:
    config = load(GOOD + "limits: {default: 7%, gpu_utilization: 3pp, cells: {ttft_p95: 12.5%}}\n", file="f.yml")
    assert load(dump(config), file="again") == config


def test_the_starter_is_well_formed() -> None:
    assert load(GATE, file="starter").rounds.looks == (4, 6, 8)


@pytest.mark.parametrize(
    ("least", "most", "looks"), [(4, 8, (4, 6, 8)), (3, 8, (4, 6, 8)), (4, 9, (4, 6, 8)), (3, 4, (4,)), (2, 3, (2,))]
)
def test_looks_are_the_even_rounds_and_never_more_than_were_allowed(least: int, most: int, looks: tuple[int]) -> None:
    assert Rounds(min=least, max=most).looks == looks


def test_failures_may_reach_to_the_tail() -> None:
    assert Limits.model_validate({"failed_share": "5%"}).failed_share == 0.05


def test_a_default_of_the_mix_leaves_the_cells_their_own() -> None:
    """`default: 20%` for all metrics over the mix: a cell still may lose 5 % of its p95 TPOT, and no more."""
    limits = Limits.model_validate({"default": "20%"})
    assert str(limits.of(MetricName.TPOT_P95, in_cell=False)) == "20%"
    assert str(limits.of(MetricName.TPOT_P95, in_cell=True)) == "5%"
    both = Limits.model_validate({"default": "20%", "cells": {"default": "7%"}})
    assert str(both.of(MetricName.TPOT_P95, in_cell=True)) == "7%"


def test_one_concurrency_needs_no_list() -> None:
    assert load(GOOD.replace("[1, 16]", "4"), file="f").workload.cells[0].concurrency == (4,)


def test_every_problem_is_reported_in_the_order_of_the_lines() -> None:
    text = GOOD.replace("version: 1", "version: 2").replace("label: a", "lable: a").replace("weight: 6", "weight: -1")
    found = problems(text)
    assert [int(line.split(":")[1]) for line in found] == sorted(int(line.split(":")[1]) for line in found)
    assert len(found) == 4  # version, unknown lable, missing label, weight
    assert any("f.yml:6: stacks.baseline.lable: unknown key; did you mean `label`?" in line for line in found)
    assert any("stacks.baseline.label: required key is missing" in line for line in found)


@pytest.mark.parametrize(
    ("change", "by", "line", "says"),
    [
        ("gate: g", "gate: g\ngate: h", 3, "duplicate key; first used in line 2"),
        ("gate: g", "<<: {gate: g}", 2, "merge keys are not supported"),
        ("gate: g", "gate: g\n? [a, b]\n: 1", 3, "a key must be a plain word"),
        ("gate: g", "gate: 2026-11-30", 2, "has no meaning here"),
        ("gate: g", "gate: .nan", 2, "has no meaning here"),
        ("gate: g", "gate: {", 4, "not YAML"),
        ("gate: g", 'gate: "a b"', 2, "string should match pattern"),
        ("concurrency: [1, 16]", "concurrency: [1, 1]", 13, "listed twice"),
        ("concurrency: [1, 16]", "concurrency: [1, 16], rate_per_second: 3", 13, "exactly one of concurrency"),
        ("name: long", "name: chat", 11, "two cells have the same name"),
        ('"uniform(1, 9)"', "uniform(1, 9)", 13, "in quotes"),
        ('"uniform(1, 9)"', '"uniform(9, 1)"', 13, "low 9 is above high 1"),
        ('"uniform(1, 9)"', '"uniform(1.5, 9)"', 13, "two whole numbers"),
        ('"uniform(1, 9)"', '"normal(1, 9)"', 13, "is no length"),
        ("prompt_tokens: 512", "prompt_tokens: 0", 13, "greater than 0"),
        ("prompt_tokens: 512", 'prompt_tokens: "512"', 13, "is no length"),
        ('process: {command: [a, "{port}"]}', "process: {command: []}", 7, "at least 1 item"),
        (
            'process: {command: [a, "{port}"]}',
            "served_model: x",
            5,
            "exactly one of process, container, endpoint is needed; found none",
        ),
        ('process: {command: [a, "{port}"]}', 'container: {image: "x/y:latest"}', 7, "is named by a tag"),
        ("http://10.0.0.7:8000", "10.0.0.7", 10, "string should match pattern"),
        ("label: b", "label: b\n    env: [A-B]", 10, "string should match pattern"),
        ("label: b", "label: b\n    env: [GH_TOKEN]", 10, "GH_TOKEN belongs to the job"),
        ("label: b", "label: b\n    env: [GITHUB_ENV=x]", 10, "GITHUB_ENV belongs to the job"),
        ('"http://10.0.0.7:8000"', '"http://a", api_key_env: GITHUB_TOKEN', 10, "GITHUB_TOKEN belongs to the job"),
        ('"http://10.0.0.7:8000"', '"http://a", api_key_env: INPUT_X', 10, "INPUT_X belongs to the job"),
        ('"http://10.0.0.7:8000"', '"http://a", api_key_env: ACTIONS_RUNTIME_TOKEN', 10, "belongs to the job"),
        ('"http://10.0.0.7:8000"', '"http://a", api_key_env: KEY=v', 10, "string should match pattern"),
    ],
)
def test_a_mistake_is_named_at_its_line(change: str, by: str, line: int, says: str) -> None:
    assert change in GOOD
    found = problems(GOOD.replace(change, by, 1))
    assert any(text.startswith(f"f.yml:{line}:") and says in text for text in found), found


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("limits: {default: 0%}", "a limit of 0 cannot be shown"),
        ("limits: {default: 5}", "5 has no unit"),
        ("limits: {default: five}", "'five' is no limit"),
        ("limits: {default: 2pp}", "default: limited in percent"),
        ("limits: {gpu_utilization: 2%}", "gpu_utilization is limited in percentage points"),
        ("limits: {failed_share: -1%}", "'-1%'"),
        ("limits: {failed_share: -0.1}", "greater than or equal to 0"),
        ("limits: {failed_share: 6%}", "0.06 is more than 5%: from there on a p95 lies on a failed request"),
        ("limits: {failed_share: 0.051}", "0.051 is more than 5%"),
        ("limits: {advisory: [speed]}", "input should be 'tokens_per_gpu_hour'"),
        ("rounds: {min: 6, max: 4}", "min 6 is above max 4"),
        ("rounds: {min: 3, max: 3}", "no even number lies between min 3 and max 3"),
        ("rounds: {min: 3, max: 3}", "write 4"),
        ("cost: {gpu_hour_usd: 1, pue: 1.3, grid_efficiency: 0.6}", "give one, never both"),
        ("cost: {gpu_hour_usd: {baseline: 1}}", "one for baseline and one for candidate"),
        ("cost: {gpu_hour_usd: 1, idle: {baseline: {scale_to_zero: {after_s: 9}}}}", "scale_to_zero needs traffic"),
        ("cost: {gpu_hour_usd: 1, idle: {baseline: cold}}", "'cold' is no idle policy"),
        ("cost: {gpu_hour_usd: 1, traffic: {}}", "exactly one of requests_per_hour, hourly_profile, trace"),
        ("cost: {gpu_hour_usd: 1, traffic: {hourly_profile: [1, 2]}}", "needs 24 numbers, found 2"),
        (f"cost: {{gpu_hour_usd: 1, traffic: {{hourly_profile: {[0] * 24}}}}}", "zero all day"),
        (
            "cost: {gpu_hour_usd: 1, traffic: {requests_per_hour: 9}, idle: {candidate: {scale_to_zero: {after_s: 9}}}}",
            "stacks.candidate is an endpoint, which servegate cannot stop",
        ),
    ],
)
def test_impossible_policies_are_refused(block: str, says: str) -> None:
    assert says in only(GOOD + block + "\n")


def test_a_workload_needs_cells_or_a_trace_and_not_both() -> None:
    head = GOOD[: GOOD.index("workload:")]
    assert "exactly one of cells and trace" in only(head + "workload: {seed: 1}\n")
    assert load(head + "workload: {trace: {path: t.jsonl}}\n", file="f").workload.trace is not None


def test_an_empty_file_says_how_to_begin() -> None:
    assert "servegate config init" in only("# nothing\n")


def test_an_alias_bomb_is_refused_before_it_expands() -> None:
    levels = [f"{chr(98 + i)}: &{chr(98 + i)} [{','.join([f'*{chr(97 + i)}'] * 9)}]" for i in range(9)]
    assert "expands to more than any gate needs" in only("a: &a [1]\n" + "\n".join(levels))


def test_an_endless_alias_is_refused() -> None:
    assert "not YAML" in only("a: &a [*a]\n")


def test_a_huge_file_is_refused_unread() -> None:
    assert "larger than 1 MiB" in only("#" * (1 << 20) + "\nversion: 1\n")


def test_problems_of_the_text_and_of_the_values_do_not_mix() -> None:
    assert read_tree("a: 1\na: 2\n", file="f").problems


def test_the_reference_names_every_key() -> None:
    text = (Path(__file__).parents[3] / "docs/configuration.md").read_text(encoding="utf-8")
    schema = Config.model_json_schema()
    keys = {key for part in (schema, *schema["$defs"].values()) for key in part.get("properties", {})}
    assert sorted(key for key in keys if not re.search(rf"\b{key}\b", text)) == []
