"""CUDA: arrays of other libraries on the GPU, streams, limits, and a context that is lost."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.devices.kernels import add, increment, scale, spin
from tests.optional import require_package

N = 1 << 20


def torch_array(x: np.ndarray) -> Any:
    torch = require_package("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch without CUDA")
    return torch.from_numpy(x).cuda()


def cupy_array(x: np.ndarray) -> Any:
    return require_package("cupy").asarray(x)


def numba_array(x: np.ndarray) -> Any:
    require_package("numba_cuda")
    from numba import cuda

    return cuda.to_device(x)


def pycuda_array(x: np.ndarray) -> Any:
    require_package("pycuda")
    require_package("pycuda.autoprimaryctx")  # it allocates in contexts of its own stack alone
    return require_package("pycuda.gpuarray").to_gpu(x)


def to_numpy(x: Any) -> np.ndarray:
    return cp.asarray(x).numpy()


FOREIGN = {"torch": torch_array, "cupy": cupy_array, "numba": numba_array, "pycuda": pycuda_array}


@pytest.mark.parametrize("library", FOREIGN)
def test_foreign_arrays(cuda: str, library: str):
    x, y = (np.random.default_rng(k).normal(size=(31, 70)).astype(np.float32) for k in (1, 2))
    there, other, out = (FOREIGN[library](a) for a in (x, y, np.zeros_like(x)))
    add.over(out)(there, other, out)
    np.testing.assert_array_equal(to_numpy(out), x + y)
    scale.over(out)(there, 3.0, out)
    np.testing.assert_array_equal(to_numpy(out), x * np.float32(3))


def test_jax_arrays_are_read_only(cuda: str):
    jax = require_package("jax")
    x = jax.device_put(np.arange(10, dtype=np.float32), jax.devices("gpu")[0])
    out = cp.empty(10, device=cuda)
    add.over(out)(x, x, out)
    np.testing.assert_array_equal(out.numpy(), 2 * np.arange(10))
    with pytest.raises(cp.LaunchError, match="E404"):
        increment.over(x)(x)


def test_strided_torch_tensors(cuda: str):
    x = torch_array(np.random.default_rng(5).normal(size=(40, 30)).astype(np.float32))
    out = torch_array(np.zeros((30, 40), np.float32))
    add.over(out)(x.t(), x.t(), out)
    np.testing.assert_array_equal(to_numpy(out), 2 * to_numpy(x).T)


def test_arrays_are_taken_elsewhere(cuda: str):
    held = np.random.default_rng(6).normal(size=(8, 9)).astype(np.float32)
    x = cp.asarray(held, device=cuda)
    torch, cupy = require_package("torch"), require_package("cupy")
    for view, expected in ((x, held), (x[::2, 1:], held[::2, 1:])):
        np.testing.assert_array_equal(torch.from_dlpack(view).cpu().numpy(), expected)
        np.testing.assert_array_equal(cupy.asarray(view).get(), expected)
    y = torch.from_dlpack(x)
    y += 1
    torch.cuda.synchronize()
    np.testing.assert_array_equal(x.numpy(), held + 1)
    del x
    np.testing.assert_array_equal(y.cpu().numpy(), held + 1)


def test_launches_join_the_current_stream_of_torch(cuda: str):
    torch = require_package("torch")
    stream = torch.cuda.Stream()
    for k in range(20):
        x = torch.zeros(N, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            x += k
            increment.over(x)(x)
            x *= 2
        stream.synchronize()
        assert (x == 2 * (k + 1)).all(), "a launch overtook the stream"


def test_a_bound_launch_joins_the_current_stream_of_torch(cuda: str):
    torch = require_package("torch")
    x = torch.zeros(N, device="cuda")
    bound = increment.over(x).bind(x)
    torch.cuda.synchronize()
    for k in range(20):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(2_000_000)
            x.fill_(k)
            bound()
            x *= 2
        stream.synchronize()
        assert (x == 2 * (k + 1)).all(), "a launch overtook the stream"
    x.data = torch.zeros(N, device="cuda")
    bound()
    torch.cuda.synchronize()
    assert (x == 1).all()


def test_freed_arrays_do_not_wait_in_the_default_stream(cuda: str):
    torch = require_package("torch")
    stream, busy, x = cp.Stream(cuda), cp.zeros(64, device=cuda), cp.zeros(N, device=cuda)
    (torch.zeros(N, device="cuda") + 1).cpu()  # the first use loads code, which waits for all work
    spin.configure(stream=stream).over(busy)(busy, 1)
    increment.configure(stream=stream).over(x)(x)
    spin.configure(stream=stream).over(busy)(busy, 50_000_000)
    x = cp.zeros(N, device=cuda)
    increment.configure(stream=stream).over(x)(x)
    end = torch.cuda.Event()
    end.record(torch.cuda.ExternalStream(stream.handle))
    del x
    (torch.zeros(N, device="cuda") + 1).cpu()
    assert not end.query(), "torch waited for a side stream"
    stream.synchronize()


def test_the_default_memory_pool_is_left_alone(cuda: str):
    api = require_package("cuda.bindings.driver")
    torch_array(np.zeros(4, np.float32))
    _, device = api.cuDeviceGet(0)
    _, pool = api.cuDeviceGetDefaultMemPool(device)
    which = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    _, before = api.cuMemPoolGetAttribute(pool, which)
    x = cp.zeros(N, device=cuda)
    cp.release_memory()
    _, after = api.cuMemPoolGetAttribute(pool, which)
    assert int(after) == int(before) and (x.numpy() == 0).all()


def test_streams_that_read_one_array_overlap(cuda: str):
    @cp.cube
    def read(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32], times: int):
        v = x[0]
        for _ in range(times):
            v = cp.sqrt(v * v)
        out[0] = v

    x = cp.ones(1, device=cuda)
    outs = [cp.zeros(1, device=cuda) for _ in range(4)]
    streams = [cp.Stream(cuda) for _ in outs]
    kernels = [read.configure(stream=stream)[1, 1] for stream in streams]
    kernels[0](x, outs[0], 10)

    def seconds(count: int) -> float:
        cp.synchronize(cuda)
        began = time.perf_counter()
        for kernel, out in zip(kernels[:count], outs, strict=False):
            kernel(x, out, 3_000_000)
        cp.synchronize(cuda)
        return time.perf_counter() - began

    assert seconds(4) < 2 * seconds(1)


def test_streams_of_arguments_are_ordered(cuda: str):
    torch, cupy = require_package("torch"), require_package("cupy")
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.zeros(N, cupy.float32)
        busy = cupy.ones(N, cupy.float32)
        spin.configure(stream=stream).over(busy)(busy, 20000)
        x += 1
        y = torch.zeros(N, device="cuda")
        out = torch.zeros(N, device="cuda")
        add.over(out)(x, y, out)
    torch.cuda.synchronize()
    assert (out == 1).all()


def test_own_streams_and_events(cuda: str):
    stream, start, end = cp.Stream(cuda), cp.Event(cuda), cp.Event(cuda)
    x = cp.ones(N, device=cuda)
    cp.synchronize(cuda)
    start.record(stream)
    spin.configure(stream=stream).over(x)(x, 10000)
    end.record(stream)
    end.synchronize()
    assert end.elapsed(start) > 0.01
    stream.synchronize()
    np.testing.assert_array_equal(x.numpy(), np.full(N, 2, np.float32))


def test_limits(cuda: str):
    x = cp.zeros(4, device=cuda)
    with pytest.raises(cp.LaunchError, match="E408.*65535"):
        increment[(1, 70000, 1), 1](x)
    with pytest.raises(cp.LaunchError, match="E408"):
        increment[1, (1, 1, 65)](x)
    with pytest.raises(cp.DeviceError, match="E504"):
        cp.empty(1 << 45, device=cuda)
    assert cp.device(cuda).memory().total > 1 << 30


def test_large_shared_memory(cuda: str):
    @cp.cube
    def through(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
        tile = cp.shared(16384, cp.f32)
        for k in range(cp.UNIT_POS, 16384, cp.CUBE_DIM):
            tile[k] = x[k]
        cp.sync_cube()
        for k in range(cp.UNIT_POS, 16384, cp.CUBE_DIM):
            out[k] = tile[16383 - k]

    x = np.random.default_rng(7).normal(size=16384).astype(np.float32)
    out = np.zeros_like(x)
    through.configure(device=cuda)[1, 256](x, out)
    np.testing.assert_array_equal(out, x[::-1])


LOST = """
import numpy as np, cubepy as cp
from tests.devices.kernels import increment, stray
x = cp.zeros(64, device="cuda:0")
stray[1, 64](x, 1 << 31)
try:
    cp.synchronize("cuda:0")
except cp.DeviceLostError as error:
    assert "stray" in str(error), error
else:
    raise SystemExit("no error")
y = np.zeros(4, np.float32)
increment.over(y)(y)
assert (y == 1).all()
print("the host works")
"""


def test_a_lost_device_leaves_the_host(cuda: str):
    code = textwrap.dedent(LOST)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the host works" in done.stdout, done.stdout + done.stderr
