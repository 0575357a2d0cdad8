"""What one event of an OpenAI-compatible stream says: the full reader, and a scanner made from what it has read.

The full reader understands completions and chat as vLLM, SGLang, TensorRT-LLM, TGI, llama.cpp and OpenAI send them. It
costs a JSON parse per event. Nearly all events of a stream have the same bytes around a different text, so the first
ordinary one is turned into a regular expression: everything that could mean something is kept literally, only the text
and values without meaning (ids, times, log-probabilities) are open. What matches would have been read the same way by
the full reader (a test holds this on fuzzed bytes); what does not match goes to the full reader. It refuses to judge
whether an answer is good (`answer` does).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

REASONING_KEYS = ("reasoning_content", "reasoning")
_GOOD_FINISHES = frozenset({"length", "stop", "eos_token", "stop_sequence", "tool_calls", "function_call"})


class Usage(NamedTuple):
    """Token counts as the server gives them, cumulative."""

    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None


class Reading(NamedTuple):
    """One event's meaning. `text` is non-empty for a token event; `answer` is False for reasoning."""

    text: str = ""
    answer: bool = True
    usage: Usage | None = None
    finish_reason: str | None = None
    error: str | None = None
    role: bool = False


def read_event(data: bytes) -> Reading:
    """Read the data of one event that is not `[DONE]`. Never raises: what is wrong is the `error` of the reading."""
    try:
        told = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as wrong:
        return Reading(error=f"an event is not JSON: {type(wrong).__name__} in {data[:80]!r}")
    if not isinstance(told, dict):
        return Reading(error=f"an event is not a JSON object: {data[:80]!r}")
    if told.get("error") or told.get("object") == "error":
        return Reading(error=f"the server reported an error inside the stream: {_error_text(told)}")
    text, answer, finish, role = _read_choices(told.get("choices"))
    error = None
    if finish is not None and finish not in _GOOD_FINISHES:
        error = f"the server ended the answer with finish_reason {finish!r}"
    return Reading(text, answer, _usage(told.get("usage")), finish, error, role)


def _refuse_constant(name: str) -> float:
    raise ValueError(name)


def _error_text(told: Mapping[str, object]) -> str:
    found = told.get("error")
    if isinstance(found, dict):
        found = found.get("message") or json.dumps(found)
    text = str(found or told.get("message") or json.dumps(told))[:300]
    return text.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be written anywhere


def _read_choices(choices: object) -> tuple[str, bool, str | None, bool]:
    """Text, whether it belongs to the answer, finish reason, and whether a role was named, over all choices."""
    text, answer, finish, role = "", False, None, False
    for choice in choices if isinstance(choices, list) else []:
        if not isinstance(choice, dict):
            continue
        delta = choice.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        said = _string(choice.get("text")) + _string(delta.get("content")) + _tool_calls(delta.get("tool_calls"))
        thought = next((value for key in REASONING_KEYS if (value := _string(delta.get(key)))), "")
        text += thought + said
        answer = answer or bool(said)
        role = role or "role" in delta
        reason = choice.get("finish_reason")
        finish = reason if isinstance(reason, str) and reason else finish
    return text, answer, finish, role


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _tool_calls(calls: object) -> str:
    return json.dumps(calls, sort_keys=True) if isinstance(calls, list) and calls else ""


def _usage(told: object) -> Usage | None:
    if not isinstance(told, dict):
        return None
    details = told.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    counts = [_count(value) for value in (told.get("prompt_tokens"), told.get("completion_tokens"), cached)]
    return Usage(*counts) if any(count is not None for count in counts) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


# ---------------------------------------------------------------- the scanner

_PLAIN = rb'[^"\\\x00-\x1f]'
_ESCAPE = rb'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_REST = _PLAIN + rb"*(?:" + _ESCAPE + _PLAIN + rb"*)*"
_ANY_STRING = rb'"' + _REST + rb'"'
_SOME_TEXT = rb"(?:" + _PLAIN + rb"|" + _ESCAPE + rb")" + _REST
_ANY_TEXT = rb'"(' + _SOME_TEXT + rb')"'
TEXT = re.compile(_SOME_TEXT)
"""A JSON string's text without its quotes, as long as it goes, never empty."""
_ANY_NUMBER = rb"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,5})?"
_JSON_TOKEN = re.compile(
    rb"(?P<space>[ \t]+)|(?P<string>" + _ANY_STRING + rb")|(?P<number>" + _ANY_NUMBER + rb")"
    rb"|(?P<word>true|false|null)|(?P<mark>[{}\[\],:])"
)
_MEANINGFUL_TOP = frozenset({"error", "usage", "object"})
_TEXT_PATHS = {("choices", "text"): True, ("choices", "delta", "content"): True} | {
    ("choices", "delta", key): False for key in REASONING_KEYS
}
_MEANINGFUL_CHOICE = frozenset({"finish_reason", "index", "delta", "text"})
Path = tuple[str, ...]


class Scanner(NamedTuple):
    """Matches consecutive events of one shape. Group 1 is the raw JSON text (without quotes), never empty."""

    pattern: re.Pattern[bytes]
    answer: bool


def make_scanner(data: bytes, ending: bytes) -> Scanner | None:
    """A scanner from the data of one token event, or None when the event is not an ordinary one.

    Ordinary: exactly one non-empty text in one known place, no usage, no finish reason, no key twice in an object.
    `ending` is what followed the data: LF LF or CRLF CRLF.
    """
    reading = read_event(data)
    if reading.error or reading.usage or reading.finish_reason or not reading.text:
        return None
    walk = _walk(data)
    if walk is None:
        return None
    parts: list[bytes] = []
    texts: list[bool] = []
    for kind, token, path in walk:
        if kind == "string" and path in _TEXT_PATHS and token != b'""':
            texts.append(_TEXT_PATHS[path])
            parts.append(_ANY_TEXT)
        elif kind == "string" and not _meaningful(path):
            parts.append(_ANY_STRING)
        elif kind == "number" and not _meaningful(path):
            parts.append(_ANY_NUMBER)
        else:
            parts.append(re.escape(token))
    if len(texts) != 1:
        return None
    pattern = rb"data: ?" + b"".join(parts) + re.escape(ending)
    return Scanner(re.compile(pattern), texts[0])


def _meaningful(path: Path) -> bool:
    """May a different value at this path change what the event means?"""
    if not path or path[0] in _MEANINGFUL_TOP:
        return True
    return path[0] == "choices" and (len(path) == 1 or path[1] in _MEANINGFUL_CHOICE)


def _walk(data: bytes) -> list[tuple[str, bytes, Path]] | None:
    """Tokens of a JSON text with the path of keys that leads to each scalar value; keys have the kind `key`.

    The text is known to be valid JSON. None when an object has the same key twice (the last one would win), or when it
    holds what the scanner's pieces do not: line breaks, numbers of absurd length.
    """
    tokens: list[tuple[str, bytes, Path]] = []
    path: list[str] = []
    keys: list[set[str] | None] = []
    expects_key = False
    for match in _JSON_TOKEN.finditer(data):
        kind, token = str(match.lastgroup), match[0]
        if kind == "string" and expects_key and keys[-1] is not None:
            name = json.loads(token)
            if name in keys[-1]:
                return None
            keys[-1].add(name)
            path[-1] = name
            kind, expects_key = "key", False
        elif kind == "mark":
            expects_key = _descend(token, path, keys)
        tokens.append((kind, token, tuple(step for step in path if step)))
    return tokens if b"".join(token for _, token, _ in tokens) == data else None


def _descend(mark: bytes, path: list[str], keys: list[set[str] | None]) -> bool:
    """Follow one punctuation mark; True when a key comes next."""
    if mark in b"{[":
        path.append("")
        keys.append(set() if mark == b"{" else None)
    elif mark in b"}]":
        path.pop()
        keys.pop()
    return mark == b"{" or (mark == b"," and bool(keys) and keys[-1] is not None)
