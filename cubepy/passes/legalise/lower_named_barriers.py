"""Barriers of some units of a cube, for targets that have barriers of whole cubes alone.

One that all units of the cube provably reach is a barrier of the cube; any other is refused.
"""

from __future__ import annotations

from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op
from cubepy.passes.legalise.capabilities import Capabilities
from cubepy.passes.legalise.check_convergence import first_divergent
from cubepy.passes.legalise.check_target import refusal
from cubepy.passes.rewrite import Rewriter
from cubepy.passes.uniformity import Uniform


def lower_named_barriers(kernel: Kernel, target: Capabilities) -> Kernel:
    """The kernel with barriers that the target has; `UnsupportedError` E310 where it has none."""
    barriers = [op for op in kernel.body.walk() if op.row is ops.SYNC_UNITS]
    if not barriers or target.named_barriers:
        return kernel
    units = prod(kernel.cube_dim)
    for op in barriers:
        if op.attrs["count"] != units:
            raise _refusal(op, f"a barrier there is one of all {units} units of the cube", target)
    culprit = first_divergent(kernel.body, Uniform(kernel), {ops.SYNC_UNITS})
    if culprit is not None and units > 1:
        raise _refusal(culprit, "all units of the cube must reach a barrier together there", target)
    return _Lower().run(kernel)


def _refusal(op: Op, reason: str, target: Capabilities) -> Exception:
    return refusal(op, target.target, reason, "let all units take it, or use CUDA")


class _Lower(Rewriter):
    def visit(self, op: Op) -> None:
        if op.row is ops.SYNC_UNITS:
            self.out.append(Op(ops.SYNC_CUBE, span=op.span))
        else:
            self.out.append(self.renew(op))
