"""Launches on CuPy's arrays on a GPU: native ones, in the stream in which CuPy works."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

import cubepy as cp
from cubepy.jit.kernel import Launcher
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
