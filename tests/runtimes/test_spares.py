"""Memory of a GPU that is kept for the next allocation of its size."""

from __future__ import annotations

import random
import sys
from threading import Thread
from types import FrameType
from typing import Any

import pytest

from cubepy.runtimes.cuda import spares
from cubepy.runtimes.cuda.spares import LARGEST, UNIT, Spares, size_of


@pytest.mark.parametrize("seed", range(5))
def test_every_address_is_kept_once_and_freed_once(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(spares, "MOST_BYTES", 40 * UNIT)
    rng, kept = random.Random(seed), Spares()
    used: dict[int, int] = {}
    free: dict[int, int] = {}
    fresh = 0
    for _ in range(3000):
        if used and rng.random() < 0.5:
            address = rng.choice(list(used))
            free[address] = used.pop(address)
            for gone in kept.put(address, free[address]):
                del free[gone]
            assert sum(free.values()) <= 40 * UNIT
            continue
        size = size_of(rng.choice([0, 1, UNIT, UNIT + 1, 3 * UNIT, 7 * UNIT]))
        found = kept.take(size)
        if found is None:
            assert size not in free.values()
            fresh += 1
            found = fresh
        else:
            assert free.pop(found) == size
        used[found] = size
    assert sorted(kept.clear()) == sorted(free) and not kept.clear()


def test_large_memory_is_not_kept():
    kept = Spares()
    assert kept.put(1, LARGEST + UNIT) == [1]
    assert kept.put(2, LARGEST) == [] and kept.take(LARGEST) == 2 and kept.take(LARGEST) is None


def test_threads_never_share_memory():
    kept, wrong = Spares(), []
    for address in range(8):
        kept.put(address, UNIT)
    held = [0] * 8

    def work() -> None:
        for _ in range(2000):
            address = kept.take(UNIT)
            if address is not None:
                held[address] += 1
                if held[address] != 1:
                    wrong.append(address)
                held[address] -= 1
                kept.put(address, UNIT)

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and sorted(kept.clear()) == list(range(8))


@pytest.mark.parametrize("line", range(1, 40))
def test_memory_may_die_within_every_step(line: int, monkeypatch: pytest.MonkeyPatch):
    """As where Python collects garbage there: so much dies that all that is kept goes back."""
    monkeypatch.setattr(spares, "MOST_BYTES", 8 * UNIT)
    kept, freed, taken = Spares(), list[int](), list[int | None]()
    steps = 0

    def die(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_filename != spares.__file__:
            return None
        steps += event == "line"
        if event == "line" and steps == line:
            for address in range(100, 105):
                freed.extend(kept.put(address, 2 * UNIT))
        return die

    for address in range(4):
        freed.extend(kept.put(address, (1 + address % 2) * UNIT))
    previous = sys.gettrace()
    sys.settrace(die)
    try:
        taken.append(kept.take(UNIT))
        freed.extend(kept.put(4, 3 * UNIT))
        freed.extend(kept.clear())
    finally:
        sys.settrace(previous)
    freed.extend(kept.clear())
    died = range(100, 105) if steps >= line else ()
    assert sorted([*freed, *(a for a in taken if a is not None)]) == [*range(5), *died]
