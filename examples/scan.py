"""Prefix sum of an array that is longer than a cube: two kernels, three steps.

1. Each cube scans its own block and writes the block's total.
2. The totals are scanned, by the same kernel (again in blocks, if there are many).
3. Each block adds the total of all blocks before it.
"""

from typing import Any

import numpy as np

import cubepy as cp

BLOCK = 256


@cp.cube
def scan_blocks_kernel(x, out, totals):
    shared = cp.shared(BLOCK, x.dtype)
    unit, i = cp.UNIT_POS, cp.ABSOLUTE_POS

    total = x[i] if i < x.size else x.dtype(0)
    shared[unit] = total
    cp.sync_cube()
    for k in cp.unroll(range(BLOCK.bit_length() - 1)):  # distances 1, 2, 4, ..., BLOCK / 2
        if unit >= 2**k:
            total += shared[unit - 2**k]
        cp.sync_cube()  # everybody has read
        shared[unit] = total
        cp.sync_cube()  # everybody has written

    if i < x.size:
        out[i] = total
    if unit == BLOCK - 1:
        totals[cp.CUBE_POS] = total


@cp.cube
def add_totals_kernel(out, totals):
    i = cp.ABSOLUTE_POS
    if i < out.size and cp.CUBE_POS > 0:
        out[i] += totals[cp.CUBE_POS - 1]


def scan(x: np.ndarray, **settings: Any) -> np.ndarray:
    """np.cumsum(x) of one axis."""
    out = np.empty_like(x)
    blocks = -(-x.size // BLOCK)
    totals = np.empty(blocks, x.dtype)
    scan_blocks_kernel.configure(**settings)[blocks, BLOCK](x, out, totals)
    if blocks > 1:
        totals = scan(totals, **settings)
        add_totals_kernel.configure(**settings)[blocks, BLOCK](out, totals)
    return out


def main() -> None:
    x = np.random.default_rng(0).integers(-100, 100, 300_000, np.int32)
    np.testing.assert_array_equal(scan(x), np.cumsum(x))
    print(f"scan: {x.size} elements equal to NumPy")


if __name__ == "__main__":
    main()
