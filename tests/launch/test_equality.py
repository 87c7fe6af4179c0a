"""Objects that compare as equal are the same to a kernel only where they hold the same."""

from __future__ import annotations

import datetime
import decimal
import functools
from collections import deque
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import cubepy as cp

FOUND: Any = None


def result(kernel: Any, *args: Any) -> float:
    out = np.full(3, -1.0)
    kernel.over(out)(*[out if a is ... else a for a in args])
    assert (out == out[0]).all()
    return float(out[0])


@dataclass(frozen=True)
class Labelled:
    """Equal to another of its label, whatever it scales by."""

    label: str
    scale: float = field(default=1.0, compare=False)


@dataclass
class LabelledAnew:
    """The same, but its fields may be assigned."""

    label: str
    scale: float = field(default=1.0, compare=False)


class Named:
    """Equal to another of its name, as the user wrote it."""

    def __init__(self, name: str, scale: float) -> None:
        self.name, self.scale = name, scale
        self.more = [name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


class Tagged(int):
    """A number with an attribute, equal to the number."""

    scale: float


def tagged(_: str, scale: float) -> Tagged:
    found = Tagged(3)
    found.scale = scale
    return found


MAKERS = [Labelled, LabelledAnew, Named, tagged]


@cp.cube
def scale_captured(out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = FOUND.scale


@cp.cube
def scale_given(given: cp.Comptime, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = given.scale


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
def test_equal_objects_that_hold_other_values(make: Any, monkeypatch: pytest.MonkeyPatch):
    for scale in (1.0, 2.0, 3.0, 1.0):
        monkeypatch.setitem(globals(), "FOUND", make("a", scale))
        for _ in range(4):  # native code launches from the third on
            assert result(scale_captured, ...) == scale
            if make is not LabelledAnew:  # which has no hash
                assert result(scale_given, FOUND, ...) == scale


def test_equal_objects_compile_once(compiled: list[Any]):
    fresh = cp.cube(scale_given.function)
    for scale in (7.0, 7.0, 8.0, 7.0):
        assert result(fresh, Labelled("a", scale), ...) == scale
    assert len(compiled) == 2


class Weighed(float):
    """A number with a weight, equal to another whatever that weighs."""

    def __init__(self, _: float) -> None:
        self.weight = 1.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and float(other) == float(self)

    def __hash__(self) -> int:
        return hash(float(self))


NOON = datetime.datetime(2000, 1, 1, 12, tzinfo=datetime.UTC)
EQUAL_PARTS: dict[str, tuple[Any, Any, Any]] = {
    "the end of a range": (range(0, 3, 2), range(0, 4, 2), lambda v: v.stop),
    "the step of a range": (range(1), range(0, 1, 5), lambda v: v.step),
    "a range in a tuple": ((range(0, 3, 2),), (range(0, 4, 2),), lambda v: v[0].stop),
    "the digits of a decimal": (
        decimal.Decimal("1"),
        decimal.Decimal("1.0"),
        lambda v: len(str(v)),
    ),
    "the fold of a time": (datetime.time(1), datetime.time(1, fold=1), lambda v: v.fold),
    "the hour of a zone": (
        NOON,
        NOON.astimezone(datetime.timezone(datetime.timedelta(hours=2))),
        lambda v: v.hour,
    ),
    "the sign of zero": (Weighed(0.0), Weighed(-0.0), lambda v: str(float(v)) == "-0.0"),
}


@pytest.mark.parametrize("what", EQUAL_PARTS)
def test_equal_values_that_are_made_otherwise(what: str, monkeypatch: pytest.MonkeyPatch):
    first, second, read = EQUAL_PARTS[what]
    assert first == second and read(first) != read(second)

    @cp.cube
    def read_captured(out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = read(FOUND)

    @cp.cube
    def read_given(given: cp.Comptime, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = read(given)

    for value in (first, second, first, second):
        monkeypatch.setitem(globals(), "FOUND", value)
        for _ in range(4):
            assert result(read_captured, ...) == read(value)
            assert result(read_given, value, ...) == read(value)


@cp.cube
def apply(function: cp.Comptime, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = function(out.size * 0 + 2)


def added(table, v):
    return v + table[0]


def scaled(v, *, by):
    return v * by


def functions_of(table: list[float]) -> dict[str, Any]:
    def of_default(v, held=table):
        return v + held[0]

    return {
        "capture": lambda v: v + table[0],
        "default": of_default,
        "partial": functools.partial(added, table),
    }


@pytest.mark.parametrize("which", ["capture", "default", "partial"])
def test_lists_that_functions_hold(which: str):
    """They have no hash, so that each counts as itself; what it holds is compared."""
    tables = [1.0], [1.0]
    first, second = (functions_of(table)[which] for table in tables)
    for table, value in ((0, 1.0), (1, 5.0), (0, 2.0), (1, 6.0)):
        tables[table][0] = value
        for _ in range(4):
            assert result(apply, first, ...) == 2 + tables[0][0]
            assert result(apply, second, ...) == 2 + tables[1][0]


TABLES: dict[str, Any] = {
    "get": {0: 1.0, 1: 1.0},
    "__getitem__": [1.0, 1.0],
    "index": deque([1.0, 2.0]),
    "__len__": [1.0, 1.0],
    "item": np.ones(2),
}
"""Methods of built-in classes, and what they read; `index` and `__len__` ask for an item."""


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("is_captured", [True, False])
def test_methods_of_containers_that_change(name: str, is_captured: bool):
    table = copy(TABLES[name])
    method = getattr(table, name)

    @cp.cube
    def captures(out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = method(*by)

    @cp.cube
    def takes(function: cp.Comptime, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = function(*by)

    by = {"index": (2.0,), "__len__": ()}.get(name, (1,))
    for _ in range(3):
        for _ in range(4):
            found = result(captures, ...) if is_captured else result(takes, method, ...)
            assert found == method(*by)
        if name in ("index", "__len__"):
            table.insert(0, 5.0)
        else:
            table[1] += 1


def test_keywords_of_a_partial_change():
    function: Any = functools.partial(scaled, by=3)
    for by in (3, 4, 3):
        function.keywords["by"] = by
        for _ in range(4):
            assert result(apply, function, ...) == 2 * by


def test_equal_partials_compile_once(compiled: list[Any]):
    fresh = cp.cube(apply.function)
    for by in (3, 3, 4, 3):
        assert result(fresh, functools.partial(scaled, by=by), ...) == 2 * by
    assert len(compiled) == 2
