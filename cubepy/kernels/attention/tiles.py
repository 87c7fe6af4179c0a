"""Which tile of queries a cube makes, with which steps of keys, as an `Order` deals them out."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.problem import CLUSTER
from cubepy.kernels.attention.window import seen_from, seen_to, steps_within


def turns(order: Any, t: Any) -> Any:
    """How many tiles, or parts of them, the cube makes; shares have two at most."""
    if t.is_clustered:
        return cp.i32(1)
    cubes, cube = cp.u32(cp.CUBE_COUNT), cp.u32(cp.CUBE_POS)
    if t.is_split:
        begin, end = share(cube, order)
        return cp.i32(1) if end - begin // order[2] * order[2] <= order[2] else cp.i32(2)
    rounds = order[1] // cubes
    return cp.i32(rounds + cp.u32(seat(rounds, cube, cubes, t) < order[1] % cubes))


def share(cube: Any, order: Any) -> Any:
    """The steps of a cube among those of all tiles."""
    begin, end = (begin_of_share(cube + cp.u32(n), order[3], order[4]) for n in range(2))
    return begin, end


def begin_of_share(number: Any, least: Any, more: Any) -> Any:
    """The first step of a share, where all have so many or, the first so many, one more."""
    return number * least + min(number, more)


def maker(step: Any, least: Any, more: Any) -> Any:
    """The share that a step is in."""
    long = more * (least + cp.u32(1))
    is_long = step < long
    within = step if is_long else step - long
    return within // (least + cp.u32(is_long)) + (cp.u32(0) if is_long else more)


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
    if t.is_split:
        return tile_of_share(turn, extents, order, t)
    cubes, cube = cp.u32(cp.CUBE_COUNT), cp.u32(cp.CUBE_POS)
    place, end = turn * cubes + seat(turn, cube, cubes, t), order[2]
    down = (extents[2] + cp.u32(t.height - 1)) // cp.u32(t.height)
    section, within = place // (down * order[0]), place % (down * order[0])
    before = section * order[0]
    heads = min(extents[0] * extents[1] - before, order[0])
    band, head = within // heads, before + within % heads
    if t.is_causal:
        band = down - cp.u32(1) - band
        seen = min(extents[3], (band + cp.u32(1)) * cp.u32(t.height))
        end = (seen + cp.u32(t.keys - 1)) // cp.u32(t.keys)
    where = cp.i32(head // extents[1]), cp.i32(head % extents[1]), cp.i32(-1), cp.i32(0)
    first = cp.i32(band) * t.height
    if len(window):
        return where, first, *steps_within(first, t.height, cp.i32(extents[3]), window, t)
    return where, first, cp.i32(0), cp.i32(end)


def tile_of_cluster(extents: Any, order: Any, t: Any) -> Any:
    """The same where each cluster has a tile, and its cubes equal parts of the steps."""
    index, rank = cp.u32(cp.CUBE_POS) // cp.u32(CLUSTER), cp.u32(cp.CUBE_POS) % cp.u32(CLUSTER)
    begin, end = ((rank + cp.u32(n)) * order[2] // cp.u32(CLUSTER) for n in range(2))
    return part_of_tile(index, rank, begin, end, extents, t)


def tile_of_share(turn: Any, extents: Any, order: Any, t: Any) -> Any:
    """The same where each cube has a share of all steps."""
    cube = cp.u32(cp.CUBE_POS)
    low, high = share(cube, order)
    index = low // order[2] + turn
    start = index * order[2]
    part = cube - maker(start, order[3], order[4]) if turn == cp.u32(0) else cp.u32(0)
    begin, end = max(low, start) - start, min(high, start + order[2]) - start
    return part_of_tile(index, part, begin, end, extents, t)


def part_of_tile(index: Any, part: Any, begin: Any, end: Any, extents: Any, t: Any) -> Any:
    """What `tile_at` says of a part of a tile."""
    down = (extents[2] + cp.u32(t.height - 1)) // cp.u32(t.height)
    head = quotient(index, down)
    batch, within = head_at(head, extents[0], extents[1])
    where = cp.i32(batch), cp.i32(within), cp.i32(part), cp.i32(index)
    return where, cp.i32(index - head * down) * t.height, cp.i32(begin), cp.i32(end)


def head_at(head: Any, batches: Any, heads: Any) -> Any:
    """Which batch a head is in, and which of its heads it is."""
    batch = cp.u32(0)
    if batches > cp.u32(1):
        batch = quotient(head, heads)
    return batch, head - batch * heads


def quotient(a: Any, b: Any) -> Any:
    """`a // b`, where `b` is one as a rule: a division takes as long as a tenth of a step."""
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
