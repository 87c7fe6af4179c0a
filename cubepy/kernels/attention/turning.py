"""Values of 8 bits are transposed in shared memory: `wgmma` takes bytes along the keys alone.

Two planes read what the copy engine brought and store it transposed, while others compute. In each
16 keys 2n, 2n + 1, 2n + 8 and 2n + 9 come to lie at 4n to 4n + 3, which is where a unit has their
weights (Shah et al., "FlashAttention-3", 2024): `ldmatrix` gives it pairs of elements of two such
pairs of keys, and a permutation of bytes makes two words of four keys.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp

FIRST, TURNING = 2, 2
"""The first plane of its warpgroup that transposes, and how many do."""
FIRSTS, SECONDS = 0x6420, 0x7531
"""The first bytes of the pairs in two words, and the second ones, for `prmt`."""


def turn_step(memory: Any, by_value: Any, place: Any, by_turned: Any, behind: Any, t: Any) -> None:
    """Transpose a step of values, by `TURNING` planes."""
    lane, plane = cp.i32(cp.UNIT_POS) % 32, cp.i32(cp.UNIT_POS) // 32 - FIRST
    by_value.wait(place)
    by_turned.reserve(behind)
    for group in cp.unroll(range(0, t.keys // 16, TURNING)):
        for chunk in cp.unroll(range(t.turned_rows // 32)):
            turn_square(memory, (place.stage, behind.stage), group + plane, chunk, lane)
    cp.cuda.fence_async()
    cp.sync_plane()
    if lane == 0:
        by_value.release(place.stage)
        by_turned.publish(behind.stage)


def turn_square(memory: Any, stages: Any, group: Any, chunk: int, lane: Any) -> None:
    """Transpose 32 elements of the values of 16 keys.

    Which of two words a unit stores first depends on its lane, so that the rows of a matrix lie in
    different banks.
    """
    values, turned = memory[2], memory[4]
    across, is_early = chunk * 2 + lane // 16, lane < 16
    place = stages[0], across // 8, group * 16 + lane % 16, (across % 8 ^ lane % 8) * 16
    found = cp.cuda.ldmatrix(values, place, 4, transposed=True)
    first = cp.u32(FIRSTS) if is_early else cp.u32(SECONDS)
    second = cp.u32(SECONDS) if is_early else cp.u32(FIRSTS)
    words = cp.local(4, cp.u32)
    for n in cp.unroll(range(2)):
        words[2 * n] = permuted(found[2 * n], found[2 * n + 1], first)
        words[2 * n + 1] = permuted(found[2 * n], found[2 * n + 1], second)
    row = across * 16 + lane % 8 * 2 + (lane // 8 % 2 ^ lane % 8 // 4)
    place = stages[1], group // 8, row, (group % 8 ^ row % 8) * 16
    cp.cuda.stmatrix(turned, place, cp.load(words, 0, line=4))


def permuted(one: Any, other: Any, which: Any) -> Any:
    """Four of the bytes of two words."""
    return cp.cuda.ptx("prmt.b32 %0, %1, %2, %3;", one, other, which, result=cp.u32)
