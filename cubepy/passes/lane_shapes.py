"""How the values of units that become lanes differ from lane to lane: a fixpoint over the kernel.

A value is a scalar whose lanes lie `stride` apart (0: all alike), or it varies. Loops and jumps are
divergent where lanes do not go together; see `vectorise`. The analysis is optimistic: everything is
alike until an operation, or the control around it, says otherwise (Karrenberg and Hack 2011).
"""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import Uniformity
from cubepy.ir.types import INDICES, Buffer, DType, Kind, Space, bool_, element_of, index
from cubepy.record import dataclass

LOOPS = (ops.FOR, ops.LOOP)
_POSITIONS = (ops.UNIT_POS, ops.ABSOLUTE_POS)
WIDE = 2
"""Of so many values that differ one has eight bytes where lanes are as many as those in a line."""
Stride: TypeAlias = int | tuple[int, Value] | None
"""How far neighbouring lanes lie apart: a number, or a number times a value that lanes share."""


@dataclass(slots=True)
class _Open:
    """An open loop: its jumps, and what is known of them."""

    op: Op
    continues: list[tuple[Op, bool]] = field(default_factory=list[tuple[Op, bool]])
    breaks: list[Op] = field(default_factory=list[Op])
    returns: bool = False
    leaves: bool = False
    """Whether some lanes may leave while others stay."""


class Shapes:
    """`stride(value)`: how far neighbouring lanes lie apart; None where they are lines.

    `masked`: loops that lanes leave one by one. `soft`: loops that lanes leave together, but of
    which some lanes skip the rest of an iteration.
    """

    def __init__(self, kernel: Kernel, lanes: int) -> None:
        self._kernel = kernel
        self._lanes = lanes
        self._strides: dict[Value, Stride] = {}
        self._constants: dict[Value, object] = {}
        self._aligned: set[Value] = set()
        """Positions whose first lane is at a multiple of the lanes."""
        self.masked: set[Op] = set()
        self.soft: set[Op] = set()
        self.real_returns: set[Op] = set()
        """Returns of all lanes together."""
        self._stack: list[Op | _Open] = []
        self._changed = True
        while self._changed:
            self._changed = False
            self.real_returns.clear()
            self._region(kernel.body)

    def stride(self, value: Value) -> Stride:
        """The distance of neighbouring lanes; None where there is none."""
        return self._strides.get(value, 0)

    def is_alike(self, value: Value) -> bool:
        """Whether all lanes have the same value."""
        return self.stride(value) == 0

    def constant(self, value: Value) -> int | None:
        """The integer that a value is known to be."""
        found = self._constants.get(value)
        return found if isinstance(found, int) else None

    def _set(self, value: Value, stride: Stride) -> None:
        """Values never become more alike again."""
        if value not in self._strides:
            self._strides[value] = stride
            self._changed = True
        elif self._strides[value] is not None and self._strides[value] != stride:
            self._strides[value] = None
            self._changed = True

    def _merge(self, value: Value, stride: Stride) -> None:
        """Of values that leave a region: what they are a multiple of may not be known there."""
        self._set(value, None if isinstance(stride, tuple) else stride)

    def _add(self, kind: set[Op], op: Op) -> None:
        if op not in kind:
            kind.add(op)
            self._changed = True

    # Operations

    def _region(self, region: Region) -> None:
        for op in region.ops:
            self._op(op)

    def _op(self, op: Op) -> None:
        if op.row is ops.CONST:
            self._constants[op.result] = op.attrs["value"]
        if op.row is ops.IF:
            self._if(op)
        elif op.row in LOOPS:
            self._loop(op)
        elif op.row in (ops.BREAK, ops.CONTINUE):
            self._jump(op)
        elif op.row is ops.RETURN:
            self._return(op)
        else:
            for result in op.results:
                self._set(result, self._of(op))

    def _of(self, op: Op) -> Stride:
        """The stride of an operation's result."""
        row = op.row
        if row in _POSITIONS:
            return self._position(op)
        if row is ops.ALLOC:
            return 0
        if row.uniformity is Uniformity.PLANE:
            return 0
        if row is ops.PLANE_SHUFFLE and self.constant(op.operands[1]) in range(self._lanes):
            return 0
        if row.uniformity is not Uniformity.OPERANDS and row.uniformity is not Uniformity.ALWAYS:
            return None
        strides = [self.stride(v) for v in op.operands]
        if row.reads and isinstance(op.operands[0].type, Buffer):
            is_own = op.operands[0].type.space is Space.LOCAL
            return None if is_own or row.writes or any(s != 0 for s in strides) else 0
        if all(s == 0 for s in strides):
            return 0
        if any(s is None for s in strides) or not _is_integer(op):
            return None
        return self._linear(op, [s for s in strides if s is not None])

    def _position(self, op: Op) -> int | None:
        if op.attrs["axis"] in ("y", "z"):
            return 0
        self._aligned.add(op.result)
        return 1

    def _linear(self, op: Op, strides: list[int | tuple[int, Value]]) -> Stride:
        """What sums, products by what lanes share and conversions make of strides; integers wrap
        alike."""
        if op.row is ops.ADD:
            return _sum(strides[0], strides[1], 1)
        if op.row is ops.SUB:
            return _sum(strides[0], strides[1], -1)
        if op.row is ops.NEG:
            return _sum(0, strides[0], -1)
        if op.row is ops.MUL:
            return self._product(op, strides)
        if op.row is ops.CAST:
            is_plain = isinstance(strides[0], int) or element_of(op.result.type) is index
            return strides[0] if is_plain and _keeps_numbers(op) else None
        if op.row in (ops.FLOORDIV, ops.MOD):
            return self._part_of_position(op)
        return None

    def _product(self, op: Op, strides: list[int | tuple[int, Value]]) -> Stride:
        for stride, other in zip(strides, reversed(op.operands), strict=True):
            if not stride or not self.is_alike(other):
                continue
            number = self.constant(other)
            if number is not None:
                return _sum(0, stride, number)
            return (stride, other) if isinstance(stride, int) and other.type is index else None
        return None

    def _part_of_position(self, op: Op) -> int | None:
        """Of positions whose lanes lie in one block: the block, and the place in it."""
        position, divisor = op.operands
        if op.attrs.get("in_row"):
            return 1 if op.row is ops.MOD else 0
        number = self.constant(divisor)
        if position not in self._aligned or not number or number <= 0 or number % self._lanes:
            return None
        if op.row is ops.MOD:
            self._aligned.add(op.result)
            return 1
        return 0

    # Control

    def _if(self, op: Op) -> None:
        varying = not op.attrs.get("together") and not self.is_alike(op.operands[0])
        if varying:
            self._stack.append(op)
        for region in op.regions:
            self._region(region)
        if varying:
            self._stack.pop()
        ends = [r.terminator.operands for r in op.regions if r.terminator.row is ops.YIELD]
        for k, result in enumerate(op.results):
            same = all(values[k] is ends[0][k] for values in ends)
            strides = {self.stride(values[k]) for values in ends}
            together = len(strides) == 1 and (same or not varying or len(ends) == 1)
            if ends:
                self._merge(result, strides.pop() if together else None)

    def _loop(self, op: Op) -> None:
        (body,) = op.regions
        counted = op.row is ops.FOR
        if counted:
            self._set(body.args[0], self._counter(op))
        carried = body.args[1:] if counted else body.args
        initial = op.operands[3:] if counted else op.operands
        for arg, value in zip(carried, initial, strict=True):
            self._merge(arg, self.stride(value))
        loop = _Open(op)
        self._stack.append(loop)
        self._region(body)
        self._stack.pop()
        self._finish(loop, carried, counted)

    def trips_alike(self, op: Op) -> bool:
        """Whether all lanes run a `for` equally often."""
        start, stop, step = (self.stride(v) for v in op.operands[:3])
        return start is not None and start == stop and step == 0

    def _counter(self, op: Op) -> Stride:
        start, stop, step = (self.stride(v) for v in op.operands[:3])
        if start is None or step != 0:
            return None
        if self.trips_alike(op):
            return start
        rises = self.is_rising(op)
        if start == 0:
            return 0 if rises else None
        return start if rises and isinstance(start, int) and start > 0 and stop == 0 else None

    def is_rising(self, op: Op) -> bool:
        """Whether the step of a `for` is known to be above 0."""
        step = self.constant(op.operands[2])
        return bool(op.attrs.get("rising")) or (step is not None and step > 0)

    def _finish(self, loop: _Open, carried: tuple[Value, ...], counted: bool) -> None:
        op = loop.op
        skips = any(divergent for _, divergent in loop.continues)
        leaves = loop.leaves or (skips and bool(loop.breaks or loop.returns))
        if leaves or (counted and not self.trips_alike(op)):
            self._add(self.masked, op)
        elif skips:
            self._add(self.soft, op)
        for k, arg in enumerate(carried):
            found = [jump.operands[k] for jump, _ in loop.continues]
            for value in found:
                self._merge(arg, self.stride(value))
            if (skips or op in self.masked) and any(v is not found[0] for v in found):
                self._set(arg, None)
        for k, result in enumerate(op.results):
            ends = [jump.operands[k] for jump in loop.breaks] + ([carried[k]] if counted else [])
            for value in ends:
                self._merge(result, self.stride(value))
            if op in self.masked:
                self._set(result, None)

    def _jump(self, op: Op) -> None:
        divergent = False
        for outer in reversed(self._stack):
            if isinstance(outer, _Open):
                if op.row is ops.BREAK:
                    outer.breaks.append(op)
                    outer.leaves |= divergent
                else:
                    outer.continues.append((op, divergent))
                return
            divergent = True

    def _return(self, op: Op) -> None:
        """A return of some lanes is one behind each loop around it."""
        loops = [outer for outer in self._stack if isinstance(outer, _Open)]
        divergent = len(loops) < len(self._stack) or any(loop.op in self.masked for loop in loops)
        for loop in loops:
            loop.returns = True
            loop.leaves |= divergent
        if not divergent:
            self.real_returns.add(op)


def _sum(
    a: int | tuple[int, Value], b: int | tuple[int, Value], factor: int
) -> int | tuple[int, Value] | None:
    """`a + factor * b`, of strides of one kind; None where they are of two, or too large."""
    x, y = (s if isinstance(s, tuple) else (s, None) for s in (a, b))
    total, of = x[0] + factor * y[0], x[1] or y[1]
    if (a and b and x[1] is not y[1]) or abs(total) >= 1 << 31:
        return None
    return (total, of) if of is not None and total else total


def _is_integer(op: Op) -> bool:
    return all(element_of(v.type).is_integer for v in (*op.operands, *op.results))


def _keeps_numbers(op: Op) -> bool:
    """Conversions whose lanes keep their distance: those that cut, and those between indices and
    integers as wide. A sum of a narrow type may wrap in some lanes before it is extended."""
    source, target = element_of(op.operands[0].type), element_of(op.result.type)
    if not target.is_integer or target.kind is Kind.BOOL:
        return False
    return target.bits <= source.bits


def shapes_of(kernel: Kernel, line_bytes: int) -> tuple[int, Shapes]:
    """How many units become lanes, and how these differ.

    A plane becomes lanes; else as many units as a line has lanes of four bytes, or of eight, where
    at least half of the values that differ have so many. Indices count as four bytes, as do
    narrower types: they are computed beside them. So few wide values as the reduction of an angle
    has cost less in two lines than all others in half of one. Fewer lanes where the cube's rows of
    units are not a multiple.
    """
    if kernel.plane_dim > 1:
        return kernel.plane_dim, Shapes(kernel, kernel.plane_dim)
    most = line_bytes // 4
    shapes = Shapes(kernel, most)
    lanes = most // 2 if _is_wide(kernel, shapes) else most
    while lanes > 1 and kernel.cube_dim[0] % lanes:
        lanes //= 2
    return lanes, shapes if lanes == most else Shapes(kernel, lanes)


def _is_wide(kernel: Kernel, shapes: Shapes) -> bool:
    """Whether at least half of the values that differ have eight bytes."""
    types = [
        v.type
        for op in kernel.body.walk()
        for v in op.results
        if isinstance(v.type, DType) and v.type is not bool_ and shapes.stride(v) is None
    ]
    wide = sum(t.itemsize == 8 and t not in INDICES for t in types)
    return wide > 0 and WIDE * wide >= len(types)
