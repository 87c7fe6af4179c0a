"""Dictionaries of limited size that threads fill at the same time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from cubepy.jit.bounded import make_room
from cubepy.kernels.calls import plans


@pytest.fixture
def fine_turns() -> Iterator[None]:
    """Threads take turns after each few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(keep: Callable[[Any], Any]) -> list[BaseException]:
    """The errors of four threads that keep 20,000 things each."""
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for k in range(20_000):
                keep((number, k))
        except BaseException as error:
            errors.append(error)

    threads = [Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_the_oldest_goes():
    held = dict.fromkeys(range(5))
    make_room(held, 4)
    assert list(held) == [2, 3, 4]
    make_room(held, 4)
    assert len(held) == 3


@pytest.mark.usefixtures("fine_turns")
def test_plans_of_many_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plans, "LIMIT", 4)
    made: Any = plans.Plans()
    assert not in_threads(lambda key: made.keep(key, None))
    assert len(made._made) <= 4 + 3  # each thread may add one behind the look of another
