"""Whether a kernel treats all elements of its line tensors alike.

Then it does not matter where lines begin, and contiguous tensors can be cut into lines as if they
had one axis, which leaves one line at the end that is not full instead of one in each row.
"""

from __future__ import annotations

from cubepy.artifact import Data, Extent
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.types import Line

_ORDERS = (ops.LT, ops.LE, ops.GT, ops.GE)
_PLAIN = (
    *(ops.CONST, ops.CAST, ops.SELECT, ops.SPLAT, ops.VAR, ops.GET, ops.SET, ops.NAME),
    *(ops.IF, ops.FOR, ops.LOOP, ops.YIELD, ops.CONTINUE, ops.BREAK, ops.RETURN),
)
"""Operations that are no arithmetic, keep each lane's number in its lane, and are seen by no other
unit."""


def is_lanewise(kernel: Kernel) -> bool:
    """Whether a kernel does nothing but to compute lines of lines, which it loads and stores at the
    position of the unit, where that is less than the number of lines. It has no other use for the
    position and for the extents of these tensors, and none for a lane or another unit."""
    return _Lanewise(kernel).holds()


class _Lanewise:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._owners: dict[Value, Op] = {}
        self._users: dict[Value, list[Op]] = {}
        for op in kernel.body.walk():
            self._owners |= dict.fromkeys(op.results, op)
            for value in op.operands:
                self._users.setdefault(value, []).append(op)
        widths = {
            p.argument: (p.value, p.kind.lanes)
            for p in kernel.params
            if isinstance(p.kind, Data) and p.kind.lanes > 1
        }
        self._buffers = {buffer for buffer, _ in widths.values()}
        self._lanes = max((lanes for _, lanes in widths.values()), default=1)
        self._extents = {
            p.value for p in kernel.params if isinstance(p.kind, Extent) and p.argument in widths
        }

    def holds(self) -> bool:
        """See `is_lanewise`."""
        extents = (user for extent in self._extents for user in self._users.get(extent, ()))
        return all(map(self._takes_extent, extents)) and all(
            map(self._keeps_lanes, self._kernel.body.walk())
        )

    def _keeps_lanes(self, op: Op) -> bool:
        if op.row is ops.ABSOLUTE_POS:
            return op.attrs["axis"] == "all" and all(
                self._is_place(user) or self._is_guard(user) for user in self._of(op)
            )
        if op.row is ops.LANE_MASK:
            return all(user.row in (ops.LOAD, ops.STORE) for user in self._of(op))
        if op.row in (ops.LOAD, ops.STORE):
            if op.operands[0] in self._buffers:
                place = self._owners.get(op.operands[1])
                return place is not None and self._is_place(place)
            return op.row is ops.LOAD and not isinstance(op.result.type, Line)
        return op.row in _PLAIN or op.row.meaning is not None

    def _is_place(self, op: Op) -> bool:
        """Whether it is where the line of the unit begins, for accesses and what guards them."""
        if op.row is not ops.MUL or not self._owner(op.operands[0], ops.ABSOLUTE_POS):
            return False
        return self._is_number(op.operands[1], self._lanes) and all(
            self._is_access(user) or self._is_rest(user) for user in self._of(op)
        )

    def _is_access(self, op: Op) -> bool:
        return op.row in (ops.LOAD, ops.STORE) and op.operands[0] in self._buffers

    def _is_rest(self, op: Op) -> bool:
        """Whether it is how many elements there are from a place on, which decides about masks."""
        if op.row is not ops.SUB or op.operands[0] not in self._extents:
            return False
        return all(
            user.row is ops.LANE_MASK
            or (user.row is ops.GE and self._is_number(user.operands[1], self._lanes))
            for user in self._of(op)
        )

    def _takes_extent(self, op: Op) -> bool:
        """Whether it makes the number of lines of an extent, or of what is left from a place on."""
        if op.row is ops.SUB:
            place = self._owners.get(op.operands[1])
            return place is not None and self._is_place(place)
        if op.row is ops.ADD and self._is_number(op.operands[1], self._lanes - 1):
            return all(map(self._is_count, self._of(op)))
        return self._is_count(op)

    def _is_count(self, op: Op) -> bool:
        """Whether it divides by the line size, for comparisons with the position alone."""
        if op.row is not ops.FLOORDIV or not self._is_number(op.operands[1], self._lanes):
            return False
        return all(map(self._is_guard, self._of(op)))

    def _is_guard(self, op: Op) -> bool:
        """Whether it compares the position with the number of lines."""
        if op.row not in _ORDERS:
            return False
        a, b = op.operands
        count = b if self._owner(a, ops.ABSOLUTE_POS) else a
        if not self._owner(b if count is a else a, ops.ABSOLUTE_POS):
            return False
        owner = self._owner(count, ops.FLOORDIV)
        return owner is not None and self._counts_lines(owner)

    def _counts_lines(self, op: Op) -> bool:
        whole = op.operands[0]
        rounded = self._owner(whole, ops.ADD)
        if rounded is not None and self._is_number(rounded.operands[1], self._lanes - 1):
            whole = rounded.operands[0]
        return whole in self._extents and self._is_number(op.operands[1], self._lanes)

    def _is_number(self, value: Value, number: int) -> bool:
        owner = self._owner(value, ops.CONST)
        return owner is not None and owner.attrs["value"] == number

    def _owner(self, value: Value, row: object) -> Op | None:
        op = self._owners.get(value)
        return op if op is not None and op.row is row else None

    def _of(self, op: Op) -> list[Op]:
        return self._users.get(op.result, [])
