"""The HTTP side: finds the route, makes things go wrong on demand, pages lists, keeps a log."""

from __future__ import annotations

import json
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from tests.support.fake_github import routes
from tests.support.fake_github.routes import Answer, Asked
from tests.support.fake_github.world import Fault, Request, World


class FakeGitHub:
    """A GitHub on loopback. `world` is its state; look at it and change it between requests, under `lock` if needed."""

    def __init__(self, world: World | None = None, *, prefix: str = "", state: Path | None = None) -> None:
        self.world = world or World()
        self.prefix = prefix
        self.lock = threading.RLock()
        self.url = ""
        self._state = state
        self._hooks: list[tuple[str, str, Callable[[], None]]] = []

    def before(self, method: str, path: str, action: Callable[[], None]) -> None:
        """Once, just before the first matching request is carried out, do something else first."""
        self._hooks.append((method, path, action))

    def fail(self, **facts: object) -> None:
        """Let something go wrong; see `Fault`."""
        self.world.faults.append(Fault.model_validate(facts))

    def asked(self, method: str, path: str = ".*") -> list[Request]:
        """What was asked so far."""
        return [row for row in self.world.log if row.method == method and re.search(path, row.path)]

    def answer(self, method: str, target: str, body: Mapping[str, object]) -> Answer | None:
        """Carry one request out. None: the connection is dropped."""
        parts = urlsplit(target)
        self._run_hooks(method, parts.path)
        with self.lock:
            fault = self._fault(method, parts.path)
            if fault is None or fault.after_success:
                answer = self._carry_out(method, parts.path, dict(parse_qsl(parts.query)), body)
            else:
                answer = Answer(0)
            if fault is not None:
                answer = Answer(fault.status, {"message": fault.message}, headers=fault.headers, raw=fault.raw)
            self.world.log.append(Request(method=method, path=target, status=answer.status, body=dict(body) or None))
            if self._state is not None and (method != "GET" or fault is not None):
                self.world.save(self._state)
            return None if fault is not None and fault.drop else answer

    def _carry_out(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, object]) -> Answer:
        below = path.removeprefix(self.prefix)
        graphql = self.prefix.removesuffix("/v3") + "/graphql"
        here = re.fullmatch(r".*", "")
        assert here is not None
        if path == graphql and method == "POST":
            return routes.viewer(Asked(self.world, self.url, here, query, body))
        if below == "/user":
            return routes.whoami(Asked(self.world, self.url, here, query, body))
        root = f"/repos/{self.world.repository}/"
        if not below.startswith(root):
            return routes.NOT_FOUND
        for verb, pattern, route in routes.ROUTES:
            match = re.fullmatch(pattern, below.removeprefix(root))
            if verb == method and match is not None:
                answer = route(Asked(self.world, self.url, match, query, body))
                return self._paged(answer, path, query) if answer.listed else answer
        return routes.NOT_FOUND

    def _paged(self, answer: Answer, path: str, query: Mapping[str, str]) -> Answer:
        assert isinstance(answer.body, list)
        size = min(100, int(query.get("per_page", 30)))
        page = int(query.get("page", 1))
        shown = answer.body[(page - 1) * size : page * size]
        last = max(1, -(-len(answer.body) // size))
        host = self.url.removesuffix(self.prefix)
        rest = "".join(f"&{name}={value}" for name, value in query.items() if name not in ("page", "per_page"))
        links = {"next": page + 1, "last": last} if page < last else {}
        link = ", ".join(f'<{host}{path}?per_page={size}&page={n}{rest}>; rel="{rel}"' for rel, n in links.items())
        body: object = {"total_count": len(answer.body), answer.wrapper: shown} if answer.wrapper else shown
        return Answer(200, body, headers={"Link": link} if link else {})

    def _run_hooks(self, method: str, path: str) -> None:
        for hook in self._hooks:
            if hook[0] == method and re.search(hook[1], path):
                self._hooks.remove(hook)
                hook[2]()
                return

    def _fault(self, method: str, path: str) -> Fault | None:
        for fault in self.world.faults:
            if fault.times == 0 or not re.fullmatch(fault.method, method) or not re.search(fault.path, path):
                continue
            if fault.times is not None:
                fault.times -= 1
            return fault
        return None


def _handler(fake: FakeGitHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 30
        disable_nagle_algorithm = True  # head and body are two writes: without this each answer takes 40 ms

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - named by http.server
            """Say nothing: the log is in the world."""

        def _handle(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            sent = self.rfile.read(length) if length else b""
            try:
                body = json.loads(sent) if sent else {}
                answer = fake.answer(self.command, self.path, body)
            except json.JSONDecodeError:
                answer = Answer(400, {"message": "Problems parsing JSON"})
            if answer is None:
                self.close_connection = True
                return
            text = json.dumps(answer.body) if answer.raw is None else answer.raw
            data = b"" if answer.status == 204 else text.encode()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = _handle  # noqa: N815 - names given by http.server

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no news; anything else is, loudly."""
        with suppress(ConnectionError, TimeoutError):
            raise  # noqa: PLE0704 - called by socketserver while the exception is being handled


@contextmanager
def serving(
    fake: FakeGitHub,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tls: ssl.SSLContext | None = None,
    name: str = "127.0.0.1",
) -> Iterator[FakeGitHub]:
    """Serve a fake until the block ends. `name` is the host's name in the addresses that it gives out."""
    server = _Server((host, port), _handler(fake))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    fake.url = f"{'https' if tls else 'http'}://{name}:{server.server_address[1]}{fake.prefix}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
