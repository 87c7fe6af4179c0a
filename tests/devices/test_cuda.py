"""CUDA: guests on the GPU, streams, limits, and a context that is lost."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.devices.kernels import add, increment, scale, spin
from tests.guests import require_guest

N = 1 << 20


def torch_array(x: np.ndarray) -> Any:
    torch = require_guest("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch without CUDA")
    return torch.from_numpy(x).cuda()


def cupy_array(x: np.ndarray) -> Any:
    return require_guest("cupy").asarray(x)


def numba_array(x: np.ndarray) -> Any:
    require_guest("numba_cuda")
    from numba import cuda

    return cuda.to_device(x)


def pycuda_array(x: np.ndarray) -> Any:
    require_guest("pycuda")
    require_guest("pycuda.autoprimaryctx")  # it allocates in contexts of its own stack alone
    return require_guest("pycuda.gpuarray").to_gpu(x)


def to_numpy(x: Any) -> np.ndarray:
    return cp.asarray(x).numpy()


GUESTS = {"torch": torch_array, "cupy": cupy_array, "numba": numba_array, "pycuda": pycuda_array}


@pytest.mark.parametrize("guest", GUESTS)
def test_guests(cuda: str, guest: str):
    x, y = (np.random.default_rng(k).normal(size=(31, 70)).astype(np.float32) for k in (1, 2))
    there, other, out = (GUESTS[guest](a) for a in (x, y, np.zeros_like(x)))
    add.over(out)(there, other, out)
    np.testing.assert_array_equal(to_numpy(out), x + y)
    scale.over(out)(there, 3.0, out)
    np.testing.assert_array_equal(to_numpy(out), x * np.float32(3))


def test_jax_arrays_are_read_only(cuda: str):
    jax = require_guest("jax")
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


def test_arrays_are_guests_elsewhere(cuda: str):
    held = np.random.default_rng(6).normal(size=(8, 9)).astype(np.float32)
    x = cp.asarray(held, device=cuda)
    torch, cupy = require_guest("torch"), require_guest("cupy")
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
    torch = require_guest("torch")
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


def test_streams_of_arguments_are_ordered(cuda: str):
    torch, cupy = require_guest("torch"), require_guest("cupy")
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
stray[1, 64](x, 1 << 44)
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
