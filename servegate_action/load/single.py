"""Single requests outside any measurement: an answer's text, a prompt's length in tokens, a text's number of tokens.

For calibration, the numerics probe and cross-checks. No stamps. What a server does not answer is `CannotMeasure`, with
its own words. It refuses to be used for timing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import isfinite

from servegate_action import client
from servegate_action.errors import CannotMeasure
from servegate_action.load.cell import Target
from servegate_action.load.dialect import endpoint, request_body
from servegate_action.load.shapes import Reading, read_event
from servegate_action.load.sse import events
from servegate_action.records import Absent

_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Completion:
    """One whole answer. Counts are None when the server reports no usage."""

    text: str
    prompt_tokens: int | None
    output_tokens: int | None
    finish_reason: str | None


def complete(target: Target, prompt: str, *, output_tokens: int, timeout_s: float = _TIMEOUT_S) -> Completion:
    """One greedy request, streamed like the measured ones, so that it takes the same way through the server."""
    url = endpoint(target.base_url, target.dialect.api)
    body = request_body(target.dialect, prompt=prompt, output_tokens=output_tokens)
    reply = client.post_json(url, body, headers=target.headers, timeout_s=timeout_s)
    if isinstance(reply, client.NoAnswer) or not reply.ok:
        raise CannotMeasure(f"{url} did not answer a single request: {reply}", next_step="read the server's log")
    readings = _readings(reply)
    errors = [reading.error for reading in readings if reading.error]
    if errors:
        raise CannotMeasure(f"{url} failed within a single answer: {errors[0]}", next_step="read the server's log")
    usages = [reading.usage for reading in readings if reading.usage is not None]
    prompt_tokens = next((u.prompt_tokens for u in reversed(usages) if u.prompt_tokens is not None), None)
    output = next((u.completion_tokens for u in reversed(usages) if u.completion_tokens is not None), None)
    finish = next((reading.finish_reason for reading in reversed(readings) if reading.finish_reason), None)
    return Completion("".join(reading.text for reading in readings), prompt_tokens, output, finish)


def complete_together(
    target: Target, prompts: Sequence[str], *, output_tokens: int, at_once: int
) -> tuple[Completion, ...]:
    """The same for many prompts, up to `at_once` of them under way at a time. In the order of the prompts."""
    if not prompts:
        return ()
    pool = ThreadPoolExecutor(at_once)
    try:
        return tuple(pool.map(partial(complete, target, output_tokens=output_tokens), prompts))
    except CannotMeasure as error:
        raise CannotMeasure(
            f"of {len(prompts)} requests, {at_once} at once, one failed: {error}",
            next_step="read the server's log: the workload asks for as many at once, or more",
        ) from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # what is still under way ends with the stack


def complete_with_logprobs(
    target: Target, prompt: str, *, output_tokens: int
) -> tuple[tuple[str, float], ...] | Absent:
    """The tokens of one greedy answer with their log-probabilities; absent where the server gives none, with its reason.

    Knows the shape of chat completions (`content`, a list of tokens) and that of OpenAI's older completions (`tokens` and
    `token_logprobs`); llama.cpp answers both APIs in the first. Ends before the first token without a finite number.
    """
    url = endpoint(target.base_url, target.dialect.api)
    body = request_body(target.dialect, prompt=prompt, output_tokens=output_tokens)
    body |= {"logprobs": 1} if target.dialect.api == "completions" else {"logprobs": True}
    reply = client.post_json(url, body, headers=target.headers, timeout_s=_TIMEOUT_S)
    if isinstance(reply, client.NoAnswer) or not reply.ok:
        return Absent(absent=f"a request for log-probabilities was not answered: {reply}")
    found: list[tuple[str, float]] = []
    for told in _events(reply):
        choices = told.get("choices") if isinstance(told, dict) else None
        for choice in choices if isinstance(choices, list) else []:
            for token, logprob in _token_logprobs(choice.get("logprobs") if isinstance(choice, dict) else None):
                if not isinstance(logprob, int | float) or not isfinite(logprob):
                    return tuple(found)
                found.append((str(token), float(logprob)))
    return tuple(found) or Absent(absent="the server gives no log-probabilities")


def _token_logprobs(told: object) -> Iterator[tuple[object, object]]:
    if not isinstance(told, dict):
        return
    content, tokens, values = (told.get(name) for name in ("content", "tokens", "token_logprobs"))
    for entry in content if isinstance(content, list) else []:
        if isinstance(entry, dict):
            yield entry.get("token"), entry.get("logprob")
    if isinstance(tokens, list) and isinstance(values, list):
        yield from zip(tokens, values, strict=False)


def _events(reply: client.Answered) -> Iterator[object]:
    for event in events(reply.text.encode("utf-8", "surrogatepass"), whole=True):
        try:
            yield json.loads(event.data or b"")
        except ValueError:
            continue  # [DONE], or what `complete` would have complained about


def _readings(reply: client.Answered) -> list[Reading]:
    body = reply.text.encode("utf-8", "surrogatepass")
    return [
        read_event(event.data)
        for event in events(body, whole=True)
        if event.data is not None and event.data.strip() not in {b"", b"[DONE]"}
    ]


def probe_tokens(target: Target, texts: Sequence[str]) -> list[int]:
    """Length in tokens of each text as a prompt: the server's own `usage.prompt_tokens`, one output token each."""
    lengths: list[int] = []
    for text in texts:
        answer = complete(target, text, output_tokens=1)
        if answer.prompt_tokens is None:
            raise CannotMeasure(
                f"{target.base_url} does not report usage.prompt_tokens",
                why="without it the length of a prompt in tokens cannot be known",
                next_step="use a server that reports usage (stream_options.include_usage)",
            )
        lengths.append(answer.prompt_tokens)
    return lengths


def count_tokens(target: Target, texts: Sequence[str]) -> list[int] | None:
    """Tokens of each text by the server's `/tokenize`, without special tokens; None when it offers none.

    Knows vLLM's and SGLang's shape (`prompt` in, `count` out) and llama.cpp's (`content` in, `tokens` out).
    """
    url = client.api_root(target.base_url) + "/tokenize"
    counts: list[int] = []
    for text in texts:
        body: client.Json = {"content": text, "add_special": False}
        body |= {"model": target.dialect.served_model, "prompt": text, "add_special_tokens": False}
        reply = client.post_json(url, body, headers=target.headers, timeout_s=30.0)
        told = reply.json() if isinstance(reply, client.Answered) and reply.ok else None
        if not isinstance(told, dict):
            return None
        count, tokens = told.get("count"), told.get("tokens")
        if isinstance(count, int):
            counts.append(count)
        elif isinstance(tokens, list):
            counts.append(len(tokens))
        else:
            return None
    return counts
