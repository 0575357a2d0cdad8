"""Which variables a stack sees: a short allow-list, and what its own configuration declares. Nothing else.

The job's environment holds tokens that could publish, push or read other artifacts. A stack is code of the change under
test, so none of that may reach it. This module refuses to read the process's own environment (it is passed in), and to
hand over what belongs to the runner even when it is asked to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from servegate_action.errors import UsageError

# What a program needs to find itself, its libraries, its GPU and its model cache. docs/operations.md repeats this list.
ALLOWED_NAMES = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "LD_LIBRARY_PATH",
        "VIRTUAL_ENV",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "XDG_CACHE_HOME",
        "HF_HOME",
        "HF_HUB_CACHE",
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "RUNNER_TRACKING_ID",
    ]
)
ALLOWED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "NCCL_")

_SOUNDS_SECRET = re.compile(
    r"(token|secret|password|passwd|credential|api[-_]?key|private[-_]?key|auth)", re.IGNORECASE
)
_NOT_A_SECRET = re.compile(r"(tokenizer|tokens|token[-_]?(count|limit|length))", re.IGNORECASE)
_SHORTEST_SECRET = 4
BLANK = "***"


@dataclass(frozen=True, slots=True)
class StackEnvironment:
    """What the stack gets, and which of the values must never be shown or stored."""

    variables: Mapping[str, str]
    secrets: tuple[str, ...]

    def shown(self, command: Sequence[str]) -> tuple[str, ...]:
        """The command as it may be recorded: secret values blanked, and what follows a flag such as `--api-key`."""
        shown: list[str] = []
        for word in command:
            for secret in self.secrets:
                word = word.replace(secret, BLANK)  # noqa: PLW2901 - the word, blanked step by step
            flag, equals, _ = word.partition("=")
            if equals and _names_secret(flag):
                word = f"{flag}={BLANK}"  # noqa: PLW2901
            elif shown and shown[-1].startswith("-") and "=" not in shown[-1] and _names_secret(shown[-1]):
                word = BLANK  # noqa: PLW2901
            shown.append(word)
        return tuple(shown)


def _names_secret(name: str) -> bool:
    return bool(_SOUNDS_SECRET.search(name)) and not _NOT_A_SECRET.search(name)


def declared(entries: Sequence[str], *, environment: Mapping[str, str], label: str) -> StackEnvironment:
    """Only what the stack's `env` declares: `NAME` is taken from `environment` and secret, `NAME=value` is as written.

    Raises UsageError for a name that is not set. The configuration has refused those that belong to the job.
    """
    variables: dict[str, str] = {}
    secrets: list[str] = []
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals:
            if name not in environment:
                raise UsageError(
                    f"the stack '{label}' needs the variable {name}, which is not set",
                    next_step=f"set {name} for this step (env: in the workflow), or give it a value: {name}=…",
                )
            value = environment[name]
        if (not equals or _names_secret(name)) and len(value) >= _SHORTEST_SECRET:
            secrets.append(value)
        variables[name] = value
    return StackEnvironment(variables=variables, secrets=tuple(secrets))


def for_process(entries: Sequence[str], *, environment: Mapping[str, str], label: str) -> StackEnvironment:
    """The allow-list of `environment`, and over it what is declared."""
    own = declared(entries, environment=environment, label=label)
    allowed = {
        name: value for name, value in environment.items() if name in ALLOWED_NAMES or name.startswith(ALLOWED_PREFIXES)
    }
    return StackEnvironment(variables={**allowed, **own.variables}, secrets=own.secrets)
