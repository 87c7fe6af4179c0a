"""Views whose names take others: what is known of them, such as strides, stays known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import cubepy as cp


@dataclass(frozen=True)
class Pair:
    v: Any
    w: Any


@cp.cube
def on_a_straight_path(x, out):
    x = x[3:]
    out = out[1:]
    for i in range(0, out.shape[0], 8):
        cp.store(out, i, cp.load(x, i, line=8))


@cp.cube
def by_a_helper(x, out):
    def copied(source, target):
        source, target = source[3:], target[1:]
        for i in range(0, target.shape[0], 8):
            cp.store(target, i, cp.load(source, i, line=8))

    copied(x, out)


@cp.cube
def in_tuples(x, out):
    both = x, 7
    both, more = (x[3:], both[1] - 6), {"out": out}
    more = {"out": out[both[1] :], "x": both}
    pair = Pair(more["x"][0], more["out"])
    source = lambda: pair.v  # what it is when the function is called
    pair = Pair(pair.w, source())
    for i in range(0, pair.v.shape[0], 8):
        cp.store(pair.v, i, cp.load(pair.w, i, line=8))


@cp.cube
def in_a_branch(x, out):
    x = x[3:]
    if x[0] > 100:
        x = x[::2]
    for i in range(0, out.shape[0] - 1, 8):
        cp.store(out[1:], i, cp.load(x, i, line=8))


@pytest.mark.parametrize("kernel", [on_a_straight_path, by_a_helper, in_tuples, in_a_branch])
@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_lines_of_views_that_took_a_name(kernel: Any, device: str):
    x, out = np.arange(40, dtype=np.float32), np.full(38, -1, np.float32)
    kernel.configure(device=device)[1, 1](x, out)
    assert out[0] == -1
    np.testing.assert_array_equal(out[1:], x[3:])
    x[3] = 200
    kernel.configure(device=device)[1, 1](x, out)
    part = x[3::2] if kernel is in_a_branch else x[3:]
    np.testing.assert_array_equal(out[1 : 1 + len(part)], part)


@pytest.mark.parametrize(
    ("kernel", "whole"), [(on_a_straight_path, True), (in_tuples, True), (in_a_branch, False)]
)
def test_lines_are_whole_where_strides_are_known(kernel: Any, whole: bool):
    text = kernel[1, 1].inspect("f32[?]", "f32[?]", stage="ir")
    assert ("insert" not in text) == whole
