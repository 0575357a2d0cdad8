"""A Results service and its blob storage: accepts what @actions/artifact sends, and checks size and sha256 in the end."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

RUN, JOB = "run-backend", "job-backend"


def runtime_token(scopes: str = f"Actions.Other Actions.Results:{RUN}:{JOB}") -> str:
    """A token as the runner hands it out, unsigned."""
    claims = base64.urlsafe_b64encode(json.dumps({"scp": scopes}).encode()).decode().rstrip("=")
    return f"e30.{claims}.sig"


@dataclass(slots=True)
class FakeResults:
    """The service's state. `failures` are HTTP statuses that the next requests get, whatever they ask."""

    url: str = ""
    blocks: dict[str, bytes] = field(default_factory=dict)
    blob: bytes = b""
    artifacts: dict[str, dict[str, object]] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    tokens_at_storage: list[str] = field(default_factory=list)

    def post(self, path: str, body: dict[str, object], token: str) -> tuple[int, dict[str, object]]:
        """A call of the service."""
        if token != f"Bearer {runtime_token()}":
            return 401, {"code": "unauthenticated"}
        if (body.get("workflow_run_backend_id"), body.get("workflow_job_run_backend_id")) != (RUN, JOB):
            return 403, {"code": "permission_denied"}
        name = str(body.get("name"))
        if path.endswith("/CreateArtifact"):
            self.artifacts[name] = {"final": False}
            return 200, {"ok": True, "signed_upload_url": f"{self.url}/blob.zip?sig=SECRET%3D&se=2030"}
        if path.endswith("/FinalizeArtifact"):
            digest = f"sha256:{hashlib.sha256(self.blob).hexdigest()}"
            if body.get("hash") != digest or body.get("size") != str(len(self.blob)):
                return 400, {"code": "invalid_argument", "msg": "size or hash"}
            self.artifacts[name] = {"final": True}
            return 200, {"ok": True, "artifact_id": "1234"}
        return 404, {"code": "bad_route"}

    def put(self, target: str, data: bytes) -> int:
        """A block, or the list of blocks."""
        query = parse_qs(urlsplit(target).query)
        if query.get("sig") != ["SECRET="]:
            return 403
        if query.get("comp") == ["block"]:
            self.blocks[query["blockid"][0]] = data
        elif query.get("comp") == ["blocklist"]:
            names = re.findall(r"<Latest>([^<]+)</Latest>", data.decode())
            self.blob = b"".join(self.blocks[name] for name in names)
        else:
            return 400
        return 201


@contextmanager
def serving_results() -> Iterator[FakeResults]:
    """Serve until the block ends."""
    fake = FakeResults()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by http.server
            """Say nothing."""

        def _answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _handle(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            token = self.headers.get("authorization", "")
            if fake.failures:
                self._answer(fake.failures.pop(0), {"code": "fault"})
            elif self.command == "POST":
                self._answer(*fake.post(self.path, json.loads(data), token))
            else:
                fake.tokens_at_storage.append(token)
                self._answer(fake.put(self.path, data), {})

        do_POST = do_PUT = _handle  # noqa: N815 - names given by http.server

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
