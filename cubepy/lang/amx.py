"""Instructions of matrix units of x86 processors, which `cp.cmma` and products are made of there.

Each is one operation of the IR, see `ir/amx.py`. Tiles have comptime numbers from 0 to 7.
"""

from __future__ import annotations

from typing import Any

from cubepy.errors import Error


def zero(tile: int) -> None:
    """All of a tile is 0."""
    raise Error("amx.zero works inside kernels only")


def load(tile: int, x: Any, index: Any, step: Any = None) -> None:
    """Read 16 rows of 64 bytes from `x[index]` on.

    `x` has two axes, and its rows are dense; or it has one, where rows are `step` elements apart,
    or follow each other.
    """
    raise Error("amx.load works inside kernels only")


def store(tile: int, x: Any, index: Any, step: Any = None) -> None:
    """Write 16 rows of 64 bytes to `x[index]` and behind it, as `load` reads them."""
    raise Error("amx.store works inside kernels only")


def multiply(sums: int, left: int, right: int, dtype: Any) -> None:
    """Add the product of two tiles of bf16, i8 or u8 to a tile of f32 or i32."""
    raise Error("amx.multiply works inside kernels only")


for _function in (zero, load, store, multiply):
    _function.__cubepy_builtin__ = f"amx_{_function.__name__}"  # type: ignore[attr-defined]
