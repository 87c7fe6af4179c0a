"""Zeros that a condition chooses keep their sign, which ptxas takes from them beside -1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.compilers.ptx import launching

UNITS = 16
f32, f64 = cp.f32, cp.f64


def of_choice(x: Any) -> Any:
    return -1.0 if x > 3 else -0.0


def of_branches(x: Any) -> Any:
    v = f32(-0.0)
    if x > 3:
        v = f32(-1)
    return v


def of_one_branch(x: Any) -> Any:
    v, w = f32(x), 7
    if x <= 3:
        v = f32(-0.0)
        w = x
    else:
        v = f32(-1)
    return v * f32(w)


def of_negation(x: Any) -> Any:
    return -(f32(1) if x > 3 else f32(0))


def of_product(x: Any) -> Any:
    return (0.5 if f32(x) > 3.5 else 0.0) * f32(-2)


def of_quotient(x: Any) -> Any:
    return (f32(0) if x > 3 else f32(3)) / f32(-3)


def of_doubles(x: Any) -> Any:
    return f32(-(f64(1) if x > 3 else f64(0)))


def of_nested(x: Any) -> Any:
    return -(f32(x) if x > 9 else f32(0) if x > 3 else f32(1))


def of_lines(x: Any) -> Any:
    v = cp.where(cp.Line[cp.i32, 2](x) > 3, cp.Line[cp.f32, 2](1), cp.Line[cp.f32, 2](0))
    return (-v)[1]


def of_steps(x: Any) -> Any:
    return -(f32(2) if x > 3 else f32(0)) * f32(0.5)


def of_sum(x: Any) -> Any:
    return -0.0 - (f32(1) if x > 3 else f32(0))


def of_records(x: Any) -> Any:
    a, b = (f32(1), 5) if x > 3 else (f32(0), 6)
    return -a * f32(b)


def returned(x: Any) -> Any:
    if x > 3:
        return f32(-1)
    return -0.0


def of_a_loop(x: Any) -> Any:
    v = f32(0)
    for k in range(x % 3 + 1):
        if x > 3 + k:
            v = f32(1)
            break
    return -v


def less_one(x: Any) -> Any:
    t = -f32(x)
    if t < -2:
        t = t - 1
    return t


def more_minus_one(x: Any) -> Any:
    t = -f32(x)
    return -1 + t if t < -2 else t


def less_one_in_steps(x: Any) -> Any:
    t = -f32(x)
    for k in range(3):
        if t < -2 - k:
            t -= 1
    return t


def less_one_or_returned(x: Any) -> Any:
    t = -f32(x)
    if t < -2:
        return t - 1.0
    return t


def lines_less_one(x: Any) -> Any:
    t = -cp.Line[cp.f32, 2](x)
    return cp.where(t < -2, t - 1, t)[1]


def of_bfloats(x: Any) -> Any:
    return cp.bf16(cp.where(x > 9, -0.5, -1 if x > 3 else -0.0))


def of_negated_bfloats(x: Any) -> Any:
    return -f32(cp.bf16(1) if x > 3 else cp.bf16(0))


def of_steps_of_a_loop(x: Any) -> Any:
    v, k = f32(-0.0), 0
    while k < 2:
        k += 1
        if x > 3 + 2 * k:
            v = f32(-1)
    return v


def of_negated_steps(x: Any) -> Any:
    v, k = f32(0), 0
    while k < 2:
        k += 1
        if x > 3 + 2 * k:
            v = f32(1)
    return -v


FORMS = (
    *(of_steps_of_a_loop, of_negated_steps),
    *(of_bfloats, of_negated_bfloats),
    *(less_one, more_minus_one, less_one_in_steps, less_one_or_returned, lines_less_one),
    *(of_choice, of_branches, of_one_branch, of_negation, of_product, of_quotient),
    *(of_doubles, of_nested, of_lines, of_steps, of_sum, of_records, returned, of_a_loop),
)


def kernel_of(form: Callable[[Any], Any]) -> Any:
    def kernel(x: Any, out: Any):
        i = cp.UNIT_POS
        out[i] = form(x[i])

    return cp.cube(kernel)


def bits(kernel: Any, x: Any, device: str) -> Any:
    out = np.full(UNITS, 7, np.float32)
    kernel.configure(device=device)[1, UNITS](x, out)
    return out.view(np.uint32)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_signs_of_chosen_zeros(form: Callable[[Any], Any]):
    launching.require()
    kernel, x, out = kernel_of(form), np.arange(UNITS, dtype=np.int32), np.zeros(UNITS, np.float32)
    launching.launch(kernel, UNITS, [x, out])
    np.testing.assert_array_equal(out.view(np.uint32), bits(kernel, x, "interpreter"))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_the_cpu_agrees(form: Callable[[Any], Any]):
    kernel, x = kernel_of(form), np.arange(UNITS, dtype=np.int32)
    np.testing.assert_array_equal(bits(kernel, x, "cpu"), bits(kernel, x, "interpreter"))


def stored_twice(x: Any, out: Any):
    i = cp.UNIT_POS
    t = -f32(x[i])
    if t < -2:
        out[i] = t - 1
    else:
        out[i] = t


def test_signs_of_zeros_that_are_stored():
    launching.require()
    kernel, x, out = cp.cube(stored_twice), np.arange(UNITS, dtype=np.int32), np.ones(UNITS, "f4")
    launching.launch(kernel, UNITS, [x, out])
    np.testing.assert_array_equal(out.view(np.uint32), bits(kernel, x, "interpreter"))


def test_other_choices_are_left_alone():
    @cp.cube
    def masked(x: Any, out: Any):
        i = cp.UNIT_POS
        kept = f32(1) if x[i] > 0.5 else f32(0)
        out[i] = (x[i] if x[i] > 0 else f32(0)) * kept + (f32(2) if x[i] < 9 else f32(3)) * -1

    text = masked[1, UNITS].inspect("f32[16]", "f32[16]", target=launching.TARGET)
    assert "hidden" not in str(text)
