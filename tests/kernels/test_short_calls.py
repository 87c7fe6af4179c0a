"""Calls of prebuilt functions that native code describes: where they may go the short way."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.autotune.session import current

call = import_module("cubepy.kernels.calls.call")


def refuse(*given: Any) -> Any:
    raise AssertionError("the long way")


def test_calls_inside_tuning_are_as_short_and_each_choice_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
):
    x = np.random.default_rng(0).normal(size=(37, 53))
    choices: tuple[dict[str, Any], ...] = ({}, {"level": "off"}, {"level": "off", "seed": 3})
    for choice in choices:
        with cp.tuning(**choice):
            for _ in range(3):
                cp.kernels.sum(x, axis=1)
        with cp.tuning(**choice), monkeypatch.context() as patch:
            patch.setattr(call, "library_of", refuse)
            np.testing.assert_allclose(cp.kernels.sum(x, axis=1), x.sum(1))
            with cp.tuning(seed=77), pytest.raises(AssertionError, match="long"):
                cp.kernels.sum(x, axis=1)


def test_calls_under_a_number_of_threads_are_as_short(monkeypatch: pytest.MonkeyPatch):
    x = np.random.default_rng(0).normal(size=(41, 59))
    for _ in range(3):
        cp.kernels.sum(x, axis=1)
    with monkeypatch.context() as patch:
        patch.setattr(call, "library_of", refuse)
        for threads in (1, 2, 3):
            with cp.settings(num_threads=threads):
                np.testing.assert_allclose(cp.kernels.sum(x, axis=1), x.sum(1))
                with cp.settings(checked=True), pytest.raises(AssertionError, match="long"):
                    cp.kernels.sum(x, axis=1)


def test_equal_choices_are_one_object_and_others_are_not():
    found = []
    for seed in (1, 1, 2):
        with cp.tuning(level="off", seed=seed):
            found.append(current.get())
    assert found[0] is found[1] and found[0] is not found[2]


def rows(n: int) -> Any:
    return np.arange(n * 3 * 4, dtype=np.float32).reshape(n, 3, 4)


def images(n: int) -> Any:
    return np.arange(n * 3 * 36, dtype=np.float32).reshape(n, 3, 6, 6)


FILTERS = np.ones((3, 3, 2, 2), np.float32)
TAKING: dict[str, Any] = {
    "axis of sum": lambda n, v: cp.kernels.sum(rows(n), axis=v),
    "axis of cumsum": lambda n, v: cp.kernels.cumsum(rows(n), axis=v),
    "axis of argmax": lambda n, v: cp.kernels.argmax(rows(n), axis=v),
    "axis of sort": lambda n, v: cp.kernels.sort(rows(n), axis=v),
    "axis of softmax": lambda n, v: cp.kernels.softmax(rows(n), axis=v),
    "axis of gather": lambda n, v: cp.kernels.gather(rows(n), np.zeros((1, 1, 1), np.int64), v),
    "axes of transpose": lambda n, v: cp.kernels.transpose(rows(n), (0, v, 2)),
    "size of max_pool2d": lambda n, v: cp.kernels.max_pool2d(images(n), v),
    "divisor": lambda n, v: cp.kernels.avg_pool2d(images(n), 2, divisor_override=v),
    "size of adaptive_max_pool2d": lambda n, v: cp.kernels.adaptive_max_pool2d(images(n), v),
    "stride": lambda n, v: cp.kernels.conv2d(images(n), FILTERS, stride=v),
    "padding": lambda n, v: cp.kernels.conv2d(images(n), FILTERS, padding=((v, 1), (1, 1))),
    "groups": lambda n, v: cp.kernels.conv2d(images(n), FILTERS, groups=v),
}
EQUAL = (1, 1.0, True, np.int64(1), np.float64(1.0), [1], (1,), 0, 0.0, -0.0, np.float32(-0.0))


def outcome(function: Any, n: int, value: Any) -> str:
    try:
        function(n, value)
    except cp.LaunchError as error:
        return str(error.code)
    return "taken"


@pytest.mark.parametrize("taking", TAKING)
def test_equal_parameters_of_other_types_mean_what_they_mean_alone(taking: str):
    alone: dict[str, str] = {}
    for n, order in enumerate((EQUAL, EQUAL[::-1], EQUAL[5:] + EQUAL[:5]), start=2):
        for value in order * 3:  # of extents that no other order has
            found = outcome(TAKING[taking], n, value)
            assert alone.setdefault(repr(value), found) == found, value
    assert {"taken"} < set(alone.values())


def test_lists_and_values_without_a_hash():
    x = images(2)
    for _ in range(4):
        assert cp.kernels.max_pool2d(x, [2, 2]).tobytes() == cp.kernels.max_pool2d(x, 2).tobytes()
        with pytest.raises(cp.LaunchError, match="E602"):
            cp.kernels.max_pool2d(x, {2: 2})
        with pytest.raises(cp.LaunchError, match="E602"):
            cp.kernels.argmax(x, axis=[1])


class Index:
    """An index that its holder may change."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.mark.parametrize("taking", ["axis of sum", "axis of sort", "stride", "groups"])
def test_an_index_that_may_change_is_refused(taking: str):
    """It would be known by its identity, which stays when it changes."""
    for value in (Index(1), (Index(1),)):
        with pytest.raises(cp.LaunchError, match="E602"):
            TAKING[taking](2, value)


def test_kinds_of_lists_are_lists():
    class Sizes(list[int]):
        pass

    x = images(2)
    for size in (2, 3, 2):
        found = cp.kernels.max_pool2d(x, Sizes([size, size]))
        np.testing.assert_array_equal(found, cp.kernels.max_pool2d(x, size))


@cp.cube
def plus(v: Any, index: Any, extra: Any) -> Any:
    return v + extra[index]


def test_arguments_that_are_left_out_stay_so(monkeypatch: pytest.MonkeyPatch):
    """Those beside them, and results that the caller brought, go where they did before."""
    numbers = np.random.default_rng(5)
    a, b, extra, bias = numbers.standard_normal((4, 23, 23)).astype("f4")
    product = a.astype("f8") @ b
    calls: tuple[tuple[dict[str, Any], Any], ...] = (
        ({}, product),
        ({"bias": bias}, product + bias),
        ({"epilogue": (plus, extra)}, product + extra),
        ({"bias": bias, "epilogue": (plus, extra)}, product + bias + extra),
    )
    for options, _ in calls:
        for _ in range(3):
            cp.kernels.matmul(a, b, **options)
            cp.kernels.matmul(a, b, **options, out=np.empty_like(a))
    monkeypatch.setattr(call, "_together", refuse)
    for options, expected in calls:
        out = np.full_like(a, np.nan)
        assert cp.kernels.matmul(a, b, **options, out=out) is out
        for found in (out, cp.kernels.matmul(a, b, **options)):
            np.testing.assert_allclose(found, expected, 1e-4, 1e-4)


FACTOR = 2.0


@cp.cube
def scaled(v: Any, w: Any) -> Any:
    return v * FACTOR + w


def test_known_maps_are_short_and_see_what_has_changed(monkeypatch: pytest.MonkeyPatch):
    """Other functions, captures, dtypes and numbers have results of their own; graphs record."""
    elementwise = import_module("cubepy.kernels.elementwise.entry")
    map_, by = cp.kernels.map, 3.0
    x, y = np.random.default_rng(1).standard_normal((2, 19, 7)).astype("f4")
    for _ in range(3):
        map_(scaled, x, y)
        map_(scaled, x, y, out=np.empty_like(x))
        map_(lambda v: v * by, x)
        map_(scaled, x, 1.5)
    with monkeypatch.context() as patch:
        patch.setattr(elementwise, "operands", refuse)
        np.testing.assert_allclose(map_(scaled, x, y), x * 2 + y, 1e-5, 1e-6)
        out = np.full_like(x, np.nan)
        assert map_(scaled, x, y, out=out) is out
        np.testing.assert_allclose(out, x * 2 + y, 1e-5, 1e-6)
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    for _ in range(4):
        np.testing.assert_allclose(map_(scaled, x, y), x * 5 + y, 1e-5, 1e-6)
        np.testing.assert_allclose(map_(scaled, x, 1.5), x * 5 + 1.5, 1e-5, 1e-6)
    for by in (3.0, 4.0, 3, True):
        found = map_(lambda v, by=by: v * by, x)
        np.testing.assert_allclose(found, x * by, 1e-5, 1e-6)
    assert map_(lambda v: v + 1, x.astype("i4")).dtype == np.int32
    graph = cp.Graph()
    with graph:
        late = map_(scaled, x, y)
    x += 1
    graph.replay()
    np.testing.assert_allclose(late, x * 5 + y, 1e-5, 1e-6)
    np.testing.assert_allclose(map_(scaled, x, y, out=x), late, 1e-5, 1e-6)


def test_maps_without_elements_see_what_has_changed(monkeypatch: pytest.MonkeyPatch):
    nothing, two = np.zeros((0, 3), "f4"), np.zeros((0, 3), "i4")
    for _ in range(4):
        assert cp.kernels.map(scaled, nothing, nothing).dtype == np.float32
        assert cp.kernels.map(times, two).dtype == np.int32
    monkeypatch.setitem(globals(), "TIMES", 2.5)
    assert cp.kernels.map(times, two).dtype == np.float32
    monkeypatch.delitem(globals(), "TIMES")
    with pytest.raises(cp.CompileError, match="TIMES"):
        cp.kernels.map(times, two)


TIMES = 2


def times(v: Any) -> Any:
    return v * TIMES
