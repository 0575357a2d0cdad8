"""Builds the fake `libnvidia-ml.so.1` with `cc` and runs Python children under it.

`build` makes a folder that goes to the front of LD_LIBRARY_PATH; names in `without` are hidden by a linker script, which
is how an old driver looks to the binding. `environment` is that of such a child.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

SOURCE = Path(__file__).with_name("fake_nvml.c")
LIBRARY = "libnvidia-ml.so.1"


def build(folder: Path, *, without: Sequence[str] = ()) -> Path:
    """Compile the library into `folder`; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = "".join(f"    {name};\n" for name in without)
    script = folder / "symbols.map"
    script.write_text("{\n  global:\n    *;\n" + (f"  local:\n{hidden}" if hidden else "") + "};\n")
    subprocess.run(
        [
            *("cc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"),
            f"-Wl,--version-script={script}",
            f"-Wl,-soname,{LIBRARY}",
            *("-o", str(folder / LIBRARY), str(SOURCE)),
        ],
        check=True,
    )
    return folder


def environment(folder: Path, scenario: Path | None = None) -> dict[str, str]:
    """The environment of a child that loads this library and plays this file (or chooses one itself)."""
    chosen = {} if scenario is None else {"FAKE_NVML_SCENARIO": str(scenario)}
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), **chosen}
