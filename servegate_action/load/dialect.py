"""What a server's API accepts, found out by real one-token requests, and the request body that follows from it.

Probed once per stack before anything is measured; then both stacks get the same body (`agree`), so that no option which
only one of them knows can make a difference. What had to be left out is written into the dialect's notes. It refuses to
work around a server that does not stream or does not answer: that is `CannotMeasure`, with the server's own words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from servegate_action import client
from servegate_action.errors import CannotMeasure
from servegate_action.load.shapes import read_event
from servegate_action.load.sse import events
from servegate_action.records import Dialect

Api = Literal["completions", "chat"]
PROBE_PROMPT = "Say a word."
_REFUSALS = frozenset({400, 404, 405, 415, 422, 501})


def endpoint(base_url: str, api: Api) -> str:
    """The URL that requests go to."""
    return client.api_root(base_url) + ("/v1/completions" if api == "completions" else "/v1/chat/completions")


def request_body(dialect: Dialect, *, prompt: str, output_tokens: int, stream: bool = True) -> dict[str, object]:
    """One greedy request for exactly `output_tokens` tokens, as far as the dialect can ask for that."""
    body: dict[str, object] = {"model": dialect.served_model}
    if dialect.api == "completions":
        body["prompt"] = prompt
    else:
        body["messages"] = [{"role": "user", "content": prompt}]
    body |= {dialect.max_tokens_field: output_tokens, "temperature": 0, "stream": stream}
    if dialect.ignore_eos:
        body["ignore_eos"] = True
    if dialect.min_tokens:
        body["min_tokens"] = output_tokens
    if stream and dialect.stream_options:
        body["stream_options"] = {"include_usage": True}
    return body


def encoded(body: Mapping[str, object]) -> bytes:
    """The bytes of a body; the same for the same body, always."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class _Server:
    base_url: str
    headers: Mapping[str, str]
    timeout_s: float

    def ask(self, dialect: Dialect) -> client.Reply:
        body = request_body(dialect, prompt=PROBE_PROMPT, output_tokens=1)
        url = endpoint(self.base_url, dialect.api)
        return client.post_json(url, body, headers=self.headers, timeout_s=self.timeout_s)


def negotiate(
    base_url: str,
    *,
    api: Api,
    served_model: str | None,
    headers: Mapping[str, str],
    timeout_s: float,
) -> Dialect:
    """Find out what this server accepts. Raises CannotMeasure, with the server's answer, when it accepts nothing.

    Everything is asked for at once; only when that is refused is each option tried alone. `served_model=None` takes the
    first model that the server lists. `timeout_s` holds for each request.
    """
    server = _Server(base_url, headers, timeout_s)
    model = served_model or _listed_model(server)
    full = Dialect(
        api=api,
        served_model=model,
        stream_options=True,
        ignore_eos=True,
        min_tokens=True,
        max_tokens_field="max_tokens",
    )
    reply = server.ask(full)
    if _refused(reply):
        full, reply = _narrowed(server, full)
    return full.model_copy(update={"notes": (*full.notes, *_checked(reply, full, server))})


def _listed_model(server: _Server) -> str:
    reply = client.list_models(server.base_url, headers=server.headers, timeout_s=server.timeout_s)
    if isinstance(reply, client.NoAnswer):
        raise CannotMeasure(
            f"{server.base_url} does not answer: {reply}", next_step="is the server up, at this address and port?"
        )
    models = client.model_ids(reply)
    if not models:
        raise CannotMeasure(
            f"{server.base_url} does not list its models",
            why=f"GET /v1/models gave no list ({reply}), and no model name was given",
            next_step="name the model (--model)",
        )
    return models[0]


def _refused(reply: client.Reply) -> bool:
    return isinstance(reply, client.Answered) and reply.status in _REFUSALS


def _narrowed(server: _Server, full: Dialect) -> tuple[Dialect, client.Reply]:
    """The server refused the full body: find the plainest that it accepts, then add what it accepts one by one."""
    plain = full.model_copy(update={"stream_options": False, "ignore_eos": False, "min_tokens": False})
    reply = server.ask(plain)
    if _refused(reply):
        plain = plain.model_copy(update={"max_tokens_field": "max_completion_tokens"})
        retried = server.ask(plain)
        if _refused(retried):
            raise _unusable(server, plain, reply)
        reply = retried
    accepted: dict[str, object] = {}
    notes: list[str] = []
    for option in ("stream_options", "ignore_eos", "min_tokens"):
        answer = server.ask(plain.model_copy(update={option: True}))
        accepted[option] = not _refused(answer)
        if _refused(answer):
            notes.append(f"{option} is refused by the server ({answer})")
    together = plain.model_copy(update=accepted)
    final = server.ask(together)
    if _refused(final):
        notes.append(f"options that the server accepts alone are refused together ({final})")
        return plain.model_copy(update={"notes": tuple(notes)}), reply
    return together.model_copy(update={"notes": tuple(notes)}), final


def _checked(reply: client.Reply, dialect: Dialect, server: _Server) -> list[str]:
    """Notes about an accepted answer; raises when it is no streamed completion."""
    if isinstance(reply, client.NoAnswer) or not reply.ok:
        raise _unusable(server, dialect, reply)
    if not reply.headers.get("content-type", "").lower().startswith("text/event-stream"):
        raise _unusable(server, dialect, reply, why="it answered a request for a stream without streaming")
    readings = [
        read_event(event.data)
        for event in events(reply.text.encode("utf-8", "surrogatepass"), whole=True)
        if event.data and event.data.strip() != b"[DONE]"
    ]
    if errors := [reading.error for reading in readings if reading.error]:
        raise _unusable(server, dialect, reply, why=errors[0])
    if not any(reading.usage for reading in readings):
        return ["the server reports no usage: output tokens are counted by events, on both stacks alike"]
    return []


def _unusable(server: _Server, dialect: Dialect, reply: client.Reply, why: str | None = None) -> CannotMeasure:
    other = "chat" if dialect.api == "completions" else "completions"
    missing = isinstance(reply, client.Answered) and reply.status in {404, 405, 501}
    return CannotMeasure(
        f"{endpoint(server.base_url, dialect.api)} does not complete a one-token request: {reply}",
        why=why or ("the server has no such path, or no such model" if missing else "the server's answer is above"),
        next_step=f"check the model name {dialect.served_model!r}, or use `api: {other}`"
        if missing
        else "read the server's log",
    )


def agree(a: Dialect, b: Dialect) -> Dialect:
    """The largest request body that both servers accept. The model's name stays that of `a`.

    Raises CannotMeasure when there is none: different APIs, or no common name for the token limit.
    """
    if a.api != b.api or a.max_tokens_field != b.max_tokens_field:
        raise CannotMeasure(
            "the two stacks accept no common request body",
            why=f"{a.api} with {a.max_tokens_field} here, {b.api} with {b.max_tokens_field} there",
            next_step="serve both stacks behind the same API",
        )
    common = {
        option: getattr(a, option) and getattr(b, option) for option in ("stream_options", "ignore_eos", "min_tokens")
    }
    left_out = [
        f"{option} is left out on both stacks, because only one accepts it"
        for option, both in common.items()
        if not both and (getattr(a, option) or getattr(b, option))
    ]
    notes = tuple(dict.fromkeys((*a.notes, *b.notes, *left_out)))
    return a.model_copy(update={**common, "notes": notes})
