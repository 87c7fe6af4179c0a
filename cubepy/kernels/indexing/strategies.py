"""How indexed work is cut: lines where one index serves many elements, owners of targets."""

from __future__ import annotations

from math import prod

from cubepy.array.memory import Memory
from cubepy.config import get
from cubepy.ir.types import DType, f32, f64, i32, i64, u32, u64
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.indexing.kernel import IndexTiling
from cubepy.targets import Target

BAND = 1 << 13
"""Elements of one unit of a CPU: enough to hide its start."""
MOST_UNITS = 1 << 14
"""Units of a GPU that share few columns; each of them reads all indices."""
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
