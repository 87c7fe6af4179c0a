"""What LLVM has no form for becomes something else: planes of one unit, barriers, emulated planes."""

from __future__ import annotations

from cubepy.ir.core import Kernel, Op
from cubepy.ir.verify import verify
from cubepy.passes.fission import fission, needs_fission
from cubepy.passes.meetings import lower_planes_of_one
from cubepy.passes.rewrite import Rewriter


def legalize(kernel: Kernel) -> Kernel:
    """The kernel without plane operations and barriers; verified again."""
    if kernel.plane_dim == 1:
        kernel = _PlanesOfOne().run(kernel)
    if needs_fission(kernel):
        kernel = verify(fission(kernel), after="fission")
    return kernel


class _PlanesOfOne(Rewriter):
    def visit(self, op: Op) -> None:
        lowered = lower_planes_of_one(self.renew(op)) if op.row.name.startswith("plane_") else None
        if lowered is None:
            self.out.append(self.renew(op))
        elif isinstance(lowered, Op):
            self.out.append(lowered)
        else:
            self.replaced[op.result] = lowered
