"""The commands: words in, one call, words out. No logic.

Imports are inside the commands, so that `--help` and `config check` do not wait for numpy or a Docker client.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from servegate_action import __version__
from servegate_action.errors import ConfigError, ExitCode, ServegateError, UsageError
from servegate_action.progress import reporting
from servegate_action.world import World

if TYPE_CHECKING:
    from servegate_action.analysis.judgement import Judgement
    from servegate_action.config.models import Config
    from servegate_action.gate import Finished

DEFAULT_CONFIG = ".servegate.yml"
DEFAULT_OUTPUT = "servegate-report"
ANOTHER_CONFIG = "name the gate's configuration, or begin with `servegate config init`"
NAMED_BY_CONFIG = "the configuration names it, relative to the folder in which servegate is started: the checkout"

_world = click.make_pass_decorator(World)
_config_option = click.option(
    "-c", "--config", "config_name", default=DEFAULT_CONFIG, show_default=True, help="The gate's configuration."
)
_output_option = click.option(
    "-o", "--output", default=DEFAULT_OUTPUT, show_default=True, help="Folder for the evidence."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
_directory = click.argument("directory", type=click.Path(path_type=Path, file_okay=False))


def run(arguments: Sequence[str], world: World) -> int:
    """Run one command line. Every error becomes a message and an exit code here."""
    try:
        code = main.main(list(arguments), prog_name="servegate", obj=world, standalone_mode=False)
    except click.exceptions.Abort:
        return ExitCode.SIGINT
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except ServegateError as error:
        _complain(world, f"servegate: {error}")
        return error.exit_code
    except Exception:  # noqa: BLE001 - whatever it is, it must not end with the exit code of a verdict
        _complain(
            world, f"{traceback.format_exc()}servegate: this is a defect of servegate and no verdict; please report it"
        )
        return ExitCode.CANNOT_MEASURE
    return int(code or ExitCode.PASS)


def _complain(world: World, text: str) -> None:
    """An error's text, which may quote a stack's log: harmless to a runner that reads commands from what is printed."""
    from servegate_action.github.outputs import guard

    world.err.print(guard(text), soft_wrap=True)


def _example(*lines: str) -> str:
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="servegate")
def main() -> None:
    """Merge a change to an LLM serving stack only when it is measured to be no slower, no dearer and not different.

    \b
    Exit codes: 0 PASS, 1 REJECT, 2 usage or configuration error, 3 INCONCLUSIVE, 4 INVALID,
    5 could not measure, 130/143 cancelled. Anything but 0 blocks.
    """


# ---------------------------------------------------------------- measuring


@main.command(epilog=_example("servegate demo", "servegate demo --swap -o swapped"))
@click.option("--swap", is_flag=True, help="The other way round: the candidate is the slower one, and is rejected.")
@_output_option
@_json_option
@_world
def demo(world: World, *, swap: bool, output: str, as_json: bool) -> int:
    """Run the whole gate on this machine's CPU: a real engine, a real small model, no token."""
    from servegate_action import demo as demonstration
    from servegate_action.config import load as configuration

    demonstration.check_available()
    config = configuration.load(
        demonstration.demo_config(swap=swap, python=sys.executable), file="the demo's configuration"
    )
    return _measure(world, config, output=output, as_json=as_json)


@main.command("run", epilog=_example("servegate run", "servegate run -c gates/llama.yml -o report --publish"))
@_config_option
@_output_option
@click.option("--publish", "publishing", is_flag=True, help="Tell GitHub: status and comment (within GitHub Actions).")
@_json_option
@_world
def run_command(world: World, *, config_name: str, output: str, publishing: bool, as_json: bool) -> int:
    """Measure, judge and report (and publish)."""
    if publishing and as_json:
        raise UsageError("--publish and --json do not go together", next_step=f"read verdict.json in {output}")
    if publishing:
        from servegate_action import action

        return action.run_and_publish(world, config_name=config_name, output=output)
    config = _read_config(world.folder / config_name, shown=config_name)
    return _measure(world, config, output=output, as_json=as_json)


def _measure(world: World, config: Config, *, output: str, as_json: bool) -> int:
    from servegate_action import gate

    root = world.folder / output
    order = gate.Order(
        config=config,
        read_text=lambda name: _read(world.folder / name, next_step=NAMED_BY_CONFIG),
        output=root,
        origin=gate.local_origin(world),
    )
    with reporting(world.err) as reporter:
        finished = gate.run(order, world=world, reporter=reporter)
    return _ended(world, finished, as_json=as_json)


def _ended(world: World, finished: Finished, *, as_json: bool) -> int:
    """Say what happened and where to look; a run that could not be measured says so with its own exit code."""
    judgement, root = finished.judgement, finished.directory.root
    _say(world, judgement, root, as_json=as_json)
    if finished.failure is not None:
        raise finished.failure
    return judgement.word.exit_code


def _say(world: World, judgement: Judgement, root: Path, *, as_json: bool) -> None:
    if as_json:
        world.out.print_json(judgement.model_dump_json())
        return
    from servegate_action.report.terminal import terminal

    world.out.print(terminal(judgement))
    for title, name in (("comment", "comment.md"), ("page", "report.html"), ("evidence", "manifest.json")):
        world.out.print(f"{title + ':':10}{root / name}")


# ---------------------------------------------------------------- thinking again


@main.command(epilog=_example("servegate judge servegate-report"))
@_directory
@_json_option
@_world
def judge(world: World, *, directory: Path, as_json: bool) -> int:
    """Recompute the verdict from a recording; no GPU, no network. Exit codes are those of the run."""
    from servegate_action import gate
    from servegate_action.store import RunDirectory

    run = RunDirectory(world.folder / directory)
    judgement = gate.judge_again(run)
    _say(world, judgement, run.root, as_json=as_json)
    failure = gate.failure_of(run)
    if failure is not None:
        raise failure
    return judgement.word.exit_code


@main.command(epilog=_example("servegate report servegate-report", "servegate report servegate-report --language es"))
@_directory
@click.option("--language", type=click.Choice(["en", "es"]), help="Default: as configured.")
@_world
def report(world: World, *, directory: Path, language: Literal["en", "es"] | None) -> int:
    """Render comment.md, summary.md and report.html again from verdict.json."""
    from servegate_action import gate
    from servegate_action.store import RunDirectory

    for path in gate.report(RunDirectory(world.folder / directory), language=language):
        world.out.print(str(path))
    return ExitCode.PASS


@main.command(epilog=_example("servegate verify servegate-report"))
@_directory
@_json_option
@_world
def verify(world: World, *, directory: Path, as_json: bool) -> int:
    """Check the manifest's hashes, and that the verdict follows from the recording.

    Exit code 0 means that the evidence holds, whatever the verdict is; 4 that it does not.
    """
    from servegate_action import gate
    from servegate_action.store import RunDirectory

    judgement = gate.verify(RunDirectory(world.folder / directory))
    if as_json:
        world.out.print_json(json.dumps({"verified": True, "verdict": judgement.word}))
    else:
        world.out.print(f"verified: every file is as recorded, and {judgement.word} follows from it")
    return ExitCode.PASS


@main.command(epilog=_example("servegate publish servegate-report"))
@_directory
@_world
def publish(world: World, *, directory: Path) -> int:
    """Post the comment and the status (second stage of a two-job workflow). The folder is treated as hostile."""
    from servegate_action import action

    return action.publish_folder(world, directory=str(directory))


@main.command(epilog=_example("servegate calibrate", "servegate calibrate -c gates/llama.yml --rounds 8"))
@_config_option
@click.option("-o", "--output", default="servegate-calibration", show_default=True, help="Folder for the evidence.")
@click.option(
    "--rounds",
    default=8,
    show_default=True,
    type=click.IntRange(4, 40),
    help="Rounds of baseline against itself; rounded up to an even number.",
)
@_json_option
@_world
def calibrate(world: World, *, config_name: str, output: str, rounds: int, as_json: bool) -> int:
    """Measure the baseline against itself: this runner's noise floor, and the smallest honest limits."""
    from servegate_action import calibrate as noise

    config = _read_config(world.folder / config_name, shown=config_name)
    with reporting(world.err) as reporter:
        found = noise.calibrate(
            noise.Request(
                config,
                lambda name: _read(world.folder / name, next_step=NAMED_BY_CONFIG),
                world.folder / output,
                rounds,
            ),
            world=world,
            reporter=reporter,
        )
    if as_json:
        world.out.print_json(found.model_dump_json())
    else:
        world.out.print(noise.table(found))
        world.out.print(f"evidence: {world.folder / output}; later runs on this machine find it by themselves")
        world.out.print(noise.advice(found, config.limits), markup=False, highlight=False)
    return ExitCode.PASS


@main.command(epilog=_example("servegate load http://127.0.0.1:8000 --concurrency 16 --requests 400"))
@click.argument("url")
@click.option("--concurrency", type=click.IntRange(1), help="Requests in flight (closed loop).")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Mean arrivals per second (open loop, Poisson).")
@click.option("--trace", type=click.Path(path_type=Path), help="Arrivals and lengths to replay (JSONL or CSV).")
@click.option("--requests", default=100, show_default=True, type=click.IntRange(1), help="Measured requests.")
@click.option("--prompt-tokens", default=256, show_default=True, type=click.IntRange(1))
@click.option("--output-tokens", default=128, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0))
@click.option("--api", default="completions", show_default=True, type=click.Choice(["completions", "chat"]))
@click.option("--model", "served_model", help="Name of the model in requests.  [default: the first that is served]")
@click.option("--api-key-env", help="Name of the variable that holds the bearer token.")
@click.option("--processes", type=click.IntRange(1), help="Client processes.  [default: as many as it takes]")
@click.option("--certify/--no-certify", default=True, show_default=True, help="Measure the client itself afterwards.")
@click.option("--json", "summary_file", type=click.Path(path_type=Path), help="Write the summary as JSON.")
@click.option("--requests-out", type=click.Path(path_type=Path), help="Write one line of JSON per request.")
@_world
def load(world: World, /, **given: Any) -> int:  # noqa: ANN401 - click's words become a typed record at once
    """Run the load generator alone against one URL: every token stamped, nothing judged."""
    from servegate_action import bench

    return bench.load(world, bench.Asked(**given))


# ---------------------------------------------------------------- configuration


@main.group("config")
def config_group() -> None:
    """Check, explain and begin configurations."""


@config_group.command(epilog=_example("servegate config check", "servegate config check --strict gates/*.yml"))
@click.argument("files", nargs=-1)
@click.option("--strict", is_flag=True, help="Notes on what is missing on this machine are errors.")
@_world
def check(world: World, *, files: tuple[str, ...], strict: bool) -> int:
    """Validate configurations: every problem at once, each with file and line."""
    from servegate_action.config import outlook

    wrong = False
    for name in files or (DEFAULT_CONFIG,):
        try:
            config = _read_config(world.folder / name, shown=name)
        except ConfigError as error:
            wrong = True
            _complain(world, str(error))
            continue
        world.out.print(
            f"{name}: gate {config.gate!r} is well-formed ({_points(config)}; looks after {_looks(config)} rounds)"
        )
        for note in outlook.notes(config, folder=world.folder, environment=world.environment):
            wrong = wrong or strict
            world.err.print(f"{name}: note: {note}")
    return ExitCode.USAGE if wrong else ExitCode.PASS


@config_group.command(epilog=_example("servegate config schema > servegate.schema.json"))
@_world
def schema(world: World) -> int:
    """Print the JSON Schema of the configuration."""
    from servegate_action.config.models import Config

    world.out.print(json.dumps(Config.model_json_schema(), indent=2), soft_wrap=True)
    return ExitCode.PASS


@config_group.command(epilog=_example("servegate config init"))
@click.option("--force", is_flag=True, help="Write over files that exist.")
@_world
def init(world: World, *, force: bool) -> int:
    """Write a commented starter configuration and a workflow."""
    from servegate_action.config import starter

    files = {starter.GATE_FILE: starter.GATE, starter.WORKFLOW_FILE: starter.WORKFLOW}
    there = [name for name in files if (world.folder / name).exists()]
    if there and not force:
        raise UsageError(f"{' and '.join(there)} exist already", next_step="--force writes over them")
    for name, text in files.items():
        path = world.folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write {name}: {error.strerror}") from error
        world.out.print(f"wrote {name}")
    world.out.print(
        "next: describe your model, stacks and workload in .servegate.yml, put the commit of the release that you use in place "
        f"of <commit-of-the-release> in {starter.WORKFLOW_FILE}, then `servegate config check`"
    )
    return ExitCode.PASS


def _points(config: Config) -> str:
    """`chat/1, chat/16, rag/16`, or the trace."""
    from servegate_action.workload import cell_id

    if config.workload.trace is not None:
        return f"the trace {config.workload.trace.path}"
    cells = config.workload.cells
    return ", ".join(cell_id(cell, streams) for cell in cells for streams in cell.concurrency or (None,))


def _looks(config: Config) -> str:
    return ", ".join(map(str, config.rounds.looks))


# ---------------------------------------------------------------- the container's doors


@main.command(hidden=True)
@_world
def action(world: World) -> int:
    """Run as the GitHub action: inputs and event from the environment."""
    from servegate_action import action as entry

    return entry.main(world)


@main.command(hidden=True)
@_world
def post(world: World) -> int:
    """Run as the action's post step: clean up and report what a killed step left."""
    from servegate_action import action as entry

    return entry.post(world)


# ---------------------------------------------------------------- files


def _read_config(path: Path, *, shown: str) -> Config:
    from servegate_action.config import load as configuration

    return configuration.load(_read(path, next_step=ANOTHER_CONFIG), file=shown)


def _read(path: Path, *, next_step: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"{path} does not exist", next_step=next_step) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", next_step=next_step) from None
