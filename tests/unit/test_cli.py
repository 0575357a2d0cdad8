"""The command line: what a person types, what comes back, with which exit code."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest
from rich.console import Console

from servegate_action import cli
from servegate_action.config.load import load
from servegate_action.config.starter import GATE, GATE_FILE, WORKFLOW_FILE
from servegate_action.errors import ExitCode
from servegate_action.world import World


@dataclass(slots=True)
class Terminal:
    """A world in a folder, with consoles that can be read."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    out: io.StringIO = field(default_factory=io.StringIO)
    err: io.StringIO = field(default_factory=io.StringIO)

    def run(self, *arguments: str) -> int:
        def console(stream: io.StringIO) -> Console:
            return Console(file=stream, highlight=False, markup=False, emoji=False, width=140)

        world = World(self.environment, self.folder, console(self.out), console(self.err))
        return cli.run(arguments, world)


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def leaves(group: click.Group, *path: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        elif not command.hidden:
            yield (*path, name), command


@pytest.mark.parametrize("words", [words for words, _ in leaves(cli.main)], ids=" ".join)
def test_every_command_has_help_with_an_example(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main.main([*words, "--help"], prog_name="servegate")
    assert ended.value.code == 0
    assert f"Example:\n    servegate {' '.join(words)}" in capsys.readouterr().out


def test_a_defect_of_ours_ends_with_no_verdicts_exit_code_and_says_what_it_is(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path)
    terminal.out.close()  # whatever prints now fails, as nobody foresaw
    assert terminal.run("config", "schema") == ExitCode.CANNOT_MEASURE
    said = terminal.err.getvalue()
    assert "ValueError: I/O operation on closed file" in said
    assert "this is a defect of servegate and no verdict" in said


def test_an_unknown_command_is_a_usage_error(terminal: Terminal) -> None:
    assert terminal.run("mesure") == ExitCode.USAGE


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ftp://x", "--concurrency", "1"), "'ftp://x' is not an http or https URL"),
        (("127.0.0.1:8000", "--concurrency", "1"), "is not an http or https URL"),
        (("http://127.0.0.1:9", "--concurrency", "1", "--requests-out", "no/such/file"), "there is no folder"),
        (("http://127.0.0.1:9", "--concurrency", "1", "--json", "."), "is a folder"),
        (("http://127.0.0.1:9", "--trace", "none.jsonl"), "none.jsonl cannot be read"),
        (("http://127.0.0.1:9", "--concurrency", "1", "--api-key-env", "KEY"), "the variable KEY is not set"),
        (("http://127.0.0.1:9",), "exactly one of --concurrency, --rate and --trace"),
    ],
)
def test_load_says_what_it_cannot_do_before_it_measures(terminal: Terminal, words: tuple[str, ...], says: str) -> None:
    assert terminal.run("load", *words) == ExitCode.USAGE
    said = " ".join(terminal.err.getvalue().split())
    assert says in said
    assert "next: " in said


def test_load_of_a_dead_address_says_that_nothing_answers(terminal: Terminal) -> None:
    assert terminal.run("load", "http://127.0.0.1:9", "--concurrency", "1") == ExitCode.CANNOT_MEASURE
    assert "http://127.0.0.1:9 does not answer: no answer (refused)" in " ".join(terminal.err.getvalue().split())


@pytest.mark.parametrize("command", [("run",), ("calibrate",)])
def test_what_a_configuration_names_is_looked_for_in_the_folder_of_the_command(
    terminal: Terminal, command: tuple[str, ...]
) -> None:
    gates = terminal.folder / "gates"
    gates.mkdir()
    cells = GATE[GATE.index("  cells:") : GATE.index("\n\n", GATE.index("  cells:"))]
    (gates / "g.yml").write_text(GATE.replace(cells, "  trace: {path: day.jsonl}"))
    (gates / "day.jsonl").write_text("")
    assert terminal.run(*command, "-c", "gates/g.yml") == ExitCode.USAGE
    said = " ".join(terminal.err.getvalue().split())
    assert f"{terminal.folder / 'day.jsonl'} does not exist" in said
    assert "relative to the folder in which servegate is started" in said


def test_publishing_has_no_json(terminal: Terminal) -> None:
    assert terminal.run("run", "--publish", "--json") == ExitCode.USAGE
    assert "--publish and --json do not go together" in terminal.err.getvalue()


def test_init_writes_a_configuration_that_check_accepts(terminal: Terminal) -> None:
    assert terminal.run("config", "init") == ExitCode.PASS
    assert (terminal.folder / GATE_FILE).read_text() == GATE
    assert "<commit-of-the-release>" in (terminal.folder / WORKFLOW_FILE).read_text()
    assert "in place of <commit-of-the-release>" in " ".join(terminal.out.getvalue().split())
    assert terminal.run("config", "check") == ExitCode.PASS
    assert "gate 'my-model' is well-formed" in terminal.out.getvalue()


def test_check_notes_what_is_missing_on_this_machine(terminal: Terminal) -> None:
    words = ("server", "--port", "{prot}", "{port}")
    (terminal.folder / GATE_FILE).write_text(
        GATE.replace('[python, serve.py, --port, "{port}"]', f"[{', '.join(repr(word) for word in words)}]")
        .replace("env: [HF_HUB_OFFLINE=1]", "env: [HF_TOKEN]")
        .replace("rounds: {min: 4,", "rounds: {min: 2,")
    )
    assert terminal.run("config", "check") == ExitCode.PASS
    said = " ".join(terminal.err.getvalue().split())
    for note in (
        "model.path: /srv/models/my-model is not on this machine",
        "stacks.baseline.container.image: the digest is the starter's placeholder",
        "stacks.candidate.process.command: server is no program on this machine",
        "stacks.candidate.env: HF_TOKEN is not set here",
        "stacks.candidate.command: {prot} stays as it is; only {port} is replaced",
        "rounds: a look after 2 rounds shows gross changes only",
    ):
        assert note in said
    assert "(chat/1, chat/16, rag/16, long/4; looks after 2, 4, 6, 8 rounds)" in " ".join(
        terminal.out.getvalue().split()
    )
    assert terminal.run("config", "check", "--strict") == ExitCode.USAGE


def test_check_has_nothing_to_note_where_all_is_there(terminal: Terminal) -> None:
    (terminal.folder / "weights").mkdir()
    (terminal.folder / "serve").mkdir()
    program = terminal.folder / "serve" / "run"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (terminal.folder / "arrivals.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n0,1,1\n1,1,1\n")
    stack = {"label": "a", "process": {"command": ["./run", "{port}"], "cwd": "serve"}, "env": ["KEY"]}
    told = {
        "version": 1,
        "gate": "g",
        "model": {"name": "m", "path": "weights"},
        "stacks": {
            "baseline": stack,
            "candidate": {"label": "b", "endpoint": {"url": "http://x", "api_key_env": "KEY"}},
        },
        "workload": {"trace": {"path": "arrivals.csv"}},
        "cost": {"gpu_hour_usd": 1, "traffic": {"trace": "arrivals.csv"}},
    }
    (terminal.folder / GATE_FILE).write_text(json.dumps(told))
    there = Terminal(terminal.folder, {"KEY": "secret", "PATH": "/usr/bin"})
    assert there.run("config", "check", "--strict") == ExitCode.PASS
    assert there.err.getvalue() == ""
    assert "the trace arrivals.csv" in there.out.getvalue()
    program.unlink()
    (terminal.folder / "serve").rmdir()
    assert there.run("config", "check") == ExitCode.PASS
    assert "process.cwd: serve is not on this machine" in there.err.getvalue()


def test_init_never_writes_over_a_file_unasked(terminal: Terminal) -> None:
    (terminal.folder / GATE_FILE).write_text("mine")
    assert terminal.run("config", "init") == ExitCode.USAGE
    assert (terminal.folder / GATE_FILE).read_text() == "mine"
    assert "--force" in terminal.err.getvalue()
    assert terminal.run("config", "init", "--force") == ExitCode.PASS
    assert (terminal.folder / GATE_FILE).read_text() == GATE


def test_check_reports_every_file_and_every_problem(terminal: Terminal) -> None:
    (terminal.folder / "a.yml").write_text(GATE.replace("gate: my-model", "gate: [1]").replace("seed: 7", "sede: 7"))
    (terminal.folder / "b.yml").write_text("version: 1\n")
    assert terminal.run("config", "check", "a.yml", "b.yml") == ExitCode.USAGE
    shown = terminal.err.getvalue()
    assert "a.yml:3: gate" in shown
    assert "did you mean `seed`?" in shown
    assert "b.yml:1: stacks: required key is missing" in shown


def test_a_missing_configuration_says_how_to_begin(terminal: Terminal) -> None:
    assert terminal.run("run") == ExitCode.USAGE
    assert "servegate config init" in terminal.err.getvalue()


def test_the_schema_is_json_that_a_program_reads(terminal: Terminal) -> None:
    assert terminal.run("config", "schema") == ExitCode.PASS
    schema = json.loads(terminal.out.getvalue())
    assert set(schema["required"]) == {"version", "gate", "model", "stacks", "workload"}


@pytest.mark.parametrize("command", ["judge", "report", "verify"])
def test_a_folder_that_is_no_run_directory_is_a_usage_error(terminal: Terminal, command: str) -> None:
    assert terminal.run(command, "nowhere") == ExitCode.USAGE
    assert "servegate run -o DIR" in terminal.err.getvalue()


def test_a_quoted_log_cannot_command_the_runner(terminal: Terminal) -> None:
    (terminal.folder / GATE_FILE).write_text("gate: |\n  x\n  ::error::forged ##[error]forged\n")
    assert terminal.run("config", "check") == ExitCode.USAGE
    for line in terminal.err.getvalue().splitlines():
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_the_starter_reads_as_a_configuration() -> None:
    assert load(GATE, file="starter").gate == "my-model"
