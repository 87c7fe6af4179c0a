"""Code that is made ahead of launches: compiled and kept on disk, and neither loaded nor launched.

A forked process may do so for a GPU whose driver it must not call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field
from typing import Any

from cubepy.artifact import Artifact
from cubepy.ir.core import Kernel
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class MapAt:
    """A word of an argument block that holds where a tensor map is: of the array at `address`, as
    the device's `method` makes it with `layout`."""

    word: int
    address: int
    method: str
    layout: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A launch that would have been: words of `block` at `maps` are not filled in."""

    artifact: Artifact
    block: tuple[int, ...]
    maps: tuple[MapAt, ...] = ()


@dataclass
class Made:
    """What was made: kernels with all passes done, by the numbers (`id`) of their artifacts, unless
    nobody wants them, and the launches in order."""

    wants_kernels: bool = True
    kernels: dict[int, Kernel] = field(default_factory=dict[int, Kernel])
    launches: list[Recorded] = field(default_factory=list[Recorded])


_made: ContextVar[Made | None] = ContextVar("cubepy_made", default=None)


@contextmanager
def compiling_ahead(wants_kernels: bool = True) -> Iterator[Made]:
    """Inside the block launches of this context end where their code has been made.

    Launches that native code runs do not look; a block of `settings` keeps them in Python.
    `wants_kernels`: the kernel of code that was on disk is made again, which takes half as long as
    to compile it.
    """
    made = Made(wants_kernels)
    token = _made.set(made)
    try:
        yield made
    finally:
        _made.reset(token)


def is_ahead() -> bool:
    """Whether code is only made."""
    return _made.get() is not None


def note_kernel(artifact: Artifact, find: Callable[[], Kernel]) -> None:
    """Keep the kernel of an artifact, which `find` gives."""
    made = _made.get()
    if made is not None and made.wants_kernels:
        made.kernels[id(artifact)] = find()


def note_launch(launch: Recorded) -> None:
    """Keep a launch that is not done."""
    made = _made.get()
    if made is not None:
        made.launches.append(launch)
