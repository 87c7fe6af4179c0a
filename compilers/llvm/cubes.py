"""The loops around the work of a unit, over cubes, planes and units; positions inside of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod

from cubepy.compilers.llvm.rows import MOST_GUARDS, Rows, Test
from cubepy.compilers.llvm.units import AXES, Bound
from cubepy.compilers.llvm.writer import Writer
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Value
from cubepy.ir.types import index32

Given = dict[Value, str]
"""Registers of values that need no operation."""
Body = Callable[[], str]
"""Emits the body of a loop; gives the label of the block that continues the loop."""


Each = Callable[[Body, str], None]
"""Emits a loop over units with this body, which jumps to this label at its end."""


class Cubes:
    """Loops of one kernel; `positions` and `plane` hold the registers of where the code is."""

    def __init__(
        self, kernel: Kernel, w: Writer, registers: dict[Value, str], given: Given
    ) -> None:
        self._kernel = kernel
        self._w = w
        self._registers = registers
        self._given = given
        self._units = prod(kernel.cube_dim)
        self.positions: dict[str, str] = {}
        self.plane = ""
        self.unrolls = False
        """Whether loops over units are short and to be unrolled; LLVM unrolls only those marked."""
        self.is_scalar = False
        """Whether LLVM makes no lines of loops over units."""

    def each_cube(self, start: str, stop: str, body: Body, end: str) -> None:
        """A loop over cubes."""

        def cube(position: str) -> str:
            self.positions["cube_all"] = position
            if self._uses_cube_axes():
                self._cube_axes(position)
            return body()

        self._counted("cube", start, stop, cube, end)

    def each_position(self, bounds: list[Bound], body: Body, end: str) -> None:
        """One loop over the units of all cubes, for kernels that use nothing of a cube."""
        self._positions(*self._all_positions(bounds), body, end)

    def each_stretch(
        self, bounds: list[Bound], units: int, body: Callable[[Each], str], end: str
    ) -> None:
        """The same in stretches of `units`; `body` gets the loop over those of one."""
        w = self._w
        start, stop = self._all_positions(bounds)
        whole = w.value(f"add nsw i64 {w.value(f'sub nsw i64 {stop}, {start}')}, {units - 1}")
        count = w.value(f"sdiv i64 {whole}, {units}")

        def stretch(number: str) -> str:
            first = w.value(f"mul nsw i64 {number}, {units}")
            first = w.value(f"add nsw i64 {first}, {start}")
            behind = w.value(f"add nsw i64 {first}, {units}")
            last = w.call("llvm.smin.i64", "i64", ("i64", behind), ("i64", stop))
            return body(partial(self._positions, first, last))

        self._counted("stretch", "0", count, stretch, end)

    def each_part(self, bounds: list[Bound], guards: list[Test], unit: Body, end: str) -> None:
        """As `each_position`, in a loop for each way that comparisons with limits turn out."""

        def loop(start: str, stop: str, after: str) -> None:
            self._positions(start, stop, unit, after)

        self._split(guards, *self._all_positions(bounds), loop, end)

    def each_middle(self, bounds: list[Bound], edges: list[Test], unit: Body, end: str) -> None:
        """As `each_position`, in three loops: edges are decided in the middle one."""

        def at(place: str, known: Given) -> str:
            self.positions["absolute_all"] = place
            with self._knowing(known):
                return unit()

        ends = self._all_positions(bounds)
        self._middle_and_ends(edges, "", "0", ends, at, {}, end)

    def _split(
        self,
        guards: Sequence[Test],
        start: str,
        stop: str,
        loop: Callable[[str, str, str], None],
        end: str,
        base: str = "0",
    ) -> None:
        """Loops from start up to stop, cut at the limits of guards, which are counted from base."""
        if not guards:
            loop(start, stop, end)
            return
        w, (guard, *others) = self._w, guards
        limit = self._limit(guard)
        if base != "0":
            limit = w.call("llvm.ssub.sat.i64", "i64", ("i64", limit), ("i64", base))
        limit = w.call("llvm.smax.i64", "i64", ("i64", limit), ("i64", start))
        limit = w.call("llvm.smin.i64", "i64", ("i64", limit), ("i64", stop))
        before, after = ("true" if truth else "false" for truth in guard.sides)
        behind = w.label("behind_limit")
        with self._knowing({guard.result: before}):
            self._split(others, start, limit, loop, behind, base)
        w.start(behind)
        with self._knowing({guard.result: after}):
            self._split(others, limit, stop, loop, end, base)

    def _where_known(self, work: Callable[[str], str], place: str, known: Given) -> str:
        with self._knowing(known):
            return work(place)

    @contextmanager
    def _knowing(self, known: Given) -> Iterator[None]:
        """Registers of values while some code is emitted."""
        self._given.update(known)
        yield
        for value in known:
            del self._given[value]

    def _limit(self, test: Test) -> str:
        args = ("i64", self._registers[test.limit]), ("i64", str(test.offset))
        return self._w.call("llvm.sadd.sat.i64", "i64", *args)

    def _all_positions(self, bounds: list[Bound]) -> tuple[str, str]:
        """The first of the positions that units of these cubes have, and the one behind them."""
        start, stop = (
            self._w.value(f"mul nsw i64 {cubes}, {self._units}") for cubes in ("%begin", "%end")
        )
        return start, self._stop(stop, "0", bounds)

    def _positions(self, start: str, stop: str, body: Body, end: str) -> None:
        def unit(position: str) -> str:
            self.positions["absolute_all"] = position
            return body()

        self._between(start, stop, unit, end)

    def each_row(
        self, bounds: list[Bound], rows: Rows, body: Callable[[Each, Each], str], end: str
    ) -> None:
        """As `each_position`, row by row.

        `body` gets the loop over the units of a row, and one in parts: the ends of the row, and its
        middle, where comparisons are decided.
        """
        w = self._w
        start, stop = self._all_positions(bounds)
        divisor = self._registers[rows.divisor]

        def row(position: str) -> tuple[str, str]:
            quotient = w.value(f"udiv i64 {position}, {divisor}", "row")
            first = w.value(f"mul nuw nsw i64 {quotient}, {divisor}", "row_start")
            done = w.value(f"sub nuw nsw i64 {position}, {first}")
            left = w.value(f"sub nuw nsw i64 {divisor}, {done}")
            rest = w.value(f"sub nsw i64 {stop}, {position}")
            run = w.call("llvm.smin.i64", "i64", ("i64", left), ("i64", rest))
            last = w.value(f"add nsw i64 {position}, {run}", "row_end")
            known: Given = dict.fromkeys(rows.quotients, quotient)

            def at(unit: Body, place: str, decided: Given) -> str:
                self.positions["absolute_all"] = place
                remainder = w.value(f"sub nsw i64 {place}, {first}", "column")
                with self._knowing(known | dict.fromkeys(rows.remainders, remainder) | decided):
                    return unit()

            def whole(unit: Body, after: str) -> None:
                self._between(position, last, lambda place: at(unit, place, {}), after)

            def parts(unit: Body, after: str) -> None:
                self._parts(rows, quotient, first, (position, last), partial(at, unit), after)

            return last, body(whole, parts if rows.tests else whole)

        self._stepping(start, stop, row, end)

    def _parts(
        self,
        rows: Rows,
        row: str,
        first: str,
        ends: tuple[str, str],
        unit: Callable[[str, Given], str],
        after: str,
    ) -> None:
        """Rows for which comparisons with the row, at most MOST_GUARDS, turn out so or so."""
        tests = [t for t in rows.tests if t.of_row and t.is_order and not t.is_edge][:MOST_GUARDS]
        rest = [t for t in rows.tests if t not in tests]

        def work(known: Given, is_inside: bool, end: str) -> None:
            if is_inside:
                self._middle_and_ends(rest, row, first, ends, unit, known, end)
            else:
                self._between(*ends, lambda place: unit(place, known), end)

        self._by_row(tests, row, {}, True, work, after)

    def _by_row(
        self,
        tests: Sequence[Test],
        row: str,
        known: Given,
        is_inside: bool,
        work: Callable[[Given, bool, str], None],
        end: str,
    ) -> None:
        """A branch for each comparison with the row; `is_inside`: all have their usual result."""
        if not tests:
            work(known, is_inside, end)
            return
        w, (test, *others) = self._w, tests
        usual, other = w.label("usual_row"), w.label("other_row")
        w.branch(self._holds_in(test, row), usual, other)
        for label, holds in ((usual, True), (other, False)):
            w.start(label)
            result = "true" if test.truth is holds else "false"
            self._by_row(others, row, known | {test.result: result}, is_inside and holds, work, end)

    def _holds_in(self, test: Test, row: str) -> str:
        word = "sge" if test.is_from else "slt"
        return self._w.value(f"icmp {word} i64 {row}, {self._limit(test)}")

    def _middle_and_ends(
        self,
        tests: Sequence[Test],
        row: str,
        first: str,
        ends: tuple[str, str],
        unit: Callable[[str, Given], str],
        known: Given,
        after: str,
    ) -> None:
        """The start of a row, its middle, where all comparisons are decided, and its end."""
        w = self._w
        begin, end = ends
        if not tests:
            self._between(begin, end, lambda place: unit(place, known), after)
            return
        low, high = self._middle(tests, row, first, ends)
        decided = known | {t.result: "true" if t.truth else "false" for t in tests}
        until = [t for t in tests if not t.of_row and not t.is_from]
        at_end = {k: v for k, v in decided.items() if all(t.result is not k for t in until)}
        if len(until) == 1 and until[0].is_order:
            at_end[until[0].result] = "false" if until[0].truth else "true"
        for start, stop, given, following in (
            (begin, low, known, w.label("middle")),
            (low, high, decided, w.label("edge")),
            (high, end, at_end, after),
        ):
            self._between(start, stop, lambda place, k=given: unit(place, k), following)
            if following is not after:
                w.start(following)

    def _middle(
        self, tests: Sequence[Test], row: str, first: str, ends: tuple[str, str]
    ) -> tuple[str, str]:
        """Between which positions of a row all comparisons are decided."""
        w = self._w
        (low, high), end, is_inside = ends, ends[1], "true"
        for test in tests:
            if test.of_row:
                is_inside = w.value(f"and i1 {is_inside}, {self._holds_in(test, row)}")
                continue
            limit = self._limit(test)
            place = w.call("llvm.sadd.sat.i64", "i64", ("i64", limit), ("i64", first))
            if test.is_from:
                low = w.call("llvm.smax.i64", "i64", ("i64", low), ("i64", place))
            else:
                high = w.call("llvm.smin.i64", "i64", ("i64", high), ("i64", place))
        low = w.call("llvm.smin.i64", "i64", ("i64", low), ("i64", end))
        low = w.value(f"select i1 {is_inside}, i64 {low}, i64 {end}")
        return low, w.call("llvm.smax.i64", "i64", ("i64", high), ("i64", low))

    def _stepping(
        self, start: str, stop: str, body: Callable[[str], tuple[str, str]], end: str
    ) -> None:
        """A loop whose body gives the next position, and the label of the block that goes on."""
        w = self._w
        before, head, inside = w.block, w.label("rows_head"), w.label("rows")
        w.jump(head)
        w.start(head)
        position, at = w.fresh("position"), len(w.lines)
        w.line("")
        w.branch(w.value(f"icmp slt i64 {position}, {stop}"), inside, end)
        w.start(inside)
        following, latch = body(position)
        w.start(latch)
        w.jump(head)
        w.lines[at] = f"  {position} = phi i64 [{start}, %{before}], [{following}, %{latch}]"

    def each_plane(self, body: Body, end: str) -> None:
        """A loop over the planes of the cube."""

        def plane(position: str) -> str:
            self.plane = position
            return body()

        count = -(-self._units // self._kernel.plane_dim)
        self._counted("plane", "0", str(count), plane, end)
        self.plane = ""

    def each_unit(
        self,
        bounds: list[Bound],
        axes: bool,
        body: Body,
        latch: str,
        limit: str = "",
        guards: Sequence[Test] = (),
        edges: Sequence[Test] = (),
    ) -> None:
        """Loops over the units of the cube (or of the plane), cut by bounds.

        `limit`: only units below it, where they are not counted along axes. `guards`: comparisons
        of positions along axes, at whose limits loops are cut. `edges`: those along x that the
        middle of a row decides.
        """
        if axes:
            self._unit_axes(bounds, guards, edges, body, latch)
        else:
            self._unit_loop(bounds, body, latch, limit)

    def _counted(
        self,
        hint: str,
        start: str,
        stop: str,
        body: Callable[[str], str],
        end: str,
        parallel: bool = False,
    ) -> None:
        """A loop from start up to stop; `body` gives the label of the block that goes on.

        Units are not ordered between barriers, so that loops over them may run in `parallel`.
        """
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
        unrolled, scalar = parallel and self.unrolls, parallel and self.is_scalar
        w.jump_back(head, parallel=parallel, unrolled=unrolled, scalar=scalar)
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

    def _between(self, start: str, stop: str, body: Callable[[str], str], end: str) -> None:
        """A loop over the units at the positions from start up to stop, counted from 0.

        If the position were counted, `x[p + 1]` would be `x[p]` of the next iteration. LLVM would
        keep it there (partial redundancy elimination), and the loop would depend on itself.
        """
        w = self._w
        count = w.value(f"sub nsw i64 {stop}, {start}")

        def unit(number: str) -> str:
            return body(w.value(f"add nsw i64 {start}, {number}", "position"))

        self._counted("unit", "0", count, unit, end, parallel=True)

    def _unit_loop(self, bounds: list[Bound], body: Body, latch: str, limit: str) -> None:
        """All units of the cube (or of the plane) in one loop, cut where a guard says so."""
        base = self._w.value(f"mul nsw i64 {self.positions['cube_all']}, {self._units}", "base")
        start, stop = self._units_of_plane() if self.plane else ("0", str(self._units))
        if limit:
            stop = self._w.call("llvm.smin.i64", "i64", ("i64", limit), ("i64", stop))
        stop = self._stop(stop, base, bounds)

        def unit(position: str) -> str:
            self.positions["unit_all"] = position
            absolute = self._w.value(f"add nsw i64 {base}, {position}", "absolute")
            self.positions["absolute_all"] = absolute
            if self.plane:
                self._axes_of_unit(position)
            return body()

        self._counted("unit", start, stop, unit, latch, parallel=True)

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
            limit = self._registers[bound.limit]
            if bound.limit.type is index32:
                limit = self._w.value(f"sext i32 {limit} to i64")
            left = self._w.value(f"sub nsw i64 {limit}, {base}")
            stop = self._w.call("llvm.smin.i64", "i64", ("i64", left), ("i64", stop))
        return stop

    def _unit_axes(
        self,
        bounds: list[Bound],
        guards: Sequence[Test],
        edges: Sequence[Test],
        body: Body,
        latch: str,
    ) -> None:
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

            def loop(start: str, stop: str, after: str) -> None:
                hint, parallel = f"unit_{axis}", not rest
                self._counted(hint, start, stop, position_loop, after, parallel=parallel)

            if axis == "x" and edges:
                first = self._w.value(f"sub nsw i64 0, {bases[axis]}")
                known = partial(self._where_known, position_loop)
                self._middle_and_ends(edges, "", first, ("0", stop), known, {}, out)
                return
            cut = [guard for guard in guards if guard.axis == axis]
            self._split(cut, "0", stop, loop, out, bases[axis])

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
