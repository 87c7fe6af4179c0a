"""The builder: appends operations to regions, typing each one through the op table.

Knows no Python syntax; the frontend and the passes use it. A whole kernel is built so::

    b = Builder()
    x, a = b.tensor("x", f32), b.scalar("a", f32)
    i = b.emit(ops.ABSOLUTE_POS, axis="all")
    b.emit_op(ops.STORE, x, i, b.emit(ops.MUL, b.emit(ops.LOAD, x, i, type=f32), a))
    kernel = b.kernel("scale", cube_dim=(256, 1, 1))
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from cubepy.artifact import Data, Extent, ParamKind, Scalar, Stride
from cubepy.ir import ops
from cubepy.ir.accesses import written_arguments
from cubepy.ir.core import Attr, Kernel, Op, Param, Region, Value
from cubepy.ir.numbers import round_to
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Buffer, DType, Type, element_of, index
from cubepy.ir.verify import verify
from cubepy.span import Span


class Builder:
    """A stack of open regions; `emit` appends to the innermost one."""

    def __init__(self) -> None:
        self._open: list[list[Op]] = [[]]
        self._params: list[Param] = []
        self.span: Span | None = None

    @property
    def ops(self) -> list[Op]:
        """The operations of the innermost open region."""
        return self._open[-1]

    @property
    def is_terminated(self) -> bool:
        """Whether the innermost region has its terminator, so that what follows is dead."""
        return bool(self.ops) and self.ops[-1].row.is_terminator

    def append(self, op: Op) -> Op:
        """Add a finished operation."""
        self._open[-1].append(op)
        return op

    def emit_op(
        self,
        row: OpDef,
        *operands: Value,
        types: Sequence[Type] | None = None,
        regions: Sequence[Region] = (),
        name: str = "",
        **attrs: Attr,
    ) -> Op:
        """Append an operation; result types come from the table's rule, or from `types`."""
        inferred = row.rule([v.type for v in operands], attrs)
        results = tuple([Value(t, name) for t in (inferred if types is None else types)])
        return self.append(Op(row, operands, attrs, results, tuple(regions), self.span))

    def emit_with(self, row: OpDef, operands: Sequence[Value], attrs: dict[str, Attr]) -> Op:
        """As `emit_op`, with attributes that the caller has gathered."""
        return self.emit_op(row, *operands, types=None, regions=(), name="", **attrs)

    def emit(self, row: OpDef, *operands: Value, name: str = "", **attrs: Attr) -> Value:
        """Append an operation that has one result, and give that."""
        (t,) = row.rule([v.type for v in operands], attrs)
        result = Value(t, name)
        self.append(Op(row, operands, attrs, (result,), (), self.span))
        return result

    def const(self, value: int | float | bool, t: Type, name: str = "") -> Value:
        """A constant; lines get the value in every lane."""
        dtype = element_of(t)
        number = round_to(dtype, float(value)) if dtype.is_float else value
        if dtype.is_integer:
            number = int(number)  # True counts as 1
        if isinstance(t, DType):
            return self.emit(ops.CONST, type=t, value=number, name=name)
        scalar = self.emit(ops.CONST, type=dtype, value=number)
        return self.emit(ops.SPLAT, scalar, lanes=getattr(t, "width", 1), name=name)

    def index(self, value: int) -> Value:
        """A constant index."""
        return self.const(value, index)

    def param(self, argument: str, t: Type, kind: ParamKind, name: str = "") -> Value:
        """A parameter of the kernel, which a launch fills from `argument`."""
        value = Value(t, name or argument.replace(".", "_"))
        self._params.append(Param(value, argument, kind))
        return value

    def tensor(self, argument: str, element: DType, layout: Data | None = None) -> Value:
        """The memory of a tensor argument; without a `layout` it is row-major without gaps, or has
        the strides that are asked for."""
        return self.param(argument, Buffer(element), layout or Data())

    def extent(self, argument: str, axis: int) -> Value:
        """The extent of an axis of a tensor argument, in elements."""
        return self.param(argument, index, Extent(axis), f"{argument}_shape{axis}")

    def stride(self, argument: str, axis: int) -> Value:
        """The stride of an axis of a tensor argument, in elements."""
        return self.param(argument, index, Stride(axis), f"{argument}_stride{axis}")

    def scalar(self, argument: str, dtype: DType) -> Value:
        """A number argument."""
        return self.param(argument, dtype, Scalar())

    def branch(self, condition: Value, then: list[Op], otherwise: list[Op]) -> Op:
        """An `if` without results over two regions that were built."""
        regions = (Region((), tuple(then)), Region((), tuple(otherwise)))
        return self.emit_op(ops.IF, condition, types=(), regions=regions)

    def kernel(
        self,
        name: str,
        cube_dim: tuple[int, int, int] = (1, 1, 1),
        plane_dim: int = 1,
        noalias: bool = True,
    ) -> Kernel:
        """All that was built, with a `return` at its end, verified; raises `InvalidIR`."""
        if not self.is_terminated:
            self.emit_op(ops.RETURN)
        body = Region((), tuple(self.ops))
        written = written_arguments(self._params, body)
        return verify(
            Kernel(name, tuple(self._params), body, cube_dim, plane_dim, written, noalias)
        )

    @property
    def depth(self) -> int:
        """The number of open regions."""
        return len(self._open)

    @contextmanager
    def region(self) -> Generator[list[Op]]:
        """Open a region; the yielded list holds its operations afterwards."""
        body: list[Op] = []
        self._open.append(body)
        try:
            yield body
        finally:
            self._open.pop()

    @contextmanager
    def reopen(self, body: list[Op]) -> Generator[None]:
        """Append to a region that was left, but is in no operation yet."""
        self._open.append(body)
        try:
            yield
        finally:
            self._open.pop()
