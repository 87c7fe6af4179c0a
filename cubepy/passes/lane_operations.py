"""Operations of lanes: lines in place of scalars, memory by lines, and lanes one by one."""

from __future__ import annotations

from collections.abc import Sequence

from cubepy.ir import ops
from cubepy.ir.core import Attr, Op, Region, Value
from cubepy.ir.types import Buffer, DType, Line, Space, bool_, element_of, i32, index
from cubepy.passes.lane_planes import PLANE_OPS, LanePlanes

LANEWISE = frozenset(
    {row for row in ops.TABLE.values() if row.meaning is not None}
    | {ops.SELECT, ops.CAST, ops.BITCAST}
)
"""What is done lane by lane with lines in place of scalars."""
ONE_BY_ONE = frozenset((*ops.ATOMICS, ops.PRINT))
"""What lanes do one after the other."""
POSITIONS = (ops.UNIT_POS, ops.ABSOLUTE_POS)
_ORDERS = (ops.LT, ops.LE, ops.GT, ops.GE)


class LaneOperations(LanePlanes):
    """Writes operations that direct no control flow."""

    def _operation(self, op: Op) -> None:
        """Write an operation without regions that is no jump."""
        row = op.row
        if row in POSITIONS:
            self._position(op)
        elif row is ops.ALLOC:
            self._alloc(op)
        elif row is ops.FAULT:
            self._fault(op)
        elif row in PLANE_OPS:
            self._plane_operation(op)
        elif row in (ops.NAME, ops.BREAKPOINT, ops.SYNC_PLANE):
            pass
        elif row is ops.PREFETCH:
            if self._shapes.stride(op.operands[1]) is not None:
                self._plain(op)
        elif self._is_alike(op):
            self._plain(op)
        elif row is ops.LOAD:
            self._load(op)
        elif row is ops.STORE:
            self._store(op)
        elif row in ONE_BY_ONE:
            self._one_by_one(op)
        elif row is ops.LOOKUP:
            self._lookup(op)
        elif row in (ops.FLOORDIV, ops.MOD) and self._divides_position(op):
            self._divide(op)
        elif row in LANEWISE:
            count = self._count(op)
            if count is None:
                self._lanewise(op)
            else:
                self._new[op.result] = self._first_lanes(count)
        else:
            raise AssertionError(f"{row.name} has no form for lanes")

    def _is_alike(self, op: Op) -> bool:
        """Whether it is done once for all lanes; with the first lane, where strides are kept."""
        if op.row in ONE_BY_ONE:
            return False
        if op.results:
            return self._shapes.stride(op.result) is not None
        return all(self._shapes.is_alike(v) for v in op.operands) and not is_own(op)

    def _plain(self, op: Op) -> None:
        """Once for all lanes. A proof that holds for lanes that are on may fail without any."""
        operands = tuple([self._scalar(v) for v in op.operands])
        attrs = op.attrs
        first_differs = any(self._shapes.stride(v) for v in op.operands)
        if self._may_be_empty or (self._mask is not None and first_differs):
            attrs = {k: v for k, v in attrs.items() if k not in ("nonzero", "inside")}
        results = tuple([Value(v.type, v.name) for v in op.results])
        self._out.append(Op(op.row, operands, attrs, results, (), op.span))
        self._new.update(zip(op.results, results, strict=True))

    def _position(self, op: Op) -> None:
        position = self._emit(op.row, **op.attrs)  # pyright: ignore[reportArgumentType]
        if op.attrs["axis"] in ("x", "all"):
            lanes = self._const(position.type, self._lanes)
            position = self._emit(ops.MUL, position, lanes, name=op.result.name)
        self._new[op.result] = position

    def _lanewise(self, op: Op) -> None:
        attrs: dict[str, Attr] = dict(op.attrs)
        if self._mask is not None or self._may_be_empty:
            attrs.pop("nonzero", None)
        t = attrs.get("type")
        if isinstance(t, DType):
            attrs["type"] = self._line_of(t)
        operands = [self._line(v) for v in op.operands]
        if op.row is ops.SELECT and self._shapes.is_alike(op.operands[0]):
            operands[0] = self._scalar(op.operands[0])
        self._new[op.result] = self._emit(op.row, *operands, name=op.result.name, **attrs)

    def _lookup(self, op: Op) -> None:
        """From a table for all lanes; those that are off may have any index, and take the first."""
        places = self._line(op.operands[0])
        if self._mask is not None or self._may_be_empty:
            first = self._splat(self._const(element_of(places.type), 0))
            places = self._emit(ops.SELECT, self._mask_line(), places, first)
        attrs = dict(op.attrs)
        self._new[op.result] = self._emit(ops.LOOKUP, places, name=op.result.name, **attrs)

    # Masks of the first lanes: comparisons of positions with what lanes share

    def _count(self, op: Op) -> Value | None:
        """How many first lanes an operation is true of, where no others can be."""
        if op.row is ops.AND and op.result.type is bool_:
            return self._count_of_both(op)
        if op.row not in _ORDERS or element_of(op.operands[0].type) is not index:
            return None
        (low, high), is_strict = op.operands, op.row in (ops.LT, ops.GT)
        if op.row in (ops.GT, ops.GE):
            low, high = high, low
        if self._shapes.stride(low) != 1 or not self._shapes.is_alike(high):
            return None
        first, limit = self._scalar(low), self._scalar(high)
        if not is_strict:
            first = self._emit(ops.SUB, first, self._const(index, 1))
        return self._lanes_below(first, limit)

    def _count_of_both(self, op: Op) -> Value | None:
        alike = [v for v in op.operands if self._shapes.is_alike(v)]
        counts = [self._counts.get(self._scalar(v)) for v in op.operands if v not in alike]
        known = [count for count in counts if count is not None]
        if len(known) != len(counts):
            return None
        if not alike:
            return self._emit(ops.MIN, *known)
        return self._emit(ops.SELECT, self._scalar(alike[0]), known[0], self._const(i32, 0))

    # Divisions of positions: rows are seldom shorter than a line

    def _divides_position(self, op: Op) -> bool:
        position, divisor = op.operands
        is_row = self._shapes.stride(position) == 1 and self._shapes.is_alike(divisor)
        return is_row and op.result.type is index and bool(op.attrs.get("nonnegative"))

    def _divide(self, op: Op) -> None:
        """Where a row has at least a line of units, at most one row ends among them."""
        position, divisor = op.operands
        first, by = self._scalar(position), self._scalar(divisor)
        line = self._line_of(index)
        result = self._var(line, op.result.name)
        lanes = self._const(index, self._lanes)
        with self._block() as one_end:
            row = self._emit(ops.FLOORDIV, first, by, nonnegative=True)
            column = self._emit(ops.SUB, first, self._emit(ops.MUL, row, by))
            place = self._emit(ops.ADD, self._splat(column), self._iota(index))
            end = self._splat(by)
            is_next = self._emit(ops.GE, place, end)
            if op.row is ops.FLOORDIV:
                rows = self._splat(row)
                after = self._splat(self._emit(ops.ADD, row, self._const(index, 1)))
                self._set(result, self._emit(ops.SELECT, is_next, after, rows))
            else:
                again = self._emit(ops.SUB, place, end)
                self._set(result, self._emit(ops.SELECT, is_next, again, place))
        with self._block() as many_ends:
            operands = self._line(position), self._line(divisor)
            self._set(result, self._emit(op.row, *operands, nonnegative=True))
        positive = self._emit(ops.GE, first, self._const(index, 0))
        is_long = self._emit(ops.AND, self._emit(ops.LE, lanes, by), positive)
        self._branch(is_long, one_end, many_ends)
        self._new[op.result] = self._get(result)

    # Memory

    def _alloc(self, op: Op) -> None:
        if op.attrs["space"] == "shared":
            self._plain(op)
            return
        size = op.attrs["size"]
        assert isinstance(size, int)
        attrs: dict[str, Attr] = {**op.attrs, "size": size * self._lanes}
        self._new[op.result] = self._emit(ops.ALLOC, name=op.result.name, **attrs)
        self._owners[op.result] = self._mask

    def _place(self, op: Op) -> tuple[Value, Value | None]:
        """The offset of an access, and the distances of its lanes where they are not neighbours.

        Of arrays of units the lanes' elements are neighbours.
        """
        stride, offset = self._shapes.stride(op.operands[1]), self._scalar(op.operands[1])
        if is_own(op):
            lanes = self._const(index, self._lanes)
            if stride == 0:
                return self._emit(ops.MUL, self._as_index(offset), lanes), None
            line = self._line(op.operands[1])
            scaled = self._emit(ops.MUL, self._as_index(line), self._splat(lanes))
            return self._const(index, 0), self._emit(ops.ADD, scaled, self._iota(index))
        if stride == 1:
            return offset, None
        if stride is not None:
            return offset, self._steps(index, stride)
        return self._const(index, 0), self._as_index(self._line(op.operands[1]))

    def _as_index(self, value: Value) -> Value:
        if element_of(value.type) is index:
            return value
        t = self._line_of(index) if isinstance(value.type, Line) else index
        return self._emit(ops.CAST, value, type=t)

    def _load(self, op: Op) -> None:
        """A load of lines; lanes that are off get 0.

        What a launch does not write is loaded once, where all lanes that need it are on: LLVM does
        not see that one masked load holds the lanes of another.
        """
        key = op.operands[0], op.operands[1]
        line, loaded_under = self._loaded.get(key, (None, None))
        is_plain = len(op.operands) == 2 and op.operands[0] in self._constant_memory
        if line is not None and is_plain and self._is_part(self._mask, loaded_under):
            self._new[op.result] = line
            return
        self._new[op.result] = self._load_line(op)
        if is_plain:
            self._loaded[key] = self._new[op.result], self._mask

    def _load_line(self, op: Op) -> Value:
        t = self._line_of(element_of(op.result.type))
        buffer, mask = self._scalar(op.operands[0]), self._mask
        fill = self._const(t, 0)
        if len(op.operands) == 4:
            mask = self._both(mask, self._line(op.operands[2]))
            fill = self._line(op.operands[3])
        offset, distances = self._place(op)
        name = op.result.name
        if is_own(op) and self._may_touch_all(op, distances):
            return self._emit(ops.LOAD, buffer, offset, name=name, type=t)
        if distances is not None:
            operands = (buffer, offset, distances, mask or self._all_on(), fill)
            return self._emit(ops.GATHER, *operands, name=name)
        attrs: dict[str, Attr] = {"type": t}
        masked = () if mask is None else (mask, fill)
        return self._emit(ops.LOAD, buffer, offset, *masked, name=name, **attrs)

    def _store(self, op: Op) -> None:
        if self._shapes.is_alike(op.operands[1]) and not is_own(op):
            if len(op.operands) == 3 and self._shapes.is_alike(op.operands[2]):
                self._store_once(op)
            else:
                self._one_by_one(op)
            return
        buffer, mask = self._scalar(op.operands[0]), self._mask
        if len(op.operands) == 4:
            mask = self._both(mask, self._line(op.operands[3]))
        value = self._line(op.operands[2])
        offset, distances = self._place(op)
        if is_own(op) and self._may_touch_all(op, distances):
            if mask is not None and mask is not self._owners.get(op.operands[0]):
                held = self._emit(ops.LOAD, buffer, offset, type=value.type)
                value = self._emit(ops.SELECT, mask, value, held)
            self._append(ops.STORE, buffer, offset, value)
        elif distances is not None:
            self._append(ops.SCATTER, buffer, offset, distances, value, mask or self._all_on())
        else:
            self._append(ops.STORE, buffer, offset, value, *(() if mask is None else (mask,)))

    def _may_touch_all(self, op: Op, distances: Value | None) -> bool:
        """Whether an access to an array of units may be one of all lanes, which is cheaper than one
        under a mask: those that are off have an element at the place of those that are on."""
        is_masked = len(op.operands) > (2 if op.row is ops.LOAD else 3)
        return distances is None and not self._may_be_empty and not is_masked

    def _store_once(self, op: Op) -> None:
        """What any lane that is on stores, all would store."""
        with self._block() as block:
            self._plain(op)
        if self._mask is None:
            self._out += block
        else:
            self._branch(self._any(self._mask), block)

    # One lane after the other

    def _one_by_one(self, op: Op) -> None:
        """A loop over the lanes that are on."""
        results = [self._var(self._line_of(element_of(v.type)), v.name) for v in op.results]
        mask = self._mask
        lines = {v: self._line(v) for v in op.operands if self._shapes.stride(v) is None}
        zero, end, one = (self._const(index, k) for k in (0, self._lanes, 1))
        lane = Value(index, "lane")
        with self._block() as body:
            with self._block() as work:
                self._of_lane(op, lane, lines, results)
            if mask is None:
                body += work
            else:
                self._branch(self._emit(ops.EXTRACT, mask, lane), work)
            self._append(ops.CONTINUE)
        region = Region((lane,), tuple(body))
        self._out.append(Op(ops.FOR, (zero, end, one), {}, (), (region,), self._span))
        for old, ref in zip(op.results, results, strict=True):
            self._new[old] = self._get(ref)

    def _of_lane(
        self, op: Op, lane: Value, lines: dict[Value, Value], results: Sequence[Value]
    ) -> None:
        operands = [self._one_lane(v, lane, lines) for v in op.operands]
        if is_own(op):
            scaled = self._emit(ops.MUL, operands[1], self._const(index, self._lanes))
            operands[1] = self._emit(ops.ADD, scaled, lane)
        made = tuple([Value(v.type, v.name) for v in op.results])
        attrs = {k: v for k, v in op.attrs.items() if k != "align"}
        self._out.append(Op(op.row, tuple(operands), attrs, made, (), op.span))
        for value, ref in zip(made, results, strict=True):
            here = self._emit(ops.EQ, self._iota(index), self._splat(lane))
            self._blend(ref, self._splat(value), here)

    def _one_lane(self, value: Value, lane: Value, lines: dict[Value, Value]) -> Value:
        stride = self._shapes.stride(value)
        if stride is None:
            return self._emit(ops.EXTRACT, lines[value], lane)
        new = self._scalar(value)
        if not stride:
            return new
        t = element_of(value.type)
        steps = self._emit(ops.MUL, lane, self._distance(index, stride))
        steps = steps if t is index else self._emit(ops.CAST, steps, type=t)
        return self._emit(ops.ADD, new, steps)

    def _fault(self, op: Op) -> None:
        """The first lane that is on reports."""
        far = self._const(self._line_of(index), self._lanes)
        lanes = self._emit(ops.SELECT, self._mask_line(), self._iota(index), far)
        lane = self._emit(ops.REDUCE_MIN, lanes)
        varying = {v: self._line(v) for v in op.operands if self._shapes.stride(v) is None}
        noted = [self._one_lane(v, lane, varying) for v in op.operands]
        self._append(ops.FAULT, *noted, lane, **{**op.attrs, "lanes": self._lanes})


def is_own(op: Op) -> bool:
    """Whether an access goes to an array of the unit."""
    buffer = op.operands[0].type if op.operands else None
    return isinstance(buffer, Buffer) and buffer.space is Space.LOCAL
