"""A bound launch repeats the last one only where nothing has changed that it depends on."""

from __future__ import annotations

import gc
import sys
import threading
import types
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cubepy as cp
from cubepy.jit.tables import native_executor
from cubepy.runtimes.native.launching.tables import Memo
from tests.launch.test_native import Options, Pair, axpy, of_structs, scaled
from tests.launch.test_native_lifetime import least, most_moved
from tests.optional import require_package

pytestmark = pytest.mark.skipif(native_executor() is None, reason="no native launches here")

constants = types.ModuleType("constants")
constants.SHIFT = 1.0  # type: ignore[attr-defined]


@cp.cube
def shifted(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size and i < x.size:
        out.flat[i] = x.flat[i] + constants.SHIFT


def numbers(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


def remembering(bound: Any) -> Any:
    """A bound launch that was called until it remembers."""
    for _ in range(4):
        bound()
    assert bound._memo[Memo.PLAN]
    return bound


def outcome(launch: Callable[[], Any], out: np.ndarray) -> Any:
    """What a launch wrote, or the code of its error; what is written is undone."""
    if out.flags.writeable:
        out.reshape(-1)[:] = 7
    try:
        launch()
    except cp.Error as error:
        return error.code
    return out.tobytes()


def test_what_is_remembered_is_launched():
    x, out = numbers(20), np.zeros(20, np.float32)
    bound = remembering(scaled.over(out).bind(x, out, 2.0))
    out[:] = 7
    bound._memo[Memo.CUBES] = 0
    bound()
    assert (out == 7).all(), "the memo was not read"


@pytest.mark.parametrize("kind", ["function", "dataclass", "wrapped"])
def test_what_may_change_unseen_is_not_remembered(kind: str):
    x, out = numbers(20), np.zeros(20, np.float32)
    launcher, args = {
        "function": (cp.cube(_applied), (x, out, lambda: 0)),
        "dataclass": (of_structs, (Pair(x, 2.0), Options(x, 3), out)),
        "wrapped": (scaled, (cp.asarray(x), out)),
    }[kind]
    bound = launcher.over(out).bind(*args)
    for _ in range(6):
        bound()
    assert not getattr(bound, "_memo", [0])[Memo.PLAN]


def _applied(x, out, f: cp.Comptime):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + f()


def _resize(x: np.ndarray, out: np.ndarray) -> None:
    x.resize(40000, refcheck=False)
    x[:] = numbers(40000, 3)


def _shape(x: np.ndarray, out: np.ndarray) -> None:
    x.shape = 4, 16


def _dtype(x: np.ndarray, out: np.ndarray) -> None:
    x.dtype = np.int32  # type: ignore[misc]


def _read_only(x: np.ndarray, out: np.ndarray) -> None:
    out.flags.writeable = False


def _contents(x: np.ndarray, out: np.ndarray) -> None:
    x += 1


_CHANGES = _resize, _shape, _dtype, _read_only, _contents


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(_CHANGES), min_size=1, max_size=3))
def test_arrays_that_are_changed(changes: list[Any]):
    x, out = numbers(64), np.zeros(64, np.float32)
    launcher = shifted[1, 64]
    bound = remembering(launcher.bind(x, out))
    for change in changes:
        try:
            change(x, out)
        except (ValueError, AttributeError, TypeError):
            continue  # NumPy refuses it, such as a shape without so many elements
        for _ in range(3):
            assert outcome(bound, out) == outcome(lambda: launcher(x, out), out), change.__name__


def test_memory_that_moved_under_an_unchanged_shape():
    x, out = numbers(64), np.zeros(64, np.float32)
    bound, places = remembering(shifted[1, 64].bind(x, out)), set[int]()
    for seed in range(6):
        for array in (x, out):
            places.add(array.ctypes.data)
            array.resize(1 << (18 + seed), refcheck=False)
            array.resize(64, refcheck=False)
        x[:], out[:] = numbers(64, seed), np.nan
        bound()
        np.testing.assert_array_equal(out, x + np.float32(1))
    assert len(places) > 2


def test_captured_names_and_settings_are_looked_at_again(monkeypatch: pytest.MonkeyPatch):
    x, out = numbers(64), np.zeros(64, np.float32)
    bound = remembering(shifted.over(out).bind(x, out))
    for value in (2.0, 3.0, 3.0, 1.0):
        monkeypatch.setattr(constants, "SHIFT", value)
        bound()
        np.testing.assert_allclose(out, x + np.float32(value))
    short = x[:63]  # a view, so that what is read beyond its end is there
    bound = remembering(cp.cube(_beyond)[1, 63].bind(short, out))
    np.testing.assert_array_equal(out[:63], x[1:])
    with cp.settings(checked=True), pytest.raises(cp.OutOfBoundsError):
        bound()


def _beyond(x, out):
    out[cp.ABSOLUTE_POS] = x[cp.ABSOLUTE_POS + 1]


def test_a_module_that_becomes_something_else(monkeypatch: pytest.MonkeyPatch):
    """Attributes of a subclass of modules may be properties."""

    class Computed(types.ModuleType):
        @property
        def SHIFT(self) -> float:
            return 5.0

    x, out = numbers(64), np.zeros(64, np.float32)
    launch = shifted.over(out)
    bound = remembering(launch.bind(x, out))
    monkeypatch.setattr(constants, "__class__", Computed)
    for call in (bound, lambda: launch(x, out)):
        out[:] = np.nan
        call()
        np.testing.assert_allclose(out, x + np.float32(5))


def test_references_balance():
    x, y, out = numbers(64), numbers(64, 1), np.zeros(64, np.float32)
    bound = remembering(axpy[1, 64].bind(x, y, out, 2.0))
    watched = [x, y, out, bound, bound._data, axpy, None]
    gc.collect()
    assert least(partial(most_moved, watched, bound)) < 10
    data = bound._data
    held = sys.getrefcount(data)
    del watched, bound
    gc.collect()
    assert sys.getrefcount(data) < held, "a bound launch lets go of what it remembers"


def test_threads_that_share_a_bound_launch():
    """Arrays change while others launch: every element is one of the values that there were."""
    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    bound = remembering(shifted.over(out).bind(x, out))
    wrong: list[Any] = []

    def launch() -> None:
        for _ in range(3000):
            bound()
            if not np.isin(out, (2.0, 3.0)).all():
                wrong.append(out.copy())

    threads = [threading.Thread(target=launch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for k in range(200):
        constants.SHIFT = 1.0 + k % 2  # type: ignore[attr-defined]
    for thread in threads:
        thread.join()
    constants.SHIFT = 1.0  # type: ignore[attr-defined]
    assert not wrong


@pytest.mark.optional("torch")
def test_tensors_that_are_others_inside():
    """A tensor may get other memory, extents and strides, and be the same object."""
    torch = require_package("torch")
    x, out = torch.arange(12.0), torch.zeros(12)
    bound = remembering(scaled.over(12).bind(x, out, 3.0))

    def launched() -> Any:
        out.fill_(7)
        bound()
        return out.clone()

    changes: list[Callable[[], Any]] = [
        lambda: None,
        lambda: setattr(x, "data", torch.arange(12.0) + 100),
        lambda: x.resize_(3, 4),
        lambda: x.t_(),
        lambda: x.set_(torch.arange(24.0)[::2]),
        lambda: x.set_(torch.arange(24.0)[:5]),  # the kernel reads twelve of them
        lambda: setattr(x, "data", torch.arange(12).double()),
        lambda: setattr(x, "data", -torch.arange(12.0)),
        lambda: setattr(x, "data", torch.zeros(12, dtype=torch.complex64).conj().imag),
        lambda: setattr(x, "data", torch.arange(12.0)),
        lambda: setattr(x, "__class__", torch.nn.Parameter),
    ]
    for change in changes:
        change()
        expected = torch.full((12,), 7.0)
        flat = x.detach().resolve_neg().reshape(-1).float()[:12]
        try:
            scaled.over(12)(x, expected, 3.0)
        except cp.Error as error:
            with pytest.raises(type(error)):
                launched()
            continue
        assert torch.equal(expected[: len(flat)], flat * 3 * 2)
        for _ in range(3):
            assert torch.equal(launched(), expected)
