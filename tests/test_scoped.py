"""What holds inside a block, and for whom: not for threads and tasks that began in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune import session
from cubepy.jit.ahead import compiling_ahead, is_ahead
from cubepy.jit.observe import is_observed, observing
from cubepy.scoped import Scoped


@cp.cube
def doubled(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * 2


def inheriting(work: Callable[[], Any]) -> Thread:
    """A thread with a copy of this context, as free-threaded Python makes all."""
    return Thread(target=copy_context().run, args=(work,))


def test_blocks_nest_and_end_where_they_raise():
    held: Scoped[str] = Scoped("held")
    with held.holding("outer"):
        with pytest.raises(KeyError), held.holding("inner"):
            assert held.get() == "inner"
            raise KeyError
        assert held.get() == "outer"
    assert held.get() is None


def test_tasks_that_outlive_a_block_are_outside():
    held: Scoped[str] = Scoped("held")
    found: list[str | None] = []

    async def look(again: asyncio.Event) -> None:
        found.append(held.get())
        await again.wait()
        found.append(held.get())

    async def main() -> None:
        again = asyncio.Event()
        with held.holding("value"):
            task = asyncio.create_task(look(again))
            await asyncio.sleep(0)
        again.set()
        await task

    asyncio.run(main())
    assert found == ["value", None]


def test_threads_that_begin_in_a_block_launch():
    """While a graph is recorded or a profile taken, and when that is over."""
    x, outs = np.ones(5, np.float32), [np.zeros(5, np.float32) for _ in range(3)]
    graph, over = cp.Graph(), Event()

    def late() -> None:
        assert over.wait(60)
        doubled.over(x)(x, outs[1])

    with graph:
        doubled.over(x)(x, outs[2])
        first, second = inheriting(lambda: doubled.over(x)(x, outs[0])), inheriting(late)
        first.start()
        second.start()
        first.join()
    over.set()
    second.join()
    assert len(graph) == 1
    assert (outs[0] == 2).all() and (outs[1] == 2).all() and (outs[2] == 0).all()
    with cp.profile() as timings:
        other = inheriting(lambda: doubled.over(x)(x, outs[0]))
        other.start()
        other.join()
    assert len(timings) == 0


def test_threads_that_begin_in_a_search_are_not_in_it(tmp_path: Path):
    found: list[bool] = []
    with session.searching(), compiling_ahead(), observing(lambda _: None):
        assert session.is_searching() and is_ahead() and is_observed()
        other = inheriting(lambda: found.extend((session.is_searching(), is_ahead())))
        third = inheriting(lambda: found.append(is_observed()))
        for thread in (other, third):
            thread.start()
            thread.join()
    assert found == [False, False, False]
