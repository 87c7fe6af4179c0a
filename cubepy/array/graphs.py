"""Graphs: launches and copies that are recorded once, and done again together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from cubepy.config import get, settings
from cubepy.errors import fail
from cubepy.scoped import Scoped

_recorded: Scoped[Graph] = Scoped("cubepy_graph")


def is_recording() -> bool:
    """Whether launches of this context are recorded, and not done."""
    return _recorded.get() is not None


def record(work: Callable[[], Any]) -> None:
    """Add work to the graph that is recorded; `work` does it, and checks it as a launch does."""
    graph = _recorded.get()
    assert graph is not None
    graph._work.append(work)


class Graph:
    """Launches in order, recorded in a `with` block and done by each `replay`.

    In the block launches of kernels, calls of prebuilt functions and `Array.copy_from` of this
    thread (or task) are checked and compiled, but not done: arrays that they give hold nothing
    before the first replay, and results without axes are arrays too. All other Python code runs
    once, in the block; what it reads from an array is what was there before. Autotuned functions
    measure nothing there.

    A replay takes arrays as they are then, as `Launcher.bind` does, with the same checks and in the
    same order of streams; numbers are those that were recorded. Arrays live as long as the graph.
    A block replaces what was recorded before, unless it raises.
    """

    def __init__(self) -> None:
        self._work: list[Callable[[], Any]] = []
        self._before = self._work
        self._block = ExitStack()

    def __enter__(self) -> Graph:
        if is_recording():
            raise fail("E420", name="a graph", value="recorded", reason="another one is, here")
        self._before, self._work = self._work, []
        # Launches in a block of settings go through Python, which looks for a graph.
        self._block.enter_context(settings(opt_level=get("opt_level")))
        self._block.enter_context(_recorded.holding(self))
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._block.close()
        if error is not None:
            self._work = self._before
        self._before = []

    def __len__(self) -> int:
        """How many launches, calls and copies were recorded."""
        return len(self._work)

    def __repr__(self) -> str:
        return f"<Graph of {len(self)} launches>"

    def replay(self) -> None:
        """Do what was recorded, in order; returns when a launch of the last of it would.

        Raises what that launch, call or copy raises; those before it are done then. In the block of
        another graph the replay is recorded.
        """
        graph = _recorded.get()
        if graph is self:
            raise fail("E420", name="a replay", value="recorded", reason="it is of this very graph")
        if graph is not None:
            record(self.replay)
            return
        for work in self._work:
            work()
