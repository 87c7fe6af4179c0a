"""Instructions of Apple's GPUs, which `cp.cmma` is made of there; each one operation of the IR."""

from __future__ import annotations

from typing import Any

from cubepy.errors import Error


def multiply_accumulate(a: Any, b: Any, c: Any) -> Any:
    """a @ b + c of 8x8 matrices that the plane holds; see `ir/metal.py`."""
    raise Error("multiply_accumulate works inside kernels only")


multiply_accumulate.__cubepy_builtin__ = "metal_multiply_accumulate"  # type: ignore[attr-defined]
