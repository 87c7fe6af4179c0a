"""Control flow: every statement of it, in kernels and helpers, against Python itself."""

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.frontend import choices, control
from tests.frontend.oracle import check

CASES = [*control.CASES, *choices.CASES]
X = np.arange(33, dtype=np.int32) - 12


@pytest.mark.parametrize("kernel", CASES, ids=lambda k: k.__name__)
def test_as_in_python(kernel: Any):
    check(kernel, X)


@pytest.mark.parametrize("kernel", CASES, ids=lambda k: k.__name__)
def test_as_in_python_without_optimisation(kernel: Any):
    with cp.settings(opt_level=0):
        check(cp.cube(kernel.function), X)


@pytest.mark.parametrize("flag", [False, True])
def test_comptime_loop_conditions(flag: bool):
    @cp.cube
    def kernel(x, flag: cp.Comptime[bool], out):
        i = cp.ABSOLUTE_POS
        n = x[i]
        while flag:
            n += 5
            if n > 30:
                break
        else:
            n -= 1
        while not flag and n < 9:
            n += 2
        out[i] = n

    check(kernel, X, flag)
