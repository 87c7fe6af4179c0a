"""Launches on CuPy's arrays on a GPU: native ones, in the stream in which CuPy works."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

import cubepy as cp
from cubepy.jit.kernel import Launcher
from cubepy.jit.programs import Step
from cubepy.jit.tables import native_executor
from cubepy.runtimes.native.launching.tables import Context
from tests.devices.conftest import require
from tests.devices.kernels import spin
from tests.optional import require_package

pytestmark = pytest.mark.usefixtures("cuda")
if find_spec("cupy") is None:
    require("cuda:0")  # without a GPU nobody misses it
cupy = require_package("cupy")


@cp.cube
def axpy(x, y, out, a):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * a + y.flat[i]


@pytest.fixture
def count() -> Iterator[list[int]]:
    """How often Python launched."""
    executor: Any = native_executor()
    if executor is None:
        pytest.skip("no native launches here")
    inner, found, words = Launcher.__call__, [0], executor._context

    def counting(launcher: Any, *args: Any, **kwargs: Any) -> Any:
        found[0] += 1
        return inner(launcher, *args, **kwargs)

    before = words[Context.GENERAL]
    words[Context.GENERAL] = id(counting)
    yield found
    words[Context.GENERAL] = before


def test_they_are_read(count: list[int]):
    assert native_executor().reads_cupy(cupy.ndarray)  # pyright: ignore[reportOptionalMemberAccess]
    for n in range(2, 40):
        x, y = cupy.random.rand(n, 7, dtype="float32"), cupy.random.rand(7, n, dtype="float32").T
        out = cupy.full((n, 14), cupy.nan, "float32")[:, ::2]
        axpy.over(out)(x, y, out, 2.5)
        assert cupy.allclose(out, x * 2.5 + y, rtol=1e-5)
        axpy.over(n * 7)(out, out, out, 3.0)
        assert cupy.allclose(out, (x * 2.5 + y) * 4, rtol=1e-5)
    used = count[0]
    for n in range(40, 80):
        out = cupy.full((n, 14), cupy.nan, "float32")[:, ::2]
        x = cupy.random.rand(n, 7, dtype="float32")
        axpy.over(out)(x, x.T.copy().T, out, 1.5)
        assert cupy.allclose(out, x * 2.5, rtol=1e-5)
    assert count[0] == used


@pytest.mark.parametrize("name", ["float16", "float64", "int32", "uint8"])
def test_types(name: str):
    x = cupy.arange(100).astype(name)
    for _ in range(4):
        out = cupy.zeros_like(x)
        axpy.over(100)(x, x, out, 1)
        assert (out == x + x).all()


def test_work_is_in_the_current_stream(count: list[int]):
    x = cupy.zeros(1 << 16, "float32")
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    for _ in range(3):
        spin.over(x)(x, 1)
    cupy.cuda.Device().synchronize()
    spin.over(x)(x, 20_000)
    cupy.cuda.Device().synchronize()
    before, expected = count[0], float(x[0])
    for k in range(12):
        with streams[k % 3]:
            streams[k % 3].wait_event(streams[k % 3 - 1].record())
            spin.over(x)(x, 20_000)
            x += 1
    for stream in streams:
        stream.synchronize()
    assert (x == expected + 24).all()
    assert count[0] == before


def test_arrays_of_several_libraries(count: list[int]):
    """What is not CuPy's alone goes through Python, in an order of both."""
    x, own = cupy.ones(1000, "float32"), cp.ones(1000, device="cuda:0")
    for k in range(4):
        out = cupy.full(1000, cupy.nan, "float32")
        axpy.over(1000)(x, own, out, float(k))
        assert (out == k + 1).all()
    with pytest.raises(cp.LaunchError, match="E405"):
        axpy.over(999)(x[1:], x[1:], x[:-1], 1.0)


def _cube(v: Any) -> Any:
    return v * v * v


def test_prebuilt_functions_are_native(monkeypatch: pytest.MonkeyPatch):
    inner, launched = Step.run, [0]

    def counting(step: Any, *args: Any) -> None:
        launched[0] += 1
        inner(step, *args)

    monkeypatch.setattr(Step, "run", counting)
    side = cupy.cuda.Stream(non_blocking=True)
    for round_ in range(8):
        if round_ == 4:
            launched[0] = 0
        x = cupy.random.rand(30, 17, dtype="float32")
        out, rows = cupy.full(30, cupy.nan, "float32"), x[::-2, 1:]
        cupy.cuda.Device().synchronize()
        with side:
            found = [
                (cp.kernels.sum(x, 1), x.sum(1)),
                (cp.kernels.sum(x, 1, out=out), x.sum(1)),
                (cp.kernels.map(_cube, rows), rows**3),
                (cp.kernels.matmul(x, x.T), x @ x.T),
                (cp.kernels.max_pool2d(x[None, None, :, :16], 2)[0, 0], _pooled(x[:, :16])),
            ]
            for ours, theirs in found:
                assert type(ours) is cupy.ndarray
                assert cupy.allclose(ours, theirs, rtol=1e-4, atol=1e-4)
        assert found[1][0] is out
        with pytest.raises(cp.LaunchError, match="overlaps"):
            cp.kernels.map(_cube, x[1:], out=x[:-1])
    assert launched[0] == 0


def _pooled(x: Any) -> Any:
    return x.reshape(x.shape[0] // 2, 2, -1, 2).max((1, 3))


several = pytest.mark.skipif(
    cupy.cuda.runtime.getDeviceCount() < 2, reason="needs two GPUs in one process"
)


@several
@pytest.mark.parametrize("current", [0, 1])
def test_arrays_on_each_of_several_gpus(current: int, count: list[int]):
    """A launch is on the GPU of its arrays, in CuPy's stream there, whichever GPU is current."""
    with cupy.cuda.Device(current):
        for round_ in range(6):
            for ordinal in (0, 1, 1, 0):
                with cupy.cuda.Device(ordinal):
                    x, y = (cupy.random.rand(500, dtype="float32") for _ in range(2))
                    out, empty = cupy.full(500, cupy.nan, "float32"), cupy.zeros(0, "float32")
                    cupy.cuda.Device().synchronize()
                before = count[0]
                axpy.over(out)(x, y, out, 2.0)
                axpy.over(500)(empty, empty, empty, 2.0)
                assert cupy.cuda.Device().id == current
                if round_ > 3 and ordinal == current:
                    assert count[0] == before, "native"
                total = cp.kernels.sum(x[None], 1)
                with cupy.cuda.Device(ordinal):
                    assert cupy.allclose(out, x * 2 + y, rtol=1e-5)
                    assert total.device.id == ordinal
                    assert cupy.allclose(total, x.sum(), rtol=1e-4)


@several
def test_arrays_on_two_gpus_are_refused():
    arrays = []
    for ordinal in (0, 1):
        with cupy.cuda.Device(ordinal):
            arrays.append(cupy.ones(100, "float32"))
            cupy.cuda.Device().synchronize()
    x, y = arrays
    for _ in range(4):
        axpy.over(100)(x, x, x.copy(), 1.0)
        with pytest.raises(cp.LaunchError):
            axpy.over(100)(x, y, x.copy(), 1.0)
        with pytest.raises(cp.LaunchError):
            cp.kernels.matmul(x[None], y[:, None])
    assert (x == 1).all()


@several
def test_streams_of_several_gpus():
    """Work follows CuPy's stream of the arrays' GPU while another GPU is current."""
    with cupy.cuda.Device(1):
        x, side = cupy.zeros(1 << 14, "float32"), cupy.cuda.Stream(non_blocking=True)
        side.use()
    try:
        for k in range(6):
            with cupy.cuda.Device(k % 2):
                spin.over(1 << 14)(x, 20_000)
        side.synchronize()
        with cupy.cuda.Device(1):
            assert (x == x[0]).all() and float(x[0]) != 0
    finally:
        with cupy.cuda.Device(1):
            cupy.cuda.Stream.null.use()


def captured(call: Any) -> Any:
    """A graph of CuPy's of a call, and its result."""
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        call()
        stream.synchronize()
        stream.begin_capture()
        found = call()
        graph = stream.end_capture()
    return graph, stream, found


def test_scratch_of_a_captured_call_is_its_own():
    x = cupy.random.rand(5, 70_000, dtype="float32")
    graph, stream, (values, _) = captured(lambda: cp.kernels.sort(x))
    others = [cupy.full(x.size // 4, 7, "float32") for _ in range(64)]
    x[...] = cupy.random.rand(*x.shape, dtype="float32")
    cupy.cuda.runtime.deviceSynchronize()
    graph.launch(stream)
    stream.synchronize()
    assert cupy.array_equal(values, cupy.sort(x))
    assert all((other == 7).all() for other in others)


def test_numbers_of_a_captured_call():
    mask, x = cupy.arange(1000) % 3 == 0, cupy.arange(1000, dtype="float32")
    graph, stream, found = captured(lambda: cp.kernels.where(mask, x, 5.0))
    others = [cupy.full(1, 9, "float32") for _ in range(100)]
    x += 1
    cupy.cuda.runtime.deviceSynchronize()
    graph.launch(stream)
    stream.synchronize()
    assert cupy.array_equal(found, cupy.where(mask, x, 5.0))
    assert all((other == 9).all() for other in others)
