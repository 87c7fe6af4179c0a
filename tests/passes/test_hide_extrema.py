"""Minima of short integers that may be compared are spelled so that no compiler shortens them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.compilers.ptx import launching

UNITS = 16
SHORT = (cp.i8, cp.u8, cp.i16, cp.u16)
NUMPY = {cp.i8: np.int8, cp.u8: np.uint8, cp.i16: np.int16, cp.u16: np.uint16}


def greatest(v: Any, low: Any) -> Any:
    return max(v, low)


def least(v: Any, low: Any) -> Any:
    return min(v, low)


def chosen(v: Any, low: Any) -> Any:
    return low if v < low else v


def branched(v: Any, low: Any) -> Any:
    found = v
    if low > v:
        found = low
    return found


def wider(v: Any, low: Any) -> Any:
    return max(cp.i32(v), cp.i32(low))


def chosen_wider(v: Any, low: Any) -> Any:
    w = cp.i64(v)
    return cp.i64(low) if w < cp.i64(low) else w


CHOICES = (greatest, least, chosen, branched, wider, chosen_wider)


@cp.cube
def asked(x, choose: cp.Comptime[Any], out):
    i = cp.UNIT_POS
    three = cp.local(1, cp.u32, 3)
    low = x.dtype(cp.i16(three[0]))
    found = choose(x[i], x.dtype(3))
    out[i] = (cp.i32(7) if found == found.dtype(low) else cp.i32(found)) + cp.i32(3)


def by_two_orders(found: Any, low: Any) -> Any:
    return found <= low and found >= low


def by_no_order(found: Any, low: Any) -> Any:
    return not (found < low or found > low)


def by_bits(found: Any, low: Any) -> Any:
    return cp.u32(found ^ low) < 1


def by_range(found: Any, low: Any) -> Any:
    return found in range(3, 4)


@cp.cube
def compared(x, choose: cp.Comptime[Any], out):
    i = cp.UNIT_POS
    three = cp.local(1, cp.u32, 3)
    low = x.dtype(cp.i16(three[0]))
    found = max(x[i], low if choose is by_range else x.dtype(3))
    out[i] = cp.i32(7) if choose(found, low) else cp.i32(found)


@cp.cube
def true(x, choose: cp.Comptime[Any], out):
    i = cp.UNIT_POS
    zero = cp.local(1, cp.u32, 0)
    found = choose(x[i], x.dtype(cp.i16(zero[0])))
    out[i] = cp.i32(found) if bool(found) else cp.i32(100)


@cp.cube
def unasked(x, choose: cp.Comptime[Any], out):
    i = cp.UNIT_POS
    out[i] = cp.i32(choose(x[i], x.dtype(3)))


def made(kernel: cp.CubeKernel, choose: Any) -> cp.CubeKernel:
    @cp.cube
    def program(x, out):
        kernel.function(x, choose, out)

    return program


def in_numpy(choose: Any, x: np.ndarray, low: int) -> np.ndarray:
    wide = x.astype(np.int32)
    return np.minimum(wide, low) if choose is least else np.maximum(wide, low)


def launched(program: cp.CubeKernel, x: np.ndarray) -> np.ndarray:
    """What a kernel gives, which has no short minimum in PTX."""
    out = np.full(UNITS, 77, np.int32)
    ptx = program[1, UNITS].inspect(x, out, target="cuda:sm_90a", stage="ptx")
    assert not re.search(r"(max|min)\.[su]16", ptx)
    launching.launch(program, UNITS, [x, out])
    return out


@pytest.mark.optional("cuda.bindings")
@pytest.mark.parametrize("t", SHORT, ids=str)
@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.parametrize("kernel", [asked, true])
def test_no_short_minimum_is_compared(kernel: cp.CubeKernel, choose: Any, t: Any):
    launching.require()
    x = np.random.default_rng().integers(0, 7, UNITS).astype(NUMPY[t])
    if kernel is asked:
        found = in_numpy(choose, x, 3)
        expected = np.where(found == 3, 7, found) + 3
    else:
        found = in_numpy(choose, x, 0)
        expected = np.where(found == 0, 100, found)
    np.testing.assert_array_equal(launched(made(kernel, choose), x), expected)


@pytest.mark.optional("cuda.bindings")
@pytest.mark.parametrize("t", SHORT, ids=str)
@pytest.mark.parametrize("compare", [by_two_orders, by_no_order, by_bits, by_range])
def test_nor_is_one_that_orders_compare(compare: Any, t: Any):
    launching.require()
    x = np.random.default_rng().integers(0, 7, UNITS).astype(NUMPY[t])
    found = np.maximum(x.astype(np.int32), 3)
    expected = np.where(found == 3, 7, found)
    np.testing.assert_array_equal(launched(made(compared, compare), x), expected)


@pytest.mark.parametrize("target", ["cuda:sm_90a", "opencl"])
def test_others_keep_their_text(target: str):
    plain = made(unasked, greatest)[1, UNITS].inspect("i16[16]", "i32[16]", target=target)
    assert "hidden" not in plain
    text = made(asked, greatest)[1, UNITS].inspect("i16[16]", "i32[16]", target=target)
    assert "hidden((int)" in text


@pytest.mark.parametrize("target", ["hip:gfx942", "metal"])
def test_other_compilers_get_short_minima(target: str):
    text = made(asked, greatest)[1, UNITS].inspect("i16[16]", "i32[16]", target=target)
    assert "hidden" not in text
