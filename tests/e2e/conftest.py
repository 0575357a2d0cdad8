"""A container engine, the two images, a runner of actions and a pull request: made when a test asks for them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.desk import NUMBER, Desk, pull_request
from tests.e2e.world import ROOT, Engine, Job, Runner, find_runner_python
from tests.support.fake_github import FakeGitHub, World, serving, sha

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
    """A real engine as a container image. Its name says what it is, as the names of the engines' own images do."""
    context = tmp_path_factory.mktemp("llama")
    for file in (*(ROOT / "tests/e2e/llama").iterdir(), ROOT / "requirements/demo.txt"):
        shutil.copy(file, context)
    engine.docker("build", "-t", "servegate-e2e/llama.cpp", str(context))
    return "servegate-e2e/llama.cpp"


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


@pytest.fixture
def network(engine: Engine) -> Iterator[tuple[str, str]]:
    """A network as the runner makes one for a job, and the address of this machine on it."""
    name = "servegate-e2e"
    if name in engine.networks():
        engine.docker("network", "rm", name)
    engine.docker("network", "create", name)
    gateway = engine.docker("network", "inspect", name, "--format", "{{(index .IPAM.Config 0).Gateway}}")
    yield name, gateway
    engine.docker("network", "rm", "--force", name)


@pytest.fixture
def desk(runner: Runner, network: tuple[str, str]) -> Iterator[Desk]:
    """A pull request whose job runs here, in front of a GitHub of its own."""
    name, gateway = network
    world = World()
    world.add_pull(NUMBER)
    world.branches["main"] = world.pulls[NUMBER].base_sha
    with serving(FakeGitHub(world), host="0.0.0.0", name=gateway) as fake:
        job = Job(
            inputs={"github-token": "t0ken-of-the-job"},
            payload=pull_request(world),
            environment={"GITHUB_SHA": sha("merge"), "GITHUB_REPOSITORY": world.repository},
            api_url=fake.url,
            network=name,
        )
        yield Desk(runner, fake, job)
