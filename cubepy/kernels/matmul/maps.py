"""Matrices as the copy engine of NVIDIA's GPUs sees them."""

from __future__ import annotations

from dataclasses import replace

from cubepy.array.memory import Memory
from cubepy.kernels.matmul.problem import BOX_UNIT
from cubepy.lang.cuda import TensorMap, tensor_map
from cubepy.lang.pipelines import ROW_BYTES


def boxes(x: Memory, box: tuple[int, int], swizzle: int = ROW_BYTES) -> TensorMap:
    """A tensor map of boxes of matrices, the last two axes of an array; axes of one element get a
    stride that it may have."""
    row = -(-x.shape[-1] * x.dtype.itemsize // BOX_UNIT) * BOX_UNIT
    strides = tuple(row if n == 1 else s for n, s in zip(x.shape, x.strides[:-1], strict=False))
    seen = replace(x, strides=(*strides, x.strides[-1]))
    return tensor_map(seen, (1,) * (len(x.shape) - 2) + box, swizzle=swizzle)
