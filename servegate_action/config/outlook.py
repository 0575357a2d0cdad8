"""What is well-formed and still will not work on this machine: files, programs and variables that are not there.

For `servegate config check`, which may run on another machine than the gate: so these are notes, errors only if asked
for. It looks at names and existence, opens nothing, and refuses to start or to ask anything.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from servegate_action.config.models import Config
from servegate_action.config.stacks import Stack
from servegate_action.records import Side

_PLACEHOLDER = re.compile(r"\{[A-Za-z_]+\}")
_NO_DIGEST = "0" * 64
LEAST_ROUNDS = 4


def notes(config: Config, *, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    """Each as `key: what, and what follows`. Paths are relative to `folder`, as in a run."""
    for key, path, what in _paths(config):
        if path is not None and not (folder / path).exists():
            yield f"{key}: {path} is not on this machine; {what}"
    for side in Side:
        for note in _of_stack(config.stacks.of(side), folder=folder, environment=environment):
            yield f"stacks.{side}.{note}"
    if config.rounds.looks[0] < LEAST_ROUNDS:
        yield f"rounds: a look after {config.rounds.looks[0]} rounds shows gross changes only; give at least {LEAST_ROUNDS}"


def _paths(config: Config) -> Iterator[tuple[str, str | None, str]]:
    yield "model.path", config.model.path, "weights that cannot be hashed are only declared to be the same"
    if config.workload.trace is not None:
        yield "workload.trace.path", config.workload.trace.path, "without it there is no workload"
    if config.cost is not None and config.cost.traffic is not None:
        yield "cost.traffic.trace", config.cost.traffic.trace, "without it there is no traffic to price"
    yield "calibration", config.calibration, "it is written by `servegate calibrate`"


def _of_stack(stack: Stack, *, folder: Path, environment: Mapping[str, str]) -> Iterator[str]:
    words: tuple[str, ...] = ()
    if stack.process is not None:
        words = stack.process.command
        place = folder / (stack.process.cwd or ".")
        if not place.is_dir():
            yield f"process.cwd: {stack.process.cwd} is not on this machine; it is relative to the checkout"
        elif shutil.which(str(place / words[0]) if "/" in words[0] else words[0], path=environment.get("PATH")) is None:
            yield f"process.command: {words[0]} is no program on this machine"
    if stack.container is not None:
        words = stack.container.command
        if stack.container.image.endswith(f"@sha256:{_NO_DIGEST}"):
            yield "container.image: the digest is the starter's placeholder; `docker image inspect` tells the real one"
    given = [name.partition("=")[0] for name in stack.env if "=" not in name]
    if stack.endpoint is not None and stack.endpoint.api_key_env is not None:
        given.append(stack.endpoint.api_key_env)
    yield from (f"env: {name} is not set here, and would be passed on" for name in given if name not in environment)
    strange = {found for word in (*words, *stack.env) for found in _PLACEHOLDER.findall(word)} - {"{port}"}
    yield from (f"command: {found} stays as it is; only {{port}} is replaced" for found in sorted(strange))
