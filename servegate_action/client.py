"""Plain HTTP calls to a stack: one question, one answer, no measuring.

Shared by the load generator (probing what a server accepts), by the readiness probe and by identity. It owns the few
rules that every such call obeys: no proxy from the environment, an explicit time limit, no redirects, no silent retry.
Foreign exceptions stop here: a call gives back `Answered` or `NoAnswer`, never an httpx error. It refuses to stamp
tokens (`load` does) and to interpret what a server says of itself (`identity` does).
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import certifi
import httpx

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Answered:
    """The server answered, with whatever status."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True for a 2xx status."""
        return 200 <= self.status < 300

    def json(self) -> object | None:
        """The body as JSON, or None when it is none."""
        try:
            return json.loads(self.text)  # type: ignore[no-any-return]
        except ValueError:
            return None

    def __str__(self) -> str:
        shown = " ".join(self.text.split())
        return f"HTTP {self.status}: {shown[:300]}{'…' if len(shown) > 300 else ''}"


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No complete answer came. `refused`: nothing listens; `timeout`: too slow; `broken`: the connection or HTTP failed."""

    kind: Literal["refused", "timeout", "broken"]
    detail: str

    def __str__(self) -> str:
        return f"no answer ({self.kind}): {self.detail}"


Reply = Answered | NoAnswer


@dataclass(frozen=True, slots=True)
class OneToken:
    """A real one-token completion arrived: the server serves."""

    text: str
    served_model: str


def api_root(base_url: str) -> str:
    """`http://host:port[/prefix]` without a trailing slash or `/v1`: what `/v1/...` and `/health` are appended to."""
    return base_url.rstrip("/").removesuffix("/v1").rstrip("/")


def authorities() -> str | None:
    """A file of certificate authorities for https stacks; None when the system's own store is to be used.

    The system's store (or SSL_CERT_FILE) knows private authorities; where it is empty, as in some containers, certifi's
    list stands in.
    """
    paths = ssl.get_default_verify_paths()
    if paths.cafile or (paths.capath and os.listdir(paths.capath)):
        return None
    return certifi.where()


def get_text(url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 10.0) -> Reply:
    """GET, any status."""
    return _call("GET", url, body=None, headers=headers, timeout_s=timeout_s)


def get_json(url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 10.0) -> object | None:
    """GET; the parsed JSON of a 2xx answer, else None."""
    reply = get_text(url, headers=headers, timeout_s=timeout_s)
    return reply.json() if isinstance(reply, Answered) and reply.ok else None


def post_json(url: str, body: Json, *, headers: Mapping[str, str] | None = None, timeout_s: float = 60.0) -> Reply:
    """POST a JSON body, any status. A streamed answer comes back as its whole text."""
    return _call("POST", url, body=body, headers=headers, timeout_s=timeout_s)


def list_models(base_url: str, *, headers: Mapping[str, str] | None = None, timeout_s: float = 10.0) -> Reply:
    """What `/v1/models` answers."""
    return get_text(api_root(base_url) + "/v1/models", headers=headers, timeout_s=timeout_s)


def model_ids(reply: Reply) -> tuple[str, ...]:
    """Ids in an answer of `/v1/models`; empty when there are none, or no answer came."""
    listed = reply.json() if isinstance(reply, Answered) and reply.ok else None
    data = listed.get("data") if isinstance(listed, dict) else None
    entries = data if isinstance(data, list) else []
    return tuple(entry["id"] for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str))


def one_token(
    base_url: str,
    *,
    api: Literal["completions", "chat"] = "completions",
    served_model: str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 60.0,
) -> OneToken | Reply:
    """Ask for one token, not streamed. `OneToken` when the server really completed; else what it said instead.

    A model that is not named is the first that `/v1/models` lists. `timeout_s` holds for each of the two calls. Both
    names of the token limit are tried, because OpenAI's newer models refuse the older one.
    """
    model = served_model or next(
        iter(model_ids(list_models(base_url, headers=headers, timeout_s=timeout_s))), "default"
    )
    url = api_root(base_url) + ("/v1/completions" if api == "completions" else "/v1/chat/completions")
    body: Json = {"model": model, "temperature": 0}
    body |= {"prompt": "Hello"} if api == "completions" else {"messages": [{"role": "user", "content": "Hello"}]}
    reply = post_json(url, body | {"max_tokens": 1}, headers=headers, timeout_s=timeout_s)
    if isinstance(reply, Answered) and reply.status in {400, 422} and "max_completion_tokens" in reply.text:
        reply = post_json(url, body | {"max_completion_tokens": 1}, headers=headers, timeout_s=timeout_s)
    if isinstance(reply, NoAnswer) or not reply.ok:
        return reply
    text = _completed_text(reply.json())
    return reply if text is None else OneToken(text=text, served_model=model)


def _completed_text(answer: object) -> str | None:
    """The text of a non-streamed completion; None when the answer is not one (an error object inside a 200)."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    message = choices[0].get("message")
    texts = [choices[0].get("text")]
    if isinstance(message, dict):
        texts += [message.get(key) for key in ("content", "reasoning_content", "reasoning")]
    found = [text for text in texts if isinstance(text, str)]
    return next((text for text in found if text), "") if found or isinstance(message, dict) else None


def _call(method: str, url: str, *, body: Json | None, headers: Mapping[str, str] | None, timeout_s: float) -> Reply:
    try:
        verify = ssl.create_default_context(cafile=authorities()) if url.startswith("https:") else False
        with httpx.Client(trust_env=False, follow_redirects=False, timeout=timeout_s, verify=verify) as client:
            response = client.request(method, url, json=body, headers=dict(headers or {}))
            return Answered(response.status_code, response.text, dict(response.headers))
    except httpx.TimeoutException as error:
        return NoAnswer("timeout", f"nothing within {timeout_s:g} s ({type(error).__name__})")
    except httpx.ConnectError as error:
        return NoAnswer("refused", str(error))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return NoAnswer("broken", f"{type(error).__name__}: {error}")
