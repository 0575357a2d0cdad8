"""The sampler as a process: starts, writes, hears, ends with its parent, and tells what happened to it or to a device."""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from servegate_action import telemetry
from servegate_action.errors import AcceleratorLost, StorageFailed, TelemetryUnavailable
from servegate_action.records import DeviceSample, TelemetrySample, TelemetryStatic
from servegate_action.telemetry.child import LocalChild, LocalHost
from servegate_action.telemetry.nvml import sees_host_pids
from tests.support import fake_nvml

GPU = """
gpu GPU-a NVIDIA H100 80GB HBM3
energy_start 5000000
at 0 power 90000
at 0 memory 500000000
at 0 processes 4242
"""
BUSY = "while True: pass"
IDLE = "import signal; signal.pause()"
PARENT = """
import pathlib, signal, sys
from servegate_action import telemetry
with telemetry.sampling(backend="cpu", uuids=(), pids=None, path=pathlib.Path(sys.argv[1])) as sampler:
    print(sampler._child.pid, flush=True)
    signal.pause()
"""
OFTEN = 50_000_000


class Host:
    """A local host that remembers its child."""

    def __init__(self, environment: dict[str, str] | None = None) -> None:
        self._host = LocalHost(environment)
        self.child: LocalChild | None = None

    def start(self, arguments: object, *, output: Path) -> LocalChild:
        assert isinstance(arguments, list)
        self.child = self._host.start(arguments, output=output)
        return self.child

    @property
    def process(self) -> psutil.Process:
        assert self.child is not None
        return psutil.Process(self.child.pid)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.jsonl"


def gpu_host(library: Path, tmp_path: Path, scenario: str = GPU) -> Host:
    file = tmp_path / "scenario"
    file.write_text(scenario)
    return Host(fake_nvml.environment(library, file))


def without_library(tmp_path: Path) -> Host:
    return Host({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})


def until(condition: Callable[[], object], *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def samples(path: Path) -> list[TelemetrySample]:
    return [TelemetrySample.model_validate_json(line) for line in path.read_text().splitlines()[1:]]


@contextmanager
def running(code: str) -> Iterator[int]:
    child = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield child.pid
    finally:
        child.kill()
        child.wait()


def test_the_file_is_the_static_record_and_then_samples(library: Path, tmp_path: Path, path: Path) -> None:
    host = gpu_host(library, tmp_path)
    with telemetry.sampling(backend="nvidia", uuids=("GPU-a",), pids=None, path=path, host=host) as sampler:
        until(lambda: path.read_text().count("\n") > 5)
        sampler.check()
        latest = sampler.latest()
    assert TelemetryStatic.model_validate_json(path.read_text().splitlines()[0]) == sampler.static
    assert latest is not None
    assert latest.devices[0].power_mw == 90_000
    found = samples(path)
    assert [one.t_ns for one in found] == sorted(one.t_ns for one in found)
    assert abs(found[0].t_ns - time.monotonic_ns()) < 60e9
    assert path.read_text().endswith("\n")


def test_a_device_that_is_lost_is_raised_each_time_and_nothing_is_lost_of_the_other(
    library: Path, tmp_path: Path, path: Path
) -> None:
    second = GPU.replace("GPU-a", "GPU-b") + "at 700 lost 1\n"
    host = gpu_host(library, tmp_path, GPU + second)
    with telemetry.sampling(backend="nvidia", uuids=(), pids=None, path=path, host=host) as sampler:

        def lost() -> AcceleratorLost | None:
            try:
                sampler.check()
            except AcceleratorLost as error:
                return error
            return None

        until(lost)
        assert "GPU-b is gone: GPU is lost (NVML error 15)" in str(lost())
        count = len(samples(path))
        until(lambda: len(samples(path)) > count + 3)
    assert all(one.devices[0].uuid == "GPU-a" for one in samples(path))


def test_the_floor_is_bare_power_memory_and_whoever_is_there(library: Path, tmp_path: Path) -> None:
    floor = telemetry.floor("nvidia", (), samples=5, host=gpu_host(library, tmp_path))
    device = floor.devices[0]
    assert (device.power_mw, device.memory_bytes, device.process_ids) == (90_000, 500_000_000, (4242,))
    assert (device.energy_mj, device.utilization_percent) == (None, None)


@pytest.mark.parametrize("accelerator,expected", [("auto", "nvidia"), ("nvidia", "nvidia"), ("cpu", "cpu")])
def test_the_backend_is_chosen_by_what_is_there(library: Path, tmp_path: Path, accelerator: str, expected: str) -> None:
    host = gpu_host(library, tmp_path)
    assert accelerator in ("auto", "nvidia", "cpu")
    assert telemetry.choose(accelerator, host=host) == expected  # type: ignore[arg-type]


def test_without_the_library_auto_means_cpu_unless_a_gpu_is_expected(tmp_path: Path) -> None:
    host = without_library(tmp_path)
    assert telemetry.choose("auto", host=host) == "cpu"
    for accelerator, expected in (("auto", True), ("nvidia", False)):
        with pytest.raises(TelemetryUnavailable, match=r"libnvidia-ml\.so\.1 was not found") as caught:
            telemetry.choose(accelerator, gpu_expected=expected, host=host)  # type: ignore[arg-type]
        assert "container action gets no GPU of its own" in caught.value.next_step


@pytest.mark.parametrize("code", [4, 9, 18])
def test_a_gpu_that_cannot_be_read_is_never_measured_as_a_cpu(library: Path, tmp_path: Path, code: int) -> None:
    with pytest.raises(TelemetryUnavailable, match=f"NVML error {code}"):
        telemetry.choose("auto", host=gpu_host(library, tmp_path, f"init {code}\n"))


def test_a_failed_start_raises_before_anything_is_measured(library: Path, tmp_path: Path, path: Path) -> None:
    host = gpu_host(library, tmp_path, "init 18\n")
    with (
        pytest.raises(TelemetryUnavailable, match="different versions") as caught,
        telemetry.sampling(backend="nvidia", uuids=(), pids=None, path=path, host=host),
    ):
        pytest.fail("it must not begin")
    assert "reboot" in caught.value.next_step


def test_a_driver_that_hangs_at_the_start_is_given_up(library: Path, tmp_path: Path, path: Path) -> None:
    host = gpu_host(library, tmp_path, "init_hangs 1\n" + GPU)
    with (
        pytest.raises(TelemetryUnavailable, match="did not answer within 0 s") as caught,
        telemetry.sampling(backend="nvidia", uuids=(), pids=None, path=path, host=host, start_timeout_s=0.4),
    ):
        pytest.fail("it must not begin")
    assert "a hung GPU or driver" in caught.value.why
    assert not psutil.pid_exists(host.child.pid if host.child else 0)


def test_more_gpus_than_the_stack_holds_are_not_averaged(library: Path, tmp_path: Path, path: Path) -> None:
    host = gpu_host(library, tmp_path, GPU + GPU.replace("GPU-a", "GPU-b"))
    with (
        pytest.raises(TelemetryUnavailable, match="said to hold 1 GPU, but 2 would be measured") as caught,
        telemetry.sampling(backend="nvidia", uuids=(), pids=None, path=path, host=host, gpu_count=1),
    ):
        pytest.fail("it must not begin")
    assert "name the stack's own in gpu_uuids" in caught.value.next_step
    with telemetry.sampling(
        backend="nvidia", uuids=("GPU-b",), pids=None, path=path, host=host, gpu_count=1
    ) as sampler:
        assert [device.uuid for device in sampler.static.devices] == ["GPU-b"]


def test_who_is_on_the_gpus_beside_the_named_ones_is_in_the_file(library: Path, tmp_path: Path, path: Path) -> None:
    host = gpu_host(library, tmp_path, GPU + GPU.replace("GPU-a", "GPU-b"))
    told = sees_host_pids()
    with telemetry.sampling(backend="nvidia", uuids=("GPU-b",), pids=lambda: (77,), path=path, host=host) as sampler:
        until(lambda: len(samples(path)) > 12)
        sampler.check()
    found = samples(path)
    assert {device.uuid for one in found for device in one.others or ()} == {"GPU-a"}
    assert {one.stack_processes for one in found} == {None, *([(77,)] if told else [])}
    assert {device.uuid for one in found for device in one.devices} == {"GPU-b"}


def test_the_stacks_own_processes_are_told_when_no_gpu_is_named_too(library: Path, tmp_path: Path, path: Path) -> None:
    host = gpu_host(library, tmp_path, GPU)
    with telemetry.sampling(backend="nvidia", uuids=(), pids=lambda: (77,), path=path, host=host) as sampler:
        until(lambda: len(samples(path)) > 12)
        sampler.check()
    told = [(77,)] if sees_host_pids() else []
    assert {one.stack_processes for one in samples(path)} == {None, *told}


def test_the_floor_knows_the_gpus_beside_the_named_ones(library: Path, tmp_path: Path) -> None:
    host = gpu_host(library, tmp_path, GPU + GPU.replace("GPU-a", "GPU-b"))
    floor = telemetry.floor("nvidia", ("GPU-b",), samples=5, host=host)
    assert floor.others == (DeviceSample(uuid="GPU-a", memory_bytes=500_000_000, process_ids=(4242,)),)


def test_the_block_ends_the_process_quickly(path: Path) -> None:
    host = Host()
    with telemetry.sampling(backend="cpu", uuids=(), pids=None, path=path, host=host):
        process = host.process
        until(lambda: len(path.read_text().splitlines()) > 1)
        started = time.monotonic()
    assert not process.is_running()
    assert time.monotonic() - started < telemetry.sampler.STOP_TIMEOUT_S + 1


def test_an_error_in_the_block_ends_the_process_too(path: Path) -> None:
    host = Host()
    processes: list[psutil.Process] = []

    def interrupted() -> None:
        with telemetry.sampling(backend="cpu", uuids=(), pids=None, path=path, host=host):
            processes.append(host.process)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not processes[0].is_running()


def test_a_sampler_that_is_killed_is_missed(path: Path) -> None:
    host = Host()
    with telemetry.sampling(backend="cpu", uuids=(), pids=None, path=path, host=host) as sampler:
        host.process.kill()
        until(lambda: host.process.status() == psutil.STATUS_ZOMBIE)
        with pytest.raises(TelemetryUnavailable, match="killed by signal 9"):
            sampler.check()


def test_a_driver_that_stops_answering_is_noticed(path: Path) -> None:
    host = Host()
    with telemetry.sampling(backend="cpu", uuids=(), pids=None, path=path, host=host) as sampler:
        sampler.check()
        host.process.send_signal(signal.SIGSTOP)
        until(lambda: host.process.status() == psutil.STATUS_STOPPED)
        sampler.check()
        sampler._grown -= telemetry.sampler.SILENCE_S + 1  # as if so much time had passed
        with pytest.raises(AcceleratorLost, match="the driver has stopped answering"):
            sampler.check()
        host.process.send_signal(signal.SIGCONT)


def test_ctrl_c_is_left_to_the_parent_and_sigterm_ends_cleanly(path: Path) -> None:
    child = LocalHost().start(["sample", "--backend", "cpu"], output=path)
    until(lambda: path.exists() and path.read_text().count("\n") > 2)
    process = psutil.Process(child.pid)
    process.send_signal(signal.SIGINT)
    count = path.read_text().count("\n")
    until(lambda: path.read_text().count("\n") > count)
    process.send_signal(signal.SIGTERM)
    until(lambda: child.poll() is not None)
    assert child.poll() == 0
    assert path.read_text().endswith("\n")
    child.stop(1.0)


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM])
def test_the_sampler_ends_when_its_parent_is_killed(path: Path, death: signal.Signals) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(death)
    parent.wait()
    parent.stdout.close()
    until(lambda: not psutil.pid_exists(pid), seconds=10)


def test_a_full_disk_is_said_as_such() -> None:
    with (
        pytest.raises(StorageFailed, match="No space left on device"),
        telemetry.sampling(backend="cpu", uuids=(), pids=None, path=Path("/dev/full")),
    ):
        pytest.fail("it must not begin")


def test_a_folder_that_does_not_exist_is_said_as_such(tmp_path: Path) -> None:
    with (
        pytest.raises(StorageFailed, match="No such file or directory"),
        telemetry.sampling(backend="cpu", uuids=(), pids=None, path=tmp_path / "none" / "t.jsonl"),
    ):
        pytest.fail("it must not begin")


# ---------------------------------------------------------------- elsewhere


class Elsewhere:
    """A child whose streams come through pipes and that hears nothing, as a container's would."""

    def __init__(self, arguments: Sequence[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "servegate_action.telemetry", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )

    def output(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with self.process.stdout as out, self.process.stderr as err, selectors.DefaultSelector() as selector:
            for stream in (out, err):
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    data = os.read(key.fd, 100)  # pieces of lines, as they come through a socket
                    if not data:
                        selector.unregister(key.fileobj)
                    yield (data, None) if key.fileobj is out else (None, data)

    def status(self) -> int | None:
        return self.process.wait()

    def stop(self, timeout_s: float) -> None:
        self.process.terminate()
        self.process.wait(timeout_s)


def elsewhere(library: Path, tmp_path: Path, scenario: str = GPU) -> telemetry.RemoteHost:
    file = tmp_path / "scenario"
    file.write_text(scenario)
    return telemetry.RemoteHost(lambda arguments: Elsewhere(arguments, fake_nvml.environment(library, file)))


def test_a_sampler_elsewhere_writes_the_same_file(library: Path, tmp_path: Path, path: Path) -> None:
    host = elsewhere(library, tmp_path)
    assert telemetry.choose("auto", host=host) == "nvidia"
    with telemetry.sampling(backend="nvidia", uuids=(), pids=None, path=path, host=host) as sampler:
        until(lambda: path.read_text().count("\n") > 5)
        sampler.check()
    assert sampler.static.devices[0].uuid == "GPU-a"
    assert samples(path)[0].devices[0].power_mw == 90_000


def test_a_device_lost_elsewhere_is_lost_here(library: Path, tmp_path: Path, path: Path) -> None:
    host = elsewhere(library, tmp_path, GPU + "at 500 lost 1\n")
    with telemetry.sampling(backend="nvidia", uuids=(), pids=None, path=path, host=host) as sampler:
        until(lambda: any(not one.devices for one in samples(path)))
        with pytest.raises(AcceleratorLost, match="GPU-a is gone"):
            sampler.check()


def test_a_failed_start_elsewhere_is_told_as_here(library: Path, tmp_path: Path) -> None:
    with pytest.raises(TelemetryUnavailable, match="NVML error 9"):
        telemetry.choose("nvidia", host=elsewhere(library, tmp_path, "init 9\n"))


# ---------------------------------------------------------------- the CPU and its process tree


def test_cpu_time_and_memory_are_those_of_the_tree(path: Path) -> None:
    tree = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])"
    with running(tree) as pid:
        with telemetry.sampling(backend="cpu", uuids=(), pids=lambda: (pid,), path=path, interval_ns=OFTEN) as sampler:
            until(lambda: len(samples(path)) > 12)
        found = [one.devices[0] for one in samples(path)]
        for member in psutil.Process(pid).children():
            member.kill()
    assert "resident memory" in str(sampler.static.memory_counter)
    busy = [one.utilization_percent for one in found if one.utilization_percent is not None][1:]
    assert max(busy) > 5.0
    assert max(busy) <= 100.0
    assert max(len(one.process_ids or ()) for one in found) == 2
    assert max(one.memory_bytes or 0 for one in found) > 5 * 2**20


def test_the_past_of_a_process_that_is_followed_late_does_not_count(path: Path) -> None:
    busy_then_idle = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\nprint(1, flush=True)\n" + IDLE  # fmt: skip
    child = subprocess.Popen([sys.executable, "-c", busy_then_idle], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    with telemetry.sampling(backend="cpu", uuids=(), pids=lambda: (child.pid,), path=path, interval_ns=OFTEN):
        until(lambda: len(samples(path)) > 6)
    child.kill()
    child.communicate()
    shares = [one.devices[0].utilization_percent for one in samples(path)]
    assert max(share for share in shares if share is not None) < 5.0


def test_processes_that_come_later_are_found_and_the_gone_ones_leave_nothing(path: Path) -> None:
    known: list[int] = []
    with telemetry.sampling(backend="cpu", uuids=(), pids=lambda: tuple(known), path=path, interval_ns=OFTEN):
        until(lambda: len(samples(path)) > 2)
        assert samples(path)[-1].devices[0].process_ids == ()
        assert samples(path)[-1].devices[0].memory_bytes == 0
        assert samples(path)[-1].devices[0].utilization_percent is None
        with running(IDLE) as pid:
            known.append(pid)
            until(lambda: samples(path)[-1].devices[0].process_ids == (pid,))
        until(lambda: samples(path)[-1].devices[0].process_ids == ())
        assert samples(path)[-1].devices[0].memory_bytes == 0


def test_the_events_are_json_lines_on_standard_error(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "servegate_action.telemetry", "probe", "--backend", "nvidia"],
        env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5
    assert json.loads(done.stderr)["kind"] == "TelemetryUnavailable"
    assert done.stdout == ""
