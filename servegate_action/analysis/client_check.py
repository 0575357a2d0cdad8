"""Did the load generator keep up: in its certificate before the run, and in every cell while it measured?

A client that is late, saturated or on a stepped clock measures itself. Either makes the run INVALID; in a launch it is
also a reason to void the round, applied to both stacks alike.
"""

from __future__ import annotations

from servegate_action.analysis.cells import NS_PER_MS
from servegate_action.analysis.findings import invalid_if
from servegate_action.analysis.judgement import HardCheck
from servegate_action.analysis.rounds import Evidence
from servegate_action.records import Recording


def certificate_check(recording: Recording, evidence: Evidence) -> list[HardCheck]:
    """The load generator proved against its own fixed-pace server that it can keep up."""
    if not recording.certificates and not evidence.launches:
        return []
    findings = [
        f"at {one.concurrency} streams and {one.events_per_second:,.0f} events/s: stamp error p99 "
        f"{one.stamp_error_p99_ns / NS_PER_MS:.2f} ms, p95 TTFT error {one.ttft_error_p95_ns / NS_PER_MS:.2f} ms, dispatch "
        f"lag p99 {one.dispatch_lag_p99_ns / NS_PER_MS:.2f} ms, {one.coalesced_read_share:.1%} of reads shared, "
        f"{one.cpu_share:.0%} of a core per process"
        for one in recording.certificates
        if not one.passed
    ]
    if not recording.certificates:
        findings.append("the load generator was not certified")
    advice = " ".join(dict.fromkeys(one.advice for one in recording.certificates if one.advice))
    good = f"the load generator keeps up at {len(recording.certificates)} operating points of this run"
    return [invalid_if("client_certificate", findings, good=good, advice=advice or "measure again with this version")]


def client_check(evidence: Evidence) -> HardCheck:
    """The load generator kept up while it measured, in every cell of every launch that counts."""
    findings = [
        f"round {one.number}, {launch.record.side}, {text}"
        for one in evidence.rounds
        for launch in one.launches
        for text in launch.client_trouble
    ]
    lag = max(
        run.client.dispatch_lag_p99_ns
        for one in evidence.rounds
        for launch in one.launches
        for run in launch.record.cells
    )
    return invalid_if(
        "client",
        findings,
        good=f"the load generator kept up; dispatch lag p99 {lag / NS_PER_MS:.2f} ms at most",
        advice="raise load.processes, lower the concurrency, or run the load generator on more cores",
    )
