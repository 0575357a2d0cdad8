"""A stack that is a sibling container: created on the run's own network, ready, alive, stopped and removed.

The container gets what its configuration says and nothing else: no socket of the engine, no variables of the job, no
capabilities. It is reached at its own address on the run's network when servegate is in a container, too, and at a port on
loopback otherwise. Its output goes to the log with known secrets blanked.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servegate_action.config.stacks import ContainerStack
from servegate_action.errors import Cancelled, CannotMeasure, LaunchFailed, StackDied
from servegate_action.launch import ports
from servegate_action.launch.docker_world import (
    SIDE_LABEL,
    DockerWorld,
    digest_of,
    in_container,
    remove_container,
    translated,
)
from servegate_action.launch.environment import StackEnvironment, declared
from servegate_action.launch.readiness import Phases, Waiting, wait_until_ready
from servegate_action.launch.siblings import SiblingReader, gpu_requests, mount
from servegate_action.launch.stack import Launch, Ready, health_path, log_tail
from servegate_action.launch.supervisor import Log, descendants, start_ticks
from servegate_action.launch.volumes import Volume
from servegate_action.records import ColdStart

if TYPE_CHECKING:
    from docker.models.containers import Container
    from docker.models.images import Image

_PORT = "{port}"
_LOG_ENDS_S = 3.0
ENDED = ("exited", "dead")


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is created: decided before anything is."""

    words: tuple[str, ...]
    shown: tuple[str, ...]
    environment: StackEnvironment
    volumes: tuple[Volume, ...]
    port: int


@contextmanager
def launch_container(launch: Launch, stack: ContainerStack, world: DockerWorld) -> Iterator[RunningContainer]:
    """Create and start the container, wait until it serves, and remove it with the block."""
    requested_ns = time.monotonic_ns()
    plan = _prepare(launch, stack, world)
    image = world.image(stack.image, progress=launch.progress)
    running = RunningContainer(launch, stack, world, plan, image)
    try:
        running.start(requested_ns)
        phases = wait_until_ready(running.waiting())
        launch.progress(f"{launch.stack.label}: ready after {(phases.first_token_ns - requested_ns) / 1e9:.1f} s")
        running.became_ready(phases)
        yield running
    except (Cancelled, KeyboardInterrupt):
        running.stop_within(0.0)
        raise
    except BaseException:
        running.stop()
        raise
    running.stop()


def _prepare(launch: Launch, stack: ContainerStack, world: DockerWorld) -> _Plan:
    port = stack.port
    filled = [entry.replace(_PORT, str(port)) for entry in launch.stack.env]
    environment = declared(filled, environment=launch.environment, label=launch.stack.label)
    words = tuple(word.replace(_PORT, str(port)) for word in stack.command)
    paths = world.paths(launch.workspace)
    volumes = paths.volumes(stack.volumes, label=launch.stack.label)
    paths.check_existence(stack.volumes, label=launch.stack.label)
    return _Plan(words, environment.shown(words), environment, volumes, port)


class RunningContainer:
    """One launched container. `Running` to everybody else."""

    def __init__(self, launch: Launch, stack: ContainerStack, world: DockerWorld, plan: _Plan, image: Image) -> None:
        self._launch = launch
        self._stack = stack
        self._world = world
        self._plan = plan
        self._image = image
        self._container: Container | None = None
        self._output: _Output | None = None
        self._base_url = ""
        self._requested_ns = self._image_ready_ns = self._up_ns = 0
        self._ready: Ready | None = None
        self._removed = False

    @property
    def ready(self) -> Ready:
        """How it became ready."""
        if self._ready is None:
            raise CannotMeasure(f"the stack '{self._launch.stack.label}' is not ready")
        return self._ready

    @property
    def log_path(self) -> Path:
        """Where its output goes."""
        return self._launch.log_path

    @property
    def volume(self) -> SiblingReader:
        """Reads what only the container's volumes hold."""
        return SiblingReader(self._world, self._image, self._plan.volumes)

    # ------------------------------------------------------------ start

    def start(self, requested_ns: int) -> None:
        """Create, start, and follow the output."""
        label = self._launch.stack.label
        self._requested_ns, self._image_ready_ns = requested_ns, time.monotonic_ns()
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with translated(f"the container of the stack '{label}' cannot be created"):
            self._container = self._world.client.containers.create(**self._options())
        with translated(f"the container of the stack '{label}' cannot be started"):
            self._container.start()
            self._up_ns = time.monotonic_ns()
            self._output = _Output(self._container, Log(str(self.log_path), self._plan.environment.secrets))
            self._container.reload()
        self._base_url = self._address(self._container.attrs)

    def _options(self) -> dict[str, Any]:
        stack, world = self._stack, self._world
        options: dict[str, Any] = {
            "image": self._image.id,
            "name": f"servegate-{world.run_id}-{self._launch.side}-{os.urandom(3).hex()}",
            "command": list(self._plan.words) or None,
            "environment": dict(self._plan.environment.variables),
            "labels": {**world.labels(), SIDE_LABEL: str(self._launch.side)},
            "mounts": [mount(volume) for volume in self._plan.volumes],
            "shm_size": stack.shm_size,
            "device_requests": gpu_requests(stack.gpus, self._launch.stack.gpu_uuids),
            "network": world.network.name,
            "detach": True,
        }
        if stack.entrypoint is not None:
            options["entrypoint"] = list(stack.entrypoint)
        if stack.user is not None:
            options["user"] = stack.user
        if stack.ipc_host:
            # the engine refuses a shm size next to the host's
            options["ipc_mode"] = "host"
            del options["shm_size"]
        if not world.by_address:
            options["ports"] = {f"{self._plan.port}/tcp": (ports.LOOPBACK, None)}
        return options

    def _address(self, attrs: dict[str, Any]) -> str:
        """Where it is reached. By number, not by name: not every engine has a name server, and a lookup takes time."""
        world = self._world
        settings = attrs["NetworkSettings"]
        if world.by_address:
            address = settings["Networks"].get(world.network.name, {}).get("IPAddress")
            found = f"{address}:{self._plan.port}" if address else None
        else:
            published = (settings.get("Ports") or {}).get(f"{self._plan.port}/tcp")
            found = f"{ports.LOOPBACK}:{published[0]['HostPort']}" if published else None
        if found is None:
            self._check_start()
            raise LaunchFailed(
                f"the container of the stack '{self._launch.stack.label}' got no address from the engine",
                why="it ended at once, or the engine's network is broken",
                next_step="see the end of its log",
                log_tail=log_tail(self.log_path),
            )
        return f"http://{found}"

    def waiting(self) -> Waiting:
        """What to wait for, and how to notice that waiting is in vain."""
        health = health_path(self._launch.stack)
        return Waiting(
            label=self._launch.stack.label,
            base_url=self._base_url,
            health=None if health is None else health.replace(_PORT, str(self._plan.port)),
            limit_s=self._launch.stack.ready_timeout_s,
            first_token=self._launch.first_token,
            log_path=self.log_path,
            check=self._check_start,
            port_opened=self._check_start,
            why_not=self._unreachable,
            proxied=not self._world.by_address,
        )

    def _unreachable(self) -> str:
        expected = (
            f"it was expected on port {self._plan.port} of the container, on every address; "
            "a server that listens on localhost only cannot be reached from outside (--host 0.0.0.0)"
        )
        if in_container() and self._world.me is None:
            expected += (
                "; besides, servegate runs in a container that this engine does not know, and may not reach its network"
            )
        return expected

    def became_ready(self, phases: Phases) -> None:
        """Keep how it went."""
        assert self._container is not None  # noqa: S101 - ready comes after started
        cold_start = ColdStart(
            requested_ns=self._requested_ns,
            image_ready_ns=self._image_ready_ns,
            process_up_ns=self._up_ns,
            port_open_ns=phases.port_open_ns,
            healthy_ns=phases.healthy_ns,
            first_token_ns=phases.first_token_ns,
            page_cache="as found",
        )
        self._ready = Ready(
            base_url=self._base_url,
            pid=next(iter(self.pids()), None),
            container_id=self._container.id,
            container_digest=digest_of(self._image, self._stack.image),
            cold_start=cold_start,
            command=(self._stack.image, *self._plan.shown),
        )

    def _check_start(self) -> None:
        if ended := self._how_it_ended():
            raise LaunchFailed(
                f"the stack '{self._launch.stack.label}' ended before it was ready: {ended}",
                next_step="see the end of its log",
                log_tail=log_tail(self.log_path),
            )

    # ------------------------------------------------------------ alive

    def alive(self) -> None:
        """Return when it still runs, else raise StackDied."""
        if ended := self._how_it_ended():
            raise StackDied(
                f"the stack '{self._launch.stack.label}' died while it was measured: {ended}",
                next_step="see the end of its log",
                log_tail=log_tail(self.log_path),
            )

    def _how_it_ended(self) -> str:
        """Empty while it runs. The output ends with the container, so that only then the engine is asked."""
        if self._container is None or self._output is None or self._output.following:
            return ""
        from docker.errors import NotFound

        with translated("the engine cannot say how the container ended"):
            try:
                self._container.reload()
            except NotFound:
                return "somebody removed the container"
        state = self._container.attrs["State"]
        if state.get("Running"):
            return ""
        out_of_memory = ", out of memory" if state.get("OOMKilled") else ""
        return f"exit code {state.get('ExitCode')}{out_of_memory}"

    def pids(self) -> tuple[int, ...]:
        """The container's processes, where this process sees those of the host; else none."""
        if self._container is None or self._world.me is not None:
            return ()
        root = int(self._container.attrs.get("State", {}).get("Pid") or 0)
        if root <= 0 or start_ticks(root) is None:
            return ()
        return (root, *sorted(descendants(root)))

    # ------------------------------------------------------------ stop

    def stop(self) -> None:
        """Stop within stop_timeout_s, kill otherwise, remove."""
        self.stop_within(self._launch.stack.stop_timeout_s)

    def stop_within(self, patience_s: float) -> None:
        """As `stop`, with another patience. An interrupt meanwhile makes it quick."""
        if self._container is None or self._removed:
            return
        try:
            remove_container(self._container, patience_s=patience_s, ended=self._drain)
        except (Cancelled, KeyboardInterrupt):
            remove_container(self._container, patience_s=0.0)
            raise
        finally:
            self._drain()
        self._removed = True

    def _drain(self) -> None:
        """Wait until the last lines are in the log."""
        if self._output is not None:
            self._output.close()

    def gone(self) -> bool:
        """Whether nothing of it runs any more: it has ended, of itself or not, or the engine no longer knows it."""
        from docker.errors import NotFound

        if self._container is None:
            return True
        with translated("the engine cannot say whether the container is gone"):
            try:
                self._container.reload()
            except NotFound:
                return True
        return self._container.status in ENDED


class _Output:
    """Follows a container's output into the log, in a thread that ends with the container."""

    def __init__(self, container: Container, log: Log) -> None:
        self._container = container
        self._log = log
        self._thread = threading.Thread(target=self._follow, name="container output", daemon=True)
        self._thread.start()

    @property
    def following(self) -> bool:
        """False once the container's output has ended."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Wait for the last lines."""
        self._thread.join(_LOG_ENDS_S)

    def _follow(self) -> None:
        # a log that breaks off (the engine went away) ends the thread; whoever asks how it ended asks the engine
        with contextlib.suppress(LaunchFailed), translated("the container's output cannot be read"):
            for piece in self._container.logs(stream=True, follow=True, stdout=True, stderr=True):
                self._log.feed(piece)
        self._log.close()
