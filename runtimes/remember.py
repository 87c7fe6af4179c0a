"""Code that the runtimes themselves compile, found again if a layer above keeps it.

The native code of the thread pool, and what drivers make of a source. A runtime knows nothing of
disks: `cubepy.cache` sets `keeper`.
"""

from __future__ import annotations

from collections.abc import Callable

Keeper = Callable[[str, str, Callable[[], bytes]], bytes]
"""Finds code by its name and by a text that says all it depends on, or calls what makes it."""
keeper: Keeper | None = None


def remembered(name: str, text: str, make: Callable[[], bytes]) -> bytes:
    """The code that a text describes: what was kept of an earlier call, or made now. What is
    empty is not kept."""
    return make() if keeper is None else keeper(name, text, make)
