"""What waits for what when arrays are worked on in several queues: a device that writes it down."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any

import pytest

from cubepy.array.memory import Memory
from cubepy.array.order import Ordered
from cubepy.ir.types import f32
from cubepy.runtimes.base import Queued
from cubepy.runtimes.cuda.queues import Queues
from tests.devices import fake_cuda


class Device(Queues):
    """Queues whose events are numbers; `did` is what the driver would be asked."""

    uses_host_memory = False

    def __init__(self) -> None:
        self.did: list[tuple[Any, ...]] = []
        self._events = 0

    def new_event(self) -> Any:
        self._events += 1
        return SimpleNamespace(handle=self._events)

    def record_event(self, event: int, queue: int | None) -> None:
        self.did.append(("record", event, queue))

    def wait_event(self, queue: int | None, event: int) -> None:
        self.did.append(("wait", queue, event))

    def launch(self, queue: int | None, **memories: Memory) -> list[tuple[Any, ...]]:
        """What is asked around a launch."""
        self.did.clear()
        with Ordered(self, queue, memories.values()) as used:  # type: ignore[arg-type]
            self.did.append(("launch", used))
        return list(self.did)


def memory(owner: Any, queue: int | None = None) -> Memory:
    return Memory(64, f32, (4,), (4,), True, True, owner, "cuda:0", queue)


@pytest.fixture
def device() -> Device:
    return Device()


def test_the_devices_own_queue_needs_no_events(device: Device):
    x = memory(Queued())
    assert device.launch(None, x=x) == [("launch", None)]
    assert device.launch(None, x=x) == [("launch", None)]


def test_a_handle_may_be_that_of_another_stream_by_now(device: Device):
    x = memory(Queued())
    assert device.launch(7, x=x)[-2:] == [("launch", 7), ("record", 2, 7)]
    assert device.launch(7, x=x) == [("wait", 7, 2), ("launch", 7), ("record", 3, 7)]


def test_another_queue_waits_for_the_first(device: Device):
    x = memory(Queued())
    device.launch(7, x=x)
    assert device.launch(8, x=x) == [("wait", 8, 2), ("launch", 8), ("record", 3, 8)]
    assert device.launch(None, x=x) == [("wait", None, 3), ("launch", None)]


def test_a_stream_waits_for_the_devices_own_queue(device: Device):
    x = memory(Queued())
    assert device.launch(7, x=x)[:2] == [("record", 1, None), ("wait", 7, 1)]


def test_queues_of_guests_wait_and_are_waited_for(device: Device):
    one, two = memory(object(), 7), memory(object(), 8)
    assert device.launch(None, one=one, two=two) == [
        ("record", 1, 8),
        ("wait", 7, 1),
        ("launch", 7),
        ("record", 2, 7),
        ("wait", 8, 2),
    ]


def test_the_made_up_driver_has_the_signatures_of_the_bindings():
    bindings = pytest.importorskip("cuda.bindings.driver")
    calls = [name for name in vars(fake_cuda.Driver) if re.match("cu[A-Z]", name)]
    assert len(calls) > 30
    for name in calls:
        signature = re.match(r"\w+\((.*)\)", getattr(bindings, name).__doc__)
        assert signature is not None
        wanted = len([part for part in signature[1].split(",") if part.strip()])
        assert len(inspect.signature(getattr(fake_cuda.Driver, name)).parameters) - 1 == wanted, (
            name
        )
