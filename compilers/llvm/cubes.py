"""The loops around the work of a unit, over cubes, planes and units; positions inside of them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from cubepy.compilers.llvm.units import AXES, Bound
from cubepy.compilers.llvm.writer import Writer
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Value

Body = Callable[[], str]
"""Emits what a loop runs; gives the label of the block that goes on with the loop."""


class Cubes:
    """Loops of one kernel; `positions` and `plane` hold the registers of where the code is."""

    def __init__(self, kernel: Kernel, w: Writer, registers: dict[Value, str]) -> None:
        self._kernel = kernel
        self._w = w
        self._registers = registers
        self._units = prod(kernel.cube_dim)
        self.positions: dict[str, str] = {}
        self.plane = ""

    def each_cube(self, start: str, stop: str, body: Body, end: str) -> None:
        """A loop over cubes."""

        def cube(position: str) -> str:
            self.positions["cube_all"] = position
            if self._uses_cube_axes():
                self._cube_axes(position)
            return body()

        self._counted("cube", start, stop, cube, end)

    def each_plane(self, body: Body, end: str) -> None:
        """A loop over the planes of the cube."""

        def plane(position: str) -> str:
            self.plane = position
            return body()

        count = -(-self._units // self._kernel.plane_dim)
        self._counted("plane", "0", str(count), plane, end)
        self.plane = ""

    def each_unit(self, bounds: list[Bound], axes: bool, body: Body, latch: str) -> None:
        """Loops over the units of the cube (or of the plane), cut by bounds."""
        if axes:
            self._unit_axes(bounds, body, latch)
        else:
            self._unit_loop(bounds, body, latch)

    def _counted(
        self, hint: str, start: str, stop: str, body: Callable[[str], str], end: str
    ) -> None:
        """A loop from start up to stop; `body` gives the label of the block that goes on."""
        w = self._w
        before, head, inside = w.block, w.label(f"{hint}_head"), w.label(hint)
        w.jump(head)
        w.start(head)
        position, following = w.fresh(hint), w.fresh("next")
        at = len(w.lines)
        w.line("")
        more = w.value(f"icmp slt i64 {position}, {stop}")
        w.branch(more, inside, end)
        w.start(inside)
        latch = body(position)
        w.start(latch)
        w.line(f"{following} = add nsw i64 {position}, 1")
        w.jump(head)
        w.lines[at] = f"  {position} = phi i64 [{start}, %{before}], [{following}, %{latch}]"

    def _uses_cube_axes(self) -> bool:
        rows = (ops.CUBE_POS, ops.ABSOLUTE_POS)
        return any(op.row in rows and op.attrs["axis"] != "all" for op in self._kernel.body.walk())

    def _cube_axes(self, cube: str) -> None:
        w = self._w
        rest = cube
        for axis in ("x", "y"):
            count = f"%count_{axis}"
            self.positions[f"cube_{axis}"] = w.value(f"urem i64 {rest}, {count}", f"cube_{axis}")
            rest = w.value(f"udiv i64 {rest}, {count}")
        self.positions["cube_z"] = rest

    def _unit_loop(self, bounds: list[Bound], body: Body, latch: str) -> None:
        """All units of the cube (or of the plane) in one loop, cut where a guard says so."""
        base = self._w.value(f"mul nsw i64 {self.positions['cube_all']}, {self._units}", "base")
        start, stop = self._units_of_plane() if self.plane else ("0", str(self._units))
        stop = self._stop(stop, base, bounds)

        def unit(position: str) -> str:
            self.positions["unit_all"] = position
            absolute = self._w.value(f"add nsw i64 {base}, {position}", "absolute")
            self.positions["absolute_all"] = absolute
            if self.plane:
                self._axes_of_unit(position)
            return body()

        self._counted("unit", start, stop, unit, latch)

    def _units_of_plane(self) -> tuple[str, str]:
        width = self._kernel.plane_dim
        start = self._w.value(f"mul nsw i64 {self.plane}, {width}")
        stop = self._w.value(f"add nsw i64 {start}, {width}")
        args = (("i64", stop), ("i64", str(self._units)))
        return start, self._w.call("llvm.smin.i64", "i64", *args)

    def _axes_of_unit(self, position: str) -> None:
        """x, y and z of a unit that is counted along the plane."""
        w, p = self._w, self.positions
        rest = position
        for axis, extent in zip(AXES, self._kernel.cube_dim, strict=True):
            p[f"unit_{axis}"] = w.value(f"urem i64 {rest}, {extent}")
            rest = w.value(f"udiv i64 {rest}, {extent}")
            base = w.value(f"mul nsw i64 {p.get(f'cube_{axis}', '0')}, {extent}")
            p[f"absolute_{axis}"] = w.value(f"add nsw i64 {base}, {p[f'unit_{axis}']}")

    def _stop(self, count: str, base: str, bounds: list[Bound]) -> str:
        """min(count, limit - base) over the bounds; below zero runs nothing."""
        stop = count
        for bound in bounds:
            left = self._w.value(f"sub nsw i64 {self._registers[bound.limit]}, {base}")
            stop = self._w.call("llvm.smin.i64", "i64", ("i64", left), ("i64", stop))
        return stop

    def _unit_axes(self, bounds: list[Bound], body: Body, latch: str) -> None:
        """Three loops, x innermost; axes of extent one need none."""
        dims: dict[str, int] = dict(zip(AXES, self._kernel.cube_dim, strict=True))
        bases = {
            a: self._w.value(f"mul nsw i64 {self.positions.get(f'cube_{a}', '0')}, {dims[a]}")
            for a in AXES
        }

        def nest(axes: tuple[str, ...], out: str) -> None:
            axis, rest = axes[0], axes[1:]
            own = [b for b in bounds if b.axis == axis]
            stop = self._stop(str(dims[axis]), bases[axis], own)

            def position_loop(position: str) -> str:
                self.positions[f"unit_{axis}"] = position
                absolute = self._w.value(
                    f"add nsw i64 {bases[axis]}, {position}", f"absolute_{axis}"
                )
                self.positions[f"absolute_{axis}"] = absolute
                if not rest:
                    self._linear_position(dims)
                    return body()
                inner = self._w.label(f"{axis}_end")
                nest(rest, inner)
                return inner

            self._counted(f"unit_{axis}", "0", stop, position_loop, out)

        nest(("z", "y", "x"), latch)

    def _linear_position(self, dims: dict[str, int]) -> None:
        """unit = (z * dim_y + y) * dim_x + x, and the absolute position from it."""
        w, p = self._w, self.positions
        row = w.value(f"mul nsw i64 {p['unit_z']}, {dims['y']}")
        row = w.value(f"add nsw i64 {row}, {p['unit_y']}")
        row = w.value(f"mul nsw i64 {row}, {dims['x']}")
        p["unit_all"] = w.value(f"add nsw i64 {row}, {p['unit_x']}")
        base = w.value(f"mul nsw i64 {p['cube_all']}, {self._units}")
        p["absolute_all"] = w.value(f"add nsw i64 {base}, {p['unit_all']}")
