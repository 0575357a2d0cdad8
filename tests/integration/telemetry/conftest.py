from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from servegate_action.records import DeviceSample, TelemetrySample, TelemetryStatic
from tests.support import fake_nvml

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Played:
    """What the sampler wrote under one scenario, or the error that a user gets instead."""

    static: TelemetryStatic | None
    samples: tuple[TelemetrySample, ...]
    problem: dict[str, str]

    @property
    def facts(self) -> TelemetryStatic:
        assert self.static is not None, self.problem
        return self.static

    def of(self, uuid: str) -> list[DeviceSample]:
        return [device for sample in self.samples for device in sample.devices if device.uuid == uuid]

    @property
    def errors(self) -> list[tuple[int, str]]:
        return [(sample.t_ns, sample.error) for sample in self.samples if sample.error is not None]


Play = Callable[..., Played]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_nvml.build(tmp_path_factory.mktemp("nvml"))


@pytest.fixture(scope="session")
def old_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver from before 510: no `_v3` process list, no memory v2, no GPM, no clock-event reasons."""
    return fake_nvml.build(
        tmp_path_factory.mktemp("nvml-old"),
        without=(
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlGpm*",
        ),
    )


class Driver:
    """One child under one library, for all scenarios: each run is a new `nvmlInit` on a clock that starts at 0."""

    def __init__(self, folder: Path) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fake_nvml.drive"],
            env=fake_nvml.environment(folder),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def play(
        self,
        scenario: str,
        ticks: int,
        uuids: Sequence[str],
        *,
        roots: Sequence[int] | None = None,
        host_pids: bool = True,
        busy_ms: int = 0,
    ) -> Played:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        order = {
            "scenario": scenario,
            "ticks": ticks,
            "uuids": uuids,
            "roots": roots,
            "host_pids": host_pids,
            "busy_ms": busy_ms,
        }
        print(json.dumps(order), file=self._child.stdin, flush=True)
        lines: list[str] = []
        while (line := self._child.stdout.readline()) != "\n":
            assert line, f"the child ended with {self._child.wait()}"
            lines.append(line)
        if lines[0].startswith('{"problem"'):
            return Played(None, (), json.loads(lines[0])["problem"])
        return Played(
            TelemetryStatic.model_validate_json(lines[0]),
            tuple(TelemetrySample.model_validate_json(line) for line in lines[1:]),
            {},
        )

    def close(self) -> None:
        self._child.communicate(timeout=10)


@pytest.fixture(scope="session")
def driver(library: Path) -> Iterator[Driver]:
    child = Driver(library)
    yield child
    child.close()


@pytest.fixture(scope="session")
def old_driver(old_library: Path) -> Iterator[Driver]:
    child = Driver(old_library)
    yield child
    child.close()


@pytest.fixture
def play(driver: Driver) -> Play:
    def run(
        scenario: str,
        *,
        ticks: int = 50,
        uuids: Sequence[str] = (),
        roots: Sequence[int] | None = None,
        host_pids: bool = True,
        busy_ms: int = 0,
    ) -> Played:
        return driver.play(scenario, ticks, uuids, roots=roots, host_pids=host_pids, busy_ms=busy_ms)

    return run


@pytest.fixture
def play_old(old_driver: Driver) -> Play:
    def run(scenario: str, *, ticks: int = 50, uuids: Sequence[str] = ()) -> Played:
        return old_driver.play(scenario, ticks, uuids)

    return run
