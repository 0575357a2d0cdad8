"""What the container tests act on: a container engine through its command line, and a runner of container actions.

The runner is a program outside this repository that does what `actions/runner` does with a container action: builds or
takes the image, passes `INPUT_*` and `GITHUB_*`, mounts workspace, file commands and the engine's socket, reads the file
commands back, and prints one line of JSON at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine, as its environment variables name it."""

    variables: Mapping[str, str]

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Engine:
        return cls(dict(environment))

    @property
    def socket(self) -> str:
        return self.variables.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")

    def answers(self) -> bool:
        """True when the engine is up."""
        return shutil.which("docker") is not None and self._run("version").returncode == 0

    def docker(self, *words: str) -> str:
        """One command of the engine's client; its output, without the last line's end."""
        done = self._run(*words)
        assert done.returncode == 0, f"docker {' '.join(words)}\n{done.stdout}{done.stderr}"
        return done.stdout.strip()

    def containers(self, image: str, *, exited: bool | None = None) -> set[str]:
        """Names of the containers of an image: all, only those that ended, or only those that still run."""
        found = set()
        for line in self.docker("ps", "--all", "--format", "{{.Names}}\t{{.Image}}\t{{.Status}}").splitlines():
            name, of, status = line.split("\t")
            if of.split("/")[-1].split(":")[0] == image and exited in (None, not status.startswith("Up")):
                found.add(name)
        return found

    def networks(self) -> set[str]:
        """Names of all networks."""
        return set(self.docker("network", "ls", "--format", "{{.Name}}").split())

    def launched(self) -> set[str]:
        """Names of all containers and networks that carry servegate's label: what a run starts, and should remove."""
        containers = self.docker("ps", "--all", "--filter", "label=servegate.run", "--format", "{{.Names}}")
        networks = self.docker("network", "ls", "--filter", "label=servegate.run", "--format", "{{.Name}}")
        return {*containers.split(), *networks.split()}

    def loses_exit_codes(self, image: str) -> bool:
        """Whether `run --rm` answers 0 whatever the container answered, as Podman 4.3's Docker API does."""
        done = self._run("run", "--rm", "--entrypoint", "sh", image, "-c", "exit 4")
        assert done.returncode in (0, 4), done.stderr
        return done.returncode == 0

    def keeping_exit_codes(self, folder: Path) -> Engine:
        """The same engine behind a client that leaves `--rm` out. Exited containers are then the caller's to remove."""
        real = shutil.which("docker", path=self.variables.get("PATH"))
        folder.mkdir()
        client = folder / "docker"
        client.write_text(
            "#!/usr/bin/env bash\n"
            'words=(); for word in "$@"; do [ "$word" = --rm ] || words+=("$word"); done\n'
            f'exec {real} "${{words[@]}}"\n',
            encoding="utf-8",
        )
        client.chmod(0o755)
        return Engine({**self.variables, "PATH": f"{folder}:{self.variables['PATH']}"})

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["docker", *words], env=dict(self.variables), capture_output=True, text=True, check=False)


@dataclass(frozen=True, slots=True)
class Job:
    """One use of the action in a job: what the workflow gives, and what the event says."""

    inputs: Mapping[str, str] = field(default_factory=dict)
    event: str = "pull_request"
    payload: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    api_url: str = "http://127.0.0.1:9"
    network: str | None = None
    stage: str = "main"


@dataclass(frozen=True, slots=True)
class Ended:
    """What the runner saw."""

    exit_code: int
    log: str
    outputs: Mapping[str, str]
    annotations: tuple[Mapping[str, str], ...]
    state: Mapping[str, str]
    summary_fits: bool

    @classmethod
    def read(cls, output: str, log: str) -> Ended:
        lines = output.strip().splitlines()
        assert lines, f"the runner printed no summary\n{log}"
        last = json.loads(lines[-1])
        return cls(
            exit_code=last["rc"],
            log=log,
            outputs=last["outputs"],
            annotations=tuple(last["annotations"]),
            state=last["state"],
            summary_fits=last["summary_ok"],
        )


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs the action's container as GitHub's runner does."""

    program: Path
    python: str
    engine: Engine
    image: str
    work: Path

    @property
    def workspace(self) -> Path:
        """The checkout, as the job sees it."""
        return self.work / "repo" / "repo"

    def put(self, name: str, text: str) -> None:
        """A file of the checkout."""
        path = self.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def start(self, job: Job) -> subprocess.Popen[str]:
        """Start the job's step. The caller waits for it with `finish`."""
        self.work.mkdir(parents=True, exist_ok=True)
        payload = self.work / f"payload-{job.stage}.json"
        payload.write_text(json.dumps(job.payload), encoding="utf-8")
        words = [self.python, str(self.program), str(ROOT), "--no-build", self.image, "--work", str(self.work)]
        words += ["--sock", self.engine.socket, "--event", job.event, "--payload", str(payload)]
        words += ["--api-url", job.api_url, "--stage", job.stage]
        if job.network is not None:
            words += ["--network", job.network]
        for name, value in job.inputs.items():
            words += ["--with", f"{name}={value}"]
        for name, value in job.environment.items():
            words += ["--env", f"{name}={value}"]
        return subprocess.Popen(
            words, env=dict(self.engine.variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self, process: subprocess.Popen[str], *, timeout_s: float = 300) -> Ended:
        """Wait for the step, and read what the runner saw."""
        output, log = process.communicate(timeout=timeout_s)
        for name in self.engine.containers(self.image, exited=True):
            self.engine.docker("rm", name)
        return Ended.read(output, log)

    def cancel(self, process: subprocess.Popen[str]) -> str:
        """Cancel as the runner does: SIGINT to the engine's client, 7.5 s, SIGTERM, 2.5 s, SIGKILL. Says what worked."""
        client = psutil.Process(process.pid).children()[0]
        for number, patience_s in ((signal.SIGINT, 7.5), (signal.SIGTERM, 2.5), (signal.SIGKILL, 30.0)):
            client.send_signal(number)
            with suppress(psutil.TimeoutExpired):
                client.wait(timeout=patience_s)
                return number.name
        raise AssertionError("the client outlived SIGKILL")

    def run(self, job: Job) -> Ended:
        """Start, and wait."""
        return self.finish(self.start(job))


def wait_until(process: subprocess.Popen[str], condition: Callable[[], bool], *, what: str) -> None:
    """Return when the condition holds; fail when the process ends before."""
    while not condition():
        try:
            process.wait(timeout=0.05)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"the step ended before {what}\n{process.communicate()[1]}")


def find_runner_python() -> str:
    """An interpreter that has the YAML library which the runner's program needs; raises when there is none."""
    for python in (
        sys.executable,
        "/usr/bin/python3",
        shutil.which("python3", path=os.defpath) or "python3",
        "python3",
    ):
        if subprocess.run([python, "-c", "import yaml"], capture_output=True, check=False).returncode == 0:
            return python
    raise RuntimeError("no Python here has the module yaml, which the runner needs: apt-get install python3-yaml")
