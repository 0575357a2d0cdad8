"""The gate's policy, as the base commit has it: files by name, from GitHub's API or from the checkout's own history.

A pull request must not bring its own limits. So the configuration, and the files it names, are fetched at a commit that
the pull request cannot change, never from the working tree. Returned are bytes and where they came from; merging base
and head is the configuration's business. A file that does not exist there is `None`, which is a fact; one that could not
be asked for is an error, which stops the gate. Links and submodules are no files.
"""

from __future__ import annotations

import base64
import binascii
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from servegate_action.errors import CannotMeasure, UsageError
from servegate_action.github.api import Answer, Api, Refusal, Refused
from servegate_action.github.degrade import Feature, explain
from servegate_action.github.outputs import guard_line

MAX_BYTES = 64 * 1024 * 1024
_GIT_TIMEOUT_S = 60
_GIT_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
}
_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs/heads/[A-Za-z0-9][A-Za-z0-9._/+@-]*")


@dataclass(frozen=True, slots=True)
class Policy:
    """Files at one commit. `files` has None for what does not exist there; `source` says who told."""

    commit: str
    source: Literal["api", "checkout"]
    files: Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Sources:
    """Whom to ask: the API first, then the history of a checkout. Either may be None."""

    api: Api | None = None
    checkout: Path | None = None


class _Commit(Answer):
    sha: str


class _File(Answer):
    type: str
    sha: str
    size: int = 0
    encoding: str = ""
    content: str = ""


class _Blob(Answer):
    encoding: str
    content: str


def fetch(paths: Iterable[str], *, ref: str, sources: Sources) -> Policy:
    """The files at `ref`, a commit or `refs/heads/<branch>`.

    Raises UsageError for a path that leaves the repository or is no plain file, CannotMeasure when nobody could be asked.
    """
    names = [_inside(path) for path in dict.fromkeys(paths)]
    reasons: list[str] = []
    if sources.api is not None:
        try:
            return _from_api(names, ref=ref, api=sources.api)
        except Refused as refused:
            reasons.append(explain(Feature.POLICY, refused).text)
    if sources.checkout is not None:
        try:
            return _from_checkout(names, ref=ref, checkout=sources.checkout)
        except _NoHistory as missing:
            reasons.append(str(missing))
    raise CannotMeasure(
        f"the gate's policy at {ref[:40]} cannot be read",
        why="; ".join(reasons) or "neither a token nor a checkout with history is at hand",
        next_step="give the job `permissions: {contents: read}` and the input `github-token`, "
        "or check out with `fetch-depth: 0`",
    )


def _inside(path: str) -> str:
    pure = PurePosixPath(path.removeprefix("./"))
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or any(ord(char) < 32 for char in path):
        raise UsageError(
            f"{guard_line(path)!r} is not a file of the repository",
            why="what the policy names is read at the base commit, where only the repository's own files exist",
            next_step="name it relative to the repository's top folder",
        )
    return str(pure)


# ---------------------------------------------------------------- API


def _from_api(paths: Iterable[str], *, ref: str, api: Api) -> Policy:
    commit = ref if _SHA.fullmatch(ref) else api.get(api.path("commits", ref.removeprefix("refs/heads/")), _Commit).sha
    return Policy(commit, "api", {path: _api_file(path, commit=commit, api=api) for path in paths})


def _api_file(path: str, *, commit: str, api: Api) -> bytes | None:
    try:
        found = api.get(api.path("contents", *PurePosixPath(path).parts), _File, ref=commit)
    except Refused as refused:
        if refused.kind is Refusal.NOT_FOUND and _commit_is_readable(api, commit):
            return None
        raise
    if found.type != "file":
        raise _no_plain_file(path, found.type)
    if found.size > MAX_BYTES:
        raise _too_large(path, found.size)
    if found.encoding == "base64":
        return _decoded(found.content)
    return _decoded(api.get(api.path("git", "blobs", found.sha), _Blob).content)  # over a megabyte: content not inline


def _commit_is_readable(api: Api, commit: str) -> bool:
    """404 means "no such file" only where the commit itself can be seen; else it means "no permission"."""
    try:
        return api.get(api.path("commits", commit), _Commit).sha == commit
    except Refused:
        return False


def _decoded(content: str) -> bytes:
    try:
        return base64.b64decode(content, validate=False)
    except binascii.Error as error:
        raise Refused(Refusal.SERVER, status=None, message="a file that is not base64") from error


# ---------------------------------------------------------------- checkout


class _NoHistory(Exception):
    """The checkout cannot tell: git is missing, it is no repository, or the commit is not in it."""


def _from_checkout(paths: Iterable[str], *, ref: str, checkout: Path) -> Policy:
    names = [ref] if _SHA.fullmatch(ref) else [ref.replace("refs/heads/", "refs/remotes/origin/", 1), ref]
    if not _SHA.fullmatch(ref) and not _REF.fullmatch(ref):
        raise _NoHistory(f"{guard_line(ref)} is no commit and no branch")
    for name in names:
        found = _git(checkout, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
        if found.returncode == 0:
            commit = found.stdout.decode().strip()
            return Policy(
                commit, "checkout", {path: _git_file(path, commit=commit, checkout=checkout) for path in paths}
            )
    shallow = _git(checkout, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
    raise _NoHistory(
        f"commit {ref[:12]} is not in the checkout"
        + (
            ", which is shallow: actions/checkout fetches one commit unless `fetch-depth: 0` is given"
            if shallow
            else ""
        )
    )


def _git_file(path: str, *, commit: str, checkout: Path) -> bytes | None:
    listed = _git(checkout, "ls-tree", "-l", "-z", "--full-tree", commit, "--", path)
    entries = [entry for entry in listed.stdout.decode(errors="replace").split("\x00") if entry.endswith(f"\t{path}")]
    if not entries:
        return None
    mode, kind, name, size = entries[0].split("\t")[0].split()
    if kind != "blob" or mode not in ("100644", "100755"):
        raise _no_plain_file(path, "symlink" if mode == "120000" else kind)
    if int(size) > MAX_BYTES:
        raise _too_large(path, int(size))
    content = _git(checkout, "cat-file", "blob", name)
    if content.returncode != 0:
        raise _NoHistory(f"{path} is not in the checkout, which is a partial clone")
    return content.stdout


def _git(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Git, told to trust a folder of another owner (in a container action it always is), and to run nothing from it.

    `safe.directory` counts on the command line. The plumbing used here starts no hook, pager, filter or monitor.
    """
    command = [
        "git",
        "-C",
        str(checkout),
        "-c",
        "safe.directory=*",
        "-c",
        "core.fsmonitor=false",
        "--literal-pathspecs",
    ]
    try:
        return subprocess.run(
            [*command, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
            env=_GIT_ENVIRONMENT,
        )
    except FileNotFoundError as error:
        raise _NoHistory("git is not installed here") from error
    except (subprocess.TimeoutExpired, OSError) as error:
        raise _NoHistory(f"git did not answer: {error}") from error


def _no_plain_file(path: str, kind: str) -> UsageError:
    return UsageError(
        f"{guard_line(path)} is a {guard_line(kind)} at the base commit, not a plain file",
        why="a link or a submodule would lead out of what the base commit pins",
        next_step="put the file itself into the repository",
    )


def _too_large(path: str, size: int) -> UsageError:
    return UsageError(
        f"{guard_line(path)} has {size} bytes at the base commit; at most {MAX_BYTES} are read",
        why="policy files are configurations and traces",
        next_step="cut the trace (workload.trace takes start_s and duration_s), or keep it compressed elsewhere",
    )
