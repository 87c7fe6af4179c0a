"""`Scoped`: values that hold inside a `with` block, for the thread (or task) that is in it.

A context variable alone says too much: tasks begin with a copy of the context that made them, and
so do new threads where Python hands it on (`sys.flags.thread_inherit_context`, as in free-threaded
builds). Their copy never ends, so that a thread of a pool which happened to begin in such a block
would be in it for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import get_ident
from typing import Generic, TypeVar

T = TypeVar("T")


class _Block(Generic[T]):
    """A block: what holds in it, and the thread that is in it; 0 once it is over."""

    __slots__ = ("thread", "value")

    def __init__(self, value: T) -> None:
        self.value, self.thread = value, get_ident()


class Scoped(Generic[T]):
    """What the innermost block around the caller holds."""

    def __init__(self, name: str) -> None:
        self._block: ContextVar[_Block[T] | None] = ContextVar(name, default=None)

    def get(self) -> T | None:
        """The value; None outside of all blocks, and in threads that began in one."""
        block = self._block.get()
        return None if block is None or block.thread != get_ident() else block.value

    @contextmanager
    def holding(self, value: T) -> Iterator[None]:
        """The value holds inside the block."""
        block = _Block(value)
        token = self._block.set(block)
        try:
            yield
        finally:
            block.thread = 0
            self._block.reset(token)
