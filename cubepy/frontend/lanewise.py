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
_MOVES = (
    *(ops.CAST, ops.SELECT, ops.SPLAT, ops.LOAD, ops.STORE, ops.VAR, ops.GET, ops.SET),
    *(ops.IF, ops.YIELD, ops.CONTINUE, ops.BREAK, ops.NAME),
)
"""Operations that are no arithmetic and keep each lane's number in its lane."""
_POSITIONS = (ops.UNIT_POS, ops.CUBE_POS, ops.CUBE_COUNT, *ops.ATOMICS)


def is_lanewise(kernel: Kernel) -> bool:
    """Whether lines are loaded and stored at the position of the unit alone, nothing depends on
    a lane or on the position besides, and no more is compared with it than the number of lines."""
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
        self._buffers = {
            p.value for p in kernel.params if isinstance(p.kind, Data) and p.kind.lanes > 1
        }
        self._extents = {p.value for p in kernel.params if isinstance(p.kind, Extent)}
        self._places = {
            op.result
            for op in self._owners.values()
            if op.row is ops.MUL and self._owner(op.operands[0], ops.ABSOLUTE_POS)
        }
        """Where lines begin, in elements."""

    def holds(self) -> bool:
        """See `is_lanewise`."""
        return all(map(self._keeps_lanes, self._kernel.body.walk()))

    def _keeps_lanes(self, op: Op) -> bool:
        if op.row is ops.ABSOLUTE_POS:
            return op.attrs["axis"] == "all" and all(
                self._begins_lines(user) or self._asks_for_the_end(user) for user in self._of(op)
            )
        if op.row in _POSITIONS:
            return False
        if not any(isinstance(v.type, Line) for v in (*op.results, *op.operands)):
            return True
        if op.row is ops.LANE_MASK:
            return all(user.row in (ops.LOAD, ops.STORE) for user in self._of(op))
        if op.row in (ops.LOAD, ops.STORE):
            return self._is_access(op) and op.operands[1] in self._places
        return op.row in _MOVES or op.row.meaning is not None

    def _begins_lines(self, op: Op) -> bool:
        """Whether it is the place of a line, which is for accesses and what guards them."""
        if op.row is not ops.MUL or op.result not in self._places:
            return False
        return all(
            self._is_access(user) or (user.row is ops.SUB and user.operands[0] in self._extents)
            for user in self._of(op)
        )

    def _is_access(self, op: Op) -> bool:
        """Whether it loads or stores lines of a line tensor."""
        return op.row in (ops.LOAD, ops.STORE) and op.operands[0] in self._buffers

    def _asks_for_the_end(self, op: Op) -> bool:
        """Whether it compares the position with the number of lines."""
        if op.row not in _ORDERS:
            return False
        a, b = op.operands
        return self._is_count(b) if self._owner(a, ops.ABSOLUTE_POS) else self._is_count(a)

    def _is_count(self, value: Value) -> bool:
        """Whether it is the extent of a tensor over the line size."""
        op = self._owner(value, ops.FLOORDIV)
        if op is None or not self._owner(op.operands[1], ops.CONST):
            return False
        whole = op.operands[0]
        rounded = self._owner(whole, ops.ADD)
        if rounded is not None and self._owner(rounded.operands[1], ops.CONST):
            whole = rounded.operands[0]
        return whole in self._extents

    def _owner(self, value: Value, row: object) -> Op | None:
        op = self._owners.get(value)
        return op if op is not None and op.row is row else None

    def _of(self, op: Op) -> list[Op]:
        return self._users.get(op.result, [])
