"""What waits for what when arrays are worked on in several queues: a device that writes it down."""

from __future__ import annotations

import inspect
import re
import time
from threading import Barrier, Thread
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
        super().__init__()
        self.did: list[tuple[Any, ...]] = []
        self._events = 0

    def record(self, queue: int | None) -> Any:
        self._events += 1
        self.did.append(("record", self._events, queue))
        return SimpleNamespace(handle=self._events)

    def wait_event(self, queue: int | None, event: int) -> None:
        self.did.append(("wait", queue, event))

    def is_reached(self, event: int) -> bool:
        return event % 2 == 0

    def launch(
        self, queue: int | None, *written: Memory, reads: tuple[Memory, ...] = ()
    ) -> list[tuple[Any, ...]]:
        """What is asked around a launch."""
        self.did.clear()
        with Ordered(self, queue, (*written, *reads), written) as used:  # type: ignore[arg-type]
            self.did.append(("launch", used))
        return list(self.did)


def memory(owner: Any, queue: int | None = None) -> Memory:
    return Memory(64, f32, (4,), (4,), True, True, owner, "cuda:0", queue)


@pytest.fixture
def device() -> Device:
    return Device()


def test_the_devices_own_queue_needs_no_events(device: Device):
    x = memory(Queued())
    assert device.launch(None, x) == [("launch", None)]
    assert device.launch(None, reads=(x,)) == [("launch", None)]
    assert device.launch(None, x) == [("launch", None)]


def test_a_handle_may_be_that_of_another_stream_by_now(device: Device):
    x = memory(Queued())
    assert device.launch(7, x) == [("launch", 7), ("record", 1, 7)]
    assert device.launch(7, x) == [("wait", 7, 1), ("launch", 7), ("record", 2, 7)]
    assert device.launch(7, reads=(x,)) == [("wait", 7, 2), ("launch", 7), ("record", 3, 7)]
    again = device.launch(7, reads=(x,))
    assert again == [("wait", 7, 2), ("wait", 7, 3), ("launch", 7), ("record", 4, 7)]


def test_another_queue_waits_for_the_first(device: Device):
    x = memory(Queued())
    device.launch(7, x)
    assert device.launch(8, x) == [("wait", 8, 1), ("launch", 8), ("record", 2, 8)]
    assert device.launch(None, x) == [("wait", None, 2), ("launch", None)]


def test_a_stream_waits_for_the_devices_own_queue(device: Device):
    x = memory(Queued())
    device.launch(None, x)
    assert device.launch(7, reads=(x,))[:2] == [("record", 1, None), ("wait", 7, 1)]
    assert device.launch(8, reads=(x,))[:2] == [("wait", 8, 1), ("launch", 8)]


def test_queues_that_read_do_not_wait_for_each_other(device: Device):
    x, one, two = (memory(Queued()) for _ in range(3))
    device.launch(7, x)
    assert device.launch(8, one, reads=(x,))[:2] == [("wait", 8, 1), ("launch", 8)]
    assert device.launch(9, two, reads=(x,))[:2] == [("wait", 9, 1), ("launch", 9)]
    device.launch(None, reads=(x,))
    waits = device.launch(10, x)[:5]
    assert waits == [
        ("wait", 10, 1),
        ("wait", 10, 2),
        ("wait", 10, 3),
        ("record", 4, None),
        ("wait", 10, 4),
    ]
    assert device.launch(8, x)[:2] == [("wait", 8, 5), ("launch", 8)]


def test_reads_that_are_done_are_forgotten(device: Device):
    owner = Queued()
    for queue in range(7, 107):
        device.launch(queue, reads=(memory(owner),))
        assert sum(mark.event().handle % 2 == 0 for mark in owner.reads.values()) <= 16
    assert [mark.event().handle for mark in owner.reads.values()][:3] == [1, 3, 5]


def test_what_is_given_twice_is_written_if_one_is(device: Device):
    owner = Queued()
    one, two = memory(owner), memory(owner)
    device.launch(7, two, reads=(one,))
    assert owner.reads == {}
    device.launch(8, one, reads=(two,))
    assert owner.reads == {} and device.did[0] == ("wait", 8, 1)


def test_launches_of_threads_do_not_interleave(device: Device):
    """Each of two that write one array comes after the other."""
    x = memory(Queued())
    barrier, inside = Barrier(2), []

    def work(queue: int) -> None:
        barrier.wait()
        for _ in range(200):
            with Ordered(device, queue, (x,)):  # type: ignore[arg-type]
                inside.append(queue)
                time.sleep(0)
                assert inside.pop() == queue and not inside

    threads = [Thread(target=work, args=(queue,)) for queue in (7, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = [did[1] for did in device.did if did[0] == "record"]
    waits = [did[2] for did in device.did if did[0] == "wait"]
    assert events == list(range(1, 401)) and waits == events[:-1]


def test_queues_of_others_wait_and_are_waited_for(device: Device):
    one, two = memory(object(), 7), memory(object(), 8)
    assert device.launch(None, one, two) == [
        ("record", 1, 8),
        ("wait", 7, 1),
        ("launch", 7),
        ("record", 2, 7),
        ("wait", 8, 2),
    ]


def test_what_others_have_too_is_worked_on_in_the_default_stream(device: Device):
    x = memory(Queued())
    x.owner.is_shared = True
    assert device.launch(None, x) == [("launch", 0), ("record", 1, 0)]
    assert device.launch(7, x) == [
        ("record", 2, 0),
        ("wait", 7, 2),
        ("wait", 7, 1),
        ("launch", 7),
        ("record", 3, 7),
        ("wait", 0, 3),
        ("record", 4, 7),
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
