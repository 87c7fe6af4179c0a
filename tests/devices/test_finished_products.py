"""Biases and epilogues of products of groups and of transposed convolutions, on GPUs of NVIDIA."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.kernels import test_finished_groups as groups
from tests.kernels import test_phase_epilogues as phases
from tests.kernels.test_phases import CASES

ENDS = ([70, 70, 300], [0, 129, 200], [500, 1, 999], [1, 0, 33, 65, 130])


@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.int8])
def test_groups(cuda: str, ends: list[int], dtype: Any):
    orders = ("C", "F" if len(ends) == 5 else "C")
    groups.check(ends, (300, 136, 272), dtype, cuda, orders)


@pytest.mark.parametrize("extents", [(41, 9, 19), (7, 0, 3), (3, 70, 1)])
def test_groups_without_tensor_cores(cuda: str, extents: tuple[int, int, int]):
    groups.check([2, 2, 5], extents, np.float32, cuda)
    groups.check([2, 2, 5], extents, ml_dtypes.bfloat16, cuda, ("C", "F"))


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16])
def test_transposed_convolutions(cuda: str, number: int, dtype: Any):
    phases.check(CASES[number], dtype, False, cuda, layout=number % 2 == 0)
