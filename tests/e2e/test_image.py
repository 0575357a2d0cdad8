"""The image by itself: it starts, as what it should start, with nothing in it that should not be there."""

from __future__ import annotations

import servegate_action
from tests.e2e.world import Engine


def test_the_command_line_starts(engine: Engine, image: str) -> None:
    assert servegate_action.__version__ in engine.docker("run", "--rm", image, "--version")


def test_no_variable_of_the_job_brings_code_in(engine: Engine, image: str) -> None:
    spy = "import os; os.write(2, b'code from the job ran')"
    words = ["run", "--rm", "--entrypoint", "sh", image, "-c"]
    script = (
        f'mkdir /tmp/evil && echo "{spy}" >/tmp/evil/sitecustomize.py && cd /tmp/evil && '
        "PYTHONPATH=/tmp/evil PYTHONSTARTUP=/tmp/evil/sitecustomize.py servegate --version 2>&1"
    )
    assert "code from the job ran" not in engine.docker(*words, script)


def test_no_compiler_no_installer_of_ours_and_no_source_of_tests_is_in_it(engine: Engine, image: str) -> None:
    script = "ls /opt/servegate/bin; command -v cc gcc uv hatchling; ls / /opt"
    found = engine.docker("run", "--rm", "--entrypoint", "sh", image, "-c", script + "; true").split()
    assert not {"cc", "gcc", "/usr/bin/gcc", "uv", "hatchling", "build", "src", "wheel", "tests"} & set(found)


def test_nothing_is_compiled_at_start(engine: Engine, image: str) -> None:
    """Every module of ours and of the libraries has its bytecode already; a read-only file system costs nothing."""
    script = (
        "import pathlib, importlib.util as u\n"
        "lib = next(pathlib.Path('/opt/servegate/lib').glob('python3*/site-packages'))\n"
        "missing = [p for p in lib.glob('servegate_action/**/*.py') if not pathlib.Path(u.cache_from_source(str(p))).exists()]\n"
        "print(len(missing), missing[:5])"
    )
    assert engine.docker("run", "--rm", "--entrypoint", "python3", image, "-c", script).startswith("0 ")
