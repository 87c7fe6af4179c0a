"""Attention on Hopper of sequences of different lengths, by the tiles of `warpgroups`.

Ragged tensor maps end boxes where a sequence ends: what lies behind is read as zeros, and not
written. Heads that share keys are rows of one tile where their number divides that of a warpgroup:
so a step of keys serves them together, and few queries fill a tile.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.parts import note
from cubepy.kernels.attention.problem import Sequences, Warpgroups
from cubepy.kernels.attention.rows import sequence_at, shifted
from cubepy.kernels.attention.warpgroups import (
    PIECE,
    attend_tile,
    await_turn,
    finish,
    group_of,
    memory_of,
    pass_turn,
    rings_of,
    steps_within,
    whole_steps,
)
from cubepy.kernels.attention.weights import Seen
from cubepy.kernels.attention.window import seen_from, seen_to
from cubepy.record import dataclass


@cp.cube
def attend_ragged(
    q: cp.cuda.TensorMap,
    k: cp.cuda.TensorMap,
    v: cp.cuda.TensorMap,
    out: cp.cuda.TensorMap,
    parts: Any,
    marks: Any,
    extents: tuple[cp.i32, cp.i32, cp.i32, cp.i32],
    window: Any,
    scale: cp.f32,
    t: cp.Comptime[Warpgroups],
    r: cp.Comptime[Sequences],
) -> None:
    """Maps are ragged, of [tokens, heads, elements]; pages follow each other. `marks`: see
    `rows.band_at`; `extents`: slots, heads over those that are packed, queries of each sequence
    where all have as many, and parts of the keys. `parts`: where there are several, results and
    sizes of each as `parts.join_sequences` takes them."""
    memory, rings = memory_of(t), rings_of(t)
    cp.sync_cube()
    few, many = t.registers
    group = cp.i32(cp.UNIT_POS // 128)
    if group == 0:
        if few:
            cp.cuda.decrease_registers(few)
        if cp.UNIT_POS == 0:
            copy_all((q, k, v), memory, rings, marks, extents, window, t, r)
    else:
        if many:
            cp.cuda.increase_registers(many)
        attend_tiles((out, parts), memory, rings, marks, extents, window, scale, t, r)


# Which tile a cube makes


@dataclass(frozen=True, slots=True)
class Tile:
    """Some queries of a head of a sequence: the sequence, the head, the part of the keys, the first
    query, the row of the sequence's first query and how many it has; the same of its keys; the
    window; the steps of keys of the part that some queries see."""

    sequence: Any
    head: Any
    part: Any
    first: Any
    row: Any
    queries: Any
    key_row: Any
    keys: Any
    window: Any
    begin: Any
    end: Any

    @property
    def is_there(self) -> Any:
        """Whether the slot has any queries."""
        return self.first < self.queries


def turns(extents: Any) -> Any:
    """How many slots, heads and parts the cube has."""
    cubes, cube = cp.i32(cp.CUBE_COUNT), cp.i32(cp.CUBE_POS)
    return (extents[0] * extents[1] * extents[3] - cube + cubes - 1) // cubes


def tile_at(turn: Any, marks: Any, extents: Any, window: Any, t: Any, r: Any) -> Tile:
    """The tile of a turn, the last slots first: they see the most keys."""
    starts, ends, tables = marks
    place = turn * cp.i32(cp.CUBE_COUNT) + cp.i32(cp.CUBE_POS)
    place, part = extents[0] * extents[1] - 1 - place // extents[3], place % extents[3]
    slot, head, count = place // extents[1], place % extents[1], t.height // r.packed
    if len(starts):
        s, first = sequence_at(slot, starts[0], count)
        row = cp.i32(starts[0][s])
        queries = cp.i32(starts[0][s + 1]) - row
    else:
        bands = (extents[2] + count - 1) // count
        s, first, queries = slot // bands, slot % bands * count, extents[2]
        row = s * queries
    if len(tables):
        key_row, keys = cp.i32(0), cp.i32(ends[s])
    else:
        key_row = cp.i32(ends[s])
        keys = cp.i32(ends[s + 1]) - key_row
    reach = shifted(window, queries, keys)
    steps = steps_within(cp.i32(first), count, keys, reach, t)
    if t.is_split:
        steps = steps_of(part, extents[3], steps)
    place = cp.i32(s), head, part, cp.i32(first)
    return Tile(*place, row, queries, key_row, keys, reach, *steps)


def steps_of(part: Any, parts: Any, steps: Any) -> Any:
    """The steps of a part; where none are left, one behind the last, which no query sees."""
    each = (steps[1] - steps[0] + parts - 1) // parts
    begin = steps[0] + each * part
    return begin, max(min(begin + each, steps[1]), begin + 1)


# The unit that copies


def copy_all(
    maps: Any,
    memory: Any,
    rings: Any,
    marks: Any,
    extents: Any,
    window: Any,
    t: Any,
    r: Any,
) -> None:
    """Queries of each tile, and its steps of keys and values, the last first."""
    q, k, v = maps
    asked, by_key, by_value = rings
    turn_of_queries, place, behind = asked.start(), by_key.start(), by_value.start()
    for turn in range(turns(extents)):
        tile = tile_at(cp.i32(turn), marks, extents, window, t, r)
        if tile.is_there:
            asked.acquire(turn_of_queries, t.pieces * q.nbytes)
            rows = cp.cuda.ragged_rows(tile.row, tile.queries, tile.first)
            for piece in cp.unroll(range(t.pieces)):
                at = turn_of_queries.stage, piece, 0, 0
                origin = *rows, tile.head * r.packed, PIECE * piece
                cp.cuda.tensor_load(memory[0], at, q, origin, asked.full, turn_of_queries.stage)
            turn_of_queries = asked.following(turn_of_queries)
            for step in range(tile.begin, tile.end):
                now = tile.begin + tile.end - 1 - cp.i32(step)
                by_key.acquire(place, t.pieces * t.keys * 2 * PIECE)
                copy_step(k, memory[1], tile, now, by_key, place.stage, marks, t, r)
                place = by_key.following(place)
                if step > tile.begin:
                    by_value.acquire(behind, t.wide_pieces * t.keys * 2 * PIECE)
                    copy_step(v, memory[2], tile, now + 1, by_value, behind.stage, marks, t, r)
                    behind = by_value.following(behind)
            by_value.acquire(behind, t.wide_pieces * t.keys * 2 * PIECE)
            copy_step(v, memory[2], tile, tile.begin, by_value, behind.stage, marks, t, r)
            behind = by_value.following(behind)


def copy_step(
    tensor: Any,
    memory: Any,
    tile: Any,
    step: Any,
    ring: Any,
    stage: Any,
    marks: Any,
    t: Any,
    r: Any,
) -> None:
    """The keys or values of a step, page by page where they lie in pages."""
    head = tile.head * r.packed // r.group
    for row in cp.unroll(range(0, t.keys, tensor.box[2])):
        rows = rows_at(tile, step * t.keys + row, tensor.box[2], marks, r)
        for piece in cp.unroll(range(memory.shape[-3])):
            origin = *rows, head, PIECE * piece
            cp.cuda.tensor_load(memory, (stage, piece, row, 0), tensor, origin, ring.full, stage)


def rows_at(tile: Any, key: Any, count: int, marks: Any, r: Any) -> Any:
    """Where the box of keys from `key` on lies."""
    if r.page == 0:
        return cp.cuda.ragged_rows(tile.key_row, tile.keys, key)
    left, page = min(tile.keys - key, count), cp.i32(0)
    if left > 0:
        page = cp.i32(marks[2][0][tile.sequence, key // r.page])
    return cp.cuda.ragged_rows(page * r.page + key % r.page, max(left, 0))


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
    for turn in range(turns(extents)):
        tile = tile_at(cp.i32(turn), marks, extents, window, t, r)
        if tile.is_there:
            low, high = whole_steps(tile.first, count, tile.begin, tile.keys, tile.window, t)
            steps = tile.begin, low, high, tile.end
            sums, state, places = attend_tile(g, places, seen_by(tile, g, scale, t, r), steps, t)
            if t.is_split:
                place = tile.part, tile.sequence * extents[1] + tile.head
                note(outs[1], place, g, sums, state, tile.queries * r.packed, t)
            else:
                first = tile.first + 64 // r.packed * g.me
                rows = cp.cuda.ragged_rows(tile.row, tile.queries, first)
                finish(outs[0], memory[3], g, sums, state, (*rows, tile.head * r.packed), t)
            if g.unit == 0 and t.shares_memory:
                cp.cuda.bulk_wait(0, read=True)
                g.asked.release(0)
    if g.unit == 0:
        cp.cuda.bulk_wait()
    if g.me == 0:
        await_turn(g, t)


def seen_by(tile: Any, g: Any, scale: Any, t: Any, r: Any) -> Seen:
    """What the two queries of a unit see, which are `r.packed` rows each."""
    queries = tuple(tile.first + (g.row + n) // r.packed for n in (0, 8))
    limits = tuple(seen_to(i, tile.keys, tile.window, t) for i in queries)
    lows = tuple(seen_from(i, tile.window) for i in queries) if len(tile.window) else ()
    return Seen(limits, lows, (), scale)
