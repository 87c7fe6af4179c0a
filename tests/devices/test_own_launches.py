"""Launches on CubePy's own arrays on a GPU: native ones, in the order of streams and copies."""

from __future__ import annotations

import random
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
from tests.devices.kernels import spin

pytestmark = pytest.mark.usefixtures("cuda")
PLACE, N = "cuda:0", 1 << 14


@cp.cube
def move(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = x[i] * 0.5 + 1


@cp.cube
def step(x: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        x[i] = x[i] + 1


@pytest.fixture
def count() -> Iterator[list[int]]:
    """How often Python launched."""
    inner, found = Launcher.__call__, [0]
    if native_executor() is None:
        pytest.skip("no native launches here")
    for _ in range(3):
        x, y = made(), made()
        move.over(N)(x, y)
        step.over(N)(x)
        spin.over(N)(x, 1)
    executor: Any = native_executor()
    words = executor._context
    before = words[Context.GENERAL]

    def counting(launcher: Any, *args: Any, **kwargs: Any) -> Any:
        found[0] += 1
        return inner(launcher, *args, **kwargs)

    words[Context.GENERAL] = id(counting)
    yield found
    words[Context.GENERAL] = before


def made(value: float = 0) -> Array:
    return cp.asarray(np.full(N, value, np.float32), device=PLACE)


def test_launches_are_native(count: list[int]):
    x, y = made(), made()
    for n in range(1, 400):
        step.over(n)(x)
        step.over(x[:n])(x[:n])
        move.over(N)(x, y)
    assert count[0] <= 4  # views of other alignment may need a plan
    wanted = np.zeros(N)
    for n in range(1, 400):
        wanted[: -(-n // 256) * 256] += 1
        wanted[:n] += 1
    np.testing.assert_array_equal(x.numpy(), wanted)
    np.testing.assert_allclose(y.numpy(), wanted * 0.5 + 1)


@pytest.mark.parametrize("seed", range(4))
def test_any_order(count: list[int], seed: int):
    """Launches natively and in streams, copies, reads and frees."""
    choose = random.Random(seed)
    streams = [None, None, None, *(cp.Stream(device=PLACE) for _ in range(2))]
    arrays = [(made(k), np.full(N, k, np.float32)) for k in range(4)]
    pinned = [cp.empty(N, cp.f32, device="cpu", pinned=True) for _ in range(2)]
    copied: dict[int, np.ndarray] = {}
    for _ in range(400):
        (x, wanted_x), (y, wanted_y) = choose.sample(arrays, 2)
        what, stream = choose.randrange(12), choose.choice(streams)
        by = [k if stream is None else k.configure(stream=stream) for k in (move, step, spin)]
        if what < 6:
            by[2].over(N)(x, choose.choice((1, 3000)))
            wanted_x += 1
            by[0].over(N)(x, y)
            wanted_y[:] = wanted_x * np.float32(0.5) + 1
        elif what < 8:
            by[1].over(N)(x)
            wanted_x += 1
        elif what == 8:
            y.copy_from(x, stream=stream)
            wanted_y[:] = wanted_x
        elif what == 9:
            k = choose.randrange(2)
            pinned[k].copy_from(x, stream=stream)
            copied[k] = wanted_x.copy()
        elif what == 10:
            for k, wanted in copied.items():
                np.testing.assert_array_equal(pinned[k].numpy(), wanted)
        else:
            k = choose.randrange(4)
            arrays[k] = made(k), np.full(N, k, np.float32)
    for x, wanted in arrays:
        np.testing.assert_array_equal(x.numpy(), wanted)


def test_threads_and_streams(count: list[int]):
    """Threads that launch natively on an array, while another works on it in a stream."""
    x, stream = made(), cp.Stream(device=PLACE)
    in_stream = step.configure(stream=stream)

    def natively() -> None:
        for _ in range(3000):
            step.over(N)(x)

    def in_order() -> None:
        for _ in range(300):
            in_stream.over(N)(x)

    threads = [threading.Thread(target=work) for work in (natively, natively, in_order)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(x.numpy(), np.full(N, 6300))


def test_queues_that_are_full(count: list[int]):
    x = made()
    spin.over(N)(x, 100_000)  # a larger number may need a plan
    spin.over(N)(x, 100_000)
    before = count[0]
    for _ in range(4000):
        step.over(N)(x)
    assert count[0] == before
    np.testing.assert_array_equal(x.numpy(), np.full(N, 4002))
