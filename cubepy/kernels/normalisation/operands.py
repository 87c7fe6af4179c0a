"""What norms check, and do, with their arguments in the same way."""

from __future__ import annotations

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, f32
from cubepy.kernels.calls.arguments import refused, wrong


def computed_in(dtype: DType) -> DType:
    """The type that elements are normalised in."""
    return dtype if dtype.bits >= 32 else f32


def check_floats(function: str, name: str, x: Memory) -> None:
    """E602 for what is not f16, bf16, f32 or f64."""
    if not x.dtype.is_float or x.dtype.bits == 8:
        supported = "convert it to f32; f16, bf16, f32 and f64 are supported"
        raise refused(function, name, f"has dtype {x.dtype}", supported)


def check_weights(
    function: str, name: str, x: Memory, shape: tuple[int, ...], given: Memory, what: str
) -> None:
    """E601 and E602 unless weights have this shape, which `what` names, and a dtype that fits."""
    if given.shape != shape:
        raise wrong(function, f"`{name}` has shape {given.shape}, but {what} is {shape}")
    if given.dtype not in (x.dtype, computed_in(x.dtype)):
        reason = f"has dtype {given.dtype}, but `x` has {x.dtype}"
        raise refused(function, name, reason, "convert one of them")


def memory_order(x: Memory) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest, None where that is their order."""
    order = sorted(range(len(x.shape)), key=lambda k: (-abs(x.strides[k]), k))
    return None if order == list(range(len(x.shape))) else tuple(order)
