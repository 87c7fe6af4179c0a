"""Extents that a kernel's own indices imply: `p[i, 0], p[i, 1], p[i, 2]` are of rows of three.

Where rows are as long, their distance is a number that LLVM's vectoriser knows, so that points,
colours and complex numbers are loaded by lines and shuffled; else each is gathered by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cubepy.artifact import Data, Extent
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import Line
from cubepy.passes.rewrite import Rewriter
from cubepy.record import dataclass

LONGEST = 8
"""LLVM loads rows of so many elements by lines."""
MANY = 400
"""Operations of a kernel that is not worth being compiled twice."""
_OTHERS = frozenset((ops.FOR, ops.LOOP, ops.UNITS, ops.PLANES, ops.SYNC_CUBE, ops.FAULT, ops.PRINT))


@dataclass(frozen=True, slots=True)
class Guessed:
    """A kernel that is right where extents are what was guessed."""

    kernel: Kernel
    extents: tuple[tuple[Value, int], ...]


def guess_extents(kernel: Kernel) -> Guessed | None:
    """The kernel with numbers for the extents that its indices imply; None where there are none."""
    body = list(kernel.body.walk())
    if len(body) > MANY or any(op.row in _OTHERS for op in body):
        return None
    rows = dict(_rows(kernel))
    if not rows or any(isinstance(v.type, Line) for op in body for v in op.results):
        return None
    last = _Last(body, rows)
    found = tuple((extent, k + 1) for extent, k in last.places.items() if 0 < k < LONGEST)
    return Guessed(_Known(kernel, found).kernel, found) if found else None


def _rows(kernel: Kernel) -> Iterator[tuple[Value, tuple[Value, Value | None]]]:
    """Of buffers whose rows lie side by side: their extent, and that of the axis before."""
    extents = {
        (p.argument, p.kind.axis): p.value for p in kernel.params if isinstance(p.kind, Extent)
    }
    for param in kernel.params:
        layout = param.kind
        if not isinstance(layout, Data) or not layout.linear or layout.lanes > 1:
            continue
        axis = (layout.rank or 0) - 1
        row = extents.get((param.argument, axis))
        if axis > 0 and row is not None:
            before = extents.get((param.argument, axis - 1)) if axis > 1 else None
            yield param.value, (row, before)


class _Last:
    """The last place in a row, and the last row of a matrix, that constant indices name."""

    def __init__(self, body: list[Op], rows: dict[Value, tuple[Value, Value | None]]) -> None:
        self.places: dict[Value, int] = {}
        self._sources = {op.result: op for op in body if len(op.results) == 1}
        numbers = {op.result: op.attrs["value"] for op in body if op.row is ops.CONST}
        self._constants = {v: n for v, n in numbers.items() if isinstance(n, int)}
        for op in body:
            if op.row in (ops.LOAD, ops.STORE) and op.operands[0] in rows:
                self._note(op.operands[1], *rows[op.operands[0]])

    def _note(self, index: Value, row: Value, before: Value | None) -> None:
        """Note the constants of `... * before * row + constant * row + constant`.

        Beside a place that varies a constant says nothing, as in `x[i, j + 1]`.
        """
        place, rows = 0, 0
        has_row = has_matrix = varies = False
        for term in self._terms(index):
            op = self._sources.get(term)
            factors = op.operands if op is not None and op.row is ops.MUL else (term,)
            others = {self._sources[v].operands for v in factors if self._is_product(v)}
            if row in factors:
                numbers = [self._constants[v] for v in factors if v in self._constants]
                has_row = True
                varies |= len(factors) > 1 and not numbers
                rows += sum(numbers) if len(factors) > 1 else 1
            elif any({row, before} == set(pair) for pair in others):
                has_matrix = True
            elif term in self._constants:
                place += self._constants[term]
            else:
                return
        if has_row or has_matrix:
            self.places[row] = max(self.places.get(row, 0), place)
        if has_matrix and not varies and before is not None:
            self.places[before] = max(self.places.get(before, 0), rows)

    def _is_product(self, value: Value) -> bool:
        op = self._sources.get(value)
        return op is not None and op.row is ops.MUL

    def _terms(self, value: Value) -> Iterator[Value]:
        op = self._sources.get(value)
        if op is not None and op.row is ops.ADD:
            for operand in op.operands:
                yield from self._terms(operand)
        else:
            yield value


class _Known(Rewriter):
    """Puts numbers in the place of extents."""

    def __init__(self, kernel: Kernel, extents: tuple[tuple[Value, int], ...]) -> None:
        super().__init__()
        for extent, number in extents:
            self.replaced[extent] = self.emit_const(extent.type, number)
        numbers, self.out = self.out, []
        body = self.region(kernel.body)
        self.kernel = replace(kernel, body=Region((), (*numbers, *body.ops)))
