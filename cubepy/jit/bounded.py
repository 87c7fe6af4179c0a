"""Dictionaries that hold no more than so many entries, from any thread."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def make_room(held: dict[Any, Any], most: int) -> None:
    """Drop the oldest entries until one more makes `most` at the most.

    Another thread may add or drop some meanwhile: then the oldest is looked for again.
    """
    while len(held) >= most:
        with suppress(KeyError, StopIteration, RuntimeError):
            del held[next(iter(held))]
