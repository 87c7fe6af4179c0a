"""Matrices as the copy engine of NVIDIA's GPUs sees them."""

from __future__ import annotations

from cubepy.array.memory import Memory
from cubepy.lang.cuda import TensorMap, tensor_map
from cubepy.lang.pipelines import ROW_BYTES


def boxes(x: Memory, box: tuple[int, int], swizzle: int = ROW_BYTES) -> TensorMap:
    """A tensor map of boxes of matrices, the last two axes of an array."""
    return tensor_map(x, (1,) * (len(x.shape) - 2) + box, swizzle=swizzle)
