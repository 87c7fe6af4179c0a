"""Reports what launches write to an observer: the autotuner, while it runs a reference.

Launches that native code runs are not seen; a block of `settings` keeps them in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from cubepy.array.interop import read_memory
from cubepy.array.memory import Memory
from cubepy.scoped import Scoped

Observer = Callable[[tuple[int, int]], None]
"""Takes the first address of what may be written, and the one behind its end."""
_observer: Scoped[Observer] = Scoped("cubepy_observer")


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Inside the block launches of this thread report what they may write."""
    with _observer.holding(observer):
        yield


def is_observed() -> bool:
    """Whether launches of this thread are to report what they write."""
    return _observer.get() is not None


def report_arrays(arrays: Iterable[Any]) -> None:
    """Report arrays that a launch writes, if it is observed."""
    observer = _observer.get()
    memories = map(read_memory, arrays) if observer is not None else ()
    for memory in memories:
        if observer is not None and memory is not None:
            observer(memory.extent())


def report_written(written: Collection[str], memories: dict[str, Memory]) -> None:
    """Report a launch that writes the arguments of these names, if it is observed."""
    observer = _observer.get()
    if observer is not None:
        for name in written:
            if name in memories:
                observer(memories[name].extent())
