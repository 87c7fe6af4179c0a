"""Units become lanes: a kernel of scalars becomes one of masked lines, docs/decisions/0015.

The method is ispc's (Pharr and Mark 2012): values that lanes share stay scalars, branches and loops
that lanes take differently run under masks, memory is accessed by lines, gathers and scatters.
"""

from __future__ import annotations

from dataclasses import field

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Region
from cubepy.ir.types import Line
from cubepy.passes.construct_ssa import construct_ssa
from cubepy.passes.cse import cse
from cubepy.passes.dce import dce
from cubepy.passes.jam_units import jam_units
from cubepy.passes.join_stores import join_stores
from cubepy.passes.lane_costs import (
    BARRIERS,
    LEFT_TO_LLVM,
    Remark,
    access,
    has_loops_or_planes,
    has_own_loop,
    loop_along_rows,
    loop_of_gathers,
    may_serve_body,
    serves_body,
)
from cubepy.passes.lane_operations import LANEWISE, ONE_BY_ONE
from cubepy.passes.lane_shapes import LOOPS, Shapes, shapes_of
from cubepy.passes.lane_writer import LaneWriter
from cubepy.passes.row_loops import loops_along_own_rows
from cubepy.passes.rows_of_lanes import rows_of_lanes
from cubepy.passes.split_edges import split_edges
from cubepy.passes.strip_cubes import strip_cubes
from cubepy.passes.version_windows import usual_ops, version_windows
from cubepy.record import dataclass

Choice = bool | str
"""What `configure(vectorise=...)` says: True, False or "auto"."""
_COPIES = {
    "window": "loop has a copy for windows that no border cuts",
    "row": "units have a copy for lines within one row",
}
"""What is remarked of copies, by their kind."""
LINES_OF_A_PLANE = 4
"""Registers that the lanes of a plane may take, of four bytes each."""
_CONTROL = (ops.IF, *LOOPS, ops.YIELD, ops.BREAK, ops.CONTINUE, ops.RETURN, ops.FAULT)
_TAKEN = frozenset(
    (
        *(*_CONTROL, *BARRIERS, *LANEWISE, *ONE_BY_ONE, ops.SYNC_STORAGE, ops.ALLOC, ops.LOAD),
        ops.LOOKUP,
        *(ops.STORE, ops.CONST, ops.PREFETCH, ops.NAME, ops.BREAKPOINT, ops.UNIT_POS),
        *(ops.CUBE_POS, ops.CUBE_COUNT, ops.ABSOLUTE_POS, ops.MISALIGNMENT),
    )
)


@dataclass(slots=True)
class Vectorised:
    """The kernel after the pass, in `lanes`; with 1 it is as it was."""

    kernel: Kernel
    lanes: int = 1
    remarks: list[Remark] = field(default_factory=list[Remark])


def vectorise(kernel: Kernel, line_bytes: int, choice: Choice, registers: int = 16) -> Vectorised:
    """The kernel with its units along X as lanes of lines, where that is wanted and possible."""
    if choice is False:
        return Vectorised(kernel, 1, [Remark("units stay scalar: vectorise=False asks for it")])
    found = _refusal(kernel, line_bytes)
    asks = choice == "auto"
    needs_body = asks and not has_loops_or_planes(kernel)
    if found is None and asks:
        found = _waiting_loop(kernel)
        if needs_body and not may_serve_body(kernel):
            found = found or Remark(LEFT_TO_LLVM)
    if found is not None:
        return Vectorised(kernel, 1, [found])
    written, (kernel, lanes, shapes) = kernel, _prepared(kernel, line_bytes)
    if lanes == 1:
        text = f"units stay scalar: rows of {kernel.cube_dim[0]} units are no multiple of a line"
        return Vectorised(written, 1, [Remark(text)])
    found = _refusal_of_shapes(kernel, shapes)
    if found is None and needs_body and not serves_body(kernel, shapes):
        found = Remark(LEFT_TO_LLVM)
    if found is None and asks:
        found = loops_along_own_rows(kernel, shapes) or loop_of_gathers(kernel, shapes, lanes)
        found = found or loop_along_rows(kernel, shapes, lanes)
    if found is not None:
        return Vectorised(written, 1, [found])
    made = dce(cse(construct_ssa(LaneWriter(kernel, lanes, shapes).kernel())))
    made, (x, y) = jam_units(made, registers)
    is_plain = not needs_body and not has_own_loop(kernel) and kernel.plane_dim == 1
    if asks and x * y == 1 and is_plain:
        return Vectorised(written, 1, [Remark(LEFT_TO_LLVM)])
    remarks = [Remark(f"units are lanes of lines of {lanes}"), *_describe(kernel, shapes)]
    if x * y > 1:
        remarks.append(Remark(f"blocks of {x} x {y} lines of units go together"))
        made = dce(split_edges(cse(strip_cubes(made))))
    return Vectorised(made, lanes, remarks)


def _prepared(kernel: Kernel, line_bytes: int) -> tuple[Kernel, int, Shapes]:
    """The kernel with copies for lanes that need no care, how many lanes there are, and how they
    differ."""
    kernel = join_stores(kernel)
    lanes, shapes = shapes_of(kernel, line_bytes)
    in_rows = version_windows(rows_of_lanes(kernel, lanes))
    if in_rows is kernel:
        return kernel, lanes, shapes
    count, found = shapes_of(in_rows, line_bytes)
    if count == lanes:
        return in_rows, lanes, found
    kernel = version_windows(kernel)  # of rows there are copies for so many lanes alone
    return kernel, *shapes_of(kernel, line_bytes)


def _refusal(kernel: Kernel, line_bytes: int) -> Remark | None:
    """What the pass cannot do, whatever lanes share."""
    plane = kernel.plane_dim
    if plane > 1 and (kernel.cube_dim[0] % plane or plane > LINES_OF_A_PLANE * line_bytes // 4):
        text = f"rows of {kernel.cube_dim[0]} units are not planes of {plane} that fit in lines"
        return Remark(f"units stay scalar: {text}")
    if kernel.cube_dim[0] == 1:
        return Remark("units stay scalar: a row of the cube is one unit")
    for op in kernel.body.walk():
        if any(isinstance(v.type, Line) for v in (*op.operands, *op.results)):
            return Remark("units stay scalar: the kernel computes with lines itself", op.span)
        if op.row not in _TAKEN:
            text = f"units stay scalar: `{op.row.name}` has no form for lanes"
            return Remark(text, op.span)
    return None


def _waiting_loop(kernel: Kernel) -> Remark | None:
    """A loop that may wait for another unit, as one that tries to take a lock: lanes leave a loop
    together, so that one would wait for ever for another that waits with it."""
    read = {v for op in kernel.body.walk() for v in op.operands}
    for op in kernel.body.walk():
        if op.row not in LOOPS:
            continue
        body = [o for region in op.regions for o in region.walk()]
        may_end_early = op.row is ops.LOOP or any(o.row is ops.BREAK for o in body)
        atomics = [o for o in body if o.row in ops.ATOMICS]
        if may_end_early and any(v in read for o in atomics for v in o.results):
            text = "units stay scalar: this loop may wait for another unit"
            return Remark(text, op.span)
    return None


def _refusal_of_shapes(kernel: Kernel, shapes: Shapes) -> Remark | None:
    for op in kernel.body.walk():
        if op.row is ops.MISALIGNMENT and not shapes.is_alike(op.operands[1]):
            return Remark("units stay scalar: an alignment differs between lanes", op.span)
        if op.row is ops.FOR and shapes.stride(op.regions[0].args[0]) is None:
            step = shapes.constant(op.operands[2])
            fits = step in (1, -1) or (step is not None and step and op.attrs.get("fits"))
            if not fits:
                return Remark("units stay scalar: the step of this loop is not known", op.span)
    return _divergent_barrier(kernel.body, shapes, False)


def _divergent_barrier(region: Region, shapes: Shapes, divergent: bool) -> Remark | None:
    for op in region.ops:
        if divergent and op.row in BARRIERS:
            return Remark("units stay scalar: lanes reach this barrier one by one", op.span)
        inner = divergent or op in shapes.masked or op in shapes.soft
        inner = inner or (op.row is ops.IF and not shapes.is_alike(op.operands[0]))
        for inside in op.regions:
            found = _divergent_barrier(inside, shapes, inner)
            if found is not None:
                return found
    return None


def _describe(kernel: Kernel, shapes: Shapes) -> list[Remark]:
    """A line for each loop: how its lanes go."""
    remarks: list[Remark] = []
    for op in usual_ops(kernel.body):
        if op.row is ops.IF and "together" in op.attrs:
            remarks.append(Remark(_COPIES[str(op.attrs["together"])], op.span))
        elif op.row in LOOPS:
            how = "while any lane is active" if op in shapes.masked else "all lanes together"
            how += ", some skip parts" if op in shapes.soft else ""
            remarks.append(Remark(f"loop runs {how}", op.span))
        elif op.row in (ops.LOAD, ops.STORE):
            text = access(op, shapes)
            if text:
                remarks.append(Remark(text, op.span))
        elif op.row is ops.LOOKUP and not shapes.is_alike(op.result):
            remarks.append(Remark("gather from a table", op.span))
        elif op.row in ONE_BY_ONE:
            remarks.append(Remark(f"`{op.row.name}` runs lane by lane", op.span))
    return remarks
