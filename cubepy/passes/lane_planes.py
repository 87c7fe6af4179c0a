"""Planes whose units are the lanes of one line: their operations are shuffles and reductions of it.

Lanes that are off have returned, for all others reach a plane operation together; they give the
identity.
"""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Op, Value
from cubepy.ir.opdef import OpDef, Scan
from cubepy.ir.types import element_of, i32, index, u32, u64
from cubepy.passes.emulate_planes import identity
from cubepy.passes.lane_emitter import LaneEmitter

PLANE_OPS = frozenset(ops.PLANE_ROWS)
_OF_LINES = {row.step: row for row in ops.REDUCTIONS}
"""The reduction of a line by its step."""
_DISTANCES = {ops.PLANE_SHUFFLE_UP: -1, ops.PLANE_SHUFFLE_DOWN: 1}


class LanePlanes(LaneEmitter):
    """Writes plane operations."""

    def _plane_operation(self, op: Op) -> None:
        """An operation of the plane that the lanes are."""
        if op.row is ops.PLANE_ELECT:
            result = self._elected()
        elif op.row is ops.PLANE_BALLOT:
            result = self._ballot(op)
        elif op.row.scan is not None:
            result = self._scanned(op, op.row.scan)
        elif op.row.step is not None:
            result = self._emit(_OF_LINES[op.row.step], self._given(op))
        else:
            result = self._shuffled(op)
        self._new[op.result] = result

    def _given(self, op: Op) -> Value:
        """What the lanes give."""
        value = self._line(op.operands[0])
        if self._mask is None:
            return value
        filler = self._const(value.type, identity(op.row, element_of(value.type)))
        return self._emit(ops.SELECT, self._mask, value, filler)

    def _elected(self) -> Value:
        """The first lane that is on."""
        lanes = self._iota(i32)
        first = self._const(i32, 0)
        if self._mask is not None:
            none = self._const(lanes.type, self._lanes)
            first = self._emit(ops.REDUCE_MIN, self._emit(ops.SELECT, self._mask, lanes, none))
        return self._emit(ops.EQ, lanes, self._splat(first))

    def _ballot(self, op: Op) -> Value:
        """Bit k for lane k."""
        dtype = u32 if self._lanes <= 32 else u64
        zero = self._const(self._line_of(dtype), 0)
        bits = zero
        for lane in range(self._lanes):
            bits = self._emit(ops.INSERT, bits, self._const(dtype, 1 << lane), lane=lane)
        word = self._emit(ops.REDUCE_OR, self._emit(ops.SELECT, self._given(op), bits, zero))
        return word if dtype is u64 else self._emit(ops.CAST, word, type=u64)

    # Scans

    def _scanned(self, op: Op, scan: Scan) -> Value:
        value, row = self._given(op), op.row.step
        assert row is not None
        dtype = element_of(value.type)
        start = identity(op.row, dtype)
        if dtype.is_float:
            return self._in_turn(value, row, self._const(dtype, start), scan)
        before = self._const(value.type, start)
        distance = 1
        while distance < self._lanes:
            value = self._emit(row, self._moved(before, value, distance), value)
            distance *= 2
        return value if scan is Scan.INCLUSIVE else self._moved(before, value, 1)

    def _moved(self, before: Value, value: Value, distance: int) -> Value:
        """Lanes `distance` further up, after those of `before`."""
        lanes = range(self._lanes - distance, 2 * self._lanes - distance)
        return self._emit(ops.SHUFFLE, before, value, lanes=tuple(lanes))

    def _in_turn(self, value: Value, row: OpDef, so_far: Value, scan: Scan) -> Value:
        """One lane after the other: the order of floats is promised."""
        result = value
        for lane in range(self._lanes):
            total = self._emit(row, so_far, self._emit(ops.EXTRACT, value, lane=lane))
            here = total if scan is Scan.INCLUSIVE else so_far
            result = self._emit(ops.INSERT, result, here, lane=lane)
            so_far = total
        return result

    # Shuffles

    def _shuffled(self, op: Op) -> Value:
        chosen = op.operands[1]
        number = self._shapes.constant(chosen)
        own = range(self._lanes)
        if number is None:
            return self._permuted(op)
        if op.row is ops.PLANE_SHUFFLE:
            if number in own:
                return self._emit(ops.EXTRACT, self._given(op), lane=number)
            return self._line(op.operands[0])
        if op.row is ops.PLANE_SHUFFLE_XOR:
            lanes = [k ^ number for k in own]
        else:
            lanes = [k + _DISTANCES[op.row] * number for k in own]
        known = tuple(lane if lane in own else k for k, lane in enumerate(lanes))
        given = self._given(op)
        return self._emit(ops.SHUFFLE, given, given, lanes=known)

    def _permuted(self, op: Op) -> Value:
        """Of lanes that only run time knows, one after the other."""
        given, chosen, own = self._given(op), self._line(op.operands[1]), self._iota(index)
        if op.row is ops.PLANE_SHUFFLE_XOR:
            chosen = self._emit(ops.XOR, own, chosen)
        elif op.row in _DISTANCES:
            chosen = self._emit(ops.ADD if _DISTANCES[op.row] > 0 else ops.SUB, own, chosen)
        above = self._emit(ops.GE, chosen, self._const(chosen.type, 0))
        below = self._emit(ops.LT, chosen, self._const(chosen.type, self._lanes))
        chosen = self._emit(ops.SELECT, self._emit(ops.AND, above, below), chosen, own)
        result = given
        for lane in range(self._lanes):
            there = self._emit(ops.EXTRACT, chosen, lane=lane)
            value = self._emit(ops.EXTRACT, given, there)
            result = self._emit(ops.INSERT, result, value, lane=lane)
        return result
