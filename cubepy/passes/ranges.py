"""Ranges of integers: between which two numbers the result of an operation lies.

Positions are bounded by what the kernel says of its launches: `cube_dim`, `limit` and `flat`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op
from cubepy.ir.numbers import limits
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import INDICES, DType, Kind, Type, element_of

Range = tuple[int, int]
"""The least and the largest value; both may be taken."""


@lru_cache(maxsize=256)
def whole(t: Type) -> Range | None:
    """The range of a type; None for what is no scalar integer."""
    if not isinstance(t, DType):
        return None
    if t.kind is Kind.BOOL:
        return 0, 1
    return limits(t) if t.is_integer else None


def union(a: Range, b: Range) -> Range:
    """What covers both."""
    return min(a[0], b[0]), max(a[1], b[1])


def intersection(a: Range, b: Range) -> Range:
    """What lies in both; where that is nothing, code that never runs, one of them."""
    low, high = max(a[0], b[0]), min(a[1], b[1])
    return (low, high) if low <= high else a


def exact(row: OpDef, a: Range, b: Range) -> Range:
    """The range of sums, differences or products before they wrap."""
    if row is ops.ADD:
        return a[0] + b[0], a[1] + b[1]
    if row is ops.SUB:
        return a[0] - b[1], a[1] - b[0]
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def result_range(op: Op, operands: Sequence[Range | None], kernel: Kernel) -> Range | None:
    """The range of an operation's result, from those of its operands; None for no integer."""
    full = whole(op.results[0].type)
    if full is None:
        return None
    if op.row is ops.CONST:
        value = op.attrs["value"]
        assert isinstance(value, int)
        return int(value), int(value)
    if op.row in _POSITIONS:
        return position_range(op, kernel)
    if op.row is ops.MISALIGNMENT:
        size = op.attrs["bytes"]
        assert isinstance(size, int)
        return 0, (size - 1) // element_of(op.operands[0].type).itemsize
    if op.row is ops.LOOKUP:
        table = op.attrs["table"]
        assert isinstance(table, tuple)
        numbers = [int(n) for n in table if isinstance(n, int)]
        return min(numbers), max(numbers)
    if op.row is ops.NOT and operands[0] is not None:
        low, high = operands[0]
        return (1 - high, 1 - low) if full == (0, 1) else full
    rule = _RULES.get(op.row)
    known = [r for r in operands if r is not None]
    if rule is None or len(known) < len(operands):
        return full
    found = rule(*known)
    if found is None:
        return full
    if full[0] <= found[0] and found[1] <= full[1]:
        return found
    never_wraps = op.row in _EXACT and op.results[0].type in INDICES
    return intersection(full, found) if never_wraps else full


_EXACT = (ops.ADD, ops.SUB, ops.MUL)
_POSITIONS = (ops.UNIT_POS, ops.CUBE_POS, ops.CUBE_COUNT, ops.ABSOLUTE_POS)


def position_range(op: Op, kernel: Kernel) -> Range:
    """The range of a position: there are at most `limit` units, and one cube along y and z of a
    `flat` grid."""
    axis, dims = str(op.attrs["axis"]), kernel.cube_dim
    extent = prod(dims) if axis == "all" else dims["xyz".index(axis)]
    if op.row is ops.UNIT_POS:
        return 0, extent - 1
    most = 1 if kernel.flat and axis in ("y", "z") else kernel.limit // prod(dims)
    if op.row is ops.CUBE_COUNT:
        return 1, max(most, 1)
    if op.row is ops.CUBE_POS:
        return 0, max(most, 1) - 1
    return 0, max(most, 1) * extent - 1


def _minimum(a: Range, b: Range) -> Range:
    return min(a[0], b[0]), min(a[1], b[1])


def _maximum(a: Range, b: Range) -> Range:
    return max(a[0], b[0]), max(a[1], b[1])


def _floordiv(a: Range, b: Range) -> Range | None:
    """x // 0 is 0, which lies between 0 and any x."""
    if b[0] > 0:
        corners = [x // y for x in a for y in b]
        return min(corners), max(corners)
    return (0, a[1]) if a[0] >= 0 and b[0] >= 0 else None


def _mod(a: Range, b: Range) -> Range | None:
    """As Python's; x % 0 is 0."""
    if b[0] < 0:
        return None
    high = max(0, b[1] - 1)
    return (0, min(high, a[1])) if a[0] >= 0 else (0, high)


def _div_trunc(a: Range, b: Range) -> Range | None:
    return _floordiv(a, b) if a[0] >= 0 and b[0] >= 0 else None


def _rem_trunc(a: Range, b: Range) -> Range | None:
    return _mod(a, b) if a[0] >= 0 and b[0] >= 0 else None


def _shl(a: Range, b: Range) -> Range | None:
    """Shifts by the width or more give 0."""
    if b[0] < 0 or b[1] > 62:
        return None
    corners = [x << y for x in a for y in b]
    return min(corners), max(corners)


def _or(a: Range, b: Range) -> Range | None:
    """Bits below the highest one of either; the larger operand at least."""
    if a[0] < 0 or b[0] < 0:
        return None
    return max(a[0], b[0]), (1 << max(a[1], b[1]).bit_length()) - 1


def _xor(a: Range, b: Range) -> Range | None:
    if a[0] < 0 or b[0] < 0:
        return None
    return 0, (1 << max(a[1], b[1]).bit_length()) - 1


def _and(a: Range, b: Range) -> Range | None:
    """A number without a sign takes the other's sign away."""
    if a[0] == a[1] and b[0] == b[1]:
        return a[0] & b[0], a[0] & b[0]
    bounds = [r[1] for r in (a, b) if r[0] >= 0]
    return (0, min(bounds)) if bounds else None


def _shr(a: Range, b: Range) -> Range | None:
    """Shifts by the width or more, or by a negative count, give 0 or -1."""
    if b[0] >= 0:
        low, high = min(b[0], 64), min(b[1], 64)
        corners = [x >> y for x in a for y in (low, high)]
        return min(corners), max(corners)
    return (0, a[1]) if a[0] >= 0 else None


def _absolute(a: Range) -> Range:
    least = 0 if a[0] <= 0 <= a[1] else min(abs(a[0]), abs(a[1]))
    return least, max(abs(a[0]), abs(a[1]))


def _select(mask: Range, a: Range, b: Range) -> Range:
    return union(a, b)


def _negative(a: Range) -> Range:
    return -a[1], -a[0]


def _same(a: Range) -> Range:
    return a


def _count_of_bits(a: Range) -> Range:
    return 0, 64


_RULES: dict[OpDef, Callable[..., Range | None]] = {
    **{row: partial(exact, row) for row in (ops.ADD, ops.SUB, ops.MUL)},
    ops.NEG: _negative,
    ops.ABS: _absolute,
    ops.MIN: _minimum,
    ops.MAX: _maximum,
    ops.FLOORDIV: _floordiv,
    ops.MOD: _mod,
    ops.DIV_TRUNC: _div_trunc,
    ops.REM_TRUNC: _rem_trunc,
    ops.AND: _and,
    ops.OR: _or,
    ops.XOR: _xor,
    ops.SHL: _shl,
    ops.SHR: _shr,
    ops.CAST: _same,
    ops.SELECT: _select,
    **dict.fromkeys((ops.POPCOUNT, ops.CLZ, ops.CTZ), _count_of_bits),
}
