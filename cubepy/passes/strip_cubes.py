"""Cubes go through a grid in strips: what the cubes of a strip read stays in the cache.

Row by row, each cube of a product reads columns of the second matrix that no cube before it read.
In strips of a few cubes along X, and then along Y, all but the first row find them.
"""

from __future__ import annotations

from dataclasses import replace

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import index
from cubepy.passes.rewrite import Rewriter

WIDTH = 8
"""Cubes of a strip along X."""
_POSITIONS = (ops.CUBE_POS, ops.ABSOLUTE_POS)


def strip_cubes(kernel: Kernel) -> Kernel:
    """The kernel with its cubes numbered by strips, if it uses positions along X and Y alone."""
    axes = {op.attrs["axis"] for op in kernel.body.walk() if op.row in _POSITIONS}
    if kernel.flat or not {"x", "y"} <= axes or "all" in axes:
        return kernel
    strips = _Strips(kernel)
    strips.start()
    body = strips.region(kernel.body)
    return replace(kernel, body=Region((), (*strips.head, *body.ops)))


class _Strips(Rewriter):
    """Replaces positions of cubes."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._extents = kernel.cube_dim
        self.head: list[Op] = []
        self._cubes: dict[str, Value] = {}

    def start(self) -> None:
        """Write where the cube is in its strip."""
        columns = self.emit(ops.CUBE_COUNT, (), {"axis": "x"})
        rows = self.emit(ops.CUBE_COUNT, (), {"axis": "y"})
        width = self.emit_const(index, WIDTH)
        cube = self._mod(
            self.emit(ops.CUBE_POS, (), {"axis": "all"}), self.emit(ops.MUL, (columns, rows))
        )
        area = self.emit(ops.MUL, (width, rows))
        first = self.emit(ops.MUL, (self._div(cube, area), width))
        place = self._mod(cube, area)
        own = self.emit(ops.MIN, (width, self.emit(ops.SUB, (columns, first))))
        self._cubes["x"] = self.emit(ops.ADD, (first, self._mod(place, own)))
        self._cubes["y"] = self._div(place, own)
        self.head, self.out = self.out, []

    def _div(self, a: Value, b: Value) -> Value:
        return self.emit(ops.FLOORDIV, (a, b), {"nonnegative": True, "nonzero": True})

    def _mod(self, a: Value, b: Value) -> Value:
        return self.emit(ops.MOD, (a, b), {"nonnegative": True, "nonzero": True})

    def visit(self, op: Op) -> None:
        cube = self._cubes.get(str(op.attrs["axis"])) if op.row in _POSITIONS else None
        if cube is None:
            self.out.append(self.renew(op))
        elif op.row is ops.CUBE_POS:
            self.replaced[op.result] = cube
        else:
            unit = self.emit(ops.UNIT_POS, (), {"axis": op.attrs["axis"]}, op.span)
            base = self.emit(ops.MUL, (cube, self._extent(str(op.attrs["axis"]))))
            self.replaced[op.result] = self.emit(ops.ADD, (base, unit))

    def _extent(self, axis: str) -> Value:
        return self.emit_const(index, self._extents["xyz".index(axis)])
