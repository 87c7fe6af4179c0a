"""Functions that are changed in place, as reloaders do, mean what they are now."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import cubepy as cp

X = np.arange(8, dtype=np.float32)


def plain(v, by=2.0):
    return v * by


def keyword(v, *, by=2.0):
    return v * by


@cp.cube
def nested(v):
    return plain(v)


def comptime_only(n):
    return n * 2.0


def settle(n):
    return comptime_only(n)


@dataclass(frozen=True)
class Scale:
    by: float = 2.0

    def apply(self, v):
        return v * 2.0

    @property
    def twice(self):
        return 2.0


SCALE = Scale()
HOLDER = types.SimpleNamespace(by=2.0)
PARTIAL = partial(plain, by=2.0)


@cp.cube
def calls_plain(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = plain(x.flat[i])


@cp.cube
def calls_keyword(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = keyword(x.flat[i])


@cp.cube
def calls_nested(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = nested(x.flat[i])


@cp.cube
def calls_python(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * settle(1)


@cp.cube
def calls_method(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = SCALE.apply(x.flat[i])


@cp.cube
def calls_record(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        s = Scale(x.flat[i])
        out.flat[i] = s.apply(x.flat[i]) + s.by - x.flat[i]


@cp.cube
def reads_property(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        s = Scale(x.flat[i])
        out.flat[i] = s.by * s.twice


@cp.cube
def calls_partial(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = PARTIAL(x.flat[i])


@cp.cube
def itself(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * 2.0


@cp.cube
def with_default(x, out, by=2.0):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * by


def other_plain(v, by=2.0):
    return v * by + v


def other_comptime(n):
    return n * 3.0


def other_apply(self, v):
    return v * 3.0


def other_kernel(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * 3.0


TRIPLE = property(lambda self: 3.0)
CHANGES: dict[str, tuple[Any, Any, str, Any]] = {
    "code": (calls_plain, plain, "__code__", other_plain.__code__),
    "defaults": (calls_plain, plain, "__defaults__", (3.0,)),
    "keyword defaults": (calls_keyword, keyword, "__kwdefaults__", {"by": 3.0}),
    "code of a helper's helper": (calls_nested, plain, "__code__", other_plain.__code__),
    "code that Python runs": (calls_python, comptime_only, "__code__", other_comptime.__code__),
    "code of a method": (calls_method, Scale.apply, "__code__", other_apply.__code__),
    "a method": (calls_method, Scale, "apply", other_apply),
    "code of a record's method": (calls_record, Scale.apply, "__code__", other_apply.__code__),
    "a record's method": (calls_record, Scale, "apply", other_apply),
    "a record's property": (reads_property, Scale, "twice", TRIPLE),
    "a partial's function": (calls_partial, plain, "__code__", other_plain.__code__),
    "the kernel's code": (itself, itself.function, "__code__", other_kernel.__code__),
    "the kernel's defaults": (with_default, with_default.function, "__defaults__", (3.0,)),
}


def results(launch: Callable[..., Any], out: np.ndarray) -> list[float]:
    found: list[float] = []
    for _ in range(2):
        out[:] = 0
        launch()
        assert (out == X * out[1]).all()
        found.append(float(out[1]))
    return found


@pytest.mark.parametrize("bind", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_what_is_replaced_is_compiled_again(name: str, bind: bool, monkeypatch: pytest.MonkeyPatch):
    kernel, owner, attribute, value = CHANGES[name]
    out = np.zeros_like(X)
    launcher = kernel.over(out)
    launch = launcher.bind(X, out) if bind else lambda: launcher(X, out)
    assert results(launch, out) == [2.0, 2.0]
    with monkeypatch.context() as patch:
        patch.setattr(owner, attribute, value)
        assert results(launch, out) == [3.0, 3.0]
    assert results(launch, out) == [2.0, 2.0]


@pytest.mark.parametrize("bind", [False, True])
def test_a_function_is_not_watched_by_another_of_the_same_text(
    bind: bool, monkeypatch: pytest.MonkeyPatch
):
    """A specialisation that was made for one of them serves both; each is changed for itself."""
    name = "a record's method"
    test_what_is_replaced_is_compiled_again(name, bind, monkeypatch)
    test_what_is_replaced_is_compiled_again(f"code of {name}", bind, monkeypatch)


def test_items_of_a_partial_are_compared(monkeypatch: pytest.MonkeyPatch):
    out = np.zeros_like(X)
    launcher = calls_partial.over(out)
    assert results(lambda: launcher(X, out), out) == [2.0, 2.0]
    monkeypatch.setitem(PARTIAL.keywords, "by", 3.0)
    assert results(lambda: launcher(X, out), out) == [3.0, 3.0]


def test_a_kernel_that_got_other_parameters(monkeypatch: pytest.MonkeyPatch):
    def more(x, out, by):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] * by

    out = np.zeros_like(X)
    launcher = itself.over(out)
    for _ in range(2):
        launcher(X, out)
    monkeypatch.setattr(itself.function, "__code__", more.__code__)
    for by in (3.0, 4.0, 5.0):
        launcher(X, out, by)
        np.testing.assert_array_equal(out, X * np.float32(by))


def test_prebuilt_kernels_see_attributes_and_code(monkeypatch: pytest.MonkeyPatch):
    def scaled(v):
        return plain(v) * HOLDER.by

    assert (cp.kernels.map(scaled, X) == X * 4).all()
    monkeypatch.setattr(HOLDER, "by", 3.0)
    assert (cp.kernels.map(scaled, X) == X * 6).all()
    monkeypatch.setattr(plain, "__code__", other_plain.__code__)
    assert (cp.kernels.map(scaled, X) == X * 9).all()


def test_code_that_is_replaced_behind_launches_of_several_types():
    """Nothing that native code learned of the old code is left for any type of the arguments."""

    def first(x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] + 1

    def second(x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] + 2

    kernel = cp.cube(first)
    launcher, bound_to = kernel[1, 8], {}
    arrays = {t: (np.zeros(5, t), np.zeros(5, t)) for t in (np.float32, np.float64, np.int32)}
    for _ in range(6):
        for t, pair in arrays.items():
            launcher(*pair)
            bound_to.setdefault(t, launcher.bind(*pair))()
            assert (pair[1] == 1).all()
    for code, wanted in ((second.__code__, 2), (first.__code__, 1), (second.__code__, 2)):
        first.__code__ = code
        for _ in range(3):
            for t, pair in arrays.items():
                for launch in (lambda p=pair: launcher(*p), bound_to[t]):
                    pair[1][:] = 0
                    launch()
                    assert (pair[1] == wanted).all(), (t, wanted)
