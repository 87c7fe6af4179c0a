"""Some of the random problems for CPUs; `python -m tests.kernels.random_problems` runs more."""

from __future__ import annotations

import pytest

from tests.kernels.random_problems import run


@pytest.mark.parametrize("seed", range(24))
def test_a_problem(seed: int):
    run(seed)
