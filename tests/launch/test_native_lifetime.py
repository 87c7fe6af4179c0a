"""Native launches own what they use for as long as they use it, and nothing longer."""

from __future__ import annotations

import copy
import gc
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit.tables import native_executor
from tests.launch.test_native import Options, Pair, axpy, numbers, of_structs, scaled

pytestmark = pytest.mark.skipif(native_executor() is None, reason="no native launches here")


@cp.cube
def slow(x, out, n):
    s = 0.0
    for k in range(n):
        s = s * 0.5 + x[k % 4]
    out[cp.ABSOLUTE_POS] = s


@cp.cube
def until(flags, out, rounds):
    """Says that it runs, and counts until somebody sets the flag."""
    count = cp.i64(0)
    cp.atomic.add(flags, 0, 1)
    while count < rounds and cp.atomic.load(flags, 1) == 0:
        count += 1
    out[0] = count


def test_references_balance():
    """Neither arguments nor what is read on the way gain or lose references."""
    x, y, out = numbers(64), numbers(64, seed=1), np.zeros(64, np.float32)
    by, pair = np.float32(1.5), Pair(x, 2.0)
    options = Options(y, 3)
    watched = [x, y, out, by, pair, options, None, out.dtype, axpy, axpy.function, cp, globals()]
    launches = [
        lambda: axpy[1, 64](x, y, out, a=by),
        lambda: of_structs.over(out)(pair, options, out),
        lambda: scaled.over(out)(x, out, n=5),
    ]
    for launch in launches * 4:
        launch()
    for launch in launches:
        gc.collect()
        assert least(lambda launch=launch: most_moved(watched, launch)) < 10


def least(measure: Callable[[], int]) -> int:
    """The least of four: threads of earlier tests may end meanwhile, but what leaks does always."""
    return min(measure() for _ in range(4))


def most_moved(watched: list[Any], launch: Callable[[], Any]) -> int:
    """By how much the references of some object change in 1000 launches."""
    before = [sys.getrefcount(v) for v in watched]
    for _ in range(1000):
        launch()
    after = [sys.getrefcount(v) for v in watched]
    return max(abs(b - a) for a, b in zip(before, after, strict=True))


def test_launches_leave_nothing_behind():
    x, y, out = numbers(16), numbers(16, seed=1), np.zeros(16, np.float32)
    launch = axpy[1, 16]

    def repeat(times: int) -> None:
        for _ in range(times):
            launch(x, y, out, 2.0)

    def held() -> int:
        tracemalloc.start()
        repeat(5000)
        found, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return found

    def grown() -> int:
        before = resident()
        repeat(250_000)
        return resident() - before

    repeat(1000)
    gc.collect()
    assert least(held) < 12_500
    assert least(grown) < 1 << 18


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_threads():
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        x, y, out = (rng.normal(size=40).astype(np.float32) for _ in range(3))
        launch = axpy.over(out)
        for k in range(20_000):
            launch(x, y, out, float(k % 3))
            if k % 5000 == 0 and not np.allclose(out, x * (k % 3) + y, rtol=1e-5, atol=1e-6):
                wrong.append((seed, k))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_collections_and_launches_inside_a_launch():
    """Reading a dataclass runs the user's code, which may collect, launch and forget plans."""
    depth = 0

    class Lazy:
        def __get__(self, obj: Any, cls: Any = None) -> Any:
            nonlocal depth
            if obj is None:
                return None
            depth += 1
            if depth < 3:
                gc.collect()
                of_structs.native._tables.clear()  # type: ignore[union-attr]
                of_structs.over(out)(Pair(x, float(depth)), obj, out)
            depth -= 1
            return numbers(50, seed=7)

    @dataclass(frozen=True)
    class Odd:
        y: Any = None
        n: int = 2

    x, out = numbers(50), np.zeros(50, np.float32)
    for is_lazy in (False, False, False, True, True):
        odd = Odd(numbers(50, seed=7))
        if is_lazy:
            Odd.y = Lazy()  # type: ignore[assignment]
        of_structs.over(out)(Pair(x, 3.0), odd, out)
        np.testing.assert_allclose(out, x * 3 + numbers(50, seed=7) * 2, rtol=1e-4, atol=1e-5)


def test_errors_while_a_dataclass_is_read():
    @dataclass(frozen=True)
    class Broken:
        y: Any
        n: int = 2

    x, out, broken = numbers(50), np.zeros(50, np.float32), Broken(numbers(50))
    for _ in range(4):
        of_structs.over(out)(Pair(x, 3.0), broken, out)

    def refuse(self: Any) -> Any:
        raise error("no")

    Broken.y = property(refuse)  # type: ignore[assignment, method-assign]
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error, match="no"):
            of_structs.over(out)(Pair(x, 3.0), broken, out)


def test_long_kernels_let_other_threads_run():
    """A kernel that runs waits for what another thread does when it sees that. All numbers are
    narrow: with others the kernel would be compiled again, and launched by Python first."""
    flags, out, rounds = np.zeros(2, np.int32), np.zeros(1, np.int64), 500_000_000
    launch = until[1, 1]
    for _ in range(4):
        launch(flags, out, 1)
    launch(flags, out, 3_000_000)  # found out to be long
    begun = int(flags[0])

    def answer() -> None:
        while flags[0] == begun:
            time.sleep(0.001)
        flags[1] = 1

    thread = threading.Thread(target=answer)
    thread.start()
    launch(flags, out, rounds)
    thread.join()
    assert out[0] < rounds


def test_many_cubes_that_turn_out_long():
    """The cubes that are left when the time of the caller is up are run by others."""
    x, out = numbers(4), np.zeros(64, np.float32)
    launch = slow[64, 1]
    for n in (1, 1, 1, 50_000, 50_000):
        out[:] = np.nan
        launch(x, out, n)
        assert (out == out[0]).all()


def test_a_kernel_that_is_dropped():
    def made() -> Any:
        @cp.cube
        def kernel(x, out):
            out.flat[cp.ABSOLUTE_POS] = x.flat[cp.ABSOLUTE_POS]

        x = numbers(4)
        for _ in range(4):
            kernel[1, 4](x, np.zeros(4, np.float32))
        return weakref.ref(kernel.function)

    found = made()
    gc.collect()
    assert found() is None


def test_arrays_that_launchers_cover_are_let_go():
    x, out = numbers(64), np.zeros(64, np.float32)
    for _ in range(4):
        scaled.over(out)(x, out)
    launcher = scaled.over(out)
    alive = weakref.ref(out)
    kernel = sys.getrefcount(scaled)
    del launcher, out
    gc.collect()
    assert alive() is None
    assert sys.getrefcount(scaled) == kernel - 1


def test_copies_of_launchers():
    x, out = numbers(16), np.zeros(16, np.float32)
    launch = axpy[1, 16]
    for _ in range(4):
        launch(x, x, out, 1.0)
    out[:] = 0
    copy.copy(launch)(x, x, out, 1.0)
    np.testing.assert_array_equal(out, x + x)


def test_shapes_that_change_while_arguments_are_read():
    """Extents are those of the moment when the array was read."""

    class Meddling:
        def __get__(self, obj: Any, cls: Any = None) -> Any:
            if obj is not None:
                x.shape = (2, 25)
                x.shape = (50,)
            return np.ones(50, np.float32)

    @dataclass(frozen=True)
    class Odd:
        y: Any = None
        n: int = 2

    x, out = numbers(50), np.zeros(50, np.float32)
    for k in range(5):
        odd = Odd(np.ones(50, np.float32))
        if k > 2:
            Odd.y = Meddling()  # type: ignore[assignment]
        of_structs.over(out)(Pair(x, 3.0), odd, out)
        np.testing.assert_allclose(out, x * 3 + 2, rtol=1e-5, atol=1e-6)
