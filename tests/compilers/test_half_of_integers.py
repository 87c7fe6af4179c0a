"""Integers beyond what f16 holds are infinite there, whatever LLVM knows of their bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def halves(x, out, back, bits: cp.Comptime[int], by: cp.Comptime[Any]):
    p = cp.ABSOLUTE_POS
    if p < x.shape[0]:
        few = (x[p] & 3) << bits  # LLVM knows that it has two bits
        half = cp.f16(few if by is None else by(few))
        out[p] = cp.f32(half)
        back[p] = x.dtype(half)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("by", [None, cp.f32, cp.f64])
@pytest.mark.parametrize("lanes", [False, True])
def test_infinities_stay(dtype: Any, by: Any, lanes: bool):
    x = np.arange(33, dtype=dtype)
    for bits in (10, 14, 15, 16, 20, 29):
        out, back = np.zeros(33, np.float32), np.zeros(33, dtype)
        halves.configure(vectorise=lanes).over(33)(x, out, back, bits, by)
        with np.errstate(over="ignore"):
            right = ((x & 3) << dtype(bits)).astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(out, right)
        ends = np.where(np.isinf(right), float(np.iinfo(dtype).max), right)
        assert all(
            int(b) == min(int(e), np.iinfo(dtype).max) for b, e in zip(back, ends, strict=True)
        )


@cp.cube
def half_lines(x: cp.Lines, out: cp.Lines):
    p = cp.ABSOLUTE_POS
    if p < out.shape[0]:
        out[p] = cp.Line[cp.f32, x.line_size](cp.Line[cp.f16, x.line_size]((x[p] & 1) << 17))


def test_lines():
    x, out = np.arange(64, dtype=np.int32), np.zeros(64, np.float32)
    half_lines.configure(line_size=8).over(8)(x, out)
    np.testing.assert_array_equal(out, np.where(x % 2, np.inf, 0))
