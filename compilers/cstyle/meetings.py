"""Where units meet: barriers and plane operations must be reached by all units that meet there."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.errors import Error, fail
from cubepy.ir import cuda, metal, ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.passes.meetings import PLANE_OPS
from cubepy.passes.uniformity import Uniform, leaves_divergently

_MATRICES = {cuda.LDMATRIX, cuda.STMATRIX, cuda.MMA, metal.MULTIPLY_ACCUMULATE}
_WARPGROUPS = {cuda.SET_REGISTERS, cuda.WGMMA_FENCE, cuda.WGMMA, cuda.WGMMA_COMMIT, cuda.WGMMA_WAIT}
OF_PLANES = PLANE_OPS | {ops.SYNC_PLANE} | _MATRICES | _WARPGROUPS
_LOOPS = (ops.FOR, ops.LOOP)


def leaves_early(kernel: Kernel, uniform: Uniform) -> bool:
    """Whether a unit may end before others of its group do."""
    return _leaves(kernel.body, uniform, False)


def _leaves(region: Region, uniform: Uniform, divergent: bool) -> bool:
    for op in region.ops:
        varying = divergent or any(uniform.is_varying(v) for v in steers(op))
        if op.row is ops.CHECK and (divergent or uniform.is_varying(op.operands[0])):
            return True
        if op.row is ops.RETURN and divergent:
            return True
        if any(_leaves(inner, uniform, varying) for inner in op.regions):
            return True
    return False


def meets_in_loops(kernel: Kernel) -> bool:
    """Whether a barrier stands in a loop."""
    loops = (op for op in kernel.body.walk() if op.row in _LOOPS)
    barriers = (ops.SYNC_CUBE, ops.SYNC_PLANE)
    return any(o.row in barriers for op in loops for body in op.regions for o in body.walk())


def check_meetings(kernel: Kernel, dialect: Dialect) -> None:
    """`CompileError` E307 for divergent meetings.

    Where planes exchange through memory of the cube, their operations are meetings of the cube.
    """
    if prod(kernel.cube_dim) == 1:
        return
    through_memory = kernel.plane_dim > 1 and not dialect.planes
    cube = {ops.SYNC_CUBE, cuda.CLUSTER_SYNC} | (OF_PLANES if through_memory else set())
    uniform = Uniform(kernel)
    _Divergence(uniform, cube).check(kernel.body, "cube")
    if kernel.plane_dim > 1:
        _Divergence(Uniform(kernel, plane=True), set(OF_PLANES)).check(kernel.body, "plane")


class _Divergence:
    """Finds a meeting that only some of a group's units may reach."""

    def __init__(self, uniform: Uniform, meetings: set[OpDef]) -> None:
        self._uniform = uniform
        self._meetings = meetings

    def check(self, region: Region, group: str) -> None:
        for op in region.ops:
            inside = [o for r in op.regions for o in r.walk() if o.row in self._meetings]
            if not inside:
                continue
            if self._diverges(op):
                raise self._error(inside[0], group)
            for inner in op.regions:
                self.check(inner, group)

    def _diverges(self, op: Op) -> bool:
        if any(self._uniform.is_varying(v) for v in steers(op)):
            return True
        return op.row in _LOOPS and leaves_divergently(op.regions[0], self._uniform)

    @staticmethod
    def _error(op: Op, group: str) -> Error:
        return fail("E307", op.span, op=op.row.name, group=group)


def steers(op: Op) -> Iterator[Value]:
    """What decides which of an operation's regions run, or how often."""
    if op.row is ops.IF:
        yield op.operands[0]
    elif op.row is ops.FOR:
        yield from op.operands[:3]
