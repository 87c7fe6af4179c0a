"""Names that the only arm of a branch that goes on binds: memory, dictionaries, comptime parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp

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


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "function",
    [where_the_other_arms_return, where_the_other_arm_continues],
    ids=lambda f: f.__name__,
)
def test_dictionaries_as_python_has_them(function: Any, way: dict[str, Any]):
    x, expected, found = np.arange(9.0), np.zeros(1), np.zeros(1)
    function(x, expected)
    cp.cube(function).configure(**way)[1, 1](x, found)
    assert found[0] == expected[0]


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
