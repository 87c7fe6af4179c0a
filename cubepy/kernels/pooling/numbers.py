"""What pooling does with numbers: greatest elements and sums, on read and on write.

NaN is the greatest number, as in torch. Functions are `(prologue, epilogue, extras)`: what is
applied to lines of elements, what to lines of results, and the further arrays of the latter.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.ir.numbers import limits
from cubepy.ir.types import DType, f32
from cubepy.kernels.calls.epilogues import applied, applied_along
from cubepy.kernels.calls.extremes import greater_of
from cubepy.kernels.calls.positions import count_up


def lowest(dtype: DType) -> int | float:
    """What every number is at least."""
    return float("-inf") if dtype.is_float else limits(dtype)[0]


def compared(dtype: DType) -> DType:
    """The type that numbers are compared or added in: few machines have narrow floats."""
    return f32 if dtype.is_float and dtype.bits < 32 else dtype


def nothing(how: Any, dtype: Any) -> Any:
    """What an empty window gives: the element that changes no result."""
    return lowest(dtype) if how.is_max else 0


def widened(v: Any) -> Any:
    """A value as it is compared."""
    return v if compared(v.dtype) == v.dtype else cp.f32(v)


# On read and on write


def read(x: Any, at: Any, line: Any, is_inside: Any, how: Any, functions: Any) -> Any:
    """A line along the last axis of `x`, from the index `at` on; where not all of its lanes are
    known to be inside, the others are as nothing."""
    empty = nothing(how, x.dtype)
    v = widened(cp.load(x, at, line=line, fill=None if is_inside else empty))
    if functions[0] is None:
        return v
    changed = v.dtype(applied(functions[0], v, ()))
    if is_inside:
        return changed
    last = cp.i64(at[-1]) + count_up(line, cp.i64)
    inside = (last >= 0) & (last < x.shape[-1])
    return cp.where(inside, changed, cp.Line[v.dtype, line](empty))


def read_number(v: Any, functions: Any) -> Any:
    """One element as a line of one lane."""
    line = cp.Line[compared(v.dtype), 1](widened(v))
    return line if functions[0] is None else line.dtype(applied(functions[0], line, ()))


def finished(v: Any, index: Any, divisor: Any, how: Any, functions: Any, along: Any = 4) -> Any:
    """A line of results from the index [n, channel, depth, row, column] on; `along`: its axis."""
    value = v if how.is_max else v / divisor
    if functions[1] is None:
        return value
    return applied_along(functions[1], value, index, along, functions[2])


# Of two, three and more


def joined(a: Any, b: Any, how: Any) -> Any:
    """What two elements give."""
    return greater_of(a, b) if how.is_max else a + b


def combined(values: Any, how: Any) -> Any:
    """What the elements of a tuple give, lane by lane."""
    return greatest(values) if how.is_max else total(values)


def total(values: Any) -> Any:
    """The sum of a tuple, by halves."""
    if len(values) == 1:
        return values[0]
    half = (len(values) + 1) // 2
    return total(values[:half]) + total(values[half:])


def greatest_of_three(a: Any, b: Any, c: Any) -> Any:
    """As `greater_of`; NaN in `a` or `b` is lost by the comparisons, and comes from a + b."""
    if not a.dtype.is_float or cp.PLANE_DIM > 1:
        return max(max(a, b), c)
    larger = cp.where(a > b, a, b)
    return cp.where((a != a) | (b != b), a + b, cp.where(larger > c, larger, c))


def greatest(values: Any) -> Any:
    """The greatest of a tuple, lane by lane."""
    if len(values) == 1:
        return values[0]
    if len(values) == 2:
        return greater_of(values[0], values[1])
    return greatest((greatest_of_three(values[0], values[1], values[2]), *values[3:]))


# Windows over the edge: which of their taps exist, and what their sums are divided by


def first_inside(start: Any, step: Any) -> Any:
    """The first tap of a window that starts at `start` which is not before 0."""
    return (max(0, 0 - start) + step - 1) // step


def last_inside(start: Any, step: Any, taps: Any, extent: Any) -> Any:
    """The last tap before `extent`; below the first one where none is inside."""
    return min(taps - 1, (extent - 1 - start) // step)


def first_index(start: Any, step: Any) -> Any:
    """The first place of a window that is not before 0, for a start or a line of starts."""
    return start + (max(0, 0 - start) + (step - 1)) // step * step if step > 1 else max(0, start)


def span(place: Any, axis: Any, extent: Any, results: Any, how: Any) -> Any:
    """The taps of window number `place` along an axis, as those of a range."""
    if how.is_adaptive:
        return place * extent // results, ((place + 1) * extent + results - 1) // results, 1
    window = how.window
    step = window.dilation[axis]
    start = place * window.stride[axis] - window.padding[axis]
    end = min(extent, start + (window.kernel[axis] - 1) * step + 1)
    return first_index(start, step), end, step


def counted(place: Any, axis: Any, extent: Any, how: Any) -> Any:
    """How many elements of a regular window, or of a line of them, count along an axis."""
    window, step = how.window, how.window.dilation[axis]
    start = place * window.stride[axis] - window.padding[axis]
    end = extent + window.after[axis] if how.counts_padding else extent
    if step > 1:
        first = 0 if how.counts_padding else first_inside(start, step)
        return max(0, last_inside(start, step, window.kernel[axis], end) - first + 1)
    return min(start + window.kernel[axis], end) - (start if how.counts_padding else max(start, 0))


def divisor_of(spans: Any, index: Any, extents: Any, dtype: Any, how: Any) -> Any:
    """What the sum of one window is divided by; `index` is [depth, row, column]."""
    if how.is_max or how.divisor != 0:
        return dtype(how.divisor if how.divisor else 1)
    if how.is_adaptive:
        sizes = tuple(s[1] - s[0] for s in spans)
    else:
        sizes = tuple(counted(index[k], k, extents[k], how) for k in range(3))
    return dtype(sizes[0] * sizes[1] * sizes[2])


def divisors_of(index: Any, lanes: Any, extents: Any, dtype: Any, how: Any) -> Any:
    """As `divisor_of`, for a line of windows along the columns from `index` on."""
    if how.is_max or how.divisor != 0:
        return dtype(how.divisor if how.divisor else 1)
    places = count_up(lanes, how.position) + how.position(index[2])
    across = counted(places, 2, how.position(extents[2]), how)
    others = counted(index[0], 0, extents[0], how) * counted(index[1], 1, extents[1], how)
    return dtype(across) * dtype(others)
