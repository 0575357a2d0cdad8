"""Hands that send planned requests and stamp every token: the load generator.

`negotiate` and `agree` find the request body that both servers accept; `run_cell` measures one operating point;
`certify` measures the client itself first. Names are imported on first use, because client processes start from this
package with nothing but the standard library and must not load what they do not need. The room refuses to judge: it
hands over records, and what they mean is computed elsewhere.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from servegate_action.load.cell import CellProgress, CellResult, LoadLimits, Target, run_cell
    from servegate_action.load.certificate import certify
    from servegate_action.load.command import LoadOptions, LoadReport, run_load
    from servegate_action.load.dialect import agree, negotiate
    from servegate_action.load.single import (
        Completion,
        complete,
        complete_together,
        complete_with_logprobs,
        count_tokens,
        probe_tokens,
    )

__all__ = [
    "CellProgress",
    "CellResult",
    "Completion",
    "LoadLimits",
    "LoadOptions",
    "LoadReport",
    "Target",
    "agree",
    "certify",
    "complete",
    "complete_together",
    "complete_with_logprobs",
    "count_tokens",
    "negotiate",
    "probe_tokens",
    "run_cell",
    "run_load",
]

_HOMES = {
    "CellProgress": "cell",
    "CellResult": "cell",
    "LoadLimits": "cell",
    "Target": "cell",
    "run_cell": "cell",
    "certify": "certificate",
    "LoadOptions": "command",
    "LoadReport": "command",
    "run_load": "command",
    "agree": "dialect",
    "negotiate": "dialect",
    "Completion": "single",
    "complete": "single",
    "complete_together": "single",
    "complete_with_logprobs": "single",
    "count_tokens": "single",
    "probe_tokens": "single",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
