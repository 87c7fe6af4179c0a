"""Scopes of names are those of Python: functions, and functions made in comprehensions."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp

carried = 77.0
"""A global of the name that the kernels below give to a local."""


def test_a_local_that_is_unset_is_not_taken_for_a_global():
    @cp.cube
    def kernel(x, out):
        total = 0.0
        for k in range(3):
            if k > 0:
                total += carried  # noqa: F823 - that is the point
            carried = x[k]  # noqa: F841
        out[0] = total

    with pytest.raises(cp.CompileError) as caught:
        kernel[1, 1](np.arange(3.0), np.zeros(1))
    assert caught.value.code == "E103" and "`carried`" in str(caught.value)


def test_nor_is_one_of_the_function_around_it():
    @cp.cube
    def kernel(x, out):
        def add(v):
            return v + carried

        out[0] = add(x[0])
        carried = x[1]
        out[1] = add(carried)

    with pytest.raises(cp.CompileError, match="E103"):
        kernel[1, 1](np.arange(3.0), np.zeros(2))


def test_functions_made_in_a_comprehension_see_its_names_as_they_are_in_the_end():
    def kernel(x, out):
        k = 50.0
        adders = [lambda v: v + k for k in (1.0, 2.0, 3.0)]
        tables = [[lambda v: v * a + b * carried for a in (2.0, 3.0)] for b in (5.0, 7.0)]
        scaled = [(lambda v: v * k)(x[1]) for k in (1.0, 2.0)]
        now = tuple(lambda v, k=k: v * k for k in (2.0, 4.0))
        out[0] = adders[0](x[0]) + k
        out[1] = tables[0][0](x[0]) + scaled[0] + scaled[1]
        out[2] = now[0](x[0]) + now[1](x[1])

    x, out, expected = np.array([10.0, 3.0]), np.zeros(3), np.zeros(3)
    kernel(x, expected)  # by Python itself
    cp.cube(kernel)[1, 1](x, out)
    assert out.tolist() == expected.tolist() == [63, 578, 32]


def test_a_global_of_a_name_that_other_functions_bind_is_read():
    def scaled(v):
        carried = v * 2
        return carried

    @cp.cube
    def kernel(x, out):
        out[0] = scaled(x[0]) + carried + (lambda v, carried=1: v + carried)(x[1])

    out = np.zeros(1)
    kernel[1, 1](np.array([1.0, 5.0]), out)
    assert out[0] == 2 + 77 + 6
