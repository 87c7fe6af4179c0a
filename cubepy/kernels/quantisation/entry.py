"""Numbers of few bits: `quantize`, `dequantize`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import DType, find_dtype
from cubepy.kernels.calls.arguments import axis_or_dim, refused, wrong
from cubepy.kernels.calls.call import run
from cubepy.kernels.calls.libraries import Library, Shape, libraries_agree, library_of
from cubepy.kernels.calls.plans import Planner, Plans
from cubepy.kernels.elementwise.launches import launch_each
from cubepy.kernels.quantisation.kernel import last_packer, packer, quantiser, restorer
from cubepy.kernels.quantisation.numbers import scale_array, scaled_in, zero_array
from cubepy.kernels.quantisation.problem import (
    FORMATS,
    Format,
    Scaling,
    find_format,
    find_scaling,
)

_PLANS = Plans()


def quantize(
    x: Any,
    scale: Any,
    zero_point: Any = None,
    dtype: Any = "int8",
    axis: int | None = None,
    block_size: int | None = None,
    *,
    out: Any = None,
    dim: int | None = None,
) -> Any:
    """`x` as numbers of few bits: saturate(round(x / scale) + zero_point).

    `x`: floats of any shape and strides. `scale`: floats, and `zero_point`: None or integers of 8
    to 32 bits, of one shape: a number, or an array without axes, for all; with `axis`, which is
    also `dim`, one for each index of it; with `block_size` too, the shape of `x` with as many
    blocks along `axis` as there are, each for elements that follow each other; blocks divide the
    axis, and of 4 bits along the last axis have an even number of elements. `dtype`: int8, uint8,
    int16, uint16, f8e4m3, f8e5m2, "int4" or "uint4". Those of 4 bits lie two to a byte along the
    last axis, of which the first has the low bits: the result is u8 and its last axis half as long,
    rounded up; a number without a second has zeros beside it. Gives an array of the library of `x`,
    on its device, or `out`.

    Computed in f32, f64 for f64; rounds half to even, once for floats of 8 bits; beyond the ends of
    the dtype (448 and 57344 for these floats) gives the end, and 0 for NaN among integers. Raises
    `LaunchError` for shapes that do not fit, `LaunchTypeError` for other dtypes.
    """
    if dim is not None:
        axis = axis_or_dim("quantize", axis, dim)
    form = find_format("quantize", dtype)
    library, arrays = _arrays("quantize", "x", (x, scale, zero_point), None)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan_quantised(planner, arrays, form, (axis, block_size))

    names = ("x", "scale", "zero_point")[: len(arrays)]
    return run(_PLANS, "quantize", library, names, arrays, (form, axis, block_size), make, out)


def dequantize(
    q: Any,
    scale: Any,
    zero_point: Any = None,
    dtype: Any = "float32",
    axis: int | None = None,
    block_size: int | None = None,
    *,
    packed: str | None = None,
    size: int | None = None,
    out: Any = None,
    dim: int | None = None,
) -> Any:
    """What `quantize` stored, as floats: (q - zero_point) * scale.

    `q`: i8, u8, i16, u16, i32 or floats of 8 bits; `packed`: "int4" or "uint4" for bytes that
    hold two numbers, of which the last axis has `size` in all (None: all that there are). `scale`,
    `zero_point`, `axis` and `block_size` are those of `quantize`, for the shape of the result.
    `dtype`: f16, bf16, f32 or f64. Gives an array of the library of `q`, on its device, or `out`.

    Computed in f32, f64 for f64, and rounded to the dtype. Raises `LaunchError` for shapes that do
    not fit, `LaunchTypeError` for other dtypes.
    """
    if dim is not None:
        axis = axis_or_dim("dequantize", axis, dim)
    kind = find_dtype(dtype)
    if kind is None or not kind.is_float or kind.bits == 8:
        supported = "f16, bf16, f32 and f64 are supported"
        raise refused("dequantize", "dtype", f"is {dtype!r}", supported)
    library, arrays = _arrays("dequantize", "q", (q, scale, zero_point), kind)

    def make(planner: Planner, arrays: list[Memory]) -> None:
        _plan_restored(planner, arrays, kind, (axis, block_size), (packed, size))

    names = ("q", "scale", "zero_point")[: len(arrays)]
    parameters = (kind, axis, block_size, packed, size)
    return run(_PLANS, "dequantize", library, names, arrays, parameters, make, out)


def _arrays(
    function: str, first: str, given: tuple[Any, Any, Any], dtype: DType | None
) -> tuple[Library, list[Any]]:
    """The arguments as arrays of one library; numbers as arrays without axes. `dtype`: of floats
    that are made; None for that of the first argument."""
    library, x = library_of(function, first, given[0])
    _, scale, zero = given
    kind = scaled_in(find_dtype(x.dtype) if dtype is None else dtype)
    numbers = {
        "scale": scale_array(function, library, "scale", scale, kind),
        "zero_point": zero_array(function, library, "zero_point", zero),
    }
    found = [x]
    for name, v in numbers.items():
        if v is None:
            continue
        own, seen = library_of(function, name, v)
        libraries_agree(function, ((first, library), (name, own)))
        found.append(seen)
    return library, found


def _scales(
    function: str, scaling: Scaling, shape: tuple[int, ...], arrays: list[Memory]
) -> list[Memory]:
    """Scale and zero point, checked."""
    scale, *zero = arrays
    if not scale.dtype.is_float or scale.dtype.bits == 8:
        raise refused(function, "scale", f"has dtype {scale.dtype}", "f16 to f64 are supported")
    if zero and (zero[0].dtype.is_float or zero[0].dtype.bits > 32):
        supported = "integers of 8 to 32 bits are supported"
        raise refused(function, "zero_point", f"has dtype {zero[0].dtype}", supported)
    expected = scaling.expected(shape)
    for name, m in zip(("scale", "zero_point"), arrays, strict=False):
        if m.shape != expected:
            what = f"`axis` is {scaling.axis} and `block_size` {scaling.block}"
            reason = (
                f"`{name}` has shape {m.shape}, but for an array of shape {shape}, where {what}"
            )
            raise wrong(function, f"{reason}, it is {expected}")
    return arrays


def _plan_quantised(
    planner: Planner, arrays: list[Memory], form: Format, how: tuple[Any, Any]
) -> None:
    x, *rest = arrays
    name = planner.function
    if not x.dtype.is_float or x.dtype.bits == 8:
        raise refused(name, "x", f"has dtype {x.dtype}", "f16, bf16, f32 and f64 are supported")
    if form.is_float and len(rest) > 1:
        raise wrong(name, f"`zero_point` is given, but {form.name} has none")
    if form.packed and not x.shape:
        raise wrong(name, f"`x` has no axes, along which {form.name} could be packed")
    scaling = find_scaling(name, x.shape, *how, form.packed)
    rest = _scales(name, scaling, x.shape, rest)
    stored = (*x.shape[:-1], -(-x.shape[-1] // 2)) if form.packed else x.shape
    result = planner.result(Shape(stored, form.stored))
    whole = scaling.split(x)
    inputs = [whole, *(scaling.spread(m, whole.shape) for m in rest)]
    makers = (form, scaled_in(x.dtype), len(rest) > 1)
    if not form.packed:
        launch_each(planner, quantiser(*makers), inputs, scaling.split(result))
        return
    bytes_of = _split_bytes(scaling, result)
    pairs = whole.shape[-1] // 2
    both = [_every_second(m, k, pairs) for k in (0, 1) for m in inputs]
    launch_each(planner, packer(*makers), both, _first(bytes_of, pairs))
    if whole.shape[-1] % 2:
        last = [_from(m, whole.shape[-1] - 1) for m in inputs]
        launch_each(planner, last_packer(*makers), last, _from(bytes_of, pairs))


def _plan_restored(
    planner: Planner,
    arrays: list[Memory],
    dtype: DType,
    how: tuple[Any, Any],
    packing: tuple[Any, Any],
) -> None:
    q, *rest = arrays
    name, (packed, size) = planner.function, packing
    form = _stored_format(name, q, packed)
    if form.is_float and len(rest) > 1:
        raise wrong(name, f"`zero_point` is given, but {form.name} has none")
    shape = _restored_shape(name, q, form, size)
    scaling = find_scaling(name, shape, *how, form.packed)
    rest = _scales(name, scaling, shape, rest)
    result = planner.result(Shape(shape, dtype))
    whole = scaling.split(result)
    scales = [scaling.spread(m, whole.shape) for m in rest]
    kind, has_zero = scaled_in(dtype), len(rest) > 1
    if not form.packed:
        inputs = [scaling.split(q), *scales]
        launch_each(planner, restorer(form, kind, dtype, has_zero, False), inputs, whole)
        return
    bytes_of = _split_bytes(scaling, q)
    for k in (0, 1):
        count = (whole.shape[-1] + 1 - k) // 2
        inputs = [_first(bytes_of, count), *(_every_second(m, k, count) for m in scales)]
        out = _every_second(whole, k, count)
        launch_each(planner, restorer(form, kind, dtype, has_zero, bool(k)), inputs, out)


def _stored_format(function: str, q: Memory, packed: Any) -> Format:
    if packed is None:
        form = FORMATS.get(q.dtype.name)
        if form is None:
            supported = "i8, u8, i16, u16, i32, f8e4m3 and f8e5m2 are supported"
            raise refused(function, "q", f"has dtype {q.dtype}", supported)
        return form
    form = FORMATS.get(packed)
    if form is None or not form.packed:
        raise wrong(function, f"`packed` is {packed!r}; it is 'int4' or 'uint4', or None")
    if q.dtype is not form.stored or not q.shape:
        what = f"has dtype {q.dtype} and shape {q.shape}"
        raise refused(function, "q", f"{what}, but packed numbers are u8 with axes", "")
    return form


def _restored_shape(function: str, q: Memory, form: Format, size: Any) -> tuple[int, ...]:
    if not form.packed:
        if size is not None:
            raise wrong(function, "`size` is given without `packed`")
        return q.shape
    count = 2 * q.shape[-1] if size is None else size
    if not isinstance(count, int) or -(-count // 2) != q.shape[-1]:
        raise wrong(function, f"`size` is {size!r}, but `q` has shape {q.shape}")
    return (*q.shape[:-1], count)


# Views for numbers that share a byte


def _split_bytes(scaling: Scaling, x: Memory) -> Memory:
    """Bytes with the axes of a split array."""
    if scaling.axis == len(x.shape) - 1 and scaling.block is not None:
        return replace(scaling, block=scaling.block // 2).split(x)
    return scaling.split(x)


def _every_second(x: Memory, first: int, count: int) -> Memory:
    """Each second element along the last axis."""
    strides = (*x.strides[:-1], 2 * x.strides[-1])
    address = x.address + first * x.strides[-1]
    return replace(x, address=address, shape=(*x.shape[:-1], count), strides=strides)


def _first(x: Memory, count: int) -> Memory:
    return replace(x, shape=(*x.shape[:-1], count))


def _from(x: Memory, first: int) -> Memory:
    """The last element along the last axis."""
    address = x.address + first * x.strides[-1]
    return replace(x, address=address, shape=(*x.shape[:-1], 1))
