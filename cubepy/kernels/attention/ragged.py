"""Attention on Hopper of sequences of different lengths, by the tiles of `warpgroups`.

Ragged tensor maps end boxes where a sequence ends: what lies behind is read as zeros, and not
written. Heads that share keys are rows of one tile where their number divides that of a warpgroup:
so a step of keys serves them together, and few queries fill a tile.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.dealing import after, first_of, note_makers, tile_at
from cubepy.kernels.attention.parts import note
from cubepy.kernels.attention.problem import Sequences, Warpgroups
from cubepy.kernels.attention.rows import Packed
from cubepy.kernels.attention.tiles import whole_steps
from cubepy.kernels.attention.turning import FIRST, turn_step
from cubepy.kernels.attention.warpgroups import (
    attend_tile,
    await_turn,
    finish,
    group_of,
    memory_of,
    pass_turn,
    rings_of,
    store_sums,
)
from cubepy.kernels.attention.weights import Seen
from cubepy.kernels.attention.window import seen_from, seen_to


@cp.cube
def attend_ragged(
    q: cp.cuda.TensorMap,
    k: cp.cuda.TensorMap,
    v: cp.cuda.TensorMap,
    out: cp.cuda.TensorMap,
    wide: Any,
    parts: Any,
    marks: Any,
    extents: tuple[cp.i32, cp.i32, cp.i32],
    window: Any,
    scale: cp.f32,
    t: cp.Comptime[Warpgroups],
    r: cp.Comptime[Sequences],
) -> None:
    """Maps are ragged, of [tokens, heads, elements]; pages follow each other. `marks`: see
    `rows.band_at`; `extents`: slots, heads over those that are packed, and queries of each sequence
    where all have as many. `wide`: results as a tensor where they are f32; `parts`: where steps are
    dealt out, results over parts, their sizes, and makers of tiles, as `parts.join_sequences` takes
    them."""
    memory, rings = memory_of(t), rings_of(t)
    cp.sync_cube()
    few, many = t.registers
    group = cp.i32(cp.UNIT_POS // 128)
    if group == 0:
        if few:
            cp.cuda.decrease_registers(few)
        if cp.UNIT_POS // 32 == 0:
            copy_keys((q, k), memory, rings, marks, extents, window, t, r)
        if cp.UNIT_POS // 32 == 1:
            copy_values(v, memory[2], rings[2], marks, extents, window, t, r)
        if t.turns_values and cp.UNIT_POS // 32 >= FIRST:
            turn_all(memory, rings, marks, extents, window, t, r)
    else:
        if many:
            cp.cuda.increase_registers(many)
        attend_tiles((out, wide, parts), memory, rings, marks, extents, window, scale, t, r)


# The planes that copy: a unit takes some hundred cycles for a box, so keys and values have one each


def copy_keys(
    maps: Any,
    memory: Any,
    rings: Any,
    marks: Any,
    extents: Any,
    window: Any,
    t: Any,
    r: Any,
) -> None:
    """Queries of each tile, and its steps of keys, the last first."""
    q, k = maps
    asked, by_key = rings[:2]
    turn_of_queries, place = asked.start(), by_key.start()
    at = first_of(marks, extents, window, t, r)
    while at.now < at.end:
        tile = tile_at(at, marks, extents, window, t, r)
        if tile.is_there:
            copy_queries(q, memory[0], tile, asked, turn_of_queries, t, r)
            turn_of_queries = asked.following(turn_of_queries)
            place = copy_steps(k, memory[1], tile, by_key, place, marks, t, r)
        at = after(at, tile, t)


def copy_values(
    v: Any,
    memory: Any,
    ring: Any,
    marks: Any,
    extents: Any,
    window: Any,
    t: Any,
    r: Any,
) -> None:
    """The steps of values of each tile, the last first."""
    place = ring.start()
    at = first_of(marks, extents, window, t, r)
    while at.now < at.end:
        tile = tile_at(at, marks, extents, window, t, r)
        if tile.is_there:
            place = copy_steps(v, memory, tile, ring, place, marks, t, r)
        at = after(at, tile, t)


def copy_steps(
    tensor: Any, memory: Any, tile: Any, ring: Any, place: Any, marks: Any, t: Any, r: Any
) -> Any:
    """The keys or values of a tile, and the place behind them."""
    rows = rows_at(tile, tile.end - 1, tensor.box[2], marks, t, r)
    for step in range(tile.begin, tile.end):
        now = tile.begin + tile.end - 1 - cp.i32(step)
        copy_step(tensor, memory, tile, now, rows, ring, place, t, r)
        place = ring.following(place)
        # A table is read before the wait that it would lengthen.
        rows = rows_at(tile, max(now - 1, tile.begin), tensor.box[2], marks, t, r)
    return place


def acquire(ring: Any, place: Any, nbytes: int) -> None:
    """What `Ring.acquire` does, for a plane."""
    if lane() == 0:
        ring.acquire(place, nbytes)
    cp.sync_plane()


def lane() -> Any:
    """The unit in its plane."""
    return cp.i32(cp.UNIT_POS) % 32


def copy_queries(q: Any, memory: Any, tile: Any, ring: Any, place: Any, t: Any, r: Any) -> None:
    """The queries of a tile."""
    piece = lane()
    acquire(ring, place, t.pieces * q.nbytes)
    if piece < t.pieces:
        rows = cp.cuda.ragged_rows(tile.row, tile.queries, tile.first)
        origin = *rows, tile.head * r.packed, t.piece * piece
        cp.cuda.tensor_load(memory, (place.stage, piece, 0, 0), q, origin, ring.full, place.stage)


def box_of(rows: int, t: Any) -> Any:
    """The box of a step that the unit copies, of so many rows, and the first piece of it."""
    boxes = t.keys // rows
    return lane() % boxes, lane() // boxes


def rows_at(tile: Any, step: Any, height: int, marks: Any, t: Any, r: Any) -> Any:
    """The first row of the box that the unit copies of a step, and how many rows there are from
    there on, or in an array that is in one piece, from the first of the sequence on."""
    if r.page == 0:
        return tile.key_row, tile.keys
    key = step * t.keys + box_of(height, t)[0] * height
    left, page = max(0, min(tile.keys - key, height)), cp.i32(0)
    if left > 0:
        page = cp.i32(marks[2][0][tile.sequence, key // r.page])
    return page * r.page + key % r.page, left


def copy_step(
    tensor: Any,
    memory: Any,
    tile: Any,
    step: Any,
    rows: Any,
    ring: Any,
    place: Any,
    t: Any,
    r: Any,
) -> None:
    """The keys or values of a step, page by page where they lie in pages; `rows`: see `rows_at`."""
    pieces, height = memory.shape[-3], tensor.box[2]
    acquire(ring, place, pieces * t.keys * 128)
    box, first = box_of(height, t)
    at = cp.cuda.ragged_rows(rows[0], rows[1], step * t.keys if r.page == 0 else 0)
    for n in cp.unroll(range(0, pieces, 32 * height // t.keys)):
        if n + first < pieces:
            within = place.stage, n + first, box * height, 0
            origin = *at, tile.head * r.packed // r.group, t.piece * (n + first)
            cp.cuda.tensor_load(memory, within, tensor, origin, ring.full, place.stage)


def turn_all(
    memory: Any, rings: Any, marks: Any, extents: Any, window: Any, t: Any, r: Any
) -> None:
    """All steps of values of all tiles, transposed."""
    by_value, by_turned = rings[2:]
    place, behind = by_value.start(), by_turned.start()
    at = first_of(marks, extents, window, t, r)
    while at.now < at.end:
        tile = tile_at(at, marks, extents, window, t, r)
        if tile.is_there:
            for _ in range(tile.begin, tile.end):
                turn_step(memory, by_value, place, by_turned, behind, t)
                place, behind = by_value.following(place), by_turned.following(behind)
        at = after(at, tile, t)


# The warpgroups that compute


def attend_tiles(
    outs: Any,
    memory: Any,
    rings: Any,
    marks: Any,
    extents: Any,
    window: Any,
    scale: Any,
    t: Any,
    r: Any,
) -> None:
    """All tiles of the cube, 64 rows of each."""
    g, count = group_of(memory, rings, scale, t), t.height // r.packed
    places = g.asked.start(), g.by_key.start(), g.by_value.start()
    if g.me == t.consumers - 1:
        pass_turn(g, t)
    at = first_of(marks, extents, window, t, r)
    while at.now < at.end:
        tile = tile_at(at, marks, extents, window, t, r)
        if tile.is_there:
            low, high = whole_steps(tile.first, count, tile.begin, tile.keys, tile.window, t)
            steps = tile.begin, low, high, tile.end
            sums, state, places = attend_tile(g, places, seen_by(tile, g, scale, t, r), steps, t)
            if t.is_split and g.me == 0 and g.unit == 0:
                note_makers(outs[2][2], at, tile, extents[1])
            if t.is_split and tile.part >= 0:
                rows = (tile.queries - tile.first) * r.packed
                note(outs[2], (tile.part, 0), g, sums, state, rows, t)
            else:
                store(outs, memory[3], tile, g, sums, state, t, r)
            if g.unit == 0 and t.shares_memory:
                cp.cuda.bulk_wait(0, read=True)
                g.asked.release(0)
        at = after(at, tile, t)
    if g.unit == 0:
        cp.cuda.bulk_wait()
    if g.me == 0:
        await_turn(g, t)


def store(outs: Any, staged: Any, tile: Any, g: Any, sums: Any, state: Any, t: Any, r: Any) -> None:
    """The results of a tile."""
    if t.result_pieces:
        rows = cp.cuda.ragged_rows(tile.row, tile.queries, tile.first + 64 // r.packed * g.me)
        finish(outs[0], staged, g, sums, state, (*rows, tile.head * r.packed), t)
    else:
        first, count = tile.first * r.packed, tile.queries * r.packed
        results = Packed(outs[1][0], tile.row, tile.head * r.packed, r.packed, count)
        store_sums(results, first, g, sums, state, count, t)


def seen_by(tile: Any, g: Any, scale: Any, t: Any, r: Any) -> Seen:
    """What the two queries of a unit see, which are `r.packed` rows each."""
    queries = tuple(tile.first + (g.row + n) // r.packed for n in (0, 8))
    limits = tuple(seen_to(i, tile.keys, tile.window, t) for i in queries)
    lows = tuple(seen_from(i, tile.window) for i in queries) if len(tile.window) else ()
    return Seen(limits, lows, (), scale)
