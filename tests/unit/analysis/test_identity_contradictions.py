"""A declaration that what was found contradicts makes the run INVALID, although both stacks are equal."""

from __future__ import annotations

import pytest

from servegate_action.analysis.identity_check import identity_checks
from servegate_action.records import Side
from tests.support.recordings import build, passing

WORDS = "the configuration declares a batch size of 64, but the server's cap is 32 (launch flag)"


@pytest.mark.parametrize("sides", [(Side.CANDIDATE,), (Side.BASELINE,), (Side.BASELINE, Side.CANDIDATE)])
def test_a_contradiction_on_any_side_is_invalid_and_said(sides: tuple[Side, ...]) -> None:
    built = build(passing(rounds=0))
    identities = {
        side: identity.model_copy(update={"contradictions": (WORDS,) if side in sides else ()})
        for side, identity in built.recording.identities.items()
    }
    recording = built.recording.model_copy(update={"identities": identities})
    found = [check for check in identity_checks(built.config, recording) if check.name == "identity_declared"]
    assert [(check.kind, check.ok, check.detail) for check in found] == [
        ("invalid", False, f"{side}: {WORDS}") for side in sides
    ]
