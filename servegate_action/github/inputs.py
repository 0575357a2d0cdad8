"""The action's inputs and the runner's variables, read once from a mapping that the door passes in.

The runner hands inputs over as `INPUT_` plus the upper-cased name, in which hyphens stay (`INPUT_GITHUB-TOKEN`); an
input that was not given arrives empty. The command line in a job's container has no inputs, and takes the token from
`GITHUB_TOKEN`, which the runner never sets by itself. Everything wrong is reported at once. This module touches neither `os.environ`
nor a file, and prints no token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal, TypeVar, get_args

from servegate_action.errors import UsageError

Mode = Literal["run", "measure", "publish", "command"]
CommentWhen = Literal["always", "changes", "failures", "never"]
Accelerator = Literal["auto", "nvidia", "cpu"]

Word = TypeVar("Word")

NAMES = ("config", "github-token", "output-dir", "mode", "comment", "upload-artifact", "accelerator", "sha", "number")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The action's inputs. None: not given, so that configuration or event decide."""

    config: str = ".servegate.yml"
    token: str | None = field(default=None, repr=False)
    output_dir: str = "servegate-report"
    mode: Mode = "run"
    comment: CommentWhen | None = None
    upload_artifact: bool = False
    accelerator: Accelerator | None = None
    sha: str | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class RunId:
    """Which run: GitHub's run id grows with time, the attempt with each re-run. Printed as `1234.1`."""

    run: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.run}.{self.attempt}"


@dataclass(frozen=True, slots=True)
class ActionsEnvironment:
    """What the runner says of the job. Paths are as the container sees them."""

    event_name: str
    event_path: Path | None
    api_url: str
    server_url: str
    repository: str
    run: RunId
    job: str
    sha: str
    ref: str
    workspace: Path
    output_path: Path | None
    summary_path: Path | None
    state_path: Path | None
    runner_temp: Path | None
    ca_bundle: str | None
    results_url: str | None
    runtime_token: str | None = field(default=None, repr=False)
    retention_days: int | None = None
    state: Mapping[str, str] = field(default_factory=dict)

    @property
    def run_url(self) -> str:
        """The page of this very attempt."""
        return self.url_of(self.run)

    def url_of(self, run: RunId) -> str:
        """The page of an attempt of this repository."""
        return f"{self.server_url}/{self.repository}/actions/runs/{run.run}/attempts/{run.attempt}"

    @property
    def is_enterprise_server(self) -> bool:
        """GitHub Enterprise Server, which has no Results service; neither github.com nor a tenant of ghe.com."""
        host = self.server_url.removeprefix("https://").removeprefix("http://").split("/")[0].split(":")[0].lower()
        return host != "github.com" and not host.endswith(".ghe.com")


def read_inputs(environment: Mapping[str, str]) -> Inputs:
    """Read every input. Raises UsageError that lists all that is wrong with them."""
    reader = _Reader(environment)
    given = Inputs(
        config=reader.text("config") or ".servegate.yml",
        token=reader.text("github-token") or environment.get("GITHUB_TOKEN", "").strip() or None,
        output_dir=reader.folder("output-dir", default="servegate-report"),
        mode=reader.choice("mode", get_args(Mode), default="run"),
        comment=reader.choice("comment", get_args(CommentWhen), default=None),
        upload_artifact=reader.yes_or_no("upload-artifact"),
        accelerator=reader.choice("accelerator", get_args(Accelerator), default=None),
        sha=reader.text("sha").lower() or None,
        number=reader.number("number"),
    )
    if reader.problems:
        raise UsageError(
            "; ".join(reader.problems),
            why="these are the `with:` lines of the step that uses servegate",
            next_step="correct them in the workflow; nothing was measured",
        )
    return given


class _Reader:
    """Reads inputs one by one and collects what is wrong, so that a user meets every mistake in one run."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[str] = []

    def text(self, name: str) -> str:
        return self._environment.get(f"INPUT_{name.replace(' ', '_').upper()}", "").strip()

    def choice(self, name: str, allowed: tuple[Word, ...], *, default: Word) -> Word:
        text = self.text(name)
        if not text:
            return default
        for word in allowed:
            if word == text:
                return word
        self.problems.append(f"input `{name}` is {text!r}; allowed: {', '.join(str(word) for word in allowed)}")
        return default

    def yes_or_no(self, name: str) -> bool:
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            self.problems.append(f"input `{name}` is {text!r}; allowed: true, false")
        return text == "true"

    def number(self, name: str) -> int | None:
        text = self.text(name).removeprefix("#")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and 0 < len(text) < 12 and int(text) > 0):
            self.problems.append(f"input `{name}` is {text!r}; allowed: the number of a pull request or issue")
            return None
        return int(text)

    def folder(self, name: str, *, default: str) -> str:
        """A folder within the workspace: it is made, written to, and made readable for everyone."""
        text = self.text(name) or default
        workspace = PurePosixPath(self._environment.get("GITHUB_WORKSPACE", "/github/workspace"))
        path = PurePosixPath(text)
        if path.is_absolute():
            path = path.relative_to(workspace) if path.is_relative_to(workspace) else PurePosixPath("..")
        if ".." in path.parts or path == PurePosixPath(".") or "\n" in text:
            self.problems.append(f"input `{name}` is {text!r}; allowed: a folder within the workspace, without `..`")
            return default
        return str(path)


def read_environment(environment: Mapping[str, str]) -> ActionsEnvironment:
    """Read what the runner says. Raises UsageError when the variables that name the job are missing."""
    missing = [
        name for name in ("GITHUB_REPOSITORY", "GITHUB_RUN_ID", "GITHUB_EVENT_NAME") if not environment.get(name)
    ]
    if missing:
        raise UsageError(
            f"not in a GitHub Actions job: {', '.join(missing)} not set",
            why="these variables come from the runner",
            next_step="run `servegate run` without --publish on your own machine",
        )

    def path(name: str) -> Path | None:
        return Path(environment[name]) if environment.get(name) else None

    return ActionsEnvironment(
        event_name=environment["GITHUB_EVENT_NAME"],
        event_path=path("GITHUB_EVENT_PATH"),
        api_url=(environment.get("GITHUB_API_URL") or "https://api.github.com").rstrip("/"),
        server_url=(environment.get("GITHUB_SERVER_URL") or "https://github.com").rstrip("/"),
        repository=environment["GITHUB_REPOSITORY"],
        run=RunId(
            _count(environment, "GITHUB_RUN_ID", default=0), _count(environment, "GITHUB_RUN_ATTEMPT", default=1)
        ),
        job=environment.get("GITHUB_JOB", ""),
        sha=environment.get("GITHUB_SHA", ""),
        ref=environment.get("GITHUB_REF", ""),
        workspace=path("GITHUB_WORKSPACE") or Path("/github/workspace"),
        output_path=path("GITHUB_OUTPUT"),
        summary_path=path("GITHUB_STEP_SUMMARY"),
        state_path=path("GITHUB_STATE"),
        runner_temp=path("RUNNER_TEMP"),
        ca_bundle=_ca_bundle(environment),
        results_url=environment.get("ACTIONS_RESULTS_URL") or None,
        runtime_token=environment.get("ACTIONS_RUNTIME_TOKEN") or None,
        retention_days=_count(environment, "GITHUB_RETENTION_DAYS", default=0) or None,
        state={name.removeprefix("STATE_"): text for name, text in environment.items() if name.startswith("STATE_")},
    )


def _count(environment: Mapping[str, str], name: str, *, default: int) -> int:
    text = environment.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else default


def _ca_bundle(environment: Mapping[str, str]) -> str | None:
    """The extra authorities of a GitHub Enterprise Server, under the names that tools use for them, most exact first."""
    for name in ("SERVEGATE_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"):
        if environment.get(name):
            return environment[name]
    return None
