"""The dtypes under their public names.

They are objects, `ir.types.DType`. Type checkers take annotations like `x: cp.f32` only where the
name is a class, so they see classes, whose values may be used in every way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:

    class bool_(Any): ...

    class i8(Any): ...

    class i16(Any): ...

    class i32(Any): ...

    class i64(Any): ...

    class u8(Any): ...

    class u16(Any): ...

    class u32(Any): ...

    class u64(Any): ...

    class f16(Any): ...

    class bf16(Any): ...

    class f32(Any): ...

    class f64(Any): ...

    class f8e4m3(Any): ...

    class f8e5m2(Any): ...

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
