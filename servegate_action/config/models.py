"""The contract with the user: the whole of `.servegate.yml`, put together from its parts.

Each field's description is what `servegate config schema` prints. Frozen; unknown keys are errors. The models hold what
the user declared and the defaults; loading (YAML, line numbers, nearest keys) is `config.load`. Nothing here touches a
file, and nothing here measures or decides.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from servegate_action.config.base import Model, Name, Positive, PositiveInt
from servegate_action.config.cost import Cost
from servegate_action.config.limits import Limits, Rounds, Slo
from servegate_action.config.stacks import ServedModel, Stacks
from servegate_action.config.workload import Workload
from servegate_action.records import Side


class Load(Model):
    """The load generator."""

    processes: Literal["auto"] | PositiveInt = "auto"
    request_timeout_s: Positive = 600.0
    stall_timeout_s: Positive = Field(default=60.0, description="longest time without a byte once sent")


LONG_PROMPT_WORDS = 64
"""From here on a prompt of the workload counts as long, and answers to long prompts are compared too."""


class Also(StrEnum):
    """What the numerics probe asks besides short prompts, one at a time."""

    LONG = "long"
    TOGETHER = "together"


class Numerics(Model):
    """The numerics probe: do both stacks give the same answers?"""

    enabled: bool = True
    prompts: Annotated[int, Field(ge=1, le=500)] = 20
    output_tokens: PositiveInt = 32
    also: tuple[Also, ...] = Field(
        default=(Also.LONG, Also.TOGETHER),
        description="besides short prompts, one at a time: prompts as long as the workload's longest, and all together",
    )


class ReportOptions(Model):
    """How the report is written."""

    language: Literal["en", "es"] = "en"


class GitHubOptions(Model):
    """What is published."""

    comment: Literal["always", "changes", "failures", "never"] = "always"
    status: str | None = Field(default=None, max_length=255, description="status context; default servegate/<gate>")
    check_run: bool = False


class Config(Model):
    """The whole of `.servegate.yml`."""

    version: Literal[1]
    gate: Name
    model: ServedModel
    stacks: Stacks
    workload: Workload
    rounds: Rounds = Rounds()
    limits: Limits = Limits()
    slo: Slo = Slo()
    cost: Cost | None = None
    accelerator: Literal["auto", "nvidia", "cpu"] = "auto"
    calibration: str | None = Field(
        default=None,
        description="calibration.json that `servegate calibrate` wrote for this runner; default: the one kept on this "
        "machine, which the action does not see",
    )
    load: Load = Load()
    numerics: Numerics = Numerics()
    report: ReportOptions = ReportOptions()
    github: GitHubOptions = GitHubOptions()

    @model_validator(mode="after")
    def _possible(self) -> Config:
        if self.cost is not None:
            for side in Side:
                if self.stacks.of(side).endpoint is not None and not self.cost.idle.of(side).keep_warm:
                    raise ValueError(
                        f"stacks.{side} is an endpoint, which servegate cannot stop: scale_to_zero cannot be shown"
                    )
        return self

    @property
    def status_context(self) -> str:
        """The context of the commit status."""
        return self.github.status or f"servegate/{self.gate}"
