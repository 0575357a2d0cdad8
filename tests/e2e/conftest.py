"""A container engine, the two images and a runner of actions, each started once and only when a test asks for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.world import ROOT, Engine, Runner, find_runner_python

PRINTED = re.compile(r"(\w+)=(\S+)")


def _rig(rig: str, *words: str) -> str:
    return subprocess.run([rig, *words], check=True, stdout=subprocess.PIPE, text=True).stdout


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine named by DOCKER_HOST, else one that the rig starts for us and stops again."""
    rig = os.environ.get("SERVEGATE_ENGINE_RIG")
    if "DOCKER_HOST" in os.environ:
        yield Engine.of(os.environ)
    elif rig:
        variables = dict(PRINTED.findall(_rig(rig, "env")))
        was_up = Engine.of({**os.environ, **variables}).answers()
        _rig(rig, "up")
        try:
            yield Engine.of({**os.environ, **variables})
        finally:
            if not was_up:
                _rig(rig, "down")
    else:
        pytest.skip("no container engine: set DOCKER_HOST, or SERVEGATE_ENGINE_RIG (tests/README.md)")


@pytest.fixture(scope="session")
def image(engine: Engine) -> str:
    """The image of the action, built as the runner builds it: the Dockerfile's folder as context, no arguments."""
    engine.docker("build", "-t", "servegate-e2e", str(ROOT))
    return "servegate-e2e"


@pytest.fixture(scope="session")
def llama_image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real engine as a container image."""
    context = tmp_path_factory.mktemp("llama")
    for file in (*(ROOT / "tests/e2e/llama").iterdir(), ROOT / "requirements/demo.txt"):
        shutil.copy(file, context)
    engine.docker("build", "-t", "servegate-e2e-llama", str(context))
    return "servegate-e2e-llama"


@pytest.fixture
def runner(engine: Engine, image: str, tmp_path: Path) -> Runner:
    """Starts the action in its container as GitHub's runner does."""
    program = os.environ.get("SERVEGATE_MINI_RUNNER")
    if not program:
        pytest.skip("no runner of container actions: set SERVEGATE_MINI_RUNNER (tests/README.md)")
    if engine.loses_exit_codes(image):
        engine = engine.keeping_exit_codes(tmp_path / "bin")
    return Runner(
        program=Path(program), python=find_runner_python(), engine=engine, image=image, work=tmp_path / "work"
    )
