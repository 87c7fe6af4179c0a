"""Which values are the same in all units of a cube, or of a plane: a fixpoint over the kernel.

Optimistic: everything is uniform until an operation, or the control around it, says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import Uniformity
from cubepy.ir.types import Buffer, Space, element_of

_POSITIONS = (ops.UNIT_POS, ops.ABSOLUTE_POS)


class Uniform:
    """`is_varying(value)` for the units of a cube, or, with `plane`, for those of a plane.

    `known`: constants that are defined outside the kernel's body. `private`: operations that each
    unit does for itself, so that their results count as different.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        plane: bool = False,
        known: dict[Value, object] | None = None,
        private: Callable[[Op], bool] | None = None,
    ) -> None:
        self._kernel = kernel
        self._plane = plane
        self._private = private or _is_shared_by_all
        self._varying: set[Value] = set()
        self._constants: dict[Value, object] = dict(known or {})
        self._runs: set[Value] = set()
        while True:
            before = len(self._varying)
            self._region(kernel.body, [], False)
            if len(self._varying) == before:
                break

    def is_varying(self, value: Value) -> bool:
        """Whether units may have different values."""
        return value in self._varying

    def _mark(self, values: tuple[Value, ...]) -> None:
        self._varying.update(values)

    def _region(self, region: Region, loops: list[Op], divergent: bool) -> None:
        for op in region.ops:
            self._op(op, loops, divergent)

    def _op(self, op: Op, loops: list[Op], divergent: bool) -> None:
        if op.row is ops.CONST:
            self._constants[op.result] = op.attrs["value"]
        if self._private(op):
            self._mark(op.results)
        if op.row is ops.IF:
            self._if(op, loops, divergent)
        elif op.row in (ops.FOR, ops.LOOP):
            self._loop(op, loops, divergent)
        elif op.row in (ops.BREAK, ops.CONTINUE):
            self._jump(op, loops[-1], divergent)
        elif self._gives_varying(op):
            self._mark(op.results)

    def _gives_varying(self, op: Op) -> bool:
        if self._plane and self._is_plane_uniform(op):
            return False
        if op.row.uniformity in (Uniformity.NEVER, Uniformity.PLANE):
            return True
        if op.row is ops.LOAD and _is_private(op.operands[0]):
            return True
        if op.row.writes and op.results:
            return True
        return any(v in self._varying for v in op.operands)

    def _is_plane_uniform(self, op: Op) -> bool:
        """Positions divided by a multiple of the plane, and what the op table says of the row."""
        if self._is_run(op):
            self._runs.add(op.result)
        of_plane = op.row.uniformity is Uniformity.PLANE
        return of_plane or self.is_row_of_planes(op) or self.is_plane_position(op)

    def is_row_of_planes(self, op: Op) -> bool:
        """A position along an axis that the units of a plane, which go along X first, share."""
        if op.row not in _POSITIONS or op.attrs["axis"] not in ("y", "z"):
            return False
        inner = self._kernel.cube_dim[: "xyz".index(str(op.attrs["axis"]))]
        return prod(inner) % self._kernel.plane_dim == 0

    def is_plane_position(self, op: Op) -> bool:
        """A position divided by a multiple of the plane: the same in all units of the plane."""
        if op.row is ops.SHR and op.operands[0] in self._runs:
            count = self._constants.get(op.operands[1])
            return isinstance(count, int) and count >= 0 and self._is_whole(1 << count)
        is_division = op.row is ops.FLOORDIV and op.operands[0] in self._runs
        return is_division and self._is_whole(self._constants.get(op.operands[1]))

    def _is_run(self, op: Op) -> bool:
        """Whether the units of a plane have neighbouring numbers from a multiple of the plane on.

        Casts of integers keep that, as do remainders, sums and differences with such multiples.
        """
        if op.row in _POSITIONS:
            axis, dims = op.attrs["axis"], self._kernel.cube_dim
            return self._is_whole(prod(dims) if axis == "all" else dims[0] * (axis == "x"))
        if not op.operands or op.operands[0] not in self._runs:
            return False
        if op.row is ops.CAST:
            return element_of(op.result.type).is_integer
        number = self._constants.get(op.operands[1]) if len(op.operands) == 2 else None
        if op.row in (ops.ADD, ops.SUB):
            return isinstance(number, int) and number % self._kernel.plane_dim == 0
        return op.row is ops.MOD and self._is_whole(number)

    def _is_whole(self, number: object) -> bool:
        """Whether it is a number of units that make up whole planes."""
        return isinstance(number, int) and number > 0 and number % self._kernel.plane_dim == 0

    def _if(self, op: Op, loops: list[Op], divergent: bool) -> None:
        varying = op.operands[0] in self._varying
        for region in op.regions:
            self._region(region, loops, divergent or varying)
            end = region.terminator
            if end.row is ops.YIELD:
                self._carry(op.results, end.operands, varying)

    def _carry(
        self, results: tuple[Value, ...], operands: tuple[Value, ...], varying: bool
    ) -> None:
        for result, operand in zip(results, operands, strict=True):
            if varying or operand in self._varying:
                self._varying.add(result)

    def _loop(self, op: Op, loops: list[Op], divergent: bool) -> None:
        (body,) = op.regions
        counted = op.row is ops.FOR
        carried = body.args[1:] if counted else body.args
        bounds = op.operands[:3] if counted else ()
        varying = any(v in self._varying for v in bounds)
        if varying:
            self._mark(body.args[:1])
        initial = op.operands[len(bounds) :]
        self._carry(carried, initial, False)
        self._carry(op.results, carried, varying)
        self._region(body, [*loops, op], False)
        if varying:
            self._mark(op.results)

    def _jump(self, op: Op, loop: Op, divergent: bool) -> None:
        """A jump that only some units take makes what they carry differ."""
        (body,) = loop.regions
        carried = body.args[1:] if loop.row is ops.FOR else body.args
        target = loop.results if op.row is ops.BREAK else carried
        self._carry(target, op.operands, divergent)
        if divergent and op.row is ops.BREAK:
            self._mark(loop.results)


def _is_shared_by_all(op: Op) -> bool:
    return False


def _is_private(buffer: Value) -> bool:
    return isinstance(buffer.type, Buffer) and buffer.type.space is Space.LOCAL


def leaves_divergently(region: Region, uniform: Uniform) -> bool:
    """Whether some unit may leave the innermost loop around `region` while others stay."""
    return any(_leaves(op, uniform, False) for op in region.ops)


def _leaves(op: Op, uniform: Uniform, divergent: bool) -> bool:
    if op.row in (ops.BREAK, ops.CONTINUE):
        return divergent
    if op.row is not ops.IF:
        return False
    inner = divergent or uniform.is_varying(op.operands[0])
    return any(_leaves(o, uniform, inner) for region in op.regions for o in region.ops)
