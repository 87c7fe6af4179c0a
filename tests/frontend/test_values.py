"""Tuples, calls, closures, structures, views and locals, against Python itself."""

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.frontend import objects, values
from tests.frontend.oracle import check

CASES = [*values.CASES, *objects.CASES]
X = np.random.default_rng(2).integers(-9, 10, (4, 9)).astype(np.int32)


@pytest.mark.parametrize("kernel", CASES, ids=lambda k: k.__name__)
@pytest.mark.parametrize("layout", ["plain", "transposed"])
def test_as_in_python(kernel: Any, layout: str):
    x = X if layout == "plain" else np.asfortranarray(X)
    with cp.settings(opt_level=3 if layout == "plain" else 0):
        check(cp.cube(kernel.function) if layout != "plain" else kernel, x, shape=(9,))
