"""Send one request per script, all at once, and put what the client saw beside what the server knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from servegate_action.load import LoadLimits, Target, run_cell
from servegate_action.load.cell import CellResult
from servegate_action.records import Dialect, RequestRecord
from servegate_action.workload import PlannedCell, PlannedRequest
from tests.support.scripted_server import Script, Scripted, scripted

DIALECT = Dialect(
    api="completions",
    served_model="scripted",
    stream_options=True,
    ignore_eos=True,
    min_tokens=True,
    max_tokens_field="max_tokens",
)
LIMITS = LoadLimits(request_timeout_s=30.0, stall_timeout_s=30.0, processes=1)


@dataclass(frozen=True, slots=True)
class Seen:
    """One cell on the scripted server, with the truth."""

    result: CellResult
    server: Scripted
    by_name: Mapping[str, RequestRecord] = field(default_factory=dict)

    def truth(self, name: str) -> list[int]:
        """When the server sent each token event of a script."""
        sent: list[int] = self.server.truth_of(name)["sent_ns"]
        return sent


def planned(names: Sequence[str], *, output_tokens: int = 8) -> tuple[PlannedRequest, ...]:
    """One request per script name."""
    return tuple(
        PlannedRequest(id=name, prompt=f"script={name} tell me", output_tokens=output_tokens, due_ns=None)
        for name in names
    )


def cell_of(
    requests: Sequence[PlannedRequest],
    *,
    concurrency: int | None,
    warmup: Sequence[PlannedRequest] = (),
    rate: float | None = None,
) -> PlannedCell:
    """A planned cell."""
    return PlannedCell("cell", "cell", concurrency, rate, 1.0, tuple(warmup), tuple(requests))


def measure(
    scripts: Mapping[str, Script], *, limits: LoadLimits = LIMITS, dialect: Dialect = DIALECT, **server: object
) -> Seen:
    """Every script once, each on a connection of its own."""
    requests = planned(list(scripts))
    with scripted(scripts, **server) as running:  # type: ignore[arg-type]
        result = run_cell(Target(running.url, dialect), cell_of(requests, concurrency=len(requests)), limits=limits)
        running.stop()
    return Seen(result, running, {request.id: request for request in result.requests})
