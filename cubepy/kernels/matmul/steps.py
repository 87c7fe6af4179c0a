"""Steps along k on GPUs: tiles of both factors on their way to shared memory, some steps ahead.

Copies run by themselves where the hardware has asynchronous ones, else through registers, while the
units multiply what is there. What they multiply comes to registers one part of a step ahead too, so
that a barrier is reached with work at hand. A tile of a factor is described by an object with these
names: `seen`, its extents as the factor lies in memory; `copy`, elements that are copied at once;
`is_async`, whether by themselves; `lanes`, units that copy from one row; `along_k`, whether the
factor is dense along k; `turns`, whether the tile in shared memory is the transposed one; `shape`,
its extents there; and `stored_at(r, c)`, where an element lies.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.kernels.matmul.finish import finished


def multiply_steps(
    x: Any, y: Any, origin: Any, held: Any, load: Any, multiply: Any, t: Any
) -> None:
    """Go through all steps, each of `t.parts` parts, in loops of `t.unrolled`, an even number.

    `load(left, right, part, held, buffer, t)` brings a part of a step to one of two buffers in
    registers, `multiply(held, buffer, t)` adds its products. `x` and `y` are matrices that are
    dense along their last axes, if along any; `origin`: the row and the column at which the tile of
    the result begins.
    """
    inner = x.shape[1] if t.left_tile.along_k else x.shape[0]
    left = cp.shared((t.stages, *t.left_tile.shape), t.factors)
    right = cp.shared((t.stages, *t.right_tile.shape), t.factors)
    from_x = pieces(x, origin[0], t.left_tile)
    from_y = pieces(y, origin[1], t.right_tile)
    on_the_way = registers_for(x, t.left_tile), registers_for(y, t.right_tile)
    ahead = t.stages - 1
    for step in cp.unroll(range(ahead)):
        start(from_x, left, on_the_way[0], step, step * t.depth, inner, (0, 1), t.left_tile)
        start(from_y, right, on_the_way[1], step, step * t.depth, inner, (0, 1), t.right_tile)
        arrive(left, right, on_the_way, step, t)
    join_copies(ahead - 1, t)
    load(left[0], right[0], 0, held, 0, t)
    stage, free = cp.i32(0), cp.i32(ahead)
    for k0 in range(0, inner, t.depth):
        for first in range(0, t.parts - t.unrolled, t.unrolled):
            for part in cp.unroll(range(t.unrolled)):
                load(left[stage], right[stage], first + part + 1, held, (part + 1) % 2, t)
                multiply(held, part % 2, t)
        for part in cp.unroll(range(t.unrolled - 1)):
            k, share = k0 + ahead * t.depth, (part, t.unrolled - 1)
            start(from_x, left, on_the_way[0], free, k, inner, share, t.left_tile)
            start(from_y, right, on_the_way[1], free, k, inner, share, t.right_tile)
            following = t.parts - t.unrolled + part + 1
            load(left[stage], right[stage], following, held, (part + 1) % 2, t)
            multiply(held, part % 2, t)
        arrive(left, right, on_the_way, free, t)
        join_copies(ahead - 1, t)
        stage = cp.i32(0) if stage == ahead else stage + 1
        free = cp.i32(0) if free == ahead else free + 1
        load(left[stage], right[stage], 0, held, 0, t)
        multiply(held, 1, t)


def join_copies(count: Any, t: Any) -> None:
    """Wait until all copies but the last `count` groups have arrived, those of all units."""
    if t.is_async:
        cp.cuda.async_wait(count)
    cp.sync_cube()


# A unit's part of the copies


def pieces(f: Any, first: Any, tile: Any) -> Any:
    """What a unit copies of the tiles whose rows or columns begin at `first`, as views that begin
    where its pieces of the first step do; others stand for what lies outside."""
    return tuple(piece(f, first, e, tile) for e in range(count_pieces(tile)))


def count_pieces(tile: Any) -> Any:
    """How many pieces of a tile a unit copies."""
    high = cp.CUBE_DIM // tile.lanes
    return (tile.seen[0] + high - 1) // high * (tile.seen[1] // (tile.copy * tile.lanes))


def piece(f: Any, first: Any, e: Any, tile: Any) -> Any:
    """One of them."""
    r, c = place_of(e, tile)
    if tile.along_k:
        return f[min(first + r, f.shape[0] - 1)]
    return f[:, min(first + c, f.shape[1] - tile.copy) :]


def place_of(e: Any, tile: Any) -> Any:
    """The row and first column in a tile of a piece of the unit.

    `tile.lanes` units are beside each other. Pieces that follow each other are in the same row, as
    far as it goes, so that they need one address.
    """
    turns = tile.seen[1] // (tile.copy * tile.lanes)
    row = e // turns * (cp.CUBE_DIM // tile.lanes) + cp.UNIT_POS // tile.lanes
    return row, (e % turns * tile.lanes + cp.UNIT_POS % tile.lanes) * tile.copy


def start(
    views: Any,
    tiles: Any,
    lines: Any,
    stage: Any,
    k0: Any,
    inner: Any,
    share: Any,
    tile: Any,
) -> None:
    """Start some of the copies of a tile: share i of n. Zeros stand for what is beyond the end
    of k."""
    i, n = share
    for e in cp.unroll(range(-(-len(views) * i // n), -(-len(views) * (i + 1) // n))):
        r, c = place_of(e, tile)
        if r < tile.seen[0]:
            k = k0 + (c if tile.along_k else r)
            at = k if tile.along_k else (k, 0)
            if tile.is_async:
                place = stage, *tile.stored_at(r, c)
                cp.cuda.async_copy(tiles, place, views[e], at, tile.copy, k < inner)
            elif k < inner:
                lines[e] = cp.load(views[e], at, line=tile.copy, fill=None)
            else:
                lines[e] = cp.Line[lines.dtype, tile.copy](0)


def registers_for(f: Any, tile: Any) -> Any:
    """Registers for a unit's pieces of a tile."""
    return cp.local(0 if tile.is_async else count_pieces(tile), cp.Line[f.dtype, tile.copy])


def arrive(left: Any, right: Any, on_the_way: Any, stage: Any, t: Any) -> None:
    """End what `start` began: a group of copies, or stores of what came to registers."""
    put(on_the_way[0], left[stage], t.left_tile, t)
    put(on_the_way[1], right[stage], t.right_tile, t)
    if t.is_async:
        cp.cuda.async_commit()


def put(lines: Any, memory: Any, tile: Any, t: Any) -> None:
    """Store a unit's pieces of a tile, as the type that is multiplied."""
    for e in cp.unroll(range(lines.size)):
        r, c = place_of(e, tile)
        if r < tile.seen[0]:
            v = cp.Line[t.factors, tile.copy](lines[e])
            if tile.turns:
                for lane in cp.unroll(range(tile.copy)):
                    i, j = tile.stored_at(r, c + lane)
                    memory[i, j] = v[lane]
            else:
                i, j = tile.stored_at(r, c)
                cp.store(memory[i], j, v, whole=True)


# Sums of parts of k


@cp.cube
def add_many_parts(
    parts: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    line: cp.Comptime[int],
    share: cp.Comptime[int],
) -> None:
    """Add sums over parts of k, [part, row, column]; `share` units of a plane for each line of a
    row, which divide its parts among them. A plane reads lines that lie beside each other."""
    across, beside = (out.shape[1] + line - 1) // line, cp.comptime(cp.PLANE_DIM // share)
    plane, lane = cp.ABSOLUTE_POS // cp.PLANE_DIM, cp.ABSOLUTE_POS % cp.PLANE_DIM
    place, first = plane * beside + lane % beside, lane // beside
    i, j = place // across, place % across * line
    v = cp.Line[parts.dtype, line](0)
    if i < out.shape[0]:
        for part in range(first, parts.shape[0], share):
            v = v + cp.load(parts[part, i], j, line=line)
    for n in cp.unroll(range(share.bit_length() - 1)):
        v = v + cp.plane_shuffle_xor(v, beside << n)
    if first == 0 and i < out.shape[0]:
        cp.store(out[i], j, finished(v, (i, j), biases, extras, epilogue))


# The order of cubes

BAND = 8
"""Tiles down that cubes go through before they go on across, so that caches hold both factors."""


def banded(tile: Any, down: Any, across: Any, rows: int = BAND) -> Any:
    """The row and column of a tile: bands of so many rows are gone through column by column."""
    band, within = tile // (rows * across), tile % (rows * across)
    high = min(down - band * rows, rows)
    return band * rows + within % high, within // high
