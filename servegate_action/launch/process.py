"""A stack that is a command on this machine: started under a supervisor, ready, alive, stopped as a whole tree.

The command keeps running in the foreground and listens on the port that it is given as `{port}`. This module refuses to
take for the stack whatever else answers on that port, and to leave anything behind: it ends every process that the command
started, in whatever session, and says so when the kernel does not let one go.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from servegate_action.config.stacks import ProcessStack
from servegate_action.errors import Cancelled, CannotMeasure, LaunchFailed, StackDied
from servegate_action.launch import ledger, ports, supervisor
from servegate_action.launch.environment import StackEnvironment, for_process
from servegate_action.launch.readiness import Phases, Waiting, wait_until_ready
from servegate_action.launch.stack import Launch, Ready, health_path, log_tail
from servegate_action.records import Absent, ColdStart

_PORT = "{port}"
_SUPERVISOR_START_S = 10.0
_HURRIED_STOP_S = 2.5
_AFTER_KILL_S = 5.0
_REPORT_S = 2.0


class _Event(BaseModel):
    """One line of the supervisor."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    event: str
    t_ns: int
    pid: int = 0
    code: int = 0
    left: int | list[int] = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class _Command:
    """The stack's command with its port filled in."""

    words: tuple[str, ...]
    shown: tuple[str, ...]
    environment: StackEnvironment
    cwd: Path


@contextmanager
def launch_process(launch: Launch, process: ProcessStack, *, state_dir: Path) -> Iterator[RunningProcess]:
    """Start the command, wait until it serves, and end it with the block."""
    requested_ns = time.monotonic_ns()
    with ports.reserved_port() as port:
        command = _prepare(launch, process, port)
    running = RunningProcess(launch, command, port=port, state_dir=state_dir)
    try:
        running.start()
        phases = wait_until_ready(running.waiting())
        launch.progress(f"{launch.stack.label}: ready after {(phases.first_token_ns - requested_ns) / 1e9:.1f} s")
        running.became_ready(phases, requested_ns)
        yield running
    except (Cancelled, KeyboardInterrupt):
        running.stop_within(_HURRIED_STOP_S)
        raise
    except BaseException:
        running.stop_within(launch.stack.stop_timeout_s)
        raise
    running.stop()
    if not running.gone():
        raise CannotMeasure(
            f"the stack '{launch.stack.label}' could not be ended: {running.left()} still there after SIGKILL",
            why="a process that waits inside the kernel (a hung driver, a dead network disk) cannot be killed",
            next_step="look at the process state with `ps` (D) and at `dmesg`; the machine may need a restart",
        )


def _prepare(launch: Launch, process: ProcessStack, port: int) -> _Command:
    label = launch.stack.label
    entries = launch.stack.env
    filled = [entry.replace(_PORT, str(port)) for entry in entries]
    environment = for_process(filled, environment=launch.environment, label=label)
    if launch.stack.gpu_uuids and "CUDA_VISIBLE_DEVICES" not in {entry.partition("=")[0] for entry in entries}:
        chosen = {**environment.variables, "CUDA_VISIBLE_DEVICES": ",".join(launch.stack.gpu_uuids)}
        environment = replace(environment, variables=chosen)
    words = tuple(word.replace(_PORT, str(port)) for word in process.command)
    cwd = launch.workspace / process.cwd if process.cwd else launch.workspace
    if not cwd.is_dir():
        raise LaunchFailed(
            f"the stack '{label}' cannot start in {cwd}: there is no such folder",
            next_step="cwd is relative to the workspace (the checkout)",
        )
    return _Command(words=words, shown=environment.shown(words), environment=environment, cwd=cwd)


class RunningProcess:
    """One launched command. `Running` to everybody else."""

    def __init__(self, launch: Launch, command: _Command, *, port: int, state_dir: Path) -> None:
        self._launch = launch
        self._command = command
        self._port = port
        self._token = secrets.token_hex(16)
        self._state_dir = state_dir
        self._entry: Path | None = None
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._started: _Event | None = None
        self._exited: _Event | None = None
        self._gone: _Event | None = None
        self._ready: Ready | None = None

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
    def volume(self) -> None:
        """None: its files are this machine's."""
        return None

    # ------------------------------------------------------------ start

    def start(self) -> None:
        """Note it in the ledger, start the supervisor, and let that start the command."""
        launch = self._launch
        variables = {
            **self._command.environment.variables,
            ledger.RUN_VARIABLE: launch.run_id,
            ledger.STACK_VARIABLE: self._token,
        }
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        owner = ledger.Owner.this_process()
        entry = ledger.Entry(run_id=launch.run_id, side=launch.side, token=self._token, owner=owner)
        self._entry = ledger.write(entry, self._state_dir)
        self._supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", supervisor.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={ledger.RUN_VARIABLE: launch.run_id, ledger.STACK_VARIABLE: self._token},
            start_new_session=True,
        )
        order = supervisor.Order(
            command=self._command.words,
            cwd=str(self._command.cwd),
            env=variables,
            log_path=str(self.log_path),
            stop_timeout_s=launch.stack.stop_timeout_s,
            secrets=self._command.environment.secrets,
        )
        self._order(order.line())
        self._await_start()

    def _await_start(self) -> None:
        until = time.monotonic() + _SUPERVISOR_START_S
        while self._started is None and time.monotonic() < until and self._listen(0.1):
            pass
        if self._started is None:
            raise LaunchFailed(
                f"the stack '{self._launch.stack.label}' could not be started: its supervisor does not answer",
                why="Python itself may be broken, or the machine is out of processes or memory",
                next_step=f"try: {sys.executable} -I -S -c 'print(1)'",
            )

    def waiting(self) -> Waiting:
        """What to wait for, and how to notice that waiting is in vain."""
        launch = self._launch
        health = health_path(launch.stack)
        return Waiting(
            label=launch.stack.label,
            base_url=f"http://{ports.LOOPBACK}:{self._port}",
            health=None if health is None else health.replace(_PORT, str(self._port)),
            limit_s=launch.stack.ready_timeout_s,
            first_token=launch.first_token,
            log_path=self.log_path,
            check=self._check_start,
            port_opened=self._check_port,
            why_not=self._elsewhere,
        )

    def became_ready(self, phases: Phases, requested_ns: int) -> None:
        """Keep how it went."""
        assert self._started is not None  # noqa: S101 - ready comes after started
        cold_start = ColdStart(
            requested_ns=requested_ns,
            image_ready_ns=Absent(absent="a process has no image"),
            process_up_ns=self._started.t_ns,
            port_open_ns=phases.port_open_ns,
            healthy_ns=phases.healthy_ns,
            first_token_ns=phases.first_token_ns,
            page_cache="as found",
        )
        self._ready = Ready(
            base_url=f"http://{ports.LOOPBACK}:{self._port}",
            pid=self._started.pid,
            container_id=None,
            container_digest=Absent(absent="a process, not a container"),
            cold_start=cold_start,
            command=self._command.shown,
        )

    def _check_start(self) -> None:
        self._listen(0)
        if ended := self._how_it_ended():
            raise LaunchFailed(
                f"the stack '{self._launch.stack.label}' ended before it was ready: {ended}",
                why=self._why_ended(),
                next_step="see the end of its log; run the command by hand",
                log_tail=log_tail(self.log_path),
            )

    def _check_port(self) -> None:
        self._check_start()
        owners = ports.owners(self._port)
        ours = set(self.pids())  # after the owners, so that a child that was only just born is known
        foreign = [owner for owner in owners if owner.pid not in ours]
        self._check_start()
        if foreign:
            raise LaunchFailed(
                f"port {self._port} of the stack '{self._launch.stack.label}' is taken by {foreign[0]}",
                why="it was free when it was chosen; whatever listens there now was not started by the stack's command "
                "(a server that the command hands over to a daemon or a container engine is not its child, either)",
                next_step="launch again; a stack that runs in a container belongs under `container:`",
                log_tail=log_tail(self.log_path),
            )

    def _elsewhere(self) -> str:
        addresses = ports.listening(self.pids())
        wanted = f"{ports.LOOPBACK}:{self._port}"
        if not addresses:
            return f"none of its processes listens on any port; {wanted} was expected"
        return f"its processes listen on {', '.join(addresses)}; {wanted} was expected"

    # ------------------------------------------------------------ alive

    def alive(self) -> None:
        """Return when it still runs, else raise StackDied."""
        self._listen(0)
        if ended := self._how_it_ended():
            raise StackDied(
                f"the stack '{self._launch.stack.label}' died while it was measured: {ended}",
                why=self._why_ended(),
                next_step="see the end of its log, and `dmesg` when it was killed",
                log_tail=log_tail(self.log_path),
            )

    def pids(self) -> tuple[int, ...]:
        """The command's process and everything below it; the supervisor is not part of the stack."""
        if self._supervisor is None or self._supervisor.poll() is not None:
            return ()
        return tuple(sorted(supervisor.descendants(self._supervisor.pid)))

    def _how_it_ended(self) -> str:
        """Empty while it runs. A process that is dead, but not yet reported, is waited for."""
        until = time.monotonic() + _REPORT_S
        while self._exited is None and self._is_dead() and time.monotonic() < until and self._listen(0.1):
            pass
        if self._exited is not None:
            code = self._exited.code
            return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
        if self._supervisor is not None and self._supervisor.poll() is not None:
            return "its supervisor was killed, and it with it"
        return ""

    def _is_dead(self) -> bool:
        return self._started is not None and supervisor.start_ticks(self._started.pid) is None

    def _why_ended(self) -> str:
        if self._exited is None:
            return ""
        if self._exited.code == -signal.SIGKILL:
            return "SIGKILL from outside is most often the kernel's answer to a lack of memory"
        if self._exited.code == 0 and self._exited.left:
            return "the command went to the background; it must stay in the foreground, or its end cannot be seen"
        return ""

    # ------------------------------------------------------------ stop

    def stop(self) -> None:
        """Terminate, wait up to the stack's stop_timeout_s, kill the whole tree."""
        self.stop_within(self._launch.stack.stop_timeout_s)

    def stop_within(self, patience_s: float) -> None:
        """As `stop`, with another patience. An interrupt meanwhile makes it quick."""
        try:
            self._end(patience_s)
        except (Cancelled, KeyboardInterrupt):
            self._end(0.0)
            raise
        finally:
            self._close()

    def _end(self, patience_s: float) -> None:
        if self._supervisor is None:
            return
        self._order(f"stop {patience_s}\n".encode())
        until = time.monotonic() + patience_s + _AFTER_KILL_S
        while self._gone is None and time.monotonic() < until and self._listen(0.1):
            pass
        if self._gone is None or self._gone.left:  # the supervisor itself was killed or is stuck
            supervisor.send(self._carriers(), signal.SIGKILL)

    def _close(self) -> None:
        if self._supervisor is None:
            return
        until = time.monotonic() + _AFTER_KILL_S
        while not self._all_gone() and time.monotonic() < until:
            supervisor.send(self._carriers(), signal.SIGKILL)
            time.sleep(0.02)
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                pipe.close()
        if self._entry is not None and self._all_gone():
            self._entry.unlink(missing_ok=True)

    def gone(self) -> bool:
        """Whether no process of the stack is left, whoever ended it. The supervisor is none of them: it waits for its order."""
        if self._supervisor is None:
            return True
        return not self.pids() and not [pid for pid in self._carriers() if pid != self._supervisor.pid]

    def _all_gone(self) -> bool:
        return self._supervisor is None or (self._supervisor.poll() is not None and not self._carriers())

    def left(self) -> str:
        """What is left, for a message."""
        return ", ".join(f"process {pid}" for pid in self._carriers())

    def _carriers(self) -> list[int]:
        return ledger.carriers(self._token)

    # ------------------------------------------------------------ the supervisor's pipes

    def _order(self, line: bytes) -> None:
        assert self._supervisor is not None and self._supervisor.stdin is not None  # noqa: S101, PT018
        # a supervisor that is gone already is found out by what it no longer says
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._supervisor.stdin.write(line)
            self._supervisor.stdin.flush()

    def _listen(self, within_s: float) -> bool:
        """Take in what the supervisor said, waiting for at most this long. False when it will say no more."""
        assert self._supervisor is not None and self._supervisor.stdout is not None  # noqa: S101, PT018
        if self._supervisor.stdout.closed:
            return False
        readable = self._supervisor.stdout.fileno()
        if not select.select([readable], [], [], within_s)[0]:
            return True
        data = os.read(readable, 65_536)
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._note(_Event.model_validate(json.loads(line)))
        return bool(data)

    def _note(self, event: _Event) -> None:
        if event.event == "failed":
            raise LaunchFailed(
                f"the stack '{self._launch.stack.label}' cannot be started: {event.message}",
                why="the program does not exist, is not executable, or its interpreter is missing",
                next_step="the command is looked up in PATH, not by a shell; give the full path, or `sh -c` for shell syntax",
            )
        match event.event:
            case "started":
                self._started = event
            case "exited":
                self._exited = event
            case "gone":
                self._gone = event
