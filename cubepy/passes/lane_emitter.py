"""What writes lanes: operations, lines of values that lanes do not share, and masks.

Masks and what loops carry are mutable locals, of which SSA construction makes values afterwards.
Masks never hold the outcome of a computation of lanes that are off: they are joined by selections.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import field

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.numbers import Number, convert
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Line, Ref, Type, bool_, element_of, i32, index, make_line
from cubepy.passes.lane_shapes import Shapes, Stride
from cubepy.passes.rewrite import constant, count_uses
from cubepy.record import dataclass
from cubepy.span import Span


@dataclass(slots=True, eq=False)
class OpenLoop:
    """A loop that is being written. `carried`, `results`: a local for each value and result.

    `live`: the local that holds which lanes are in the loop; None where they leave together.
    """

    op: Op
    args: tuple[Value, ...]
    carried: list[Value]
    results: list[Value | None]
    live: Value | None
    is_soft: bool
    continues: int = 0
    is_ending: bool = False
    """Whether lanes that came to the loop's end are off, and carry nothing on."""
    step: Callable[[], None] = field(default=lambda: None)


class LaneEmitter:
    """The state of one kernel, whose units along X become lines of `lanes`."""

    def __init__(self, kernel: Kernel, lanes: int, shapes: Shapes) -> None:
        self._kernel = kernel
        self._lanes = lanes
        self._shapes = shapes
        self._uses = count_uses(kernel)
        self._sources = {v: op for op in kernel.body.walk() for v in op.results}
        self._out: list[Op] = []
        self._span: Span | None = None
        self._new: dict[Value, Value] = {}
        """Of each old value the scalar, or the line; of what has a stride, the first lane."""
        self._lines: dict[Value, Value] = {}
        """Lines that were made of scalars in the open regions."""
        self._mask: Value | None = None
        """Which lanes are on; None for all."""
        self._around: dict[Value, Value | None] = {}
        """Of a mask one that holds all of its lanes."""
        self._loaded: dict[tuple[Value, Value], tuple[Value, Value | None]] = {}
        """Lines that were loaded of what nobody writes, by buffer and offset, with their masks."""
        self._owners: dict[Value, Value | None] = {}
        """Of arrays of units the mask under which they were made: no other lanes read them."""
        self._counts: dict[Value, Value] = {}
        """Of masks whose first lanes are on how many these are, as i32."""
        self._may_be_empty = False
        self._has_left = False
        """Whether lanes have left, so that perhaps none is on."""
        self._loops: list[OpenLoop] = []
        self._depth: int = 0
        """How many divergent branches and loops are around."""
        self._left: list[Value | None] = []
        """Of each open branch the local that collects the lanes which reach its end."""
        self._yields: list[Callable[[Op], None]] = []
        self._alive: Value | None = None
        self._iotas: dict[DType, Value] = {}
        self._constant_memory = {
            p.value for p in kernel.params if kernel.noalias and p.argument not in kernel.written
        }

    # Emission

    def _append(self, row: OpDef, *operands: Value, **attrs: Attr) -> None:
        self._out.append(Op(row, operands, attrs, (), (), self._span))

    def _emit(self, row: OpDef, *operands: Value, name: str = "", **attrs: Attr) -> Value:
        (t,) = row.rule([v.type for v in operands], attrs)
        result = Value(t, name)
        self._out.append(Op(row, operands, attrs, (result,), (), self._span))
        return result

    def _const(self, t: Type, number: Number) -> Value:
        result = Value(t)
        self._out.extend(constant(result, number, self._span))
        return result

    def _line_of(self, dtype: DType) -> Line:
        return make_line(dtype, self._lanes)

    def _all_on(self) -> Value:
        return self._const(self._line_of(bool_), True)

    def _all_off(self) -> Value:
        return self._const(self._line_of(bool_), False)

    def _var(self, t: Type, name: str = "") -> Value:
        ref = Value(Ref(t), name)  # pyright: ignore[reportArgumentType]
        self._out.append(Op(ops.VAR, (), {"type": t}, (ref,), (), self._span))
        return ref

    def _set(self, ref: Value, value: Value) -> None:
        self._append(ops.SET, ref, value)

    def _get(self, ref: Value) -> Value:
        return self._emit(ops.GET, ref, name=ref.name)

    @contextmanager
    def _block(self) -> Generator[list[Op]]:
        """Collect operations; lines made inside are forgotten, as they are not known outside."""
        outer, self._out = self._out, []
        lines, loaded = dict(self._lines), dict(self._loaded)
        yield self._out
        self._out, self._lines, self._loaded = outer, lines, loaded

    def _branch(self, condition: Value, then: list[Op], otherwise: list[Op] | None = None) -> None:
        regions: list[Region] = []
        for side in (then, otherwise or []):
            if not side or not side[-1].row.is_terminator:
                side = [*side, Op(ops.YIELD, span=self._span)]
            regions.append(Region((), tuple(side)))
        self._out.append(Op(ops.IF, (condition,), {}, (), tuple(regions), self._span))

    # Lanes

    def _iota(self, dtype: DType) -> Value:
        """0, 1, 2, ...; those of indices are made at the kernel's head."""
        if dtype in self._iotas:
            return self._iotas[dtype]
        if dtype is i32:
            line = self._count_up()
        else:
            line = self._emit(ops.CAST, self._iota(i32), type=self._line_of(dtype))
        if not self._depth and not self._loops and not self._left:
            self._iotas[dtype] = line
        return line

    def _count_up(self) -> Value:
        """Lines of twice the width, of which the second half goes on."""
        line, width = self._const(make_line(i32, 1), 0), 1
        while width < self._lanes:
            further = self._emit(ops.ADD, line, self._const(line.type, width))
            both = tuple(range(min(2 * width, self._lanes)))
            line, width = self._emit(ops.SHUFFLE, line, further, lanes=both), len(both)
        return line

    def _splat(self, value: Value) -> Value:
        return self._emit(ops.SPLAT, value, lanes=self._lanes)

    def _scalar(self, value: Value) -> Value:
        """What lanes share, or the first lane."""
        return self._new.get(value, value)

    def _line(self, value: Value) -> Value:
        """The line of a value, one lane for each unit."""
        stride, new = self._shapes.stride(value), self._scalar(value)
        if stride is None:
            return new
        if value in self._lines:
            return self._lines[value]
        line = self._splat(new)
        if stride:
            dtype = element_of(value.type)
            line = self._emit(ops.ADD, line, self._steps(dtype, stride))
        self._lines[value] = line
        return line

    def _steps(self, dtype: DType, stride: Stride) -> Value:
        """0, stride, 2 * stride, ..."""
        steps = self._iota(dtype)
        if stride == 1:
            return steps
        return self._emit(ops.MUL, steps, self._splat(self._distance(dtype, stride)))

    def _distance(self, dtype: DType, stride: Stride) -> Value:
        """A stride as a scalar."""
        if isinstance(stride, tuple):
            factor, value = stride
            shared = self._scalar(value)
            return (
                self._emit(ops.MUL, shared, self._const(dtype, factor)) if factor != 1 else shared
            )
        assert stride is not None
        return self._const(dtype, convert(stride, dtype))

    def _as(self, value: Value, stride: Stride) -> Value:
        """A value in the form of one that varies by `stride`."""
        return self._line(value) if stride is None else self._scalar(value)

    def _type_as(self, value: Value) -> Type:
        if self._shapes.stride(value) is None:
            return self._line_of(element_of(value.type))
        return value.type

    # Masks

    def _mask_line(self) -> Value:
        return self._all_on() if self._mask is None else self._mask

    def _both(self, mask: Value | None, condition: Value) -> Value:
        """`mask & condition`, where the condition may be anything in lanes that are off."""
        if mask is None:
            return condition
        if mask in self._counts and condition in self._counts:
            count = self._emit(ops.MIN, self._counts[mask], self._counts[condition])
            return self._part_of(mask, self._first_lanes(count))
        return self._part_of(mask, self._emit(ops.SELECT, mask, condition, self._all_off()))

    def _part_of(self, mask: Value | None, part: Value) -> Value:
        """`part`, of which all lanes are on in `mask`."""
        self._around[part] = mask
        return part

    def _is_part(self, part: Value | None, mask: Value | None) -> bool:
        """Whether the lanes of a mask are known to be on in another."""
        while part is not None and part is not mask:
            part = self._around.get(part)
        return part is mask

    def _without(self, mask: Value, gone: Value) -> Value:
        return self._emit(ops.AND, mask, self._emit(ops.NOT, gone))

    def _lanes_below(self, first: Value, limit: Value) -> Value:
        """How many lanes of positions from `first` on lie below a limit, as i32."""
        rest = self._emit(ops.SUB, self._emit(ops.MAX, limit, first), first)
        rest = self._emit(ops.MIN, rest, self._const(index, self._lanes))
        return self._emit(ops.CAST, rest, type=i32)

    def _first_lanes(self, count: Value) -> Value:
        """The mask of the first lanes. A scalar decides on all, which saves work on lines."""
        mask = self._emit(ops.LT, self._iota(i32), self._splat(count))
        self._counts[mask] = count
        return mask

    def _any(self, mask: Value) -> Value:
        if mask in self._counts:
            return self._emit(ops.GT, self._counts[mask], self._const(i32, 0))
        return self._emit(ops.REDUCE_OR, mask)

    def _blend(self, ref: Value, value: Value, mask: Value | None) -> None:
        """Assign the lanes that are on."""
        if mask is not None and isinstance(value.type, Line):
            value = self._emit(ops.SELECT, mask, value, self._get(ref))
        self._set(ref, value)
