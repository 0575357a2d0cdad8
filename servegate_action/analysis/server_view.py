"""What the server itself counted while one cell was measured, held against what the client saw.

The client's numbers are the ones that are judged; the server's are a second opinion. Counters are read before and after a
cell, so that their differences belong to it. Names of counters differ by engine: vLLM and SGLang from their documents,
llama.cpp as read from a running server (whose counts agree with the client's to the token). A server that offers no
counter is `None` here and stays unchecked. Of two readings one of which was not answered nothing is known: it refuses to
take the missing one for counters of 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from servegate_action.records import CellRun, RequestRecord

GENERATED = ("vllm:generation_tokens_total", "llamacpp:tokens_predicted_total", "sglang:generation_tokens_total")
CACHED = ("llamacpp:prompt_tokens_cached_total", "sglang:cached_tokens_total", "vllm:prefix_cache_hits_total")
PREEMPTIONS = ("vllm:num_preemptions_total",)
TTFT_SUM = ("vllm:time_to_first_token_seconds_sum", "sglang:time_to_first_token_seconds_sum")
TTFT_COUNT = ("vllm:time_to_first_token_seconds_count", "sglang:time_to_first_token_seconds_count")
# SGLang counts tokens once per rank, so that the sum over ranks is a whole multiple.
PER_RANK = "sglang:generation_tokens_total"
CACHED_PER_RANK = "sglang:cached_tokens_total"
MISCOUNT_SHARE = 0.01
# Engines may or may not count the stop token; a short answer must not fail for it.
MISCOUNT_PER_REQUEST = 1.5


@dataclass(frozen=True, slots=True)
class ServerView:
    """Differences over one cell, warm-up included. `cached_share`: of the prompt tokens that the client sent.

    `unread`: one of the two readings was not answered, the other was.
    """

    generated: float | None
    cached_share: float | None
    preemptions: float | None
    mean_ttft_ms: float | None
    miscounted: str | None
    unread: bool = False


def server_view(run: CellRun, requests: Sequence[RequestRecord]) -> ServerView:
    """One cell from the server's side. `requests`: all of the cell's, warm-up included."""
    before, after = run.server_metrics_before, run.server_metrics_after
    # A counter with labels appears with its first use, so that one name may be missing where others are not.
    change = {name: value - before.get(name, 0.0) for name, value in after.items()} if before else {}
    prompts = sum(request.prompt_tokens or 0 for request in requests)
    cached = _first(change, CACHED)
    if cached is not None and CACHED_PER_RANK in change:
        cached /= _ranks(change, requests)
    seconds, count = _first(change, TTFT_SUM), _first(change, TTFT_COUNT)
    return ServerView(
        generated=_first(change, GENERATED),
        cached_share=cached / prompts if cached is not None and prompts else None,
        preemptions=_first(change, PREEMPTIONS),
        mean_ttft_ms=1e3 * seconds / count if seconds is not None and count else None,
        miscounted=_miscounted(change, requests),
        unread=bool(before) != bool(after),
    )


def _ranks(change: Mapping[str, float], requests: Sequence[RequestRecord]) -> int:
    """How many times SGLang counted each token."""
    told = sum(request.output_tokens or 0 for request in requests)
    return max(1, round(change.get(PER_RANK, 0.0) / told)) if told else 1


def _first(change: Mapping[str, float], names: Sequence[str]) -> float | None:
    return next((change[name] for name in names if name in change), None)


def _miscounted(change: Mapping[str, float], requests: Sequence[RequestRecord]) -> str | None:
    """A sentence when the server generated another number of tokens than the client was told.

    More: somebody else used the server. Fewer: the usage that it reports is not what it did. Failed requests are counted
    differently everywhere, so that a cell with one is left alone.
    """
    name = next((name for name in GENERATED if name in change), None)
    if name is None or not all(request.ok for request in requests):
        return None
    told = sum(request.output_tokens or 0 for request in requests)
    allowed = max(MISCOUNT_SHARE * told, MISCOUNT_PER_REQUEST * len(requests))
    times = _ranks(change, requests) if name == PER_RANK else 1
    if abs(change[name] / times - told) <= allowed:
        return None
    return f"the server counted {change[name]:,.0f} output tokens ({name}), the client was told {told:,}"


def client_mean_ttft_ms(requests: Sequence[RequestRecord]) -> float | None:
    """Mean TTFT from the real send of all requests that succeeded, to be put beside the server's own."""
    seen = [
        request.token_ns[0] - request.sent_ns
        for request in requests
        if request.ok and request.token_ns and request.sent_ns is not None
    ]
    return float(np.mean(seen)) / 1e6 if seen else None
