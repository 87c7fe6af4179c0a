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
