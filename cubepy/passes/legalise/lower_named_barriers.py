"""Barriers of some units of a cube, for targets that have barriers of whole cubes alone.

One that all units of the cube provably reach becomes a barrier of the cube; any other is refused.
So it is on CUDA for a kernel whose planes are not warps, because its barriers count warps.
"""

from __future__ import annotations

from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.passes.legalise.check_convergence import diverges, first_divergent
from cubepy.passes.legalise.check_target import refusal
from cubepy.passes.rewrite import Rewriter
from cubepy.passes.uniformity import Uniform

_CONVERGENT = "all units of the cube must reach a barrier together there"
_RETURNED = "units that returned do not reach a barrier of units"


def lower_named_barriers(kernel: Kernel, target: Capabilities) -> Kernel:
    """The kernel with barriers that the target has; `UnsupportedError` E310 where it has none."""
    barriers = [op for op in kernel.body.walk() if op.row is ops.SYNC_UNITS]
    if not barriers or (target.named_barriers and kernel.plane_dim == target.plane_dim):
        return kernel
    units = prod(kernel.cube_dim)
    for op in barriers:
        if op.attrs["count"] != units:
            raise _refusal(op, _whole_cubes(target, units), target)
    if units > 1:
        uniform = Uniform(kernel)
        culprit = first_divergent(kernel.body, uniform, {ops.SYNC_UNITS})
        if culprit is not None:
            raise _refusal(culprit, _CONVERGENT, target)
        returns = _Returns(uniform)
        returns.walk(kernel.body, divergent=False)
        if returns.culprit is not None:
            raise _refusal(returns.culprit, _RETURNED, target)
    return _Lower().run(kernel)


class _Returns:
    """Finds a named barrier that runs after some unit may have returned."""

    def __init__(self, uniform: Uniform) -> None:
        self._uniform = uniform
        self._returned = False
        self.culprit: Op | None = None

    def walk(self, region: Region, divergent: bool) -> None:
        """Visit a region in the order of execution."""
        for op in region.ops:
            if op.row is ops.RETURN and divergent:
                self._returned = True
            elif op.row is ops.SYNC_UNITS and self._returned:
                self.culprit = self.culprit or op
            inner = divergent or diverges(op, self._uniform)
            if op.row is ops.IF:
                self._branches(op, inner)
            else:
                self._trips(op, inner)

    def _branches(self, op: Op, divergent: bool) -> None:
        before, after = self._returned, False
        for region in op.regions:
            self._returned = before
            self.walk(region, divergent)
            after |= self._returned
        self._returned = after

    def _trips(self, op: Op, divergent: bool) -> None:
        """A loop's body; once more where its first trip lets units return."""
        before = self._returned
        for body in op.regions:
            self.walk(body, divergent)
            if self._returned and not before:
                self.walk(body, divergent)


def _whole_cubes(target: Capabilities, units: int) -> str:
    if target.named_barriers:
        return f"a barrier there is one of planes of {target.plane_dim} units"
    return f"a barrier there is one of all {units} units of the cube"


def _refusal(op: Op, reason: str, target: Capabilities) -> Exception:
    whole = f"use planes of {target.plane_dim} units" if target.named_barriers else "use CUDA"
    return refusal(op, target.target, reason, f"let all units take it, or {whole}")


class _Lower(Rewriter):
    def visit(self, op: Op) -> None:
        if op.row is ops.SYNC_UNITS:
            self.out.append(Op(ops.SYNC_CUBE, span=op.span))
        else:
            self.out.append(self.renew(op))
