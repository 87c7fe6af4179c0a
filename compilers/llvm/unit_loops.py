"""The loops around the work of a unit: over cubes, units and rows, in versions of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.llvm import printing
from cubepy.compilers.llvm.cubes import Cubes, Each, Given
from cubepy.compilers.llvm.jumps import Merge
from cubepy.compilers.llvm.memory import updates_own_memory
from cubepy.compilers.llvm.records import goes_by_records
from cubepy.compilers.llvm.rows import SHORTEST, find_choices, find_edges, find_guards, find_rows
from cubepy.compilers.llvm.units import (
    UnitPlan,
    guarded_segment,
    is_cube_program,
    plan_units,
    uses_axes,
)
from cubepy.compilers.llvm.versions import (
    MIN_UNITS,
    STRETCH,
    ExpensiveBranch,
    ExpensiveBranches,
    find_expensive,
)
from cubepy.compilers.llvm.writer import Writer
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.targets import Target

if TYPE_CHECKING:
    from cubepy.passes.guess_extents import Guessed
    from cubepy.passes.nest_divisions import Nested


def _guessed(kernel: Kernel) -> Guessed | None:
    """What few kernels need is imported late, as for `_nested`."""
    if any(op.row in (ops.FOR, ops.LOOP) for op in kernel.body.walk()):
        return None
    from cubepy.passes.guess_extents import guess_extents

    return guess_extents(kernel)


def _nested(kernel: Kernel) -> Nested | None:
    if not any(op.row in (ops.FLOORDIV, ops.MOD) for op in kernel.body.walk()):
        return None
    from cubepy.passes.nest_divisions import nest_divisions

    return nest_divisions(kernel, SHORTEST)


_CHOOSING = frozenset((ops.MOD, ops.MIN, ops.MAX, ops.SELECT))


def _stepped(kernel: Kernel, plan: UnitPlan) -> Nested | None:
    """The kernel with choices in the place of remainders and clamps of positions; None where no
    place is chosen at the ends of rows."""
    rows = {op.row for op in plan.body for op in (op, *(o for r in op.regions for o in r.walk()))}
    if not plan.axes or ops.UNITS in rows or rows.isdisjoint(_CHOOSING):
        return None
    from cubepy.passes.clamp_positions import clamp_positions
    from cubepy.passes.nest_divisions import Nested, wrap_positions

    kernel = clamp_positions(kernel, "x")
    limits = {bound.axis: bound.limit for bound in plan.bounds}
    wrapped = wrap_positions(kernel, limits) if ops.MOD in rows else None
    if wrapped is None and find_choices(kernel, plan_units(kernel)):
        return Nested(kernel, ())
    return wrapped


def _clamped(kernel: Kernel) -> Kernel:
    """A flat kernel with choices in the place of clamps of positions."""
    if not any(op.row in (ops.MIN, ops.MAX) for op in kernel.body.walk()):
        return kernel
    from cubepy.passes.clamp_positions import clamp_positions

    return clamp_positions(kernel, "all")


class UnitLoops:
    """Writes the loops of a kernel; operations are written by what derives from it."""

    def __init__(self, kernel: Kernel, target: Target, debug: bool) -> None:
        self.kernel = kernel
        self.target = target
        self.w = Writer(debug)
        self._registers: dict[Value, str] = {}
        self._given: Given = {}
        """Registers of values for which nothing is emitted."""
        self._cubes = Cubes(kernel, self.w, self._registers, self._given)
        self._merges: list[Merge] = []
        self._unit_end = ""
        self._cheap: dict[Op, ExpensiveBranch] = {}
        self._is_program = is_cube_program(kernel)
        self._has_axes = uses_axes(kernel.body)

    def op(self, op: Op) -> None:
        """Emit one operation."""
        raise NotImplementedError

    def operands(self, op: Op) -> list[str]:
        """The registers of the operands."""
        return [self._registers[v] for v in op.operands]

    # Versions

    def body(self) -> None:
        """The loops of the kernel, also in a version for the extents that its indices imply."""
        w = self.w
        end, guessed = w.label("done"), _guessed(self.kernel)
        if guessed is not None:
            known, other = w.label("known_extents"), w.label("other_extents")
            tests = (
                w.value(f"icmp eq i64 {self._registers[extent]}, {number}")
                for extent, number in guessed.extents
            )
            w.branch(self._all(tests), known, other)
            w.start(known)
            self._version(guessed.kernel, end)
            w.start(other)
        self._version(self.kernel, end)
        w.start(end)
        if w.prints:
            with printing.held(self.w):
                w.call("fflush", "i32", ("ptr", "null"))
        if w.has_stream_stores and "sse2" in self.target.attributes:
            w.call("llvm.x86.sse.sfence", "void")
        w.line("ret void")

    def _all(self, tests: Iterable[str]) -> str:
        holds = "true"
        for test in tests:
            holds = self.w.value(f"and i1 {holds}, {test}")
        return holds

    def _version(self, kernel: Kernel, end: str) -> None:
        plan = plan_units(kernel)
        self._launch(plan.launch)
        if plan.is_flat:
            self._flat(kernel, plan, end)
            return
        stepped = _stepped(kernel, plan)
        if stepped is not None:
            others = self._around(stepped, plan, end)
            if not others:
                return
            self.w.start(others)
        self._cubes.each_cube("%begin", "%end", lambda: self._cube(plan), end)

    def _around(self, stepped: Nested, plan: UnitPlan, end: str) -> str:
        """Loops that step around the ends of rows; gives the label as `_branch_within` does."""
        around, done = plan_units(stepped.kernel), set(plan.launch)
        self._launch(op for op in around.launch if op not in done)
        others = self._branch_within(stepped)
        self._cubes.each_cube("%begin", "%end", lambda: self._cube(around, True), end)
        return others

    def _branch_within(self, nested: Nested) -> str:
        """Go on where extents are within limits; gives the label for others, if there are any."""
        w = self.w
        if not nested.limits:
            return ""
        within, others = w.label("extents"), w.label("other_extents")
        w.branch(self._all(self._is_within(*limits) for limits in nested.limits), within, others)
        w.start(within)
        return others

    def _launch(self, body: Iterable[Op]) -> None:
        """What is the same in the whole launch."""
        for op in body:
            self.op(op)
        self.w.at(None)

    def _flat(self, kernel: Kernel, plan: UnitPlan, end: str) -> None:
        """Units that use nothing of their cube: along rows, where they divide their position."""
        w, nested = self.w, _nested(kernel)
        in_rows = plan if nested is None else plan_units(nested.kernel)
        rows = find_rows(kernel, in_rows)
        if rows is None:
            clamped, done = _clamped(kernel), set(plan.launch)
            if clamped is not kernel:
                kernel, plan = clamped, plan_units(clamped)
                self._launch(op for op in plan.launch if op not in done)
            self._each_position(kernel, plan, end)
            return
        done = set(plan.launch)
        self._launch(op for op in in_rows.launch if op not in done)
        others = "" if nested is None else self._branch_within(nested)
        each = partial(self._row, in_rows.body, find_expensive(in_rows.body))
        self._cubes.each_row(in_rows.bounds, rows, each, end)
        if others:
            w.start(others)
            self._each_position(kernel, plan, end)

    def _is_within(self, value: Value, least: int, most: int) -> str:
        """Whether an integer is at least and at most so large."""
        if least > most:
            return "false"
        t = spell.type_name(value.type)
        above = self.w.value(f"sub {t} {self._registers[value]}, {least}")
        return self.w.value(f"icmp ule {t} {above}, {most - least}")

    # Cubes and units

    def _each_position(self, kernel: Kernel, plan: UnitPlan, end: str) -> None:
        self._cubes.is_scalar = goes_by_records(kernel, plan.body)
        costly, guards = find_expensive(plan.body), find_guards(kernel, plan)
        if costly.branches:
            loop = partial(self._stretch, plan.body, costly)
            self._cubes.each_stretch(plan.bounds, STRETCH, loop, end)
        elif guards:
            self._cubes.each_part(plan.bounds, guards, lambda: self._unit(plan.body), end)
        elif choices := find_choices(kernel, plan):
            self._cubes.each_middle(plan.bounds, choices, lambda: self._unit(plan.body), end)
        else:
            self._cubes.each_position(plan.bounds, lambda: self._unit(plan.body), end)

    def _cube(self, plan: UnitPlan, steps: bool = False) -> str:
        """A cube; `steps`: its rows have ends, around which units step."""
        for op in plan.cube:
            self.op(op)
        latch = self.w.label("cube_end")
        if self._is_program:
            self._unit_end = latch
            self._ops(plan.body)
        else:
            guards = find_guards(self.kernel, plan) if plan.axes else []
            edges = find_edges(self.kernel, plan) if steps else []
            loop = partial(
                self._cubes.each_unit, plan.bounds, plan.axes, guards=guards, edges=edges
            )
            self._each_unit(loop, plan.body, latch)
        return latch

    def _each_unit(self, each: Each, body: Sequence[Op], end: str) -> None:
        """Loops over the units; where no unit takes an expensive branch, loops without it."""
        costly = find_expensive(body if prod(self.kernel.cube_dim) >= MIN_UNITS else ())
        self._cubes.unrolls = updates_own_memory(body)
        self._cubes.is_scalar = goes_by_records(self.kernel, body)
        if costly.branches:
            self._ask_all(each, body, costly, end)
        else:
            each(lambda: self._unit(body), end)

    def _stretch(self, body: Sequence[Op], costly: ExpensiveBranches, each: Each) -> str:
        latch = self.w.label("stretch_end")
        self._ask_all(each, body, costly, latch)
        return latch

    def _ask_all(
        self,
        each: Each,
        body: Sequence[Op],
        costly: ExpensiveBranches,
        end: str,
        cheap: Each | None = None,
    ) -> None:
        """Ask all units; `cheap` loops over them where none takes an expensive branch."""
        w = self.w
        flag = w.allocate("i8", "costly")
        asked, some, none = map(w.label, ("asked", "some", "none"))
        w.line(f"store i8 0, ptr {flag}")
        each(lambda: self._unit(costly.test, lambda: self._ask(costly, flag)), asked)
        w.start(asked)
        w.branch(w.value(f"icmp ne i8 {w.value(f'load i8, ptr {flag}')}, 0"), some, none)
        w.start(some)
        each(lambda: self._unit(body), end)
        w.start(none)
        self._cheap = costly.branches
        (cheap or each)(lambda: self._unit(body), end)
        self._cheap = {}

    def _ask(self, costly: ExpensiveBranches, flag: str) -> None:
        """Set `flag` where this unit takes an expensive branch."""
        w = self.w
        for branch in costly.branches.values():
            (taken,) = self.operands(branch.op)
            if not branch.then:
                taken = w.value(f"xor i1 {taken}, true")
            wide = w.value(f"zext i1 {taken} to i8")
            either = w.value(f"or i8 {w.value(f'load i8, ptr {flag}')}, {wide}")
            w.line(f"store i8 {either}, ptr {flag}")
        w.jump(self._unit_end)

    def _unit(self, body: Sequence[Op], finish: Callable[[], None] | None = None) -> str:
        """The work of one unit (or plane); `return` and the end of the body go to its end.

        A body without an end of its own has one in `finish`.
        """
        outer, end = self._unit_end, self.w.label("unit_end")
        self._unit_end = end
        self._merges.append(Merge(end, []))
        self._ops(body)
        if finish is not None:
            finish()
        self._merges.pop()
        self._unit_end = outer
        return end

    def _row(self, body: Sequence[Op], costly: ExpensiveBranches, whole: Each, parts: Each) -> str:
        """The units of a row."""
        after = self.w.label("row_done")
        if costly.branches:
            self._ask_all(whole, body, costly, after, parts)
        else:
            parts(lambda: self._unit(body), after)
        return after

    def _units_op(self, op: Op) -> None:
        latch = self.w.label("units_end")
        body: Sequence[Op] = op.regions[0].ops
        axes, limit = self._has_axes and not self._cubes.plane, ""
        guarded = None if axes else guarded_segment(body)
        if guarded is not None:
            limit, body = self._registers[guarded[0]], guarded[1]
        self._each_unit(partial(self._cubes.each_unit, [], axes, limit=limit), body, latch)
        self.w.start(latch)

    def _planes_op(self, op: Op) -> None:
        latch = self.w.label("planes_end")
        self._cubes.each_plane(lambda: self._unit(op.regions[0].ops), latch)
        self.w.start(latch)

    def _plane_pos(self, op: Op) -> None:
        self._registers[op.result] = self._cubes.plane

    def _ops(self, body: Sequence[Op]) -> None:
        for op in body:
            self.op(op)
