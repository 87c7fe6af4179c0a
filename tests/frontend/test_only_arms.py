"""Names that the only arm of a branch that goes on binds: memory, dictionaries, comptime parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cp
from tests.frontend.oracle import check_one_unit

WAYS: tuple[dict[str, Any], ...] = (
    {"device": "cpu"},
    {"device": "interpreter"},
    {"checked": True},
    {"vectorise": True},
    {"vectorise": False},
)


def where_the_other_arms_return(x: Any, o: Any) -> None:
    if x[5] > 4:
        d = {"a": x[2] * 2, "b": {"c": (x[3], 1), "d": x[4:]}}
    elif x[5] > 3:
        d = {"a": x[0], "b": {"c": (x[1], 2), "d": x[1:]}}
        return
    else:
        return
    o[0] = d["a"] + d["b"]["c"][0] + d["b"]["c"][1] + d["b"]["d"][1]


def where_the_other_arm_continues(x: Any, o: Any) -> None:
    for k in range(4):
        if x[k] > 1:
            d = {"a": x[k] * k}
        else:
            continue
        o[0] += d["a"]


@dataclass(frozen=True)
class Pair:
    a: Any
    b: Any

    def total(self) -> Any:
        return self.a + self.b


class Two(NamedTuple):
    a: Any
    b: Any


def records(x: Any, o: Any) -> None:
    for k in range(4):
        if x[k] > 1:
            pair, two = Pair(x[k], x[k:]), Two(Pair(x[k] * 2, 2.0), x[k])
            d = {"p": (Pair(x[k], k), 1)}
            total = d["p"][0].total
        else:
            continue
        o[0] += pair.a * pair.b[1] + two.a.total() * two.b + total()


def ranges_views_and_flat_elements(x: Any, o: Any) -> None:
    if x[5] > 4:
        d = {"a": x[2], "b": 2}
        values, items, flat = d.values(), d.items(), (x[3:].flat, 1)
        steps = {"r": range(int(x[4]))}
    else:
        return
    for v in values:
        o[0] += v
    for _, v in items:
        o[0] += v * flat[0][1]
    for k in steps["r"]:
        o[0] += k


def rows_of_tables(x: Any, o: Any) -> None:
    k = int(x[2])
    if x[5] > 4:
        row = ((1, 2), (3, 4), (5, 6))[k]
    else:
        return
    o[0] = row[k % 2] + row[1]


def bound_again(x: Any, o: Any) -> None:
    if x[5] > 4:
        d = {"a": x[1], "n": 2}
    else:
        return
    o[0] = d["a"]
    d = {"a": x[2] * 5, "n": 3}
    o[0] += d["a"] + d["n"]


FUNCTIONS = (
    where_the_other_arms_return,
    where_the_other_arm_continues,
    records,
    ranges_views_and_flat_elements,
    rows_of_tables,
    bound_again,
)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_as_python_has_it(function: Any, way: dict[str, Any]):
    check_one_unit(function, **way)


@cp.cube
def takes_memory(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        own = cp.local(4, cp.f64)
        part = own[1:]
        for j in range(4):
            own[j] = x[i] + j
    else:
        return
    for k in range(3):
        if i % 2 == k:
            continue
        elif x[i] > k:
            pair = {"memory": cp.local(2, cp.f64, fill=k), "x": x[i]}
        else:
            break
        o[i] += part[2] * 100 + pair["memory"][1] + pair["x"]


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_memory_of_an_arm_outlives_it(options: dict[str, Any]):
    x, found = np.arange(20) % 5 + 0.5, np.zeros(20)
    expected = np.zeros(20)
    for i in range(20):
        for k in range(3):
            if i % 2 == k:
                continue
            if x[i] <= k:
                break
            expected[i] += (x[i] + 3) * 100 + k + x[i]
    takes_memory.configure(**options).over(20)(x, found)
    np.testing.assert_array_equal(found, expected)


@cp.cube
def keeps_comptime_parts(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        d = {"n": 3, "x": x[i], "f": lambda v: v + 1}
        p = (x[i] * 2, 2)
        part = cp.local((4, 2), cp.f64, fill=1)[i % 4]
    else:
        return
    for _ in cp.unroll(range(d["n"] * p[1])):
        o[i] += d["f"](d["x"]) + p[0]
    for k in cp.unroll(range(part.shape[0])):
        o[i] += part[k]


def test_what_is_comptime_in_an_arm_is_comptime_behind_it():
    x, found = np.random.default_rng().random(20), np.zeros(20)
    keeps_comptime_parts.over(20)(x, found)
    np.testing.assert_allclose(found, 6 * (3 * x + 1) + 2)


@cp.cube
def dictionary_of_a_loop(x: Any):
    for j in range(3):
        d = {"a": x[j]}
    x[0] = d["a"]


def test_dictionaries_of_loops_are_refused_behind_them():
    with pytest.raises(cp.CompileError, match="E103: `d` is not set"):
        dictionary_of_a_loop[1, 1](np.ones(3))
