"""How indexed work is cut: lines where one index serves many elements, owners of targets."""

from __future__ import annotations

from math import prod

from cubepy.array.memory import Memory
from cubepy.config import get
from cubepy.ir.types import DType, f32, f64, i32, i64, u32, u64
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.indexing.kernel import IndexTiling, SliceTiling
from cubepy.targets import Target

BAND = 1 << 13
"""Elements of one unit of a CPU: enough to hide its start."""
MOST_UNITS = 1 << 14
"""Units of a GPU that share few columns; each of them reads all indices."""
SLICE_UNITS, HELD_LINES = 256, (1, 2, 3, 4)
"""Units of a cube that gathers slices, and the lines that each may hold."""
NEIGHBOURS = 32
"""Units that take neighbouring lines of a row, at most."""
SORTED = 256
"""Updates from which on their indices are sorted."""
_WORDS = (i32, u32, f32)
_LONG = (i64, u64, f64)


def is_line(x: Memory, index: Memory, other: Memory) -> bool:
    """Whether one index serves the last axis, which is dense in both arrays."""
    size, near = x.dtype.itemsize, other.dtype.itemsize
    return index.strides[-1] == 0 and x.strides[-1] == size and other.strides[-1] == near


def gather_tiling(target: Target, x: Memory, index: Memory, out: Memory) -> IndexTiling:
    """The configuration for gathering into `out`."""
    line = _line(target, out.dtype) if is_line(x, index, out) and out.shape[-1] > 1 else 1
    guarded = not get("checked")
    if is_wide(target):
        return IndexTiling(line, 1, line, guarded)
    columns = min(out.shape[-1], BAND)
    return IndexTiling(line, max(1, BAND // columns), columns, guarded)


def slice_tilings(target: Target, x: Memory, index: Memory, out: Memory) -> tuple[SliceTiling, ...]:
    """The ways to gather slices, the preferred first; none where cubes have one unit, or each
    element has an index of its own."""
    columns = out.shape[-1]
    line = max(1, target.line_bytes // out.dtype.itemsize)
    if not is_wide(target) or not is_line(x, index, out) or columns < line:
        return ()
    across = 1
    while across < min(NEIGHBOURS, -(-columns // line)):
        across *= 2
    guarded = not get("checked")
    ways = [
        SliceTiling(line, beside, max(1, units // beside), held, guarded)
        for beside in (across, 2 * across, max(1, across // 2))
        for units in (SLICE_UNITS, SLICE_UNITS // 2)
        for held in HELD_LINES
        if units <= target.max_cube_dim and beside <= units
    ]
    preferred = min(ways[: len(HELD_LINES)], key=lambda t: (_beyond(columns, t.columns), -t.held))
    return (preferred, *(t for t in ways if t is not preferred))


def sorted_tilings(
    target: Target, out: Memory, index: Memory, values: Memory, kept: int
) -> tuple[SliceTiling, ...]:
    """The ways to make updates in the order of their sorted indices, the preferred first; none
    where columns have indices of their own, updates are few, or indices are checked one by one."""
    updates = prod(index.shape[kept:-1])
    walked = zip(index.shape, index.strides, strict=True)
    varies = any(
        s for k, (n, s) in enumerate(walked) if n > 1 and not kept <= k < len(index.shape) - 1
    )
    is_long = updates >= SORTED and max(updates, out.shape[-2]) < 1 << 31
    if not is_wide(target) or varies or not is_long or get("checked"):
        return ()
    columns, line = out.shape[-1], 1
    if is_line(out, index, values) and columns > 1:
        line = min(_line(target, out.dtype), 1 << (columns - 1).bit_length())
    across = 1
    while across < min(NEIGHBOURS, -(-columns // line)):
        across *= 2
    held = tuple(n for n in (2, 1, 4) if n == 1 or columns >= across * line * n)
    return tuple(
        SliceTiling(line, across, max(1, units // across), n, True)
        for units in (SLICE_UNITS // 2, SLICE_UNITS)
        for n in held
    )


def _beyond(columns: int, most: int) -> int:
    """Elements that parts of a row of so many would have behind its end."""
    return -(-columns // most) * most - columns


def owned_tiling(target: Target, out: Memory, index: Memory, values: Memory) -> IndexTiling:
    """The configuration for updates by the owners of their targets."""
    line = _line(target, out.dtype) if is_line(out, index, values) else 1
    columns, rows, targets = out.shape[-1], prod(out.shape[:-2]), out.shape[-2]
    guarded = not get("checked")
    if is_wide(target):
        units = rows * -(-columns // line)
        owners = max(1, min(targets, MOST_UNITS // max(1, units)))
        return IndexTiling(line, 1, line, guarded, owners)
    bands = max(1, min(-(-target.cores // max(1, rows)), columns // (4 * line)))
    owners = max(1, min(targets, target.cores // max(1, rows * bands)))
    return IndexTiling(line, 1, max(1, -(-columns // bands)), guarded, owners)


def takes_any_order(target: Target, dtype: DType, update: str, is_ordered: bool) -> bool:
    """Whether updates are made in any order, by atomic operations.

    `is_ordered`: results must not depend on the order.
    """
    if not is_wide(target) or update == "mul" or (is_ordered and update == "assign"):
        return False
    if update == "assign":
        return True
    if is_ordered and update == "add" and dtype.is_float:
        return False
    return dtype in _WORDS or (dtype in _LONG and target.kind in ("cuda", "hip"))


def _line(target: Target, dtype: DType) -> int:
    return max(1, target.line_bytes // max(4, dtype.itemsize))
