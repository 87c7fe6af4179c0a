"""Bitonic sort: a network of compare-and-swap steps that does not depend on the data.

Steps over long distances run on the array itself, one launch each. As soon as pairs lie within one
cube's block, all remaining distances run in shared memory in one launch.
"""

from typing import Any

import numpy as np

import cubepy as cp

CUBE = 128
BLOCK = 2 * CUBE  # a unit handles one pair, so a cube holds two elements for each unit


@cp.cube
def swap_if_needed(x, pair, first, distance, run):
    """Order the pair's two elements: up in even runs, down in odd ones.

    `first` is the position of x[0] in the whole array; runs are counted there.
    """
    a = 2 * distance * (pair // distance) + pair % distance
    b = a + distance
    is_up = (first + a) // run % 2 == 0
    left, right = x[a], x[b]
    if (left > right) == is_up:
        x[a], x[b] = right, left


@cp.cube
def step_kernel(x, distance: int, run: int):
    swap_if_needed(x, cp.ABSOLUTE_POS, 0, distance, run)


@cp.cube
def steps_in_block_kernel(x, first_distance: int, run: int):
    block = cp.shared(BLOCK, x.dtype)
    start = cp.CUBE_POS * BLOCK
    for k in range(cp.UNIT_POS, BLOCK, CUBE):
        block[k] = x[start + k]
    cp.sync_cube()
    distance = first_distance
    while distance > 0:
        swap_if_needed(block, cp.UNIT_POS, start, distance, run)
        cp.sync_cube()
        distance = distance // 2
    for k in range(cp.UNIT_POS, BLOCK, CUBE):
        x[start + k] = block[k]


def sort(x: np.ndarray, **settings: Any) -> np.ndarray:
    """np.sort(x) of f32 without NaN; the network wants a power of two, so the end is padded."""
    size = max(BLOCK, 1 << (x.size - 1).bit_length())
    padded = np.full(size, np.inf, np.float32)
    padded[: x.size] = x
    blocks = size // BLOCK
    step = step_kernel.configure(**settings)[blocks, CUBE]
    steps_in_block = steps_in_block_kernel.configure(**settings)[blocks, CUBE]
    run = 2
    while run <= size:
        distance = run // 2
        while distance > CUBE:
            step(padded, distance, run)
            distance //= 2
        steps_in_block(padded, distance, run)
        run *= 2
    return padded[: x.size]


def main() -> None:
    x = np.random.default_rng(0).normal(size=50_000).astype(np.float32)
    np.testing.assert_array_equal(sort(x), np.sort(x))
    print(f"bitonic sort: {x.size} elements equal to NumPy")


if __name__ == "__main__":
    main()
