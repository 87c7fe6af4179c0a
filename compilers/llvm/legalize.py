"""What LLVM has no form for becomes something else: small floats, planes, checks, barriers."""

from __future__ import annotations

from cubepy.artifact import Fault
from cubepy.compilers.base import refuse_foreign
from cubepy.ir.core import Kernel, Op
from cubepy.ir.types import bf16, f8e4m3, f8e5m2, f16
from cubepy.ir.verify import verify
from cubepy.passes.fission import fission, needs_fission
from cubepy.passes.lower_checks import lower_checks
from cubepy.passes.meetings import lower_planes_of_one
from cubepy.passes.rewrite import Rewriter
from cubepy.passes.widen import widen, widen_f16_fma
from cubepy.targets import Target

_STORED = frozenset((bf16, f8e4m3, f8e5m2))
"""Floats that are only stored: processors lack them, or flush their denormals."""


def legalize(kernel: Kernel, target: Target) -> tuple[Kernel, tuple[Fault, ...]]:
    """The kernel without plane operations, checks and barriers; and what its checks test."""
    refuse_foreign(kernel, str(target))
    is_x86 = "sse2" in target.attributes
    lacks_f16 = is_x86 and "f16c" not in target.features
    kernel = widen(_STORED | {f16} if lacks_f16 else _STORED)(widen_f16_fma(kernel))
    if kernel.plane_dim == 1:
        kernel = _PlanesOfOne().run(kernel)
    kernel, faults = lower_checks(kernel)
    if needs_fission(kernel):
        kernel = verify(fission(kernel), after="fission")
    return kernel, faults


class _PlanesOfOne(Rewriter):
    def visit(self, op: Op) -> None:
        lowered = lower_planes_of_one(self.renew(op)) if op.row.name.startswith("plane_") else None
        if lowered is None:
            self.out.append(self.renew(op))
        elif isinstance(lowered, Op):
            self.out.append(lowered)
        else:
            self.replaced[op.result] = lowered
