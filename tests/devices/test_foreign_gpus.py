"""Arrays of libraries that only have the CUDA Array Interface, such as Numba's, on two GPUs. The
driver is made up; with Numba and two GPUs the same runs there."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.array.interop import read_memory
from tests.devices import fake_cuda
from tests.optional import require_package

N = 16


@cp.cube
def move(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * 2 + 1


class Foreign:
    """An array that says where it is by its address alone, as Numba's do."""

    def __init__(self, own: cp.Array) -> None:
        self.own = own

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        memory = read_memory(self.own)
        assert memory is not None
        return {
            "shape": memory.shape,
            "strides": memory.strides,
            "typestr": "<f4",
            "data": (memory.address, False),
            "version": 3,
        }


def floats(address: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_float * N).from_address(address))


def do_move(x: int, out: int) -> None:
    floats(out)[:] = floats(x) * 2 + 1


@pytest.fixture
def two(driver: fake_cuda.Driver) -> fake_cuda.Driver:
    driver.gpus = 2
    driver.kernels["move"] = do_move
    driver.parameters["move"] = 2
    return driver


def foreign(values: np.ndarray, gpu: int) -> Foreign:
    return Foreign(cp.asarray(values.astype(np.float32), device=f"cuda:{gpu}"))


@pytest.mark.usefixtures("nvrtc")
def test_a_launch_is_on_the_gpu_of_its_arrays(two: fake_cuda.Driver):
    values = np.random.default_rng(0).normal(size=N).astype(np.float32)
    for turn in range(4):
        for gpu in (1, 0, 1):
            x, out = foreign(values + turn, gpu), foreign(np.full(N, np.nan), gpu)
            two.launched.clear()
            move.over(N)(x, out)
            ((name, stream),) = two.launched
            assert name == "move" and stream == 0, "Numba works in the default stream"
            two.cuCtxSynchronize()
            np.testing.assert_array_equal(out.own.numpy(), (values + turn) * 2 + 1)
            assert read_memory(x) is not None and read_memory(x).device == f"cuda:{gpu}"  # type: ignore[union-attr]


@pytest.mark.usefixtures("nvrtc")
def test_arrays_of_two_gpus_are_refused(two: fake_cuda.Driver):
    x, out = foreign(np.zeros(N), 0), foreign(np.zeros(N), 1)
    for _ in range(3):
        with pytest.raises(cp.LaunchError, match="cuda:"):
            move.over(N)(x, out)
    assert not two.launched


@pytest.mark.optional("numba")
def test_numbas_arrays():
    require_package("numba")
    cuda: Any = pytest.importorskip("numba.cuda")
    if not cuda.is_available() or len(cuda.gpus) < 2:
        pytest.skip("Numba finds less than two GPUs")
    values = np.random.default_rng(1).normal(size=(5, 7)).astype(np.float32)
    calls: list[Callable[[Any], Any]] = [lambda x: cp.kernels.sum(x, axis=1)]
    for gpu in (1, 0, 1):
        with cuda.gpus[gpu]:
            x, out = cuda.to_device(values), cuda.device_array_like(values)
            move_all.over(values.size)(x, out)
            cuda.synchronize()
            np.testing.assert_array_equal(out.copy_to_host(), values * 2 + 1)
        for call in calls:  # in whichever context
            found = call(x)
            assert read_memory(found).device == f"cuda:{gpu}"  # type: ignore[union-attr]
            np.testing.assert_allclose(cp.asarray(found).numpy(), values.sum(1), rtol=1e-5)


@cp.cube
def move_all(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * 2 + 1
