"""Barriers of some units of a cube, for targets that have barriers of whole cubes alone.

One that all units of the cube provably reach becomes a barrier of the cube; any other is refused.
So it is on CUDA for a kernel whose planes are not warps, because its barriers count warps.
"""

from __future__ import annotations

from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.passes.legalise.check_convergence import first_behind_return, first_divergent
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
        found = first_behind_return(kernel.body, uniform, {ops.SYNC_UNITS})
        if found is not None:
            raise _refusal(found[0], _RETURNED, target)
    return _Lower().run(kernel)


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
