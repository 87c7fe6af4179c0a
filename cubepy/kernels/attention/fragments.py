"""Attention by the tensor cores of planes (`cp.cuda.mma`), from sm_80 on.

A plane has some blocks of 16 queries, whose scores, weights and sums never leave registers. Keys
and values come to shared memory some steps ahead by asynchronous copies: those of the next keys run
while values are multiplied, and the other way round (Dao, "FlashAttention-2", 2023). Where queries
are few, planes divide the keys of a step, and cubes the keys of a tile; what they have is joined.
Registers hold what those of `wgmma` do, so that `weights` serves both.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.parts import joined, note
from cubepy.kernels.attention.problem import CHUNK, Fragments
from cubepy.kernels.attention.rows import Rows
from cubepy.kernels.attention.tiles import tile_at, turns, whole_steps
from cubepy.kernels.attention.weighing import LOWEST, inverse, portion
from cubepy.kernels.attention.weights import (
    LN_2,
    LOG2_E,
    factor_words,
    hidden,
    seen_by,
    weigh,
    whole,
)
from cubepy.record import dataclass

BLOCK = 16
"""Queries or keys of a block; elements of a query that one product takes."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """A unit of a plane: its number there, the first of its rows in a block of a tile (the other is
    8 behind), the first key of its plane in a step, and what scores are multiplied by."""

    unit: Any
    row: Any
    key: Any
    factor: Any

    def block(self, r: int) -> Lanes:
        """The same in the r-th block."""
        return Lanes(self.unit, self.row + BLOCK * r, self.key, self.factor)


@cp.cube
def attend_fragments(
    q: cp.Tensor,
    k: cp.Tensor,
    v: cp.Tensor,
    out: cp.Tensor,
    logs: Any,
    masks: Any,
    parts: Any,
    extents: tuple[cp.u32, cp.u32, cp.u32, cp.u32],
    shared: tuple[cp.u32, cp.u32],
    order: tuple[cp.u32, cp.u32, cp.u32, cp.u32, cp.u32],
    window: Any,
    scale: cp.f32,
    t: cp.Comptime[Fragments],
) -> None:
    """All arrays are [batches, heads, rows, elements]; the other operands are those of
    `warpgroups.attend_warpgroups`."""
    memory, held, g = memory_of(t), shared_parts(t), lanes_of(scale, t)
    for turn in range(turns(order, t)):
        where, first, begin, end = tile_at(cp.u32(turn), extents, order, window, t)
        batch, head, part, index = where
        own = cp.i32(cp.u32(batch) // shared[0]), cp.i32(cp.u32(head) // shared[1])
        arrays = Rows(q[batch, head]), Rows(k[own]), Rows(v[own])
        seen = tuple(
            seen_by(masks, where, first + g.row + BLOCK * r, extents, window, scale, t)
            for r in range(t.rows)
        )
        low, high = whole_steps(first, t.height, begin, cp.i32(extents[3]), window, t)
        sums, state = attend_tile(arrays, memory, g, seen, first, (begin, low, high, end), t)
        if t.is_split and part >= 0:
            count = cp.i32(extents[2]) - first
            finish_part(parts, (part, index), held, g, sums, state, count, t)
        else:
            outs = Rows(out[batch, head]), tuple(log[batch, head] for log in logs)
            finish(outs, held, g, sums, state, first, t)


@cp.cube
def memory_of(t: Any) -> Any:
    """Shared memory for queries, and for steps of keys and of values."""
    deep, wide = t.pitches
    return (
        cp.shared((t.height, deep), t.dtype),
        cp.shared((t.stages, t.keys, deep), t.dtype),
        cp.shared((t.stages, t.keys, wide), t.dtype),
    )


@cp.cube
def shared_parts(t: Any) -> Any:
    """Shared memory for what planes have of the same queries, as `parts.note` takes it."""
    count = t.across if t.across > 1 else 0
    return cp.shared((count, 1, t.noted, t.width), cp.f32), cp.shared(
        (count, 1, t.noted, 2), cp.f32
    )


def lanes_of(scale: Any, t: Any) -> Lanes:
    """This unit."""
    unit, plane = cp.i32(cp.UNIT_POS % 32), cp.i32(cp.UNIT_POS // 32)
    row = plane // t.across * (BLOCK * t.rows) + unit // 4
    key = plane % t.across * t.of_plane.keys
    return Lanes(unit, row, key, scale * cp.f32(LOG2_E))


# Copies


def copy_rows(x: Any, first: Any, memory: Any, size: int, t: Any) -> None:
    """Begin to copy rows from `first` on, of `size` elements, by all units; zeros stand for what is
    not there."""
    turns = -(-memory.shape[0] * chunks_of(memory) // t.units)
    if first + memory.shape[0] <= cp.i32(x.count):
        for n in cp.unroll(range(turns)):
            r, c, is_inside = place_of(n, memory, t)
            if is_inside:
                cp.cuda.async_copy(memory, (r, c), x.row(first + r), c, CHUNK, c < size)
    else:  # seldom, so that a loop does, which leaves registers to others
        last = cp.i32(x.count) - 1
        for n in range(turns):
            r, c, is_inside = place_of(cp.i32(n), memory, t)
            if is_inside:
                row, present = max(min(first + r, last), 0), first + r <= last and c < size
                cp.cuda.async_copy(memory, (r, c), x.row(row), c, CHUNK, present)


def chunks_of(memory: Any) -> int:
    """How many chunks a row has."""
    return (memory.shape[1] - CHUNK) // CHUNK


def place_of(n: Any, memory: Any, t: Any) -> Any:
    """The row and the first element of the n-th chunk that a unit copies, and whether there is
    one."""
    chunks = chunks_of(memory)
    at = n * t.units + cp.i32(cp.UNIT_POS)
    is_inside = memory.shape[0] * chunks % t.units == 0 or at < memory.shape[0] * chunks
    return at // chunks, at % chunks * CHUNK, is_inside


def copy_step(x: Any, step: Any, begin: Any, memory: Any, stage: Any, size: int, t: Any) -> None:
    """Begin to copy a step of keys or values, if it is there: a group in any case."""
    if step >= begin:
        copy_rows(x, step * t.keys, memory[stage], size, t)
    cp.cuda.async_commit()


def await_copies(t: Any) -> None:
    """Wait for all groups but those that are ahead, of all units, which have done all before."""
    cp.cuda.async_wait(2 * (t.stages - 1))
    cp.sync_cube()


# One tile


def attend_tile(arrays: Any, memory: Any, g: Any, seen: Any, first: Any, steps: Any, t: Any) -> Any:
    """Sums of values, and the states of the softmax, of all blocks of a plane.

    `steps`: the first, those that all queries see from which and up to which, and the end; the last
    comes first.
    """
    x, y, z = arrays
    queries, keys, values = memory
    begin, low, high, end = steps
    sums = cp.local((t.rows, t.wide // 2), cp.f32, fill=0)
    state = cp.local((t.rows, 4), cp.f32, fill=0)
    for r in cp.unroll(range(t.rows)):
        state[r, 0] = cp.f32(LOWEST)
        state[r, 1] = cp.f32(LOWEST)
    cp.sync_cube()
    copy_rows(x, first, queries, t.size, t)
    for n in cp.unroll(range(t.stages)):
        copy_step(y, end - 1 - n, begin, keys, n, t.size, t)
        if n < t.stages - 1:
            copy_step(z, end - 1 - n, begin, values, n, t.width, t)
    step, stage, free = end - 1, cp.i32(0), cp.i32(t.stages - 1)
    while step >= begin:
        await_copies(t)
        copy_step(z, step - (t.stages - 1), begin, values, free, t.width, t)
        scores = scores_of(queries, keys[stage], g, (t.deep, t.of_plane.keys), t)
        await_copies(t)
        copy_step(y, step - t.stages, begin, keys, stage, t.size, t)
        own = step * t.keys + g.key
        words = cp.local((t.rows, t.of_plane.keys // 4), cp.u32)
        for r in cp.unroll(range(t.rows)):
            line = cp.load(scores, (r, 0), line=t.of_plane.keys // 2)
            has_mask = len(seen[r].masks) > 0
            if has_mask or step < low or step >= high:
                line = hidden(line, seen[r], own, g.unit, t.of_plane)
            before = state[r, 0], state[r, 1], state[r, 2], state[r, 3]
            weights, after, scales = weigh(line, before, g.factor, has_mask, t.of_plane)
            for i in cp.unroll(range(4)):
                state[r, i] = after[i]
            if cp.plane_any(scales[0] != cp.f32(1) or scales[1] != cp.f32(1)):
                for i in cp.unroll(range(t.wide // 2)):
                    sums[r, i] = sums[r, i] * scales[i // 2 % 2]
            cp.store(words, (r, 0), factor_words(weights, t.of_plane))
        add_values(sums, words, values[stage], g, (t.wide, t.of_plane.keys), t)
        step -= 1
        free = stage
        stage = cp.i32(0) if stage == t.stages - 1 else stage + 1
    cp.cuda.async_wait(0)
    return sums, state


def scores_of(queries: Any, keys: Any, g: Any, extents: tuple[int, int], t: Any) -> Any:
    """The products of a plane's queries with its keys of a step. `extents`: the elements of both,
    and how many keys there are."""
    deep, count = extents
    found = cp.local((t.rows, count // 2), cp.f32, fill=0)
    top, lane = g.row - g.unit // 4, g.unit
    for d in cp.unroll(range(0, deep, BLOCK)):
        left = tuple(
            cp.cuda.ldmatrix(queries, (top + BLOCK * r + lane % 16, d + lane // 16 * 8), 4)
            for r in range(t.rows)
        )
        for j in cp.unroll(range(count // BLOCK)):
            row = g.key + BLOCK * j + lane // 16 * 8 + lane % 8
            right = cp.cuda.ldmatrix(keys, (row, d + lane // 8 % 2 * 8), 4)
            for r in cp.unroll(range(t.rows)):
                add_products(found, (r, 8 * j), left[r], right, t)
    return found


def add_values(
    sums: Any, words: Any, values: Any, g: Any, extents: tuple[int, int], t: Any
) -> None:
    """Add the products of a plane's weights with its values of a step. `extents`: the elements of a
    value, and how many there are."""
    (wide, count), lane = extents, g.unit
    for j in cp.unroll(range(count // BLOCK)):
        for c in cp.unroll(range(wide // BLOCK)):
            place = g.key + BLOCK * j + lane % 16, BLOCK * c + lane // 16 * 8
            right = cp.cuda.ldmatrix(values, place, 4, transposed=True)
            for r in cp.unroll(range(t.rows)):
                left = cp.load(words, (r, 4 * j), line=4)
                add_products(sums, (r, 8 * c), left, right, t)


def add_products(sums: Any, place: Any, left: Any, right: Any, t: Any) -> None:
    """Add the products of a block of rows with two times 8 columns."""
    r, first = place
    for n in cp.unroll(range(2)):
        at = r, first + 4 * n
        found = cp.load(sums, at, line=4)
        found = cp.cuda.mma(left, right[2 * n : 2 * n + 2], found, t.dtype)
        cp.store(sums, at, found, whole=True)


# The end of a tile


def finish(outs: Any, held: Any, g: Any, sums: Any, state: Any, first: Any, t: Any) -> None:
    """Store sums over the sums of weights, from row `first` on, and perhaps the logarithms of
    these; zeros where a query sees no key. `outs`: rows of results, and logarithms [rows, 1]."""
    results, logs = outs
    if t.across > 1:
        note_planes(held, g, sums, state, t)
        for e in range(cp.i32(cp.UNIT_POS), t.noted * t.width, t.units):
            row, column = first + e // t.width, e % t.width
            if row < results.count:
                where = 0, row - first, column
                value, top, total = joined(held[0], held[1], t.across, lambda n: n, where)
                results.row(row)[column] = value
                for log in logs:
                    if column == 0:
                        log[row, 0] = (top + cp.log2(total)) * LN_2
    else:
        for r in cp.unroll(range(t.rows)):
            for half in cp.unroll(range(2)):
                row, total = first + g.row + BLOCK * r + 8 * half, whole(state[r, 2 + half])
                if row < results.count:
                    store(results.row(row), g, sums, (r, half), inverse(total), t.width)
                    for log in logs:
                        if g.unit % 4 == 0:
                            log[row, 0] = (state[r, half] * g.factor + cp.log2(total)) * LN_2


def store(row: Any, g: Any, sums: Any, place: Any, share: Any, elements: int) -> None:
    """Store the pairs of neighbours that a unit has of a row, of a block and its half."""
    r, half = place
    for j in cp.unroll(range(elements // 8)):
        pair = portion(cp.load(sums, (r, 4 * j + 2 * half), line=2), share)
        cp.store(row, 8 * j + g.unit % 4 * 2, row.dtype(pair), whole=True)


def finish_part(
    parts: Any, slot: Any, held: Any, g: Any, sums: Any, state: Any, count: Any, t: Any
) -> None:
    """Store the results over a part of the keys, of `count` rows, and their sizes. `slot`: the part
    and the tile."""
    if t.across > 1:
        note_planes(held, g, sums, state, t)
        for e in range(cp.i32(cp.UNIT_POS), t.noted * t.width, t.units):
            row, column = e // t.width, e % t.width
            if row < count:
                where = 0, row, column
                value, top, total = joined(held[0], held[1], t.across, lambda n: n, where)
                parts[0][slot[0], slot[1], row, column] = value
                if column == 0:
                    parts[1][slot[0], slot[1], row, 0] = top
                    parts[1][slot[0], slot[1], row, 1] = total
    else:
        note_blocks(parts, slot, g, sums, state, count, t)


def note_planes(held: Any, g: Any, sums: Any, state: Any, t: Any) -> None:
    """Store what each plane has in shared memory."""
    plane = cp.i32(cp.UNIT_POS // 32) % t.across
    note_blocks(held, (plane, 0), g, sums, state, t.noted, t)
    cp.sync_cube()


def note_blocks(parts: Any, slot: Any, g: Any, sums: Any, state: Any, count: Any, t: Any) -> None:
    """Store the results of a plane over a part of the keys."""
    for r in cp.unroll(range(t.rows)):
        own = state[r, 0], state[r, 1], state[r, 2], state[r, 3]
        line = cp.load(sums, (r, 0), line=t.wide // 2)
        note(parts, slot, g.block(r), line, own, count, t)
