"""What a server counts itself, read before and after a cell where it offers Prometheus text at `/metrics`.

Only counters and gauges of known meaning are kept, under the server's own names, summed over their labels; histograms
keep their `_sum` and `_count`. Its purpose is cross-examination: the client's mean TTFT against the server's own, cache
hits, preemptions. A server without `/metrics` gives an empty mapping. It refuses to fail a measurement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from servegate_action import client

_LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{[^}]*\})? +(\S+)(?: +\S+)?$", re.MULTILINE)
_WANTED = re.compile(
    r"time_to_first_token|ttft|time_per_output_token|inter_token|tokens_total|tokens_predicted|prompt_seconds"
    r"|prefix_cache|cached|preempt|num_requests_(?:running|waiting)|request_success|requests_(?:processing|deferred)"
    r"|e2e_request_latency|generation_tokens|decode_total"
)
_TIMEOUT_S = 3.0
_MAX_KEPT = 200


def read_server_metrics(base_url: str, headers: Mapping[str, str]) -> dict[str, float]:
    """Current values by metric name; empty when the server offers none."""
    reply = client.get_text(client.api_root(base_url) + "/metrics", headers=headers, timeout_s=_TIMEOUT_S)
    return parse_server_metrics(reply.text) if isinstance(reply, client.Answered) and reply.ok else {}


def parse_server_metrics(text: str) -> dict[str, float]:
    """Known names out of Prometheus text, summed over labels; values that are not finite are left out."""
    found: dict[str, float] = {}
    for name, value in _LINE.findall(text):
        if name.endswith("_bucket") or not _WANTED.search(name):
            continue
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number) and (name in found or len(found) < _MAX_KEPT):
            found[name] = found.get(name, 0.0) + number
    return found
