"""Native launches on OpenCL devices, beside those of Python."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.array.array import Array
from cubepy.jit.kernel import Launcher
from cubepy.jit.tables import native_executor
from cubepy.runtimes.native.launching.tables import Context
from tests.devices.conftest import require

PLACE = "opencl:0"


def axpy(x, y, out, a):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * a + y.flat[i]


def numbers(
    out: cp.Tensor[cp.f32], a: cp.i8, b: cp.u16, c: cp.f32, d: cp.i64, e: cp.bool_, f: cp.i32
):
    if cp.ABSOLUTE_POS == 0:
        out[0] = a
        out[1] = b
        out[2] = c
        out[3] = d
        out[4] = cp.where(e, 1.0, 0.0)
        out[5] = f


def rows(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = x[i, j] + 1


@pytest.fixture
def count() -> Iterator[list[int]]:
    """How often Python launched."""
    require(PLACE)
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


def made(values: Any) -> Array:
    return cp.asarray(np.asarray(values), device=PLACE)


def test_layouts_and_shapes(count: list[int]):
    kernel, rng = cp.cube(axpy), np.random.default_rng(3)
    for n in (*range(1, 30), 1000, 0):
        x, y = rng.normal(size=(2, n, 6)).astype(np.float32)
        held, out = made(x), made(np.full((n, 12), np.nan, np.float32))
        kernel.over(n * 6)(held, made(y), out[:, ::2], float(n))
        if n:
            np.testing.assert_allclose(out.numpy()[:, ::2], x * n + y, rtol=1e-5, atol=1e-5)
            assert np.isnan(out.numpy()[:, 1::2]).all()
        kernel.over(held)(held, held, held, 2.0)
        np.testing.assert_allclose(held.numpy(), x * 3, rtol=1e-5)
    used = count[0]
    for n in range(30, 60):
        x, out = made(np.ones((n, 6), np.float32)), made(np.zeros((n, 12), np.float32))
        kernel.over(n * 6)(x, x, out[:, ::2], float(n))
        assert (out.numpy()[:, ::2] == n + 1).all()
    assert count[0] <= used + 2


def test_numbers(count: list[int]):
    kernel, out = cp.cube(numbers), made(np.zeros(6, np.float32))
    cases = [(1, 2, 3.5, 4, True, 5), (-128, 65535, -0.0, -(2**40), False, -(2**31)), (5,) * 6]
    for _ in range(3):
        for case in cases[:2]:
            kernel[1, 1](out, *case)
            np.testing.assert_array_equal(out.numpy(), np.array(case, np.float32))
    used = count[0]
    kernel[1, 1](out, *cases[0])
    assert count[0] == used
    for wrong in ((128, 1, 1.0, 1, True, 1), (1, -1, 1.0, 1, True, 1), (1, 1, "x", 1, True, 1)):
        with pytest.raises(cp.LaunchError, match="E40"):
            kernel[1, 1](out, *wrong)


def test_axes_of_the_grid(count: list[int]):
    kernel = cp.cube(rows)
    for n in range(2, 40):
        x, out = made(np.ones((n, 70), np.float32)), made(np.zeros((n, 70), np.float32))
        kernel.over((n, 70))(x, out)
        assert (out.numpy() == 2).all()
    assert count[0] < 12


def test_bad_arguments(count: list[int]):
    kernel = cp.cube(axpy)
    x, y, out = (made(np.ones(64, np.float32)) for _ in range(3))
    for _ in range(3):
        kernel.over(64)(x, y, out, 1.0)
    for wrong, code in (
        ((x, y, out, [1.0]), "E401"),
        ((x, out[:-1], out[1:], 1.0), "E405"),
        ((x, y), "E406"),
    ):
        with pytest.raises(cp.LaunchError, match=code):
            kernel.over(64)(*wrong)
    host = np.ones(64, np.float32)
    for _ in range(3):  # staged or on the host
        kernel.over(64)(host, host, host, 1.0)
    assert host[0] == 8 and (out.numpy() == 2).all()


def test_what_the_driver_refuses(count: list[int], monkeypatch: pytest.MonkeyPatch):
    kernel = cp.cube(axpy)
    x, y, out = (made(np.ones(64, np.float32)) for _ in range(3))
    for _ in range(3):
        kernel.over(64)(x, y, out, 1.0)
    device: Any = cp.device(PLACE)
    words = device._native._held
    queue, words[3] = words[3], 0
    try:
        with pytest.raises(cp.DeviceError, match="E508.*launch"):
            kernel.over(64)(x, y, out, 1.0)
    finally:
        words[3] = queue
    kernel.over(64)(x, y, out, 5.0)
    assert (out.numpy() == 6).all()


def test_arrays_that_die(count: list[int]):
    kernel = cp.cube(axpy)
    out = made(np.zeros(1 << 12, np.float32))
    for k in range(300):
        x = made(np.full(1 << 12, k, np.float32))
        kernel.over(x)(x, x, out, 1.0)
        del x
        if k % 50 == 0:
            gc.collect()
            assert (out.numpy() == 2 * k).all()


def test_threads(count: list[int]):
    """Threads share the kernel, whose arguments belong to its object in OpenCL."""
    kernel, wrong = cp.cube(axpy), []
    slow = kernel.configure(checked=True)

    def work(seed: int) -> None:
        x = made(np.full(100, seed, np.float32))
        out = made(np.zeros(100, np.float32))
        for k in range(300):
            kernel.over(100)(x, x, out, float(k))
            if k % 100 == 99 and not (out.numpy() == seed * (k + 1)).all():
                wrong.append((seed, k))
        slow.over(100)(x, x, out, 1.0)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert count[0] < 100
