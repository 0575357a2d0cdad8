"""A server's own metrics page as plain numbers: Prometheus text, or TensorRT-LLM's JSON list of iterations.

Series of one name are added up over their labels; histogram buckets are left out (their sums and counts stay). Values that
are not finite do not exist. Foreign text: names are checked, and there is a bound on how many are kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from servegate_action import client

PREFIXES = ("vllm:", "sglang:", "llamacpp:", "trtllm_", "trtllm:")
MOST = 400
_LINE = re.compile(r"^([A-Za-z_:][A-Za-z0-9_:]*)(\{.*\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?$")
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')


def server_metrics(base_url: str, *, headers: Mapping[str, str] | None = None) -> dict[str, float]:
    """The engine's metrics now; empty when it offers none."""
    reply = client.get_text(client.api_root(base_url) + "/metrics", headers=headers, timeout_s=5.0)
    return parse(reply.text) if isinstance(reply, client.Answered) and reply.ok else {}


def parse(text: str) -> dict[str, float]:
    """Numbers by name, from either format."""
    if text.lstrip().startswith(("[", "{")):
        return _parse_json(text)
    totals: dict[str, float] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or not match[1].startswith(PREFIXES) or match[1].endswith("_bucket"):
            continue
        value = _number(match[3])
        if value is not None and (match[1] in totals or len(totals) < MOST):
            totals[match[1]] = totals.get(match[1], 0.0) + value
    return totals


def labels(text: str, name: str) -> dict[str, str]:
    """The labels of the first series of one name (an `info` metric)."""
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is not None and match[1] == name:
            return dict(_LABEL.findall(match[2] or ""))
    return {}


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _parse_json(text: str) -> dict[str, float]:
    """The last iteration of the list, nested objects flattened: `trtllm:kvCacheStats.usedNumBlocks`."""
    value = client.Answered(200, text).json()
    last = value[-1] if isinstance(value, list) and value else value
    found: dict[str, float] = {}
    pending: list[tuple[str, object]] = [("", last)]
    while pending and len(found) < MOST:
        name, one = pending.pop()
        if isinstance(one, dict):
            pending += [(f"{name}.{key}" if name else str(key), part) for key, part in one.items()]
        elif isinstance(one, int | float) and not isinstance(one, bool) and math.isfinite(one):
            found[f"trtllm:{name}"] = float(one)
    return found
