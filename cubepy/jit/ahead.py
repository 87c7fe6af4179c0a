"""Code that is made ahead of launches: compiled and kept on disk, and neither loaded nor launched.

A forked process may do so for a GPU whose driver it must not call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import field

from cubepy.artifact import Artifact
from cubepy.ir.core import Kernel
from cubepy.record import dataclass


@dataclass
class Made:
    """What was made: kernels with all passes done, by the numbers (`id`) of their artifacts, and
    the launches that would have been: artifacts with their argument blocks, in order."""

    kernels: dict[int, Kernel] = field(default_factory=dict[int, Kernel])
    launches: list[tuple[Artifact, Sequence[int]]] = field(
        default_factory=list[tuple[Artifact, Sequence[int]]]
    )


_made: ContextVar[Made | None] = ContextVar("cubepy_made", default=None)


@contextmanager
def compiling_ahead() -> Iterator[Made]:
    """Inside the block launches of this context end where their code has been made.

    Launches that native code runs do not look; a block of `settings` keeps them in Python.
    """
    made = Made()
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
    if made is not None:
        made.kernels[id(artifact)] = find()


def note_launch(artifact: Artifact, block: Sequence[int]) -> None:
    """Keep a launch that is not done."""
    made = _made.get()
    if made is not None:
        made.launches.append((artifact, block))
