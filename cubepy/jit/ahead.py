"""Code that is made ahead of launches: compiled and kept on disk, and neither loaded nor launched.

A forked process may do so for a GPU whose driver it must not call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from cubepy.artifact import Artifact
from cubepy.ir.core import Kernel
from cubepy.record import dataclass
from cubepy.scoped import Scoped


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
    """A launch that would have been: words of `block` at `maps` are not filled in. `memories`: of
    its arrays, which live as long as this."""

    artifact: Artifact
    block: tuple[int, ...]
    maps: tuple[MapAt, ...] = ()
    memories: tuple[Any, ...] = ()


@dataclass
class Made:
    """What was made: kernels with all passes done, by the numbers (`id`) of their artifacts, and
    launches in order. `remakes`: kernels of code that was on disk are made again; `only_kept`: only
    what was on disk is taken, and nothing is compiled."""

    remakes: bool = True
    only_kept: bool = False
    kernels: dict[int, Kernel] = field(default_factory=dict[int, Kernel])
    launches: list[Recorded] = field(default_factory=list[Recorded])


_made: Scoped[Made] = Scoped("cubepy_made")


@contextmanager
def compiling_ahead(remakes: bool = True, only_kept: bool = False) -> Iterator[Made]:
    """Inside the block launches of this context end where their code has been made.

    Launches that native code runs do not look; a block of `settings` keeps them in Python.
    `remakes`: the kernel of code that was on disk is made again, which takes most of the time that
    it takes to compile it. `only_kept`: `NotKept` where something has to be compiled.
    """
    made = Made(remakes, only_kept)
    with _made.holding(made):
        yield made


def is_ahead() -> bool:
    """Whether code is only made."""
    return _made.get() is not None


class NotKept(Exception):
    """What is asked for is not on disk, and must not be compiled now."""


def check_kept() -> None:
    """`NotKept` where nothing may be compiled."""
    made = _made.get()
    if made is not None and made.only_kept:
        raise NotKept


def note_kernel(artifact: Artifact, last: Kernel | None, make: Callable[[], Kernel]) -> None:
    """Keep the kernel of an artifact: the `last` one, or, if its code was on disk, what `make`
    gives."""
    made = _made.get()
    if made is not None and (last is not None or made.remakes):
        made.kernels[id(artifact)] = make() if last is None else last


def note_launch(launch: Recorded) -> None:
    """Keep a launch that is not done."""
    made = _made.get()
    if made is not None:
        made.launches.append(launch)
