"""The client measures itself against a server of exact pace, and says so when it is not good enough."""

from __future__ import annotations

import psutil

from servegate_action.load import LoadLimits, certify
from servegate_action.load.certificate import with_judgement
from servegate_action.records import Certificate, StampSource
from tests.integration.load.measuring import LIMITS


def certificate(**changes: object) -> Certificate:
    """A good one, changed."""
    good = Certificate(
        concurrency=8,
        events_per_second=400,
        requests=16,
        stamp_error_p99_ns=50_000,
        ttft_error_p95_ns=50_000,
        dispatch_lag_p99_ns=300_000,
        cpu_share=0.1,
        coalesced_read_share=0.0,
        processes=1,
        stamp_source=StampSource.KERNEL,
        passed=True,
        advice="",
    )
    return with_judgement(good.model_copy(update=changes))


def test_the_client_is_measured_at_the_operating_point() -> None:
    found = certify(concurrency=4, events_per_second=200.0, output_tokens=16, limits=LIMITS)
    assert (found.concurrency, found.events_per_second, found.processes) == (4, 200.0, 1)
    assert found.requests >= 4
    assert found.stamp_source is StampSource.KERNEL
    assert found.stamp_error_p99_ns > 0
    assert 0 < found.cpu_share < 1
    assert found == with_judgement(found)
    assert not [
        child for child in psutil.Process().children(recursive=True) if "servegate" in " ".join(child.cmdline())
    ]


def test_without_kernel_stamps_the_certificate_says_so() -> None:
    limits = LoadLimits(request_timeout_s=30, stall_timeout_s=30, kernel_stamps=False, processes=2)
    found = certify(concurrency=2, events_per_second=100.0, output_tokens=4, limits=limits, tries=1)
    assert (found.stamp_source, found.processes) == (StampSource.USER, 2)


def test_a_good_certificate_passes_without_advice() -> None:
    assert (certificate().passed, certificate().advice) == (True, "")


def test_each_weakness_fails_alone_and_is_named() -> None:
    for change, word in (
        ({"stamp_error_p99_ns": 2_000_000}, "stamps are 2.00 ms off"),
        ({"ttft_error_p95_ns": 2_000_000}, "p95 TTFT is 2.00 ms off"),
        ({"dispatch_lag_p99_ns": 20_000_000}, "20.0 ms late"),
        ({"cpu_share": 0.95}, "95% of a core"),
        ({"coalesced_read_share": 0.05}, "5.0% of reads"),
    ):
        found = certificate(**change)
        assert not found.passed
        assert word in found.advice
        assert "processes" in found.advice
