"""Histogram of bytes: each cube counts in shared memory, then adds its counts to the result."""

from typing import Any

import numpy as np

import cubepy as cp

BINS = 256
CUBE = 256


@cp.cube
def histogram_kernel(x, counts):
    mine = cp.shared(BINS, cp.i32)
    for b in range(cp.UNIT_POS, BINS, CUBE):  # shared memory starts with any content
        mine[b] = 0
    cp.sync_cube()
    for i in range(cp.ABSOLUTE_POS, x.size, CUBE * cp.CUBE_COUNT):
        cp.atomic.add(mine, x.flat[i], 1)
    cp.sync_cube()
    for b in range(cp.UNIT_POS, BINS, CUBE):
        cp.atomic.add(counts, b, mine[b])


def histogram(x: np.ndarray, cubes: int = 16, **settings: Any) -> np.ndarray:
    """How often each byte occurs in `x`."""
    counts = np.zeros(BINS, np.int32)
    histogram_kernel.configure(**settings)[cubes, CUBE](x, counts)
    return counts


def main() -> None:
    x = np.random.default_rng(0).normal(128, 30, (600, 800)).clip(0, 255).astype(np.uint8)
    np.testing.assert_array_equal(histogram(x), np.bincount(x.ravel(), minlength=BINS))
    print(f"histogram: {x.size} bytes equal to NumPy")


if __name__ == "__main__":
    main()
