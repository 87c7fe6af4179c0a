"""Which tile of queries a cube makes, with which steps of keys, as an `Order` deals them out."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.problem import CLUSTER
from cubepy.kernels.attention.window import seen_from, seen_to, steps_within


def turns(order: Any, t: Any) -> Any:
    """How many tiles, or parts of them, the cube makes."""
    if t.is_clustered:
        return cp.i32(1)
    cubes, cube = cp.u32(cp.CUBE_COUNT), cp.u32(cp.CUBE_POS)
    rounds = order[1] // cubes
    count = rounds + cp.u32(seat(rounds, cube, cubes, t) < order[1] % cubes)
    if t.is_split and cube < order[3]:
        begin, end = span(cube, order)
        count += (end - cp.u32(1)) // order[4] - begin // order[4] + cp.u32(1)
    return cp.i32(count)


def span(cube: Any, order: Any) -> Any:
    """The steps of a cube among those of all split tiles."""
    steps = order[2] * order[4]
    return cube * steps // order[3], (cube + cp.u32(1)) * steps // order[3]


def seat(turn: Any, cube: Any, cubes: Any, t: Any) -> Any:
    """The place of a cube in a turn: causal tiles become shorter, so that every other turn goes
    back."""
    if not t.is_causal:
        return cube
    return cubes - cp.u32(1) - cube if turn % cp.u32(2) == cp.u32(1) else cube


def tile_at(turn: Any, extents: Any, order: Any, window: Any, t: Any) -> Any:
    """Batch and head, part and number of a split tile, first query, and the steps of keys.

    Some causal heads are done before the next, of them the longest tiles first.
    """
    if t.is_clustered:
        return tile_of_cluster(extents, order, t)
    cubes, cube = cp.u32(cp.CUBE_COUNT), cp.u32(cp.CUBE_POS)
    place = turn * cubes + seat(turn, cube, cubes, t)
    begin, end, part, index = cp.u32(0), order[4], cp.i32(-1), cp.u32(0)
    if t.is_split and turn >= order[1] // cubes:
        low, high = span(cube, order)
        index = low // order[4] + turn - order[1] // cubes
        start = index * order[4]
        place, begin = order[1] + index, max(low, start) - start
        end = min(high, start + order[4]) - start
        part = cp.i32(cube - ((start + cp.u32(1)) * order[3] - cp.u32(1)) // (order[2] * order[4]))
    down = (extents[2] + cp.u32(t.height - 1)) // cp.u32(t.height)
    section, within = place // (down * order[0]), place % (down * order[0])
    before = section * order[0]
    heads = min(extents[0] * extents[1] - before, order[0])
    band, head = within // heads, before + within % heads
    if t.is_causal:
        band = down - cp.u32(1) - band
        seen = min(extents[3], (band + cp.u32(1)) * cp.u32(t.height))
        end = (seen + cp.u32(t.keys - 1)) // cp.u32(t.keys)
    where = cp.i32(head // extents[1]), cp.i32(head % extents[1]), part, cp.i32(index)
    first = cp.i32(band) * t.height
    if len(window):
        return where, first, *steps_within(first, t.height, cp.i32(extents[3]), window, t)
    return where, first, cp.i32(begin), cp.i32(end)


def tile_of_cluster(extents: Any, order: Any, t: Any) -> Any:
    """The same where each cluster has a tile, and its cubes equal parts of the steps. A division
    takes as long as a tenth of a step, so that there are none as a rule."""
    index, rank = cp.u32(cp.CUBE_POS) // cp.u32(CLUSTER), cp.u32(cp.CUBE_POS) % cp.u32(CLUSTER)
    begin, end = (cp.i32((rank + cp.u32(n)) * order[4] // cp.u32(CLUSTER)) for n in range(2))
    down = (extents[2] + cp.u32(t.height - 1)) // cp.u32(t.height)
    head = quotient(index, down)
    batch = quotient(head, extents[1]) if extents[0] > cp.u32(1) else cp.u32(0)
    where = cp.i32(batch), cp.i32(head - batch * extents[1]), cp.i32(rank), cp.i32(index)
    return where, cp.i32(index - head * down) * t.height, begin, end


def quotient(a: Any, b: Any) -> Any:
    """`a // b`, of which `b` is one as a rule."""
    found = a
    if b != cp.u32(1):
        found = a // b
    return found


def whole_steps(first: Any, count: int, begin: Any, keys: Any, window: Any, t: Any) -> Any:
    """The steps of keys that all of `count` queries see, from which and up to which."""
    low, high = begin, cp.i32(keys) // t.keys
    if len(window) or t.is_causal:
        high = max(begin, seen_to(first, keys, window, t) // t.keys)
    if len(window):
        low = max(begin, (seen_from(first + count - 1, window) + t.keys - 1) // t.keys)
    return low, high
