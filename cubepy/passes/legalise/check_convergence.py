"""Convergence: all units of a cube, or of a plane, must reach its barriers together."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from cubepy.errors import fail
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import Group, OpDef
from cubepy.passes.legalise.capabilities import OF_PLANES, Capabilities, Planes
from cubepy.passes.legalise.check_target import refusal
from cubepy.passes.uniformity import Uniform, leaves_divergently

_OF_CUBES = {row for row in ops.TABLE.values() if row.convergent in (Group.CUBE, Group.CLUSTER)}
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
    """`CompileError` E307 for divergent barriers.

    Where planes exchange through memory of the cube, their operations are barriers of the cube.
    Branches that whole planes take are run by all units then (see `predicate`); loops that planes
    run differently are `UnsupportedError` E310.
    """
    if prod(kernel.cube_dim) == 1:
        return
    uniform = Uniform(kernel)
    _require_convergence(kernel, uniform, _OF_CUBES, "cube")
    if kernel.plane_dim > 1:
        _require_convergence(kernel, Uniform(kernel, plane=True), OF_PLANES, "plane")
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
