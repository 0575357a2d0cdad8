"""What every part of the configuration is made of: the base model and the types of plain values.

Importing this loads pydantic and nothing else of the configuration. It refuses to know any key.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Model(BaseModel):
    """Base of every configuration model."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True, defer_build=True)


_OF_THE_JOB = re.compile(r"(ACTIONS_.*|INPUT_.*|GITHUB_TOKEN|GH_TOKEN|GITHUB_(ENV|OUTPUT|PATH|STATE|STEP_SUMMARY))")


def belongs_to_the_job(variable: str) -> bool:
    """Whether the runner gave this variable to the job alone: its tokens, its inputs, and the files that it reads back."""
    return _OF_THE_JOB.fullmatch(variable) is not None


def _of_the_stack(entry: str) -> str:
    name = entry.partition("=")[0]
    if belongs_to_the_job(name):
        raise ValueError(
            f"the variable {name} belongs to the job: a stack is code under test, at an address that the change can choose, and with the "
            "job's tokens it could publish its own verdict. Remove it, or give the stack a variable of its own"
        )
    return entry


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"), AfterValidator(_of_the_stack)]
EnvEntry = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*(=.*)?$"), AfterValidator(_of_the_stack)]
Positive = Annotated[float, Field(gt=0)]
PositiveInt = Annotated[int, Field(gt=0)]
