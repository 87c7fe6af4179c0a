"""Choices among items of which all is known but the numbers: sorted by keys, extremes of objects,
comprehensions that are unrolled, classes of numbers, conversions of f-strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import cubepy as cp

HALF, BYTE, TABLE = np.float32(3), np.int8(3), np.arange(6.0).reshape(2, 3)


@dataclass(frozen=True, order=True)
class Best:
    score: Any
    place: Any


@cp.cube
def sort_by_keys(x: Any, out: Any) -> None:
    for i, v in enumerate(sorted((3, 1, 2), key=lambda v: -v)):
        out[i] = v
    pairs = [(x[0], 2), (x[1], 1), (x[2], 1)]
    for i, (v, _) in enumerate(sorted(pairs, key=lambda p: p[1], reverse=True)):
        out[3 + i] = v


@cp.cube
def best_of(x: Any, out: Any) -> None:
    best = Best(x[0], 0)
    for k in cp.unroll(range(1, 5)):
        best = max(best, Best(x[k], k))
    out[0], out[1] = best.score, best.place
    least = min((x[0], 0), (x[1], 1), (x[2], 2))
    out[2], out[3] = least
    out[4] = max((2, 1), (1, 5))[1]


@cp.cube
def unrolled(x: Any, out: Any) -> None:
    found = [x[k] for k in cp.unroll(range(4))]
    out[0] = found[3] + tuple(x[k] * 2 for k in cp.unroll(range(2)))[1]


@cp.cube
def classes(x: Any, out: Any) -> None:
    out[0] = isinstance(HALF, float)
    out[1] = isinstance(BYTE, int)
    out[2] = isinstance(HALF, int)
    out[3] = isinstance(HALF, np.float32)  # pyright: ignore[reportArgumentType]
    out[4] = isinstance((x[0], 1), tuple)


def test_sorted_by_known_keys():
    x, out = np.array([5.0, 7.0, 9.0]), np.zeros(6)
    sort_by_keys[1, 1](x, out)
    assert out.tolist() == [3, 2, 1, 5, 7, 9]


@pytest.mark.parametrize("seed", range(8))
def test_extremes_of_objects_and_tuples(seed: int):
    x, out = np.random.default_rng(seed).integers(0, 3, 5).astype("f8"), np.zeros(5)
    best_of[1, 1](x, out)
    best = max(Best(x[k], k) for k in range(5))
    least = min((x[k], k) for k in range(3))
    assert out.tolist() == [best.score, best.place, *least, 1]


def test_comprehensions_over_unrolled_ranges():
    x, out = np.arange(4.0), np.zeros(1)
    unrolled[1, 1](x, out)
    assert out[0] == 5


def test_classes_of_numbers_of_numpy():
    x, out = np.zeros(1), np.full(5, 9.0)
    classes[1, 1](x, out)
    assert out.tolist() == [1, 1, 0, 1, 1]


@cp.cube
def texts(x: Any, out: Any) -> None:
    text = f"{True!s:>6}{'a'!r}{3!r:>5}{'b'!s}"
    out[0] = len(text) * (text == "  True'a'    3b")


def test_conversions_of_known_values():
    out = np.zeros(1)
    texts[1, 1](np.zeros(1), out)
    assert out[0] == 15


@cp.cube
def truth_of_an_array(x: Any, out: Any) -> None:
    if TABLE:
        out[0] = 1


@cp.cube
def truth_of_a_row(x: Any, out: Any) -> None:
    out[0] = any(row > 1 for row in TABLE)


@cp.cube
def mask_as_an_index(x: Any, out: Any) -> None:
    out[TABLE > 3] = 1


@cp.cube
def map_of_nothing(x: Any, out: Any) -> None:
    out[0] = map(x)  # pyright: ignore[reportCallIssue]


@cp.cube
def no_mask(x: Any, out: Any) -> None:
    out[0] = cp.any_(x)


@cp.cube
def no_number(x: Any, out: Any) -> None:
    out[0] = cp.clz(*())  # pyright: ignore[reportCallIssue]


@cp.cube
def text_of_a_number(x: Any, out: Any) -> None:
    print(f"{x[0] > 3!s:>6}")


@pytest.mark.parametrize(
    ("kernel", "code"),
    [
        (truth_of_an_array, "E113"),
        (truth_of_a_row, "E113"),
        (mask_as_an_index, "E207"),
        (map_of_nothing, "E106"),
        (no_mask, "E207"),
        (no_number, "E106"),
        (text_of_a_number, "E112"),
    ],
)
def test_what_is_refused_has_a_code(kernel: Any, code: str):
    with pytest.raises(cp.CompileError, match=code):
        kernel[1, 1](np.zeros(6), np.zeros(6))
