"""The dtypes under their public names.

They are objects, `ir.types.DType`. Type checkers take annotations like `x: cp.f32` only where the
name is a class, and should accept `total: cp.f32 = 0.0` and `alpha: cp.f32 = 1.0` as well; so they
see Python's `bool`, `int` and `float`. Thus they also report where a float would become an integer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from builtins import bool as bool_
    from builtins import float as bf16
    from builtins import float as f8e4m3
    from builtins import float as f8e5m2
    from builtins import float as f16
    from builtins import float as f32
    from builtins import float as f64
    from builtins import int as i8
    from builtins import int as i16
    from builtins import int as i32
    from builtins import int as i64
    from builtins import int as u8
    from builtins import int as u16
    from builtins import int as u32
    from builtins import int as u64
else:
    from cubepy.ir.types import (
        bf16,
        bool_,
        f8e4m3,
        f8e5m2,
        f16,
        f32,
        f64,
        i8,
        i16,
        i32,
        i64,
        u8,
        u16,
        u32,
        u64,
    )

__all__ = [
    "bf16",
    "bool_",
    "f8e4m3",
    "f8e5m2",
    "f16",
    "f32",
    "f64",
    "i8",
    "i16",
    "i32",
    "i64",
    "u8",
    "u16",
    "u32",
    "u64",
]
