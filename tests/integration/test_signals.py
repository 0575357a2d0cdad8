"""A signal ends a command as soon as it may, wherever it meets the program."""

from __future__ import annotations

import subprocess
import sys

import pytest

from servegate_action.errors import ExitCode

LIMIT_S = 60.0
BEFORE = """
import os, signal, sys, time
from enum import Enum
from typing import Literal
from pydantic import BaseModel
from servegate_action.__main__ import cancel_on_signals
from servegate_action.errors import Cancelled

armed = []

def shoot():
    if armed:
        armed.clear()
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass

cancel_on_signals()
"""
IN_A_FINALIZER = """
class Last:
    def __del__(self):
        shoot()

def meet():
    one = Last()
    armed.append(True)
    del one
"""
WHILE_A_MODEL_IS_BUILT = """
class Word(Enum):
    A = "a"

    def __hash__(self):
        shoot()
        return 1

class Late(BaseModel, defer_build=True):
    word: Literal[Word.A]

def meet():
    armed.append(True)
    Late(word=Word.A)
"""
IN_ORDINARY_CODE = """
def meet():
    armed.append(True)
    shoot()
"""
AFTER = """
try:
    meet()
    time.sleep(20)
except Cancelled as error:
    sys.exit(error.exit_code)
sys.exit("the signal was lost")
"""


@pytest.mark.parametrize("where", [IN_ORDINARY_CODE, IN_A_FINALIZER, WHILE_A_MODEL_IS_BUILT])
def test_a_signal_cancels_wherever_it_comes(where: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + where + AFTER], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == ExitCode.SIGTERM, done.stderr
