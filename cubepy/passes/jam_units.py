"""Neighbouring units go together, operation by operation: unroll and jam over the units of a cube.

What is the same for all units of a block is then done once for it: in a product with tiles in
shared memory each value of a tile is loaded for several rows of units, and their sums stay in
registers. Units between two barriers are not ordered, so that they may take turns in any way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef, Uniformity
from cubepy.ir.types import Buffer, Space, index
from cubepy.passes.rewrite import Rewriter

GAIN = 0.75
"""Blocks are made where they need at most this share of the loads."""
SCRATCH_REGISTERS = 4
"""Registers that a block leaves to what is not carried from phase to phase."""
MOST_UNITS = 8
"""Units of a block: as many sums as keep the units of multiplication busy."""
MOST_OPERATIONS = 4000
"""Operations that a block may have."""
_LOOPS = (ops.FOR, ops.LOOP)
_POSITIONS = (ops.UNIT_POS, ops.ABSOLUTE_POS)
_ALONE = (ops.PRINT, ops.FAULT, ops.BREAKPOINT, ops.SYNC_PLANE, *ops.PLANE_ROWS)
"""What names its unit, or is ordered among units: kernels with these stay as they are."""

_ONCE = (ops.STORE, ops.PREFETCH, ops.SYNC_CUBE, ops.SYNC_STORAGE)
"""What one unit does for a block, where all would do the same."""


def jam_units(kernel: Kernel, registers: int) -> tuple[Kernel, tuple[int, int]]:
    """The kernel with blocks of units along X and Y, if that saves loads; and their extents.

    `registers`: how many lines the target holds.
    """
    extents = _extents(kernel, registers)
    for axis, extent in zip("xy", extents, strict=True):
        if extent > 1:
            kernel = _Jam(kernel, axis, extent).kernel()
    return kernel, extents


def _extents(kernel: Kernel, registers: int) -> tuple[int, int]:
    """How many units along X and Y make a block: the block with the fewest loads for each unit
    whose carried values fit in registers."""
    phases = [op for op in kernel.body.walk() if op.row in _LOOPS and _waits(op)]
    body = list(kernel.body.walk())
    if not phases or any(op.row in _ALONE for op in body):
        return 1, 1
    along_x, along_y = _Differences(kernel, "x"), _Differences(kernel, "y")
    if along_x.forbids or along_y.forbids:
        return 1, 1
    sums = sum(along_x.differs(v) or along_y.differs(v) for op in phases for v in op.results)
    most = max(1, (registers - SCRATCH_REGISTERS) // max(1, sums))
    most = min(most, MOST_UNITS, MOST_OPERATIONS // len(body))
    loads = [o.operands[1] for op in phases for o in op.regions[0].walk() if o.row is ops.LOAD]

    def cost(block: tuple[int, int]) -> float:
        """Loads for each unit."""
        x, y = block
        each = ((x if along_x.differs(v) else 1) * (y if along_y.differs(v) else 1) for v in loads)
        return sum(each) / prod(block)

    x, y, _ = kernel.cube_dim
    most = min(most, prod(kernel.cube_dim) // 2)  # else LLVM would keep tiles in registers
    blocks = [(a, b) for a in _divisors(x) for b in _divisors(y) if a * b <= max(most, 1)]
    best = min(blocks, key=lambda block: (cost(block), -prod(block)))
    return best if cost(best) <= GAIN * cost((1, 1)) else (1, 1)


def _divisors(number: int) -> Iterator[int]:
    return (n for n in range(1, number + 1) if number % n == 0)


def _waits(op: Op) -> bool:
    return any(inner.row is ops.SYNC_CUBE for region in op.regions for inner in region.walk())


class _Differences:
    """Which values differ between the units of a block along one axis: a fixpoint.

    `apart`: branches and loops that units take differently, which each runs for itself. `forbids`:
    whether units wait, or leave, in one of these.
    """

    def __init__(self, kernel: Kernel, axis: str) -> None:
        self._axis = axis
        self._found: set[Value] = set()
        self.apart: set[Op] = set()
        before = -1
        while before != len(self._found) + len(self.apart):
            before = len(self._found) + len(self.apart)
            self._region(kernel.body, [])
        inside = [o for op in self.apart for region in op.regions for o in region.walk()]
        self.forbids = any(o.row in (ops.SYNC_CUBE, ops.RETURN) for o in inside)

    def differs(self, value: Value) -> bool:
        """Whether each unit of a block has a value of its own."""
        return value in self._found

    def is_done_by_each(self, op: Op) -> bool:
        """Whether each unit does an operation without regions for itself."""
        if any(v in self._found for v in (*op.operands, *op.results)):
            return True
        return bool(op.row.writes) and op.row not in _ONCE

    def _region(self, region: Region, loops: list[Op]) -> None:
        for op in region.ops:
            if op.regions:
                self._control(op, loops)
            elif op.row in (ops.BREAK, ops.CONTINUE):
                self._carry(loops[-1], op)
            elif self._is_own(op):
                self._found.update(op.results)

    def _is_own(self, op: Op) -> bool:
        if op.row in _POSITIONS:
            return op.attrs["axis"] in (self._axis, "all")
        if op.row is ops.ALLOC:
            return op.attrs["space"] != "shared"
        if op.row.writes or op.row.uniformity is Uniformity.NEVER:
            return True
        if op.row is ops.LOAD and is_private(op.operands[0]):
            return True
        return any(v in self._found for v in op.operands)

    def _control(self, op: Op, loops: list[Op]) -> None:
        bounds = op.operands[: {ops.IF: 1, ops.FOR: 3}.get(op.row, 0)]
        if op not in self.apart and any(v in self._found for v in bounds):
            self._part(op, loops)
        if op in self.apart:
            self._found.update(op.results)
            for region in op.regions:
                self._found.update(region.args)
        inner = [*loops, op] if op.row in _LOOPS else loops
        if op.row in _LOOPS:
            initial = op.operands[len(bounds) :]
            self._join(carried(op), initial)
        for region in op.regions:
            self._region(region, inner)
            if region.terminator.row is ops.YIELD:
                self._join(op.results, region.terminator.operands)
        if op.row in _LOOPS:  # what a loop carries and what it gives are of one form
            self._join(op.results, carried(op))
            self._join(carried(op), op.results)

    def _part(self, op: Op, loops: list[Op]) -> None:
        """Units go through an operation differently; and through the loop that it jumps in."""
        self.apart.add(op)
        if loops and op.row is ops.IF and any(_jumps(region) for region in op.regions):
            self.apart.add(loops[-1])

    def _carry(self, loop: Op, jump: Op) -> None:
        self._join(carried(loop) if jump.row is ops.CONTINUE else loop.results, jump.operands)

    def _join(self, results: Sequence[Value], operands: Sequence[Value]) -> None:
        self._found.update(
            result for result, value in zip(results, operands, strict=True) if value in self._found
        )


def carried(loop: Op) -> tuple[Value, ...]:
    """What a loop carries from one iteration to the next."""
    return loop.regions[0].args[loop.row is ops.FOR :]


def is_private(buffer: Value) -> bool:
    """Whether each unit has a memory of its own."""
    return isinstance(buffer.type, Buffer) and buffer.type.space is Space.LOCAL


def _jumps(region: Region) -> bool:
    """Whether a region holds a jump of the loop around it."""
    return any(
        op.row in (ops.BREAK, ops.CONTINUE)
        or (op.row is ops.IF and any(_jumps(inner) for inner in op.regions))
        for op in region.ops
    )


class _Jam(Rewriter):
    """Makes blocks of `extent` units along one axis of one."""

    def __init__(self, kernel: Kernel, axis: str, extent: int) -> None:
        super().__init__()
        self._kernel = kernel
        self._axis = axis
        self._extent = extent
        self._differences = _Differences(kernel, axis)
        self._copies: list[dict[Value, Value]] = [{} for _ in range(extent)]
        """Of each unit of a block, what stands for the values that differ."""
        self._around: list[Op] = []
        """Branches and loops around, which units go through together."""

    def kernel(self) -> Kernel:
        """The kernel of blocks."""
        dims = list(self._kernel.cube_dim)
        dims["xyz".index(self._axis)] //= self._extent
        x, y, z = dims
        return replace(self.run(self._kernel), cube_dim=(x, y, z))

    def visit(self, op: Op) -> None:
        if op in self._differences.apart:
            for unit in range(self._extent):
                self._alone(op, unit)
        elif op.regions:
            self._together(op)
        elif op.row.is_terminator:
            self._end(op)
        elif self._differences.is_done_by_each(op):
            for unit in range(self._extent):
                self._alone(op, unit)
        else:
            self.out.append(op)

    def _spread(
        self, values: Sequence[Value], targets: Sequence[Value] | None = None
    ) -> tuple[Value, ...]:
        """Values with one for each unit of the block where they, or their targets, differ."""
        found: list[Value] = []
        for value, target in zip(values, targets or values, strict=True):
            if self._differences.differs(target):
                found += [copies.get(value, value) for copies in self._copies]
            else:
                found.append(value)
        return tuple(found)

    def _end(self, op: Op) -> None:
        """A terminator of a region that the units of a block go through together."""
        targets: Sequence[Value] = ()
        if op.row is ops.YIELD:
            targets = self._around[-1].results
        elif op.row in (ops.BREAK, ops.CONTINUE):
            loop = next(outer for outer in reversed(self._around) if outer.row in _LOOPS)
            targets = carried(loop) if op.row is ops.CONTINUE else loop.results
        self.out.append(Op(op.row, self._spread(op.operands, targets), op.attrs, (), (), op.span))

    def _define(self, values: Sequence[Value]) -> None:
        for value in values:
            if self._differences.differs(value):
                for copies in self._copies:
                    copies[value] = Value(value.type, value.name)

    def _together(self, op: Op) -> None:
        """A branch or loop that the units of a block go through together."""
        bounds = {ops.IF: 1, ops.FOR: 3}.get(op.row, 0)
        targets = carried(op) if op.row in _LOOPS else ()
        operands = op.operands[:bounds] + self._spread(op.operands[bounds:], targets)
        regions: list[Region] = []
        self._around.append(op)
        for region in op.regions:
            self._define(region.args)
            built = self.region(region)
            regions.append(Region(self._spread(region.args), built.ops))
        self._around.pop()
        self._define(op.results)
        results = self._spread(op.results)
        self.out.append(Op(op.row, operands, op.attrs, results, tuple(regions), op.span))

    def _alone(self, op: Op, unit: int) -> None:
        """An operation of one unit of the block."""
        copies = self._copies[unit]
        if op.row in _POSITIONS:
            copies[op.result] = self._position(op, unit)
            return
        operands = tuple([copies.get(v, v) for v in op.operands])
        regions: list[Region] = []
        for region in op.regions:
            args = tuple([Value(v.type, v.name) for v in region.args])
            copies.update(zip(region.args, args, strict=True))
            outer, self.out = self.out, []
            for inner in region.ops:
                self._alone(inner, unit)
            regions.append(Region(args, tuple(self.out)))
            self.out = outer
        results = tuple([Value(v.type, v.name) for v in op.results])
        copies.update(zip(op.results, results, strict=True))
        self.out.append(Op(op.row, operands, op.attrs, results, tuple(regions), op.span))

    # Positions

    def _e(self, row: OpDef, *operands: Value, **attrs: Attr) -> Value:
        return self.emit(row, operands, attrs)

    def _scaled(self, value: Value, factor: int, plus: Value | None = None) -> Value:
        product = self._e(ops.MUL, value, self.emit_const(index, factor)) if factor != 1 else value
        return product if plus is None else self._e(ops.ADD, product, plus)

    def _position(self, op: Op, unit: int) -> Value:
        """Where a unit of a block is."""
        axis = str(op.attrs["axis"])
        if axis == self._axis or (axis == "all" and self._axis == "x"):
            block = self._e(op.row, axis=axis)
            return self._scaled(block, self._extent, self.emit_const(index, unit))
        if axis != "all":
            return self._e(op.row, axis=axis)
        x, y, _ = self._kernel.cube_dim
        row = self._scaled(self._e(ops.UNIT_POS, axis="y"), self._extent)
        row = self._e(ops.ADD, row, self.emit_const(index, unit))
        row = self._scaled(self._e(ops.UNIT_POS, axis="z"), y, row)
        place = self._scaled(row, x, self._e(ops.UNIT_POS, axis="x"))
        if op.row is ops.UNIT_POS:
            return place
        units = prod(self._kernel.cube_dim)
        return self._scaled(self._e(ops.CUBE_POS, axis="all"), units, place)
