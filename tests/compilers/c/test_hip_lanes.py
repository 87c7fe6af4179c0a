"""Lanes of vectors in HIP C++, which clang alone compiles."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.compilers.c import cuda_text, hip_text, metal_text

TARGET = "hip:gfx942"


@cp.cube
def least(x: cp.Lines, out):
    out[0] = x[0].min()


@cp.cube
def bits_of_lanes(x: cp.Lines, out):
    line = x[0]
    for k in cp.unroll(range(line.line_size)):
        out[k] = cp.bitcast(line[k], cp.u16)


@cp.cube
def fused(x: cp.Lines, out: cp.Lines):
    out[0] = x[0] * x[0] + x[0]


def run_text(kernel: Any, width: int, x: np.ndarray, out: np.ndarray) -> None:
    """Run the text of one unit as C++; the test is skipped without clang."""
    metal_text.find_clang()
    text = kernel.configure(line_size=width)[1, 1].inspect(x, out, target=TARGET)
    source: Any = SimpleNamespace(text=text, entry=kernel.__name__)
    (run,) = cuda_text.build([(0, source, source)])
    run([x, out], [])


@pytest.mark.parametrize("width", [2, 3, 4, 8])
def test_bits_are_those_of_the_own_lane(width: int):
    """clang takes the bits of an element of a vector, if it may, from the first one."""
    x, bits = np.arange(1, width + 1, dtype=np.float16), np.zeros(width, np.uint16)
    run_text(bits_of_lanes, width, x, bits)
    np.testing.assert_array_equal(bits, x.view(np.uint16))


@pytest.mark.parametrize("width", [2, 4, 8])
def test_the_least_of_zeros_is_negative(width: int):
    x, out = np.zeros(width, np.float16), np.ones(1, np.float16)
    x[width // 2] = -0.0
    run_text(least, width, x, out)
    assert out[0] == 0 and np.signbit(out[0])


@pytest.mark.parametrize("width", [1, 2, 3, 4, 8, 16])
def test_products_and_sums_of_halves_compile(width: int):
    hip_text.find_clang()
    x = np.ones(width, np.float16)
    text = fused.configure(line_size=width)[1, 1].inspect(x, x.copy(), target=TARGET)
    assert "fmaf16" in text
    hip_text.build(text, "gfx942")
