"""Convergence: all units of a cube, or of a plane, must reach its barriers together."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from cubepy.errors import fail
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import Group, OpDef
from cubepy.passes.legalise.capabilities import OF_PLANES, Capabilities, Planes
from cubepy.passes.legalise.check_target import refusal
from cubepy.passes.uniformity import Uniform, leaves_divergently

_OF_CUBES = {row for row in ops.TABLE.values() if row.convergent in (Group.CUBE, Group.CLUSTER)}
_OF_ALL_LANES = OF_PLANES.difference(ops.PLANE_ROWS, (ops.SYNC_PLANE,))
"""Matrices and registers of a plane, which units that have returned leave undefined."""
_LOOPS = (ops.FOR, ops.LOOP)


def returns_early(kernel: Kernel, uniform: Uniform) -> bool:
    """Whether a unit may end before others of its group do."""
    return _leaves(kernel.body, uniform, False)


def _leaves(region: Region, uniform: Uniform, divergent: bool) -> bool:
    for op in region.ops:
        varying = divergent or any(uniform.is_varying(v) for v in control_operands(op))
        if op.row is ops.CHECK and (divergent or uniform.is_varying(op.operands[0])):
            return True
        if op.row is ops.RETURN and divergent:
            return True
        if any(_leaves(inner, uniform, varying) for inner in op.regions):
            return True
    return False


def has_barrier_in_loop(kernel: Kernel) -> bool:
    """Whether a barrier stands in a loop."""
    loops = (op for op in kernel.body.walk() if op.row in _LOOPS)
    barriers = (ops.SYNC_CUBE, ops.SYNC_PLANE, ops.SYNC_UNITS)
    return any(o.row in barriers for op in loops for body in op.regions for o in body.walk())


def check_convergence(kernel: Kernel, target: Capabilities) -> None:
    """`CompileError` E307 for divergent barriers, and for matrices of planes that units have left.

    Where planes exchange through memory of the cube, their operations are barriers of the cube.
    Branches that whole planes take are run by all units then (see `predicate`); loops that planes
    run differently are `UnsupportedError` E310.
    """
    if prod(kernel.cube_dim) == 1:
        return
    uniform = Uniform(kernel)
    _require_convergence(kernel, uniform, _OF_CUBES, "cube")
    if kernel.plane_dim > 1:
        of_plane = Uniform(kernel, plane=True)
        _require_convergence(kernel, of_plane, OF_PLANES, "plane")
        _require_presence(kernel, of_plane)
        if target.planes is Planes.MEMORY:
            _check_loops(kernel, uniform, target.target)


def _check_loops(kernel: Kernel, uniform: Uniform, target: str) -> None:
    """`UnsupportedError` E310 for plane operations in loops that only some planes may run."""
    for op in kernel.body.walk():
        inside = [o for region in op.regions for o in region.walk() if o.row in OF_PLANES]
        if inside and op.row in _LOOPS and diverges(op, uniform):
            reason = "planes exchange through memory there, so all must run a loop equally often"
            raise refusal(inside[0], target, reason)


def _require_convergence(
    kernel: Kernel, uniform: Uniform, barriers: set[OpDef], group: str
) -> None:
    culprit = first_divergent(kernel.body, uniform, barriers)
    if culprit is not None:
        raise fail("E307", culprit.span, op=culprit.row.name, group=group)


def _require_presence(kernel: Kernel, uniform: Uniform) -> None:
    """What takes all lanes of a plane is not behind a return of some of them."""
    found = first_behind_return(kernel.body, uniform, _OF_ALL_LANES)
    if found is not None:
        culprit, left = found
        place = f" in line {left.span.line}" if left.span is not None else ""
        advice = f"some of them may have returned{place}; let all go on, and guard what they access"
        raise fail("E307", culprit.span, hint=advice, op=culprit.row.name, group="plane")


def first_divergent(region: Region, uniform: Uniform, barriers: set[OpDef]) -> Op | None:
    """A barrier that only some of a group's units may reach; None where there is none."""
    for op in region.ops:
        inside = [o for r in op.regions for o in r.walk() if o.row in barriers]
        if inside and diverges(op, uniform):
            return inside[0]
        for inner in op.regions if inside else ():
            found = first_divergent(inner, uniform, barriers)
            if found is not None:
                return found
    return None


def diverges(op: Op, uniform: Uniform) -> bool:
    """Whether units run the regions of an operation differently often."""
    if any(uniform.is_varying(v) for v in control_operands(op)):
        return True
    return op.row in _LOOPS and leaves_divergently(op.regions[0], uniform)


def control_operands(op: Op) -> Iterator[Value]:
    """What decides which of an operation's regions run, or how often."""
    if op.row is ops.IF:
        yield op.operands[0]
    elif op.row is ops.FOR:
        yield from op.operands[:3]


def first_behind_return(
    region: Region, uniform: Uniform, rows: Collection[OpDef]
) -> tuple[Op, Op] | None:
    """An operation that runs after some of a group's units may have returned, and their return.

    None where there is none; a return that all of the group's units take together is none.
    """
    returns = _Returns(uniform, rows)
    returns.walk(region, divergent=False)
    return returns.found


class _Returns:
    """Goes through a kernel in the order of execution, from return to return."""

    def __init__(self, uniform: Uniform, rows: Collection[OpDef]) -> None:
        self._uniform = uniform
        self._rows = rows
        self._returned: Op | None = None
        self.found: tuple[Op, Op] | None = None

    def walk(self, region: Region, divergent: bool) -> None:
        """Visit a region in the order of execution."""
        for op in region.ops:
            if op.row is ops.RETURN and divergent:
                self._returned = op
            elif op.row in self._rows and self._returned is not None:
                self.found = self.found or (op, self._returned)
            inner = divergent or diverges(op, self._uniform)
            if op.row is ops.IF:
                self._branches(op, inner)
            else:
                self._trips(op, inner)

    def _branches(self, op: Op, divergent: bool) -> None:
        before = after = self._returned
        for region in op.regions:
            self._returned = before
            self.walk(region, divergent)
            after = after or self._returned
        self._returned = after

    def _trips(self, op: Op, divergent: bool) -> None:
        """A loop's body; once more where its first trip lets units return."""
        before = self._returned
        for body in op.regions:
            self.walk(body, divergent)
            if self._returned is not before:
                self.walk(body, divergent)
