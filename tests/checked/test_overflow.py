"""Index arithmetic that leaves 64 bits is a fault with both operands, and no other is."""

from __future__ import annotations

import operator
from itertools import product
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.checked.lines import line_of

DEVICES = ["cpu", "interpreter"]
LEAST, LARGEST = -(2**63), 2**63 - 1
CORNERS = [0, 1, -1, 2, -2, 3, 7, 2**31, 2**32 + 1, -(2**32), 3037000499, 3037000500, -3037000500]
CORNERS += [2**62, 2**62 + 1, -(2**62), LEAST, LEAST + 1, LARGEST, LARGEST - 1, LARGEST // 3 + 1]
SYMBOLS = {operator.add: "+", operator.sub: "-", operator.mul: "*"}


def as_index(v):
    """An index of any value: positions are indices, and adding one makes one."""
    return cp.UNIT_POS * 0 + v


@cp.cube
def added(a, b):
    return a + b  # +


@cp.cube
def subtracted(a, b):
    return a - b  # -


@cp.cube
def multiplied(a, b):
    return a * b  # *


FUNCTIONS = {operator.add: added, operator.sub: subtracted, operator.mul: multiplied}


@cp.cube
def of_two(f: cp.Comptime, a: cp.i64, b: cp.i64, out):
    out[0] = cp.i64(f(as_index(a), as_index(b)))


@cp.cube
def of_right(f: cp.Comptime, a: cp.i64, b: cp.Comptime, out):
    out[0] = cp.i64(f(as_index(a), b))


@cp.cube
def of_left(f: cp.Comptime, a: cp.Comptime, b: cp.i64, out):
    out[0] = cp.i64(f(a, as_index(b)))


def expect(launch: Any, python: Any, a: int, b: int, out: np.ndarray, kernel: str) -> None:
    """The exact result, or the fault that names both operands."""
    exact = python(a, b)
    if LEAST <= exact <= LARGEST:
        launch()
        assert out[0] == exact, (a, b)
        return
    out[0] = 77
    with pytest.raises(cp.CheckError) as caught:
        launch()
    error: Any = caught.value
    message = f"E704: {kernel}: the index {a} {SYMBOLS[python]} {b} leaves 64 bits, in unit"
    assert str(error).startswith(message), (a, b)
    assert error.code == "E704" and error.line == line_of(__file__, SYMBOLS[python])
    assert (error.kernel, error.unit, error.cube) == (kernel, (0, 0, 0), 0)
    assert out[0] == 77


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("python", FUNCTIONS, ids=lambda f: f.__name__)
def test_two_runtime_operands(python: Any, device: str):
    out = np.zeros(1, np.int64)
    launcher = of_two.configure(device=device, checked=True)[1, 1]
    for a, b in product(CORNERS, CORNERS):
        launch = lambda a=a, b=b: launcher(FUNCTIONS[python], a, b, out)
        expect(launch, python, a, b, out, "of_two")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("python", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("constant", [0, 1, -1, 5, -5, 2**40, LEAST, LARGEST])
def test_a_comptime_operand(python: Any, constant: int, device: str):
    out, settings = np.zeros(1, np.int64), {"device": device, "checked": True}
    right, left = (k.configure(**settings)[1, 1] for k in (of_right, of_left))
    f = FUNCTIONS[python]
    for v in {*CORNERS, *around(constant)}:
        expect(lambda v=v: right(f, v, constant, out), python, v, constant, out, "of_right")
        expect(lambda v=v: left(f, constant, v, out), python, constant, v, out, "of_left")


def around(constant: int) -> list[int]:
    """Where sums, differences and products with a constant begin to leave 64 bits."""
    edges = [LARGEST - constant, LEAST - constant, LARGEST + constant, LEAST + constant]
    if constant:
        edges += [LARGEST // constant, LEAST // constant]
    near = [edge + d for edge in edges for d in (-1, 0, 1)]
    return [v for v in near if LEAST <= v <= LARGEST]


@cp.cube
def negated(a: cp.i64, out):
    out[0] = cp.i64(-as_index(a))  # negated


@cp.cube
def augmented(a: cp.i64, out):
    i = as_index(a)
    for _ in range(3):
        i += a  # augmented
    out[0] = cp.i64(i)


@cp.cube
def cubed(a: cp.i64, out):
    out[0] = cp.i64(as_index(a) ** 3)  # cubed


@cp.cube
def subscripted(a: cp.i64, out):
    out[as_index(a) * 8 % out.size] = 1  # subscripted


@cp.cube
def of_some_units(a: cp.i64, out):
    if cp.ABSOLUTE_POS == 5:
        out[(cp.ABSOLUTE_POS + a) % out.size] = 1  # of_some_units


FORMS = [
    (negated, LEAST, LEAST + 1, f"0 - {LEAST}"),
    (augmented, 2**61 + 1, 2**61 - 1, f"{3 * (2**61 + 1)} + {2**61 + 1}"),
    (cubed, 2097152, 2097151, f"{2097152} * {2097152**2}"),
    (subscripted, 2**60, 2**60 - 1, f"{2**60} * 8"),
    (of_some_units, LARGEST - 4, LARGEST - 5, f"5 + {LARGEST - 4}"),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("kernel", "bad", "good", "reported"), FORMS, ids=lambda v: str(v)[:20])
def test_forms(kernel: Any, bad: int, good: int, reported: str, device: str):
    out = np.zeros(16, np.int64)
    launcher = kernel.configure(device=device, checked=True)[2, 4]
    if kernel is not of_some_units:
        launcher = kernel.configure(device=device, checked=True)[1, 1]
    launcher(good, out)
    with pytest.raises(cp.CheckError, match="E704") as caught:
        launcher(bad, out)
    left, symbol, right = reported.split()
    either = (reported, f"{right} {symbol} {left}")  # products commute
    assert any(f"the index {t} leaves" in str(caught.value) for t in either)
    name = kernel.__name__
    assert caught.value.line == line_of(__file__, name)
    is_of_some = kernel is of_some_units
    assert (caught.value.unit, caught.value.cube) == (
        ((1, 0, 0), 1) if is_of_some else (((0,) * 3), 0)
    )


@cp.cube
def hashed(out):
    i = cp.ABSOLUTE_POS
    h = cp.u64(i) * 6364136223846793005 + 1442695040888963407
    out[i] = cp.i64(h >> 33)


@pytest.mark.parametrize("device", DEVICES)
def test_unsigned_arithmetic_wraps(device: str):
    out = np.zeros(8, np.int64)
    hashed.configure(device=device, checked=True)[1, 8](out)
    wanted = [(k * 6364136223846793005 + 1442695040888963407) % 2**64 >> 33 for k in range(8)]
    assert out.tolist() == wanted


def test_unchecked_kernels_test_nothing():
    text = of_two.inspect(FUNCTIONS[operator.add], "i64", "i64", "i64[1]", stage="ir")
    assert " check %" not in text


def test_launches_beyond_what_is_proved_are_refused():
    huge = np.broadcast_to(np.zeros(1, np.int64), (2**49,))
    out = np.zeros(1, np.int64)
    with pytest.raises(cp.LaunchError, match=r"E419: first: `x` has an extent of 562949953421312"):
        first.configure(checked=True)[1, 1](huge, out)
    first[1, 1](huge, out)
    with pytest.raises(cp.LaunchError, match="E419: first: it has units: "):
        first.configure(checked=True)[2**47, 8](out, out)


@cp.cube
def first(x, out):
    if cp.ABSOLUTE_POS == 0:
        out[0] = x[0]
