"""Of which GPUs the floor is read before the first launch."""

from __future__ import annotations

import pytest

from servegate_action.measure import floor_uuids
from servegate_action.records import Side
from tests.support.recordings import build, passing


@pytest.mark.parametrize(
    ("baseline", "candidate", "read"),
    [
        (("GPU-b",), ("GPU-a",), ("GPU-a", "GPU-b")),
        (("GPU-a",), ("GPU-a",), ("GPU-a",)),
        (("GPU-a",), (), ()),  # the candidate's are all that are visible
        ((), (), ()),
    ],
)
def test_the_floor_covers_the_gpus_of_both_stacks(
    baseline: tuple[str, ...], candidate: tuple[str, ...], read: tuple[str, ...]
) -> None:
    config = build(passing()).config
    own = {Side.BASELINE: baseline, Side.CANDIDATE: candidate}
    stacks = {side.value: config.stacks.of(side).model_copy(update={"gpu_uuids": own[side]}) for side in Side}
    assert floor_uuids(config.model_copy(update={"stacks": config.stacks.model_copy(update=stacks)})) == read
