"""Uploading the evidence from inside the action, to the runner's Results service. Best effort.

The sure way is `actions/upload-artifact` as the next step; this is for those who want one step. The protocol is that of
@actions/artifact: CreateArtifact, the archive in blocks to a signed address, FinalizeArtifact with size and sha256. The
runtime token goes to the Results service only, never to the signed address. Whatever fails is a warning: an artifact that
is not there never flips a gate.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, urlsplit

import requests

from servegate_action.github.api import Refusal, Refused
from servegate_action.github.degrade import Feature, Lost, explain
from servegate_action.github.inputs import ActionsEnvironment

BLOCK_BYTES = 8 * 1024 * 1024
TRIES = 3
_TIMEOUT_S = 60
_SERVICE = "twirp/github.actions.results.api.v1.ArtifactService/"
_FORBIDDEN = re.compile(r'[":<>|*?\r\n\\/]')
_PACKED = frozenset({".gz", ".zip", ".png"})


@dataclass(frozen=True, slots=True)
class Uploaded:
    """What arrived."""

    id: str
    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class _Service:
    url: str
    token: str = field(repr=False)
    run: str
    job: str
    ca_bundle: str | None


def upload(
    directory: Path, *, name: str, environment: ActionsEnvironment, sleep: Callable[[float], None]
) -> Uploaded | Lost:
    """Upload a folder as one artifact, or say why not."""
    try:
        service = _service(environment)
        with tempfile.TemporaryFile(dir=environment.runner_temp) as file:
            _pack(directory, file)
            return _send(file, name=_FORBIDDEN.sub("-", name)[:128], service=service, sleep=sleep)
    except Refused as refused:
        return explain(Feature.ARTIFACT, refused)
    except OSError as error:
        return explain(Feature.ARTIFACT, Refused(Refusal.INVALID, status=None, message=f"the archive: {error}"))


def _service(environment: ActionsEnvironment) -> _Service:
    if environment.is_enterprise_server:
        raise Refused(Refusal.GONE, status=None, message="GitHub Enterprise Server has no Results service")
    if not environment.results_url or not environment.runtime_token:
        raise Refused(Refusal.GONE, status=None, message="ACTIONS_RESULTS_URL or ACTIONS_RUNTIME_TOKEN is not set")
    run, job = _ids(environment.runtime_token)
    return _Service(environment.results_url.rstrip("/"), environment.runtime_token, run, job, environment.ca_bundle)


def _ids(token: str) -> tuple[str, str]:
    """Run and job as the Results service calls them, from the token's `scp` claim: `Actions.Results:<run>:<job>`."""
    try:
        middle = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(middle + "=" * (-len(middle) % 4)))
        scopes = str(claims["scp"]).split(" ")
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise Refused(Refusal.BAD_TOKEN, status=None, message="the runtime token has no scopes") from error
    for scope in scopes:
        parts = scope.split(":")
        if parts[0] == "Actions.Results" and len(parts) == 3:
            return parts[1], parts[2]
    raise Refused(Refusal.BAD_TOKEN, status=None, message="the runtime token has no scope Actions.Results")


def _pack(directory: Path, file: BinaryIO) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file() and not path.is_symlink():
                kind = zipfile.ZIP_STORED if path.suffix in _PACKED else zipfile.ZIP_DEFLATED
                archive.write(path, path.relative_to(directory), kind)


def _send(file: BinaryIO, *, name: str, service: _Service, sleep: Callable[[float], None]) -> Uploaded:
    with _Line(service, sleep) as line:
        ids = {"workflow_run_backend_id": service.run, "workflow_job_run_backend_id": service.job, "name": name}
        created = line.ask("CreateArtifact", {**ids, "version": 4})
        size, sha256 = line.store(_signed_address(created, service), file)
        finished = line.ask("FinalizeArtifact", {**ids, "size": str(size), "hash": f"sha256:{sha256}"})
        number = str(finished.get("artifact_id") or finished.get("artifactId") or "")
        return Uploaded(id=number, name=name, size_bytes=size, sha256=sha256)


def _signed_address(created: Mapping[str, object], service: _Service) -> str:
    address = str(created.get("signed_upload_url") or created.get("signedUploadUrl") or "")
    parts = urlsplit(address)
    if parts.scheme != urlsplit(service.url).scheme or not parts.hostname:
        raise Refused(Refusal.SERVER, status=None, message="CreateArtifact gave no address to upload to")
    return address


class _Line:
    """The two connections of one upload: with the token to the service, without it to the storage."""

    def __init__(self, service: _Service, sleep: Callable[[float], None]) -> None:
        self._service = service
        self._sleep = sleep
        self._session = requests.Session()
        self._session.verify = service.ca_bundle or True
        self._session.trust_env = True

    def __enter__(self) -> _Line:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def ask(self, method: str, body: Mapping[str, object]) -> Mapping[str, object]:
        """One call of the service. Raises `Refused` unless it says `ok`."""
        answer = self._repeated(
            lambda: self._session.post(
                f"{self._service.url}/{_SERVICE}{method}",
                json=body,
                headers={"Authorization": f"Bearer {self._service.token}"},
                timeout=_TIMEOUT_S,
                allow_redirects=False,
            )
        )
        try:
            found = answer.json()
        except ValueError as error:
            raise Refused(Refusal.SERVER, status=answer.status_code, message=f"{method}: no JSON") from error
        if not isinstance(found, dict) or not found.get("ok"):
            raise Refused(Refusal.INVALID, status=answer.status_code, message=f"{method} was not accepted")
        return found

    def store(self, address: str, file: BinaryIO) -> tuple[int, str]:
        """The archive in blocks, then the list of them. Gives its size and sha256."""
        digest, size = hashlib.sha256(), 0
        names: list[str] = []
        file.seek(0)
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
            size += len(block)
            names.append(base64.b64encode(f"{len(names):032d}".encode()).decode())
            self._put(f"{address}&comp=block&blockid={quote(names[-1], safe='')}", block)
        listed = "".join(f"<Latest>{name}</Latest>" for name in names)
        document = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{listed}</BlockList>'
        self._put(f"{address}&comp=blocklist", document.encode(), {"x-ms-blob-content-type": "application/zip"})
        return size, digest.hexdigest()

    def _put(self, address: str, data: bytes, headers: Mapping[str, str] | None = None) -> None:
        self._repeated(
            lambda: self._session.put(
                address, data=data, headers=dict(headers or {}), timeout=_TIMEOUT_S, allow_redirects=False
            )
        )

    def _repeated(self, ask: Callable[[], requests.Response]) -> requests.Response:
        """A few tries: each step may be done twice without harm."""
        for attempt in range(TRIES):
            try:
                answer = ask()
            except requests.RequestException as error:
                refused = Refused(Refusal.UNREACHABLE, status=None, message=f"{type(error).__name__}"[:200])
            else:
                if answer.ok:
                    return answer
                kind = Refusal.SERVER if answer.status_code >= 500 else Refusal.INVALID
                refused = Refused(kind, status=answer.status_code, message=answer.reason[:200])
            if not refused.unclear or attempt == TRIES - 1:
                raise refused
            self._sleep(2.0**attempt)
        raise AssertionError("the last attempt returns or raises")
