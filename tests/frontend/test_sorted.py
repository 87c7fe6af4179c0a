"""`sorted` of numbers in kernels: every order of them, types, lines, and what it refuses."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.frontend.sorting import exchanges

WAYS: tuple[dict[str, Any], ...] = (
    {"device": "cpu"},
    {"device": "interpreter"},
    {"checked": True},
    {"vectorise": True},
)


@pytest.mark.parametrize("count", range(13))
def test_the_network_sorts_all_zeros_and_ones(count: int):
    """And so anything: the zero-one principle (Knuth, volume 3, 5.3.4, theorem Z)."""
    pairs = list(exchanges(count))
    for given in product((0, 1), repeat=count):
        found = list(given)
        for low, high in pairs:
            if found[high] < found[low]:
                found[low], found[high] = found[high], found[low]
        assert found == sorted(given)


@cp.cube
def rows_sorted(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < x.shape[0]:
        up = sorted([x[i, k] for k in range(9)])
        down = sorted((x[i, 0], x[i, 1], x[i, 2]), reverse=True)
        for k, v in enumerate(up + down):
            o[i, k] = v


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.uint64])
def test_rows(dtype: Any, way: dict[str, Any]):
    generator = np.random.default_rng()
    x = (generator.normal(size=(50, 9)) * 9).astype(np.int8 if dtype == np.uint64 else dtype)
    x = x.astype(dtype)
    o = np.zeros((50, 12), dtype)
    rows_sorted.configure(**way).over(50)(x, o)
    expected = np.concatenate([np.sort(x, 1), np.sort(x[:, :3], 1)[:, ::-1]], 1)
    np.testing.assert_array_equal(o, expected)


@cp.cube
def mixed(x: Any, o: Any, n: int):
    o[0], o[1], o[2] = sorted([x[0], 2, n])
    (o[3],) = sorted((x[0],))
    o[4] = len(sorted(())) + sorted((3, 1, 2), reverse=True)[0] + sorted("ba")[0].count("a")
    o[5] = sorted(cp.Line[cp.f32, 4](x[k]) for k in range(3))[1][2]


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_types_comptime_and_lines(device: str):
    x, o = np.array([2.5, 7, -1], np.float32), np.zeros(6, np.float32)
    mixed.configure(device=device)[1, 1](x, o, 1)
    assert o.tolist() == [1, 2, 2.5, 2.5, 4, 2.5]


def test_no_number_is_lost_beside_nan():
    x = np.random.default_rng().random((200, 9)).astype(np.float32)
    x[np.random.default_rng().random(x.shape) < 0.3] = np.nan
    o = np.zeros((200, 12), np.float32)
    rows_sorted.over(200)(x, o)
    np.testing.assert_array_equal(np.sort(o[:, :9], 1), np.sort(x, 1))


@cp.cube
def by_key(x: Any):
    x[0] = sorted([x[0], x[1]], key=lambda v: -v)[0]


@cp.cube
def of_a_tensor(x: Any):
    x[0] = sorted(x)[0]


@cp.cube
def of_pairs(x: Any):
    x[0] = sorted([(x[0], 1), (x[1], 2)])[0][0]


@cp.cube
def of_many(x: Any):
    x[0] = sorted([x[k] for k in range(300)])[0]


@pytest.mark.parametrize(
    ("kernel", "code"),
    [(by_key, "E112"), (of_a_tensor, "E112"), (of_pairs, "E201"), (of_many, "E120")],
)
def test_what_is_refused(kernel: Any, code: str):
    with pytest.raises(cp.CompileError, match=code):
        kernel[1, 1](np.zeros(300))
