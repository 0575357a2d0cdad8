"""The world outside, as the door found it: environment, folder, consoles. Read once, passed in everywhere."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console


@dataclass(frozen=True, slots=True)
class World:
    """What a command may use of the outside. `out` is for answers, `err` for progress and messages."""

    environment: Mapping[str, str]
    folder: Path
    out: Console
    err: Console

    def operator(self) -> str:
        """Who runs this: the actor of the workflow, else the user."""
        if actor := self.environment.get("GITHUB_TRIGGERING_ACTOR") or self.environment.get("GITHUB_ACTOR"):
            return actor
        try:
            return getpass.getuser()
        except (OSError, KeyError):  # a uid without a name, as in many containers
            return f"uid {os.getuid()}"
