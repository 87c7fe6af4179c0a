"""Loops and folds over what has its items at run time, against Python itself."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.frontend.loops_over_items import CASES
from tests.frontend.oracle import check, run_in_python

WAYS: tuple[dict[str, Any], ...] = (
    {"device": "interpreter"},
    {"checked": True},
    {"vectorise": True},
)


def _inputs() -> tuple[np.ndarray, np.ndarray, int]:
    generator = np.random.default_rng()
    x, m = (generator.integers(-9, 10, shape, np.int32) for shape in (33, (9, 7)))
    return x, m, int(generator.integers(1, 30))


@pytest.mark.parametrize("kernel", CASES, ids=lambda k: k.__name__)
def test_as_in_python(kernel: Any):
    check(kernel, *_inputs())


@pytest.mark.parametrize("kernel", CASES, ids=lambda k: k.__name__)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_as_in_python_in_other_ways(kernel: Any, way: dict[str, Any]):
    given = _inputs()
    expected, found = np.full(33, -7, np.int32), np.full(33, -7, np.int32)
    run_in_python(kernel, 33, *given, expected)
    kernel.configure(**way)[33, 1](*given, found)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.uint8, np.int32),
        (np.int64, np.int64),
    ],
)
def test_sums_have_the_type_of_a_local_that_starts_with_0(dtype: Any, wide: Any):
    @cp.cube
    def kernel(x: Any, out: Any):
        out[0], out[1], out[2] = sum(x), math.prod(x), max(x)

    x = (np.random.default_rng().random(40) * 100).astype(dtype)
    out = np.zeros(3, wide)
    kernel[1, 1](x, out)
    with np.errstate(over="ignore"):
        folds = (np.add.accumulate(x, dtype=wide), np.multiply.accumulate(x, dtype=wide))
    np.testing.assert_array_equal(out, [folds[0][-1], folds[1][-1], x.max()])


@pytest.mark.parametrize("dtype", ["u1", "i1", "i2", "f2", "?"])
@pytest.mark.parametrize("count", [2, 64, 65])
def test_sums_of_few_items_are_as_those_of_many(dtype: str, count: int):
    """Known items add in the type of a local as well, and so do those of captured arrays."""
    x = np.full(70, 100, dtype)

    @cp.cube
    def fold(x: Any, out: Any):
        out[0] = sum(x[k] for k in range(count))
        out[1] = sum((x[0], x[1]))
        out[2] = sum(TABLES[dtype]) - sum(TABLES[dtype], 1)
        out[3] = sum(TABLES[dtype][k] for k in range(3))
        out[4] = math.prod((x[0], x[1], x[2]))
        out[5] = sum(x[:2], 0.5)

    out = np.zeros(6)
    fold[1, 1](x, out)
    one = 1 if dtype == "?" else 100
    assert out.tolist() == [count * one, 2 * one, -1, 3 * one, one**3, 2 * one + 0.5]


TABLES = {dtype: np.full(3, 100, dtype) for dtype in ("u1", "i1", "i2", "f2", "?")}


def test_a_sum_begins_with_its_start():
    """0 + -0.0 is 0.0."""

    @cp.cube
    def signs(x: Any, out: Any):
        out[0] = math.copysign(1.0, sum((x[0], x[1])))
        out[1] = math.copysign(1.0, sum(x))

    out = np.zeros(2)
    signs[1, 1](np.array([-0.0, -0.0]), out)
    assert out.tolist() == [1, 1]


def test_tables_of_bools_are_numbers():
    """At comptime and at run time; NumPy's sum of two bools is a bool."""

    @cp.cube
    def both(j: cp.i32, out: Any):
        out[0] = TABLES["?"][0] + TABLES["?"][2]
        out[1] = TABLES["?"][j] + TABLES["?"][j + 2]
        out[2] = TABLES["?"][0] - TABLES["?"][1]

    out = np.zeros(3, int)
    both[1, 1](0, out)
    assert out.tolist() == [2, 2, 0]


LOOKED_AT = np.array([[3, 1], [4, 7]])


def among(x: Any, m: Any, n: Any, v: Any, u: Any, w: Any, out: Any):
    out[0] = v in x
    out[1] = v not in x[2:5]
    out[2] = v in m
    out[3] = 1 if v in m[1] and v not in m[0] else 0
    out[4] = w in x.flat
    out[5] = (v, x[2]) in zip(x, x[2:])
    out[6] = (0, v) in enumerate(x)
    out[7] = v in reversed(x)
    out[8] = operator.contains(x, v)
    out[9] = v in map(lambda a: a + 1, x)
    out[10] = v in range(-3, n)
    out[11] = v in range(1, n, 3)
    out[12] = v not in range(n, -4, -2)
    out[13] = 3 in range(n)
    out[14] = w in range(n)
    out[15] = u in range(-3, n)
    out[16] = u in range(-5, 6)
    out[17] = u in range(n, -4, -3)
    out[18] = u in reversed(range(n))
    out[19] = (v > 2) in range(-4, n, 3)
    out[20] = v in LOOKED_AT
    out[21] = v in LOOKED_AT[1] or v not in LOOKED_AT[n % 2]
    out[22] = operator.contains("abcd", "bc") and 4 in LOOKED_AT
    out[23] = operator.contains((1, v), u)


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_what_is_among_items(device: str):
    numbers = np.random.default_rng()
    kernel = cp.cube(among).configure(device=device)
    for k in range(40):
        x, m = (numbers.integers(-3, 9, s).astype("i4") for s in (7, (2, 3)))
        n, v, u = (int(numbers.integers(low, 9)) for low in (-6, -6, 0))
        u, v = (2**32 - 1, -(2**31)) if k % 9 == 8 else (u, v)
        w = float(v) + numbers.choice([0, 0.5])
        found, expected = np.zeros(24), np.zeros(24)
        among(x, m, n, v, u, w, expected)
        kernel[1, 1](x, m, n, np.int32(v), np.uint32(u), w, found)
        np.testing.assert_array_equal(found, expected)


def test_elements_are_counted():
    @cp.cube
    def count(x: Any, out: Any):
        out[0] = len(x.flat)

    out = np.zeros(1)
    count[1, 1](np.zeros((2, 3)), out)
    assert out[0] == 6


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_what_a_loop_makes_of_values_from_before_it_is_kept(device: str):
    @cp.cube
    def kernel(x: Any, n: int, out: Any):
        for _ in range(3):
            flat, some, pairs = x.flat, (range(x.shape[0]), 1), zip(x, x)
            scaled = lambda v, s=n: v * s
        out[0], out[1] = flat[1], sum(some[0])
        out[2], out[3] = sum(a * b for a, b in pairs), scaled(x[2])

    x, out = np.arange(1.0, 6), np.zeros(4)
    kernel.configure(device=device)[1, 1](x, 4, out)
    assert out.tolist() == [2, 10, 55, 12]


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_lines(device: str):
    @cp.cube
    def kernel(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
        out[0] = sum(v * v for v in x)
        out[1] = max(v for v in x)

    x = np.arange(32, dtype=np.float32)
    out = np.zeros(8, np.float32)
    kernel.configure(device=device, line_size=4)[1, 1](x, out)
    rows = x.reshape(8, 4)
    np.testing.assert_array_equal(out.reshape(2, 4), [(rows * rows).sum(0), rows.max(0)])


def test_the_first_sequence_is_evaluated_once_and_before_the_start():
    def noted(log: Any, x: Any, k: int) -> Any:
        log[0] = log[0] * 10 + k
        return x

    @cp.cube
    def kernel(x: Any, log: Any, out: Any):
        out[0] = sum((noted(log, v, 2) for v in noted(log, x, 1)), noted(log, 5, 3))

    x, log, out = np.arange(3), np.zeros(1, np.int64), np.zeros(1, np.int64)
    kernel[1, 1](x, log, out)
    assert (log[0], out[0]) == (13222, 8)


@cp.cube
def greatest(x: Any, n: int, out: Any):
    out[0] = max(x[k] for k in range(n))


@cp.cube
def least_by_key(x: Any, n: int, out: Any):
    out[0] = min((x[k] for k in range(n)), key=lambda v: -v)


@pytest.mark.parametrize("kernel", [greatest, least_by_key], ids=lambda k: k.__name__)
def test_an_extreme_of_no_items_without_a_default(kernel: Any):
    out = np.full(1, np.nan)
    kernel[1, 1](np.ones(3), 0, out)
    assert out[0] == 0
    with pytest.raises(cp.CheckError, match="a sequence without items"):
        kernel.configure(checked=True)[1, 1](np.ones(3), 0, out)
    kernel.configure(checked=True)[1, 1](np.ones(3), 2, out)
    assert out[0] == 1


@cp.cube
def unknown_option(x: Any):
    x[0] = max(x, start=1)  # type: ignore[call-overload]


@cp.cube
def binds_a_name(x: Any):
    x[0] = sum((last := v) for v in x) + last


@cp.cube
def strict(x: Any):
    for a, b in zip(x, x, strict=True):
        x[0] = a + b


@cp.cube
def runtime_step(x: Any):
    for a, b in zip(range(0, 9, x.size), x):
        x[0] = a + b


@cp.cube
def runtime_items_beside(x: Any):
    for a, b in zip((x[0], 2), x):
        x[0] = a + b


@cp.cube
def reversed_pairs(x: Any):
    for a, b in reversed(zip(x, x)):  # type: ignore[call-overload]
        x[0] = a + b


@cp.cube
def kept_beside_a_number(x: Any):
    for k in range(3):
        v = (zip(x[k:], x), 1)
    x[0] = sum(a * b for a, b in v[0])


@cp.cube
def function_with_a_default_of_a_loop(x: Any):
    for k in range(3):
        f = lambda v, s=k: v * s
    x[0] = f(3)


def from_a_loop(x: Any) -> Any:
    while True:
        k = int(x[0])
        return enumerate(x, k)


@cp.cube
def returned_from_a_loop(x: Any):
    x[0] = sum(k * v for k, v in from_a_loop(x))


@cp.cube
def default_of_another_kind(x: Any):
    x[0] = max(x, default=None)


@dataclass(frozen=True)
class Weight:
    kg: Any

    def __radd__(self, other: Any) -> Any:
        return self


@cp.cube
def records_without_a_start(x: Any):
    x[0] = sum(Weight(v) for v in x).kg  # type: ignore[union-attr]


@cp.cube
def sum_of_a_number(x: Any):
    x[0] = sum(x[1])


@cp.cube
def slice_of_elements(x: Any):
    x[0] = sum(x.flat[:2])


@cp.cube
def start_of_another_type(x: Any):
    x[0] = sum((v for v in x), cp.ABSOLUTE_POS)


@cp.cube
def default_of_another_type(x: Any):
    x[0] = min((v for v in x), default=cp.ABSOLUTE_POS)


@cp.cube
def items_of_a_number(x: Any):
    x[0] = sum(v for v in x[0])


@cp.cube
def greatest_of_a_number_by_key(x: Any):
    x[0] = max(x[0], key=abs)


@cp.cube
def tuple_of_a_tensor(x: Any):
    x[0] = len(tuple(x))


@cp.cube
def of_no_axes(x: Any):
    for v in x:
        x[()] = v


@pytest.mark.parametrize(
    ("kernel", "shape", "message"),
    [
        (unknown_option, 3, "E106"),
        (binds_a_name, 3, "E112: what `last :=` binds"),
        (strict, 3, "E112: how many items zip"),
        (runtime_step, 3, "E112: the step of a range"),
        (runtime_items_beside, 3, "E112: what stands beside a tensor"),
        (reversed_pairs, 3, "'zip' object is not reversible"),
        (kept_beside_a_number, 3, "make what `v` holds behind the loop"),
        (function_with_a_default_of_a_loop, 3, "make what `f` holds behind the loop"),
        (returned_from_a_loop, 3, "E207: a `return` that may not run"),
        (default_of_another_kind, 3, "the default of max() expects a number"),
        (records_without_a_start, 3, "give a `start`"),
        (sum_of_a_number, 3, "E207: sum() expects a sequence, got a value of type f32"),
        (slice_of_elements, 3, "an index of `x.flat` expects a number, got a slice"),
        (start_of_another_type, 3, "give a `start` of the type of the items"),
        (default_of_another_type, 3, "give a `default` of the type of the items"),
        (items_of_a_number, 3, "E207: a loop expects range(...), a tensor"),
        (greatest_of_a_number_by_key, 3, "E207: a loop expects range(...), a tensor"),
        (tuple_of_a_tensor, 3, "E112: what tuple"),
        (of_no_axes, (), "it has no axes: read it as x"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_what_is_refused(kernel: Any, shape: Any, message: str):
    with pytest.raises(cp.CompileError) as raised:
        kernel[1, 1](np.zeros(shape, np.float32))
    assert message in str(raised.value)
