"""Sorting by cubes: blocks in shared memory, and then runs that are merged.

Blocks are sorted by the bitonic network (Batcher, 1968) on pairs of key and position, which makes
it stable; an element finds its place in a merge by a binary search in the other run.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.sorting.keys import key_of
from cubepy.kernels.sorting.problem import Order
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class MergeTiling:
    """How cubes sort: blocks of `block` elements, a power of two, by `units` units."""

    block: int
    units: int

    @property
    def steps(self) -> int:
        """The logarithm of `block`."""
        return self.block.bit_length() - 1


@cp.cube
def sort_blocks(
    x: cp.Tensor,
    runs: Any,
    values: cp.Tensor,
    indices: cp.Tensor,
    how: cp.Comptime[Order],
    tiling: cp.Comptime[MergeTiling],
) -> None:
    """A cube sorts one block of a row. `runs`: keys and positions of all rows, which later merges
    read; none where a row is one block."""
    n, block = x.shape[-1], tiling.block
    blocks = (n + block - 1) // block
    where, first = unravelled(cp.CUBE_POS // blocks, x.shape[:-1]), cp.CUBE_POS % blocks * block
    keys, order = cp.shared(block, how.key), cp.shared(block, how.position)
    for k in range(cp.UNIT_POS, block, cp.CUBE_DIM):
        key = key_of(x[(*where, min(first + k, n - 1))], how)
        keys[k] = key if first + k < n else how.key(how.last)
        order[k] = how.position(first + k)
    cp.sync_cube()
    for s in range(tiling.steps):
        for t in range(s + 1):
            compare_all(keys, order, 2 << s, 1 << (s - t), block)
            cp.sync_cube()
    for k in range(cp.UNIT_POS, min(block, n - first), cp.CUBE_DIM):
        if len(runs) > 0:
            runs[0][(*where, first + k)] = keys[k]
            runs[1][(*where, first + k)] = order[k]
        elif k < values.shape[-1]:
            values[(*where, k)] = x[(*where, order[k])]
            indices[(*where, k)] = order[k]


def compare_all(keys: Any, order: Any, size: Any, stride: Any, block: Any) -> None:
    """One step of the network: pairs `stride` apart; runs of `size` ascend and descend in turn."""
    for k in range(cp.UNIT_POS, block // 2, cp.CUBE_DIM):
        low = k // stride * (2 * stride) + k % stride
        high = low + stride
        a, b, i, j = keys[low], keys[high], order[low], order[high]
        is_after = a > b or (a == b and i > j)
        if is_after == (low // size % 2 == 0):
            keys[low], keys[high] = b, a
            order[low], order[high] = j, i


@cp.cube
def merge_runs(
    x: cp.Tensor,
    source: Any,
    target: Any,
    values: cp.Tensor,
    indices: cp.Tensor,
    run: int,
    how: cp.Comptime[Order],
) -> None:
    """A unit puts one element where it belongs in the merge of two runs of `run` elements.

    `source` and `target`: keys and positions; without a target the results are written.
    """
    keys, order = source
    if keys.size > cp.ABSOLUTE_POS:
        n = keys.shape[-1]
        where, j = unravelled(cp.ABSOLUTE_POS // n, keys.shape[:-1]), cp.ABSOLUTE_POS % n
        start = j // (2 * run) * (2 * run)
        middle, end = min(start + run, n), min(start + 2 * run, n)
        key, position = keys[(*where, j)], order[(*where, j)]
        is_left = j < middle
        low, high = cp.where(is_left, middle, start), cp.where(is_left, end, middle)
        own = j - cp.where(is_left, start, middle)
        base = low
        while low < high:
            half = (low + high) // 2
            other = keys[(*where, half)]
            is_before = other < key or (not is_left and other == key)
            low = half + 1 if is_before else low
            high = high if is_before else half
        at = start + own + (low - base)
        if len(target) > 0:
            target[0][(*where, at)] = key
            target[1][(*where, at)] = position
        elif at < values.shape[-1]:
            values[(*where, at)] = x[(*where, position)]
            indices[(*where, at)] = position
