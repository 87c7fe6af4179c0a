"""What is left of kernels that nobody has any more, and of specialisations that nobody launches."""

from __future__ import annotations

import ctypes
import gc
import linecache
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit import compile as specialising
from cubepy.jit import fast

X = np.ones(64, np.float32)
OUT = np.zeros(64, np.float32)
BIAS = 0


@cp.cube
def scaled(x, out, factor: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * factor


@cp.cube
def biased(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + BIAS


def resident_bytes() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


def captures(number: int) -> None:
    """Compiles, launches and drops a kernel of this function's code."""

    @cp.cube
    def made(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] * number

    made.over(OUT)(X, OUT)
    assert (OUT == number).all()


TEXT = """
def made(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * {number}
"""


def generated(number: int) -> None:
    """The same with code of its own."""
    file, text = f"<made {number}>", TEXT.format(number=number)
    names: dict[str, Any] = {"cp": cp}
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    exec(compile(text, file, "exec"), names)
    cp.cube(names["made"]).over(OUT)(X, OUT)
    assert (OUT == number).all()
    del linecache.cache[file]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads Linux's /proc")
@pytest.mark.parametrize("make", [captures, generated])
def test_kernels_that_are_dropped_leave_little(make: Callable[[int], None]):
    for number in range(40):
        make(number)
    before = resident_bytes()
    for number in range(40, 120):
        make(number)
    assert (resident_bytes() - before) / 80 < 10 << 10


def test_specialisations_that_are_not_launched_are_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(specialising, "MAX_SIGNATURES", 8)
    kernel = cp.cube(scaled.function)
    alive: list[Any] = []
    for factor in range(24):
        for _ in range(2):
            kernel.over(OUT)(X, OUT, 1000)  # launched all the time
            kernel.over(OUT)(X, OUT, factor)
            assert (OUT == factor).all()
        (newest,) = [
            compiled
            for (signature, _), variants in kernel.specialisations._made.items()
            for compiled in variants
            if signature.args[-1][1].value == factor
        ]
        alive.append(weakref.ref(newest.loaded.library))
        del newest
    gc.collect()
    assert sum(ref() is not None for ref in alive) <= 8
    assert len(kernel.specialisations._made) == 8
    kept = {key[0].args[-1][1].value for key in kernel.specialisations._made}
    assert {1000, 23} <= kept


def test_a_dropped_specialisation_that_is_bound_goes_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(specialising, "MAX_SIGNATURES", 2)
    kernel = cp.cube(scaled.function)
    bound = kernel.over(OUT).bind(X, OUT, 5)
    for factor in range(6, 12):
        kernel.over(OUT)(X, OUT, factor)
    gc.collect()
    bound()
    assert (OUT == 5).all()


def test_the_limit_of_variants(monkeypatch: pytest.MonkeyPatch, compiled: list[Any]):
    global BIAS
    monkeypatch.setattr(specialising, "MAX_VARIANTS", 16)
    kernel = cp.cube(biased.function)
    try:
        for _ in range(2):
            for value in range(specialising.MAX_VARIANTS):
                BIAS = value
                kernel.over(OUT)(X, OUT)
                assert (OUT == 1 + value).all()
        assert len(compiled) == specialising.MAX_VARIANTS
        BIAS = -1
        kernel.over(OUT)(X, OUT)
        (variants,) = kernel.specialisations._made.values()
        assert len(variants) == specialising.MAX_VARIANTS
    finally:
        BIAS = 0


def test_threads_that_fill_the_short_way(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fast, "LIMIT", 3)
    kernel = cp.cube(scaled.function)
    for size in range(1, 12):
        x, out = np.ones(size, np.float32), np.zeros(size, np.float32)
        for _ in range(2):
            kernel.over(out)(x, out, 2)
            assert (out == 2).all()
        assert len(kernel.fast._entries) <= 3


@pytest.fixture
def no_collection() -> Iterator[None]:
    """What dies in the test dies by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    "launch", [lambda k: k[1, 64], lambda k: k.over(64), lambda k: k.over(OUT)]
)
def test_a_kernel_that_is_launched_once_dies_with_its_last_user(launch: Callable[[Any], Any]):
    @cp.cube
    def made(x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] * 5

    launch(made)(X, OUT)
    assert (OUT == 5).all()
    left = weakref.ref(made)
    del made
    assert left() is None


@pytest.mark.usefixtures("no_collection")
def test_arrays_of_a_launch_die_with_their_last_user():
    @cp.cube
    def made(x, out, more: tuple[float, int], number: float):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] * number + more[0]

    for number in range(5):
        x, out = np.ones(number + 1, np.float32), np.empty(number + 1, np.float32)
        made.over(out)(x, out, (float(number), number), 2.0)
        assert (out == 2 + number).all()
        left = weakref.ref(x), weakref.ref(out)
        del x, out
        assert left[0]() is None, number
        if number == 0:
            assert left[1]() is None
