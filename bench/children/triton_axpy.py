"""Triton's kernel for `bench.gpu_launch`; Triton reads the source of its kernels from files."""

from __future__ import annotations

import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]


@triton.jit
def axpy(alpha, x, y, out, n, block: tl.constexpr):
    i = tl.program_id(0) * block + tl.arange(0, block)
    inside = i < n
    found = alpha * tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside)
    tl.store(out + i, found, mask=inside)
