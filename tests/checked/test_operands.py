"""Divisions and shifts whose results are ones by definition are faults in checked mode."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.checked.lines import line_of

DEVICES = ["cpu", "interpreter"]
TYPES = [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64]


def shifted_left(a, b):
    return a << b  # <<


def shifted_right(a, b):
    return a >> b  # >>


def quotient(a, b):
    return a // b  # //


def remainder(a, b):
    return a % b  # %


def both(a, b):
    return divmod(a, b)[1]  # divmod


def truncated(a, b):
    return cp.div_trunc(a, b)  # div_trunc


def rest(a, b):
    return cp.rem_trunc(a, b)  # rem_trunc


MARKS = {
    shifted_left: "<<",
    shifted_right: ">>",
    quotient: "//",
    remainder: "%",
    both: "divmod",
    truncated: "div_trunc",
    rest: "rem_trunc",
}


@cp.cube
def apply(function: cp.Comptime, x, y, out):
    out[0] = function(x[0], y[0])


def fault(function: Any, t: type[np.integer], a: int, b: int) -> str | None:
    """How the message begins; None where the operands are good."""
    info, name = np.iinfo(t), np.dtype(t).name.replace("uint", "u").replace("int", "i")
    if function in (shifted_left, shifted_right):
        return None if 0 <= b < info.bits else f"E705: apply: a shift of {name} by {b}, in unit"
    if b == 0:
        return "E702: apply: an integer is divided by zero in unit"
    is_quotient = function in (quotient, truncated, both)
    if is_quotient and info.min < 0 and (a, b) == (info.min, -1):
        return f"E706: apply: {a} // -1 leaves {name}, in unit"
    return None


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("t", TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("function", MARKS, ids=lambda f: f.__name__)
def test_operands(function: Any, t: type[np.integer], device: str):
    info = np.iinfo(t)
    numbers = (0, 1, -1, 2, info.bits - 1, info.bits, info.bits + 1, info.min, info.max)
    values = [v for v in dict.fromkeys(numbers) if info.min <= v <= info.max]
    launch = apply.configure(checked=True, device=device)[1, 1]
    plain = apply.configure(checked=False, device=device)[1, 1]
    for a, b in product(values, values):
        out, expected = np.full(1, 77, t), np.zeros(1, t)
        arguments = function, np.array([a], t), np.array([b], t)
        message = fault(function, t, a, b)
        if message is None:
            launch(*arguments, out)
            plain(*arguments, expected)
            assert out[0] == expected[0], (a, b)
            continue
        with pytest.raises(cp.CheckError) as caught:
            launch(*arguments, out)
        error: Any = caught.value
        assert str(error).startswith(message), (a, b)
        assert error.line == line_of(__file__, MARKS[function])
        assert out[0] == 77
        plain(*arguments, out)  # defined, and no fault


@pytest.mark.parametrize("device", DEVICES)
def test_lanes_that_an_array_lacks(device: str):
    """They hold zeros, which divide nothing that counts."""

    @cp.cube
    def kernel(x: cp.Lines[cp.i32], y: cp.Lines[cp.i32], out: cp.Lines[cp.i32]):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = x[i] // y[i]

    x, y, out = (np.full(5, v, np.int32) for v in (7, 2, 0))
    kernel.configure(checked=True, device=device, line_size=4).over(out)(x, y, out)
    assert (out == 3).all()


def test_counts_that_are_known_cost_nothing():
    @cp.cube
    def kernel(x, n: cp.u32, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = (x[i] << 3 | x[i] >> 29) // 3 << (n & 31)

    specs = "u32[64]", "u32", "u32[64]"
    text = kernel.configure(checked=True).inspect(*specs, stage="ir")
    assert "shift" not in text and "quotient" not in text and "division" not in text
