"""Arrays and boxes that the copy engine of a GPU does not take, and the settings of clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.array.interop import read_memory
from cubepy.array.memory import HOST, Memory
from cubepy.jit.grid import check_clusters, whole_clusters
from cubepy.jit.tensor_maps import refusal
from cubepy.targets import cuda_target


def memory_of(x: np.ndarray) -> Memory:
    found = read_memory(x)
    assert found is not None
    return found


def aligned(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array whose address is a multiple of 64."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    held = np.zeros(size + 64, np.uint8)
    start = -held.ctypes.data % 64
    return held[start : start + size].view(dtype).reshape(shape)


def reason(x: np.ndarray, box: tuple[int, ...], swizzle: int = 0) -> str:
    return refusal(cp.cuda.tensor_map(x, box, swizzle), memory_of(x), HOST)[0]


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float16, np.float32, np.int64])
def test_what_the_engine_takes(dtype: Any):
    x = aligned((8, 64), dtype)
    box = 32 // x.itemsize
    assert reason(x, (4, box)) == ""
    assert reason(x[:, : 2 * box], (4, box), swizzle=32) == ""
    assert reason(x[::2], (4, box)) == ""
    assert reason(x[1:], (4, box)) == ""


def test_what_the_engine_does_not_take():
    x = aligned((8, 64), np.float32)
    assert "last axis" in reason(x.T, (4, 4))
    assert "multiples of 16" in reason(x[:, 1:], (4, 4))
    assert "multiples of 16" in reason(aligned((8, 7), np.float32), (4, 4))
    assert "multiples of 16" in reason(x[::-1], (4, 4))
    assert "12 bytes" in reason(x, (4, 3))
    assert "more than its swizzle" in reason(x, (4, 32), swizzle=64)
    assert "bools" in reason(aligned((8, 64), np.bool_), (4, 16))
    assert "extents" in reason(x[:0], (4, 4))


def test_an_array_on_another_device():
    x = aligned((8, 64), np.float32)
    found, suggestion = refusal(cp.cuda.tensor_map(x, (4, 4)), memory_of(x), "cuda:0")
    assert "on cpu, not on cuda:0" in found
    assert "device='cuda:0'" in suggestion


@cp.cube
def takes_map(tensor: cp.cuda.TensorMap, out):
    out[0] = tensor.nbytes


def test_a_launch_on_a_processor_is_refused():
    tensor = cp.cuda.tensor_map(aligned((8, 8), np.int32), (4, 4))
    with pytest.raises(cp.UnsupportedError, match="E310: `tensor`, a tensor map"):
        takes_map[1, 1](tensor, np.zeros(1, np.int32))


def test_what_is_no_tensor_map_is_refused():
    with pytest.raises(cp.LaunchError, match="E401: takes_map: `tensor` is a ndarray"):
        takes_map[1, 1](np.zeros((8, 8), np.int32), np.zeros(1, np.int32))

    @cp.cube
    def takes_array(x: cp.Tensor[cp.i32]):
        x[0] = 1

    tensor = cp.cuda.tensor_map(aligned((8, 8), np.int32), (4, 4))
    with pytest.raises(cp.LaunchError, match="E401: takes_array: `x` is a TensorMap"):
        takes_array[1, 1](tensor)


def test_grids_are_made_of_whole_clusters():
    assert whole_clusters((5, 3, 1), (2, 2, 1)) == (6, 4, 1)
    assert whole_clusters((0, 3, 1), (2, 1, 1)) == (0, 3, 1)
    check_clusters("k", (4, 2, 1), (2, 2, 1), cuda_target("sm_90a"))
    with pytest.raises(cp.LaunchError, match=r"E408: k: the cube count is \(4, 3, 1\)"):
        check_clusters("k", (4, 3, 1), (2, 2, 1), cuda_target("sm_90a"))
