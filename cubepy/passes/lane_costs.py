"""Whether lanes serve a kernel better than LLVM's loop vectoriser: rules that were measured.

They stand in for a cost model of LLVM's, which looks at one loop and not at what lanes know.
"""

from __future__ import annotations

from collections.abc import Iterator

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import INDICES, Buffer, Space, element_of
from cubepy.passes.interleave_units import interleave_units
from cubepy.passes.lane_operations import LANEWISE
from cubepy.passes.lane_shapes import LOOPS, Shapes
from cubepy.passes.version_windows import usual_ops
from cubepy.record import dataclass
from cubepy.span import Span

GATHER = 3
"""Operations that a gather takes as long as."""
ROWS = 48
"""Operations on integers, over the number of lanes, that a gather down rows takes as long as: a
unit that runs along its row has it in close caches, and needs no index for each lane. Loops on
floats are not looked at, whose sums in scalars wait for each other."""
LONG_ROW = 64
"""Rows of so many units, or more, are left to the loop over each row."""
SHORT_ROW = 16
"""The longest rows of whole lines for which lanes are faster than that loop."""
UNEVEN = 8
"""Rows that are no multiple of this have units left over, which are computed one by one."""
MUCH = 48
"""Operations of a unit, or of a side of a branch, that are more than an index takes."""
_COMPARISONS = (ops.LT, ops.LE, ops.GT, ops.GE, ops.EQ, ops.NE)
LEFT_TO_LLVM = (
    "units are left to LLVM's loop vectoriser: they have no loop of their own, no planes, and "
    "share no tiles"
)
BARRIERS = (ops.SYNC_CUBE, ops.SYNC_PLANE, *ops.PLANE_ROWS)


@dataclass(frozen=True, slots=True)
class Remark:
    """What was done with a kernel or a loop of it, or why not."""

    text: str
    span: Span | None = None


def _local(loop: Op) -> Iterator[Op]:
    """Accesses to a unit's own memory, which wait for each other where lanes do not."""
    for op in loop.regions[0].walk():
        if op.row in (ops.LOAD, ops.STORE):
            t = op.operands[0].type
            if isinstance(t, Buffer) and t.space is Space.LOCAL:
                yield op


def has_loops_or_planes(kernel: Kernel) -> bool:
    """Whether lanes serve a kernel, whatever they know of it.

    They serve loops of a unit's own, planes of several units, which are emulated otherwise, and
    tiles: a loop around a barrier, where blocks of units may share what they load.
    """
    rows = {op.row for op in kernel.body.walk()}
    has_planes = kernel.plane_dim > 1 and not rows.isdisjoint(ops.PLANE_ROWS)
    has_tiles = any(op.row in LOOPS and _waits(op) for op in kernel.body.walk())
    return has_planes or has_tiles or has_own_loop(kernel)


def has_own_loop(kernel: Kernel) -> bool:
    """Whether units have a loop that does not wait.

    Loops that stride over units become loops of the cube with a barrier inside, and do not count.
    """
    return any(op.row in LOOPS and not _waits(op) for op in interleave_units(kernel).body.walk())


def loop_of_gathers(kernel: Kernel, shapes: Shapes, lanes: int) -> Remark | None:
    """A loop that lanes leave one by one and that mostly gathers: scalar loads are as fast, and no
    lane waits for another."""
    for op in usual_ops(kernel.body):
        if op not in shapes.masked or any(o.row in LOOPS for o in op.regions[0].walk()):
            continue
        body = list(op.regions[0].walk())
        gathers = sum(o.row in (ops.LOAD, ops.STORE) and access(o, shapes) != "" for o in body)
        gathers += sum(o.row is ops.LOOKUP and shapes.stride(o.result) is None for o in body)
        work = [o for o in body if o.row in LANEWISE and o.row is not ops.CAST]
        if gathers * (GATHER if _on_floats(work) else max(GATHER, ROWS // lanes)) > len(work):
            return Remark("units stay scalar: this loop mostly gathers", op.span)
    return None


def loop_along_rows(kernel: Kernel, shapes: Shapes, lanes: int) -> Remark | None:
    """A loop on integers that mostly reads one row in each lane."""
    for op in usual_ops(kernel.body):
        if op.row not in LOOPS or any(o.row in LOOPS for o in op.regions[0].walk()):
            continue
        body = [o for o in op.regions[0].walk() if not all(map(shapes.is_alike, o.results))]
        work = [o for o in body if o.row in LANEWISE and o.row is not ops.CAST]
        loads = [o for o in body if o.row is ops.LOAD]
        if _on_floats([*work, *loads]):
            continue
        places = {o.operands[:2] for o in loads}
        work += [o for o in _local(op) if shapes.is_alike(o.operands[1])]
        strides = [shapes.stride(place) for _, place in places]
        rows = sum(isinstance(stride, tuple) for stride in strides)
        if rows and rows * ROWS // lanes + strides.count(None) > len(work):
            return Remark("units stay scalar: this loop mostly reads rows of integers", op.span)
    return None


def may_serve_body(kernel: Kernel) -> bool:
    """Whether `serves_body` is worth asking: it needs to know how lanes differ."""
    return bool(_short_divisions(kernel)) or bool(_hidden_branches(kernel))


def serves_body(kernel: Kernel, shapes: Shapes) -> bool:
    """Whether lanes serve units without a loop of their own."""
    branches = _hidden_branches(kernel)
    return _serves_rows(kernel, shapes) or any(not shapes.is_alike(b) for b in branches)


def _short_divisions(kernel: Kernel) -> list[tuple[Op, int]]:
    """Divisions by small constants, each with its divisor."""
    numbers = {op.result: op.attrs["value"] for op in kernel.body.walk() if op.row is ops.CONST}
    found: list[tuple[Op, int]] = []
    for op in kernel.body.walk():
        if op.row in (ops.FLOORDIV, ops.MOD):
            number = numbers.get(op.operands[1])
            if isinstance(number, int) and 1 < number < LONG_ROW:
                found.append((op, number))
    return found


def _serves_rows(kernel: Kernel, shapes: Shapes) -> bool:
    """Whether lanes serve rows of positions that are as short as a line, or end within one.

    A loop over the units of each row has little to do, and does the rest of a line one by one.
    """
    short = [(op, n) for op, n in _short_divisions(kernel) if shapes.stride(op.operands[0]) == 1]
    if not short:
        return False
    if all(shapes.stride(op.result) is not None for op, _ in short):
        accesses = [o for o in kernel.body.walk() if o.row in (ops.LOAD, ops.STORE)]
        strides = [shapes.stride(o.operands[1]) for o in accesses]
        is_apart = any(s is not None and s not in (0, 1) for s in strides)
        return not is_apart and max(n for _, n in short) <= SHORT_ROW
    work = [o for o in kernel.body.walk() if o.row in LANEWISE and o.row is not ops.CAST]
    return len(work) >= MUCH and any(n % UNEVEN for _, n in short)


def _hidden_branches(kernel: Kernel) -> list[Value]:
    """The conditions of branches with much on one side, within other branches.

    LLVM computes both sides. Others are tested before a loop, see `compilers/llvm/versions.py`.
    """
    guards = {
        op.result
        for op in kernel.body.walk()
        if op.row in _COMPARISONS and op.operands[0].type in INDICES
    }
    return list(_branches_within(kernel.body, guards, False))


def _branches_within(region: Region, guards: set[Value], is_inner: bool) -> Iterator[Value]:
    """Units without work are skipped by guards, which compare positions."""
    for op in region.ops:
        if op.row is not ops.IF:
            continue
        if is_inner and op.results and any(_is_much(r) for r in op.regions):
            yield op.operands[0]
        inner = is_inner or op.operands[0] not in guards
        for side in op.regions:
            yield from _branches_within(side, guards, inner)


def _is_much(region: Region) -> bool:
    return sum(o.row in LANEWISE for o in region.walk()) >= MUCH


def _on_floats(work: list[Op]) -> bool:
    return any(element_of(o.result.type).is_float for o in work)


def _waits(op: Op) -> bool:
    return any(o.row in BARRIERS for region in op.regions for o in region.walk())


def access(op: Op, shapes: Shapes) -> str:
    """How an access that is not one of neighbours, or of all lanes, is done."""
    stride = shapes.stride(op.operands[1])
    if stride in (0, 1):
        return ""
    word = "gather" if op.row is ops.LOAD else "scatter"
    if isinstance(stride, tuple):
        return f"{word} of lanes that lie a number apart which the launch decides"
    return f"{word} of lanes that lie {'anywhere' if stride is None else f'{stride} apart'}"
