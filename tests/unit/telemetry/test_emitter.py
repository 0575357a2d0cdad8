"""What the sampler tells its parent: news once, never a flood, and nothing is lost when the parent does not listen."""

from __future__ import annotations

from servegate_action.records import DeviceSample, TelemetrySample
from servegate_action.telemetry.__main__ import Emitter


class Parent:
    """Hears when it listens."""

    def __init__(self) -> None:
        self.listens = True
        self.heard: list[tuple[object, object]] = []

    def __call__(self, event: dict[str, object]) -> bool:
        if self.listens:
            self.heard.append((event["what"], event["devices"]))
        return self.listens


def sample(error: str | None = None, devices: tuple[str, ...] = ("a", "b")) -> TelemetrySample:
    return TelemetrySample(t_ns=1, devices=tuple(DeviceSample(uuid=uuid) for uuid in devices), error=error)


def told(*samples: TelemetrySample) -> list[tuple[object, object]]:
    parent = Parent()
    emitter = Emitter(parent, ["a", "b"])
    for one in samples:
        emitter.tell(one)
    return parent.heard


def test_nothing_is_said_while_all_is_well() -> None:
    assert told(sample(), sample()) == []


def test_an_error_that_comes_again_and_again_is_said_once() -> None:
    assert told(sample("timeout"), sample(), sample("timeout"), sample("timeout")) == [("timeout", ["a", "b"])]


def test_a_lost_device_is_said_once() -> None:
    gone = sample(devices=("a",))
    assert told(sample("b is gone", ("a",)), gone, gone) == [("b is gone", ["a"])]


def test_a_loss_that_was_not_heard_is_said_again() -> None:
    parent = Parent()
    emitter = Emitter(parent, ["a", "b"])
    parent.listens = False
    emitter.tell(sample("b is gone", ("a",)))
    parent.listens = True
    emitter.tell(sample(devices=("a",)))
    emitter.tell(sample(devices=("a",)))
    assert parent.heard == [("b is gone", ["a"])]
