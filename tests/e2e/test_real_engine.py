"""A whole gate in the action's container, on a real engine: two llama.cpp containers that serve a real small model.

What is fast enough depends on the machine that this runs on, so that the verdict may be undecided. Everything else must
hold: the stacks are siblings on the run's own network and gone afterwards, what they are is proven, and every place that
tells the verdict tells the same one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace

import pytest

from servegate_action import demo, gate
from servegate_action.store import RunDirectory
from tests.e2e.desk import CLIENTS, Desk
from tests.e2e.world import Engine


def gate_file(image: str, model: str) -> str:
    """A change of one flag. The limits are wide: two rounds on a shared CPU tell little more than that it works.

    One thread each: two that wait for each other crawl on a machine whose second core is taken.
    """

    def stack(label: str, context: int) -> str:
        flags = f'[--model, /model/{model}, --alias, smollm2, --port, "{{port}}", --threads, "1"'
        return f"""\
    label: {label}
    container:
      image: {image}
      allow_tag: true
      command: {flags}, --parallel, "4", --ctx, "{context}"]
      volumes: ["./model:/model:ro"]
      shm_size: 64m
    ready_timeout_s: 300
    stop_timeout_s: 5
"""

    return f"""\
version: 1
gate: smollm2
model: {{name: smollm2, path: model/{model}, quantization: q4_1, batch_size: 4}}
stacks:
  baseline:
{stack("short context", 256)}
  candidate:
{stack("long context", 512)}
workload:
  seed: 7
  cells: [{{name: chat, prompt_tokens: 8, output_tokens: 6, concurrency: 2, requests: 80}}]
rounds: {{min: 2, max: 2}}
limits: {{default: 100%, cells: {{default: 100%}}, gpu_utilization: 90pp}}
numerics: {{prompts: 4, output_tokens: 8}}
accelerator: cpu
"""


@pytest.fixture
def smollm2(desk: Desk, llama_image: str) -> Desk:
    """The pull request's checkout, with the weights where the gate's file says."""
    source = demo.model_path()
    if source is None:
        pytest.skip("no small model here: scripts/bootstrap demo")
    folder = desk.runner.workspace / "model"
    folder.mkdir(parents=True)
    shutil.copy(source, folder)
    there = replace(desk, gate="smollm2")
    there.propose(gate_file(llama_image, source.name))
    return there


def test_two_real_servers_in_containers_are_measured_judged_and_told(smollm2: Desk, engine: Engine) -> None:
    ended = smollm2.run()
    verdict = json.loads(smollm2.evidence("verdict.json"))
    failed = {row["name"]: row["detail"] for row in verdict["checks"] if not row["ok"]}
    # a load generator that could not keep up on a busy machine is honest, too; anything else that is INVALID is not
    allowed = ("PASS", "INCONCLUSIVE", "INVALID") if failed.keys() <= CLIENTS else ("PASS", "INCONCLUSIVE")
    assert verdict["word"] in allowed, f"{failed}\n{ended.log}"

    smollm2.says_the_same_everywhere(ended, verdict["word"])
    assert smollm2.states()[0] == "pending"
    assert engine.launched() == set()

    recording = json.loads(smollm2.evidence("recording.json"))
    assert (recording["state"], recording["numerics"]["alone"]["passed"]) == ("finished", True)
    assert [launch["state"] for launch in recording["launches"]] == ["complete"] * 4
    for identity in recording["identities"].values():
        assert proven(identity) == {"model": "proven", "quantization": "proven", "batch": "proven"}, identity
        assert identity["engine"] == "llama.cpp"
        assert "sha256:" in identity["container_digest"]
        assert identity["contradictions"] == []
    digests = {side: identity["model"]["digest"] for side, identity in recording["identities"].items()}
    assert len(set(digests.values())) == 1

    # as anybody can who downloads the artifact: the manifest holds, and the verdict follows from the recording
    assert gate.verify(RunDirectory(smollm2.runner.workspace / "servegate-report")).word.value == verdict["word"]


def proven(identity: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """How well each part of the first row is known."""
    return {part: identity[part]["evidence"] for part in ("model", "quantization", "batch")}
