"""Give integers 32 bits where they provably fit, for targets that have no wider registers.

An operation whose operands and result fit is computed as `index32`, which like `index` never wraps;
next to it stands the conversion for those who need the wide value, which is removed where nobody
does. Addresses, conversions and comparisons take the narrow one.

Offsets of accesses fit wherever the access is in bounds, whatever they are computed from. What is
not proved on the way there is computed as `u32`, which wraps: the low 32 bits are those that count.
"""

from __future__ import annotations

from dataclasses import replace

from cubepy.ir import ops
from cubepy.ir.core import NARROW_LIMIT, Attr, Kernel, Op, Param, Region, Value
from cubepy.ir.numbers import limits
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Buffer, Space, i64, index, index32, u32
from cubepy.passes.flow import analyse
from cubepy.passes.ranges import Range
from cubepy.passes.rewrite import Rewriter

_LEAST, _LARGEST = limits(index32)
_WIDE = (index, i64)
_ARITHMETIC: frozenset[OpDef] = frozenset(
    (
        *(ops.ADD, ops.SUB, ops.MUL, ops.NEG, ops.ABS, ops.MIN, ops.MAX, ops.SELECT),
        *(ops.FLOORDIV, ops.MOD, ops.DIV_TRUNC, ops.REM_TRUNC),
        *(ops.AND, ops.OR, ops.XOR, ops.NOT, ops.SHL, ops.SHR),
    )
)
_WRAPPING = (ops.ADD, ops.SUB, ops.MUL, ops.NEG)
_COMPARISONS: frozenset[OpDef] = frozenset((ops.EQ, ops.NE, ops.LT, ops.LE, ops.GT, ops.GE))
_POSITIONS: frozenset[OpDef] = frozenset(
    (ops.UNIT_POS, ops.CUBE_POS, ops.CUBE_COUNT, ops.ABSOLUTE_POS)
)
_ACCESSES: frozenset[OpDef] = frozenset(
    op for op in ops.TABLE.values() if op in (ops.LOAD, ops.STORE) or op.name.startswith("atomic_")
)


def narrow(kernel: Kernel) -> Kernel:
    """The kernel with integers of 32 bits."""
    return _Narrow(kernel, analyse(kernel)).narrowed()


class _Narrow(Rewriter):
    def __init__(self, kernel: Kernel, ranges: dict[Value, Range]) -> None:
        super().__init__()
        self._kernel = kernel
        self._ranges = ranges
        self._narrow: dict[Value, Value] = {}
        """The narrow values beside wide ones."""
        self._wrapped: dict[Value, Value] = {}
        """The low bits of wide values that are parts of offsets."""
        self._parts = self._parts_of_offsets(kernel)
        self._merges: list[tuple[bool, ...]] = []
        self._loops: list[tuple[bool, ...]] = []
        """What the open `if`s yield, and loops carry, that is narrow."""

    def narrowed(self) -> Kernel:
        """The kernel; parameters that fit are narrow themselves."""
        params: list[Param] = []
        for p in self._kernel.params:
            if p.value.type in _WIDE and self._fits(p.value):
                value = Value(index32, p.value.name)
                self._beside(p.value, value)
                p = replace(p, value=value)
            params.append(p)
        head, self.out = self.out, []
        body = self.region(self._kernel.body)
        return replace(
            self._kernel, params=tuple(params), body=Region(body.args, (*head, *body.ops))
        )

    def _fits(self, value: Value) -> bool:
        found = self._ranges.get(value)
        return found is not None and found[0] >= _LEAST and found[1] <= _LARGEST

    def _beside(self, wide: Value, value: Value) -> None:
        """`value` is the narrow form of `wide`, which is made of it for those who need that."""
        self._narrow[wide] = value
        attrs: dict[str, Attr] = {"type": wide.type}
        self.out.append(Op(ops.CAST, (value,), attrs, (wide,), ()))

    def _parts_of_offsets(self, kernel: Kernel) -> set[Value]:
        """Sums and products that do not provably fit, and lead to offsets of small memory."""
        sources = {op.result: op for op in kernel.body.walk() if op.row in _WRAPPING}
        found: set[Value] = set()
        work = [
            op.operands[1]
            for op in kernel.body.walk()
            if op.row in _ACCESSES and self._is_small(op.operands[0])
        ]
        while work:
            value = work.pop()
            if value in sources and value not in found and not self._fits(value):
                found.add(value)
                work += sources[value].operands
        return found

    def _is_small(self, buffer: Value) -> bool:
        """Whether offsets into memory have 31 bits: of arguments as the launch says, and arrays."""
        assert isinstance(buffer.type, Buffer)
        return buffer.type.space is not Space.GLOBAL or self._kernel.limit <= NARROW_LIMIT

    def _low_bits(self, value: Value) -> Value:
        """The low bits of a value that is available here."""
        found = self._wrapped.get(value)
        if found is not None:
            return found
        small, attrs = self._narrow.get(value), dict[str, Attr](type=u32)
        if small is not None:
            return self.emit(ops.BITCAST, (small,), attrs)
        return self.emit(ops.CAST, (value,), attrs)

    def _all_narrow(self, op: Op) -> tuple[Value, ...] | None:
        """The narrow forms of all operands but a mask; None if one has none."""
        found: list[Value] = []
        for k, value in enumerate(op.operands):
            small = value if op.row is ops.SELECT and k == 0 else self._narrow.get(value)
            if small is None:
                return None
            found.append(small)
        return tuple(found)

    # Operations

    def visit(self, op: Op) -> None:
        row = op.row
        if row is ops.IF:
            self._if(op)
        elif row in (ops.FOR, ops.LOOP):
            self._loop(op)
        elif row is ops.YIELD and self._merges:
            self._jump(op, self._merges[-1])
        elif row in (ops.CONTINUE, ops.BREAK):
            self._jump(op, self._loops[-1])
        elif row in _ACCESSES:
            self._access(op)
        elif row in _COMPARISONS:
            small = self._all_narrow(op)
            self.out.append(op if small is None else _with(op, small, op.results))
        elif row is ops.CAST:
            self._cast(op)
        elif row is ops.LOOKUP:
            self._look_up(op)
        elif len(op.results) == 1 and op.result.type in _WIDE:
            self._integer(op)
        else:
            self.out.append(self.renew(op))

    def _integer(self, op: Op) -> None:
        """An operation that gives a wide integer."""
        fits = self._fits(op.result)
        if fits and (op.row is ops.CONST or op.row in _POSITIONS):
            value = Value(index32, op.result.name)
            self.out.append(Op(op.row, (), {**op.attrs, "type": index32}, (value,), (), op.span))
            self._beside(op.result, value)
            return
        small = self._all_narrow(op) if fits and op.row in _ARITHMETIC else None
        if small is not None:
            value = Value(index32, op.result.name)
            self.out.append(_with(op, small, (value,)))
            self._beside(op.result, value)
            return
        self.out.append(self.renew(op))
        if fits:
            self._truncate(op.result)
        elif op.result in self._parts and op.result.type is index:
            operands = [self._low_bits(v) for v in op.operands]
            self._wrapped[op.result] = self.emit(op.row, operands, {}, op.span, op.result.name)

    def _truncate(self, wide: Value) -> None:
        attrs: dict[str, Attr] = {"type": index32}
        self._narrow[wide] = value = Value(index32, wide.name)
        self.out.append(Op(ops.CAST, (wide,), attrs, (value,), ()))

    def _cast(self, op: Op) -> None:
        """From the narrow form; to a wide integer from any that fits."""
        source = op.operands[0]
        small = self._narrow.get(source)
        if op.result.type not in _WIDE:
            self.out.append(op if small is None else _with(op, (small,), op.results))
        elif small is not None:
            self._beside(op.result, small)
        elif self._fits(op.result) and source.type not in _WIDE:
            value = Value(index32, op.result.name)
            attrs: dict[str, Attr] = {"type": index32}
            self.out.append(Op(ops.CAST, (source,), attrs, (value,), (), op.span))
            self._beside(op.result, value)
        else:
            self.out.append(op)
            if self._fits(op.result):
                self._truncate(op.result)

    def _look_up(self, op: Op) -> None:
        index_ = self._narrow.get(op.operands[0], op.operands[0])
        self.out.append(_with(op, (index_,), op.results))
        if op.result.type in _WIDE and self._fits(op.result):
            self._truncate(op.result)

    def _access(self, op: Op) -> None:
        buffer, offset, *rest = op.operands
        small = self._narrow.get(offset)
        if small is None and offset in self._wrapped and self._is_small(buffer):
            attrs: dict[str, Attr] = {"type": index32}
            small = self.emit(ops.BITCAST, (self._wrapped[offset],), attrs, op.span)
        offset = offset if small is None else small
        self.out.append(_with(op, (buffer, offset, *rest), op.results))

    # Control flow

    def _if(self, op: Op) -> None:
        kept = tuple([v.type in _WIDE and self._fits(v) for v in op.results])
        self._merges.append(kept)
        regions = tuple([self.region(region) for region in op.regions])
        self._merges.pop()
        results = self._smaller(op.results, kept)
        self.out.append(Op(op.row, op.operands, op.attrs, results, regions, op.span))
        self._give(op.results, results)

    def _loop(self, op: Op) -> None:
        """A loop whose bounds fit counts in 32 bits, if its last increment fits too."""
        bounds = op.operands[:3] if op.row is ops.FOR else ()
        counts = tuple([self._narrow[v] for v in bounds]) if self._counts_narrow(bounds) else ()
        args, initial = op.regions[0].args[len(bounds) // 3 :], op.operands[len(bounds) :]
        kept = tuple(
            [
                all(v.type in _WIDE and self._fits(v) for v in (arg, result))
                and start in self._narrow
                for arg, result, start in zip(args, op.results, initial, strict=True)
            ]
        )
        self._loops.append(kept)
        position = op.regions[0].args[: len(bounds) // 3]
        counted = tuple([Value(index32, v.name) for v in position]) if counts else position
        carried = self._smaller(args, kept)
        outer, self.out = self.out, []
        self._give((*position, *args), (*counted, *carried))
        head, self.out = self.out, outer
        body = self.region(op.regions[0])
        self._loops.pop()
        results = self._smaller(op.results, kept)
        operands = (*(counts or bounds), *self._forms(initial, kept))
        inner = Region((*counted, *carried), (*head, *body.ops))
        attrs = {**op.attrs, "fits": True} if counts else op.attrs
        self.out.append(Op(op.row, operands, attrs, results, (inner,), op.span))
        self._give(op.results, results)

    def _counts_narrow(self, bounds: tuple[Value, ...]) -> bool:
        if not bounds or not all(v in self._narrow for v in bounds):
            return False
        _, stop, step = (self._ranges[v] for v in bounds)
        first, last = stop[0] + 1 + min(step[0], 0), stop[1] - 1 + max(step[1], 0)
        return first >= _LEAST and last <= _LARGEST

    def _jump(self, op: Op, kept: tuple[bool, ...]) -> None:
        self.out.append(_with(op, self._forms(op.operands, kept), ()))

    def _forms(self, values: tuple[Value, ...], kept: tuple[bool, ...]) -> tuple[Value, ...]:
        """Values as they are merged: in their narrow forms where those are kept."""
        return tuple([self._form(v) if small else v for v, small in zip(values, kept, strict=True)])

    def _form(self, value: Value) -> Value:
        if value not in self._narrow:
            self._truncate(value)  # it fits where it is merged
            return self._narrow.pop(value)
        return self._narrow[value]

    @staticmethod
    def _smaller(values: tuple[Value, ...], kept: tuple[bool, ...]) -> tuple[Value, ...]:
        return tuple(
            [Value(index32, v.name) if k else v for v, k in zip(values, kept, strict=True)]
        )

    def _give(self, wide: tuple[Value, ...], given: tuple[Value, ...]) -> None:
        for value, small in zip(wide, given, strict=True):
            if value is not small:
                self._beside(value, small)
            elif value.type in _WIDE and self._fits(value):
                self._truncate(value)


def _with(op: Op, operands: tuple[Value, ...], results: tuple[Value, ...]) -> Op:
    return Op(op.row, operands, op.attrs, results, op.regions, op.span)
