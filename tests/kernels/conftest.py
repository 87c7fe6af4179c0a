"""Fixtures of the tests of prebuilt kernels: fresh random numbers, whose seed is printed."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from cubepy.compilers.cuda import toolchain
from tests.optional import require_package


@dataclass
class Draw:
    """Random choices (`pick`) and random arrays."""

    pick: random.Random
    numbers: np.random.Generator

    def array(self, shape: tuple[int, ...], dtype: Any, specials: bool = False) -> np.ndarray:
        """Small numbers of `dtype`, many of them equal; `specials` are NaN and infinities."""
        x = self.numbers.integers(0 if np.dtype(dtype).kind == "u" else -9, 10, shape)
        x = np.asarray(x).astype(dtype)
        if specials and x.dtype.kind == "f":
            x[self.numbers.random(shape) < 0.3] = -np.inf
            x[self.numbers.random(shape) < 0.05] = np.inf
            x[self.numbers.random(shape) < 0.05] = np.nan
        return x

    def layout(self, x: np.ndarray) -> np.ndarray:
        """The same elements with other strides: turned, transposed, with gaps, shifted."""
        for axis in range(x.ndim):
            kind = self.pick.random()
            if kind < 0.15:
                x = np.flip(np.flip(x, axis).copy(), axis)
            elif kind < 0.25:
                x = np.repeat(x, 2, axis)[(slice(None),) * axis + (slice(None, None, 2),)]
        if self.pick.random() < 0.3:
            order = self.pick.sample(range(x.ndim), x.ndim)
            x = x.transpose(order).copy().transpose(np.argsort(order))
        return x


@pytest.fixture
def draw() -> Draw:
    seed = int(os.environ.get("CUBEPY_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"CUBEPY_TEST_SEED={seed}")
    return Draw(random.Random(seed), np.random.default_rng(seed))


@pytest.fixture
def nvrtc() -> None:
    """CUDA's compiler as a library."""
    require_package("cuda.bindings")
    if toolchain._nvrtc() is None:
        pytest.skip("package absent: nvidia-cuda-nvrtc")
