"""Lanes in one row, where units divide their position by the width of an image.

`y, x = p // w, p % w` gives each lane a row and a column of its own, as a line of lanes may go on
in the next row. It mostly does not. So what follows gets two copies: one for lines within a row, in
which all lanes have one quotient and remainders that count up, and one as it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.types import index
from cubepy.passes.rewrite import Rewriter, copy_op

MOST = 200
"""Operations that are copied, at most."""
SHORT = 2
"""Lines of lanes up to which a row is too short, if its length is known."""
_DIVISIONS = (ops.FLOORDIV, ops.MOD)


def rows_of_lanes(kernel: Kernel, lanes: int) -> Kernel:
    """The kernel with two copies of what comes behind such a division, if that has a loop; itself
    where nothing has."""
    x, y, z = kernel.cube_dim
    is_plain = kernel.flat and y * z == kernel.plane_dim == 1 and lanes > 1 and x % lanes == 0
    return _Rows(kernel, lanes).run(kernel) if is_plain else kernel


class _Rows(Rewriter):
    def __init__(self, kernel: Kernel, lanes: int) -> None:
        super().__init__()
        self._lanes = lanes
        self._positions = {
            op.result
            for op in kernel.body.walk()
            if op.row is ops.ABSOLUTE_POS and op.attrs["axis"] == "all"
        }
        self._numbers: dict[Value, Attr] = {}
        self._shared = {p.value for p in kernel.params}
        """What all units have alike: parameters, constants, and what is made of them."""
        for op in kernel.body.walk():
            if op.row is ops.CONST:
                self._numbers[op.result] = op.attrs["value"]
            if op.row is ops.CONST or self._is_shared(op):
                self._shared.update(op.results)

    def _is_shared(self, op: Op) -> bool:
        return op.row.is_pure and bool(op.operands) and self._shared.issuperset(op.operands)

    def visit(self, op: Op) -> None:
        """Loops of the kernel stay whole."""
        self.out.append(op if op.row in (ops.FOR, ops.LOOP) else self.renew(op))

    def region(self, region: Region) -> Region:
        """A region in two copies from a division on, the first for which that is possible."""
        for k, op in enumerate(region.ops):
            copies = self._two(op, region.ops[k:]) if self._is_division(op) else ()
            if copies:
                return Region(region.args, (*region.ops[:k], *copies))
        return super().region(region)

    def _is_division(self, op: Op) -> bool:
        if op.row not in _DIVISIONS or not op.attrs.get("nonnegative"):
            return False
        position, width = op.operands
        is_row = position in self._positions and width in self._shared
        return is_row and self._may_cross(self._numbers.get(width))

    def _may_cross(self, width: Attr | None) -> bool:
        """Whether lines of lanes may cross rows, which are long enough for some not to."""
        if not isinstance(width, int):
            return True
        return width > SHORT * self._lanes and width % self._lanes > 0

    def _two(self, division: Op, body: Sequence[Op]) -> Sequence[Op]:
        """Two copies of the rest of a region, and its end; nothing where it is not worth it."""
        *rest, last = body
        inner = [o for op in rest for o in (op, *_within(op))]
        has_loop = any(o.row is ops.FOR for o in inner)
        is_whole = last.row in (ops.YIELD, ops.RETURN) and len(inner) <= MOST
        if not has_loop or not is_whole or any(o.row.convergent for o in inner):
            return ()
        made = {v for op in rest for v in op.results}
        yielded = list(dict.fromkeys(v for v in last.operands if v in made))
        outer, self.out = self.out, []
        whole = self._within_row(division)
        head, self.out = self.out, outer
        results = {v: Value(v.type, v.name) for v in yielded}
        own = (*(self._marked(op, division) for op in rest), Op(ops.YIELD, tuple(yielded)))
        copies: dict[Value, Value] = {}
        others = [copy_op(op, copies) for op in rest]
        end = Op(ops.YIELD, tuple(copies[v] for v in yielded))
        sides = Region((), own), Region((), (*others, end))
        choice = Op(
            ops.IF, (whole,), {"together": "row"}, tuple(results.values()), sides, division.span
        )
        operands = tuple(results.get(v, v) for v in last.operands)
        return [*head, choice, replace(last, operands=operands)]

    def _marked(self, op: Op, division: Op) -> Op:
        same = self._is_division(op) and op.operands == division.operands
        return replace(op, attrs={**op.attrs, "in_row": True}) if same else op

    def _within_row(self, division: Op) -> Value:
        """Whether the lanes of a unit's line have one quotient, by its own remainder and lane."""
        span, width = division.span, division.operands[1]
        facts = {k: v for k, v in division.attrs.items() if k in ("nonnegative", "nonzero")}
        column = self.emit(ops.MOD, division.operands, facts, span)
        unit = self.emit(ops.UNIT_POS, (), {"axis": "x"}, span)
        number = self.emit_const(index, self._lanes, span)
        lane = self.emit(ops.MOD, (unit, number), {"nonnegative": True, "nonzero": True}, span)
        first = self.emit(ops.SUB, (column, lane), {}, span)
        begins = self.emit(ops.GE, (first, self.emit_const(index, 0, span)), {}, span)
        end = self.emit(ops.ADD, (first, number), {}, span)
        ends = self.emit(ops.LE, (end, width), {}, span)
        return self.emit(ops.AND, (begins, ends), {}, span)


def _within(op: Op) -> list[Op]:
    return [inner for region in op.regions for inner in region.walk()]
