"""Drop the extents and strides that a kernel does not use, so that launches need not pass them."""

from __future__ import annotations

from dataclasses import replace

from cubepy.artifact import Extent, Stride
from cubepy.ir.core import Kernel


def prune(kernel: Kernel) -> Kernel:
    """The kernel without unused parameters for shapes and strides."""
    used = {value for op in kernel.body.walk() for value in op.operands}
    kept = tuple(
        [p for p in kernel.params if not isinstance(p.kind, Extent | Stride) or p.value in used]
    )
    return kernel if len(kept) == len(kernel.params) else replace(kernel, params=kept)
