"""What is found on first use is found once, whoever comes first."""

from __future__ import annotations

import os
import time
from threading import Barrier, Thread
from typing import Any

import pytest

from cubepy.lazy import cached, cached_property

THREADS = 8


def together(find: Any) -> list[Any]:
    """What threads find that ask at the same time."""
    barrier, found = Barrier(THREADS), []

    def ask() -> None:
        barrier.wait()
        found.append(find())

    threads = [Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == THREADS
    return found


def slowly() -> object:
    """An object of its own for each call, which lets other threads run."""
    time.sleep(0.02)
    return object()


def test_threads_share_what_is_cached():
    @cached
    def make(number: int) -> object:
        """Of a number."""
        return slowly()

    assert len(set(together(lambda: make(1)))) == 1
    assert make(1) is make(1) is not make(2)
    first = make(1)
    make.cache_clear()
    assert make(1) is not first
    assert make.__doc__ == "Of a number."


def test_threads_share_a_property():
    class Holder:
        value = cached_property(lambda self: slowly())

    holder = Holder()
    assert len(set(together(lambda: holder.value))) == 1


def test_threads_share_a_device(monkeypatch: pytest.MonkeyPatch):
    """Also where its queues are made slowly, as those of GPUs."""
    from cubepy.runtimes import registry
    from cubepy.runtimes.cpu import device

    class Slow(device.CpuDevice):
        def __init__(self) -> None:
            time.sleep(0.02)

    monkeypatch.setattr(registry, "_opened", {})
    monkeypatch.setattr(device, "CpuDevice", Slow)
    device.cpu_device.cache_clear()
    try:
        assert len(set(map(id, together(lambda: registry.find_device("cpu"))))) == 1
    finally:
        device.cpu_device.cache_clear()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_finds_what_a_lost_thread_was_looking_for():
    begun, held = Barrier(2), []

    @cached
    def make() -> int:
        if not held:
            held.append(os.getpid())
            begun.wait()
            time.sleep(0.5)
        return 7

    thread = Thread(target=make)
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        os._exit(0 if make() == 7 else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
