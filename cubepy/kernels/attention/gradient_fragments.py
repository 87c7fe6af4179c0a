"""Gradients of attention by the tensor cores of planes (`cp.cuda.mma`), from sm_80 on.

A cube has some rows of which it sums gradients: queries, or keys with their values. It goes through
the rows of the other kind in steps, which asynchronous copies bring to shared memory one ahead.
Planes make scores and gradients of weights of their own rows in registers, where what comes of
them is the left factor of the products with the rows of the step (Dao, "FlashAttention-2", 2023,
algorithm 2, but with one pass for queries and one for keys, so that nothing is added by several
cubes, at the cost of two of seven products).
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.fragments import (
    BLOCK,
    Lanes,
    add_values,
    copy_rows,
    scores_of,
    store,
)
from cubepy.kernels.attention.problem import GradientFragments
from cubepy.kernels.attention.rows import Rows
from cubepy.kernels.attention.weights import LOG2_E, packed, power
from cubepy.kernels.attention.window import asked_from, asked_to, seen_from, seen_to
from cubepy.record import dataclass


@cp.cube
def sum_gradients_by_fragments(
    own: Any,
    others: Any,
    logs: cp.Tensor[cp.f32],
    deltas: cp.Tensor[cp.f32],
    masks: Any,
    outs: Any,
    extents: tuple[cp.u32, cp.u32, cp.u32, cp.u32],
    shared: tuple[cp.u32, cp.u32],
    window: Any,
    scale: cp.f32,
    t: cp.Comptime[GradientFragments],
) -> None:
    """A cube for each `t.height` rows of each of their heads.

    `own`: queries and gradients of results, or keys and values; `others`: the other two. All are
    [batches, heads, rows, elements], as are `outs`, a tuple of one gradient or none for each of the
    two of `own`. `logs`, `deltas`: [head, query], see `gradient_warpgroups.prepare_gradients`.
    `masks`: perhaps one, [batches, heads, queries, keys]. `extents`: batches, heads, queries, keys;
    `shared`: how many neighbouring batches and heads have keys in common; `window`: see
    `window.seen_from`.
    """
    where, first = place_of(extents, shared, t)
    mine = Rows(own[0][where]), Rows(own[1][where])
    memory = memory_of(t)
    copy_rows(mine[0], first, memory[0], t.size, t)
    copy_rows(mine[1], first, memory[1], t.width, t)
    cp.cuda.async_commit()
    lane, plane = cp.i32(cp.UNIT_POS % 32), cp.i32(cp.UNIT_POS // 32)
    g = Lanes(lane, plane * (BLOCK * t.rows) + lane // 4, 0, scale * cp.f32(LOG2_E))
    sums = (
        cp.local((t.rows, t.deep // 2 if len(outs[0]) else 1), cp.f32, fill=0),
        cp.local((t.rows, t.wide // 2 if len(outs[1]) else 1), cp.f32, fill=0),
    )
    for turn in range(1 if t.is_of_queries else shared[0] * shared[1]):
        head, source = others_at(where, turn, extents, shared, t)
        theirs = Rows(others[0][source]), Rows(others[1][source])
        seen = seen_by(masks, head, first + g.row, extents, window, t)
        row = cp.u32(head[0]) * extents[1] + cp.u32(head[1])
        numbers = logs[row], deltas[row]
        add_turn(theirs, memory, g, sums, outs, numbers, seen, first, extents, window, t)
    cp.cuda.async_wait(0)
    for n in cp.unroll(range(2)):
        for out in outs[n]:
            share, elements = (scale, t.size) if n == 0 else (cp.f32(1), t.width)
            finish(Rows(out[where]), g, sums[n], share, elements, first, t)


def place_of(extents: Any, shared: Any, t: Any) -> Any:
    """Batch and head of the rows of a cube, and its first row. Of causal rows those come first that
    have the most others: the last queries, the first keys."""
    count, heads = extents[2], extents[1]
    if not t.is_of_queries:
        count, heads = extents[3], extents[1] // shared[1]
    down = (count + cp.u32(t.height - 1)) // cp.u32(t.height)
    head, band = cp.u32(cp.CUBE_POS) // down, cp.u32(cp.CUBE_POS) % down
    if t.is_causal and t.is_of_queries:
        band = down - cp.u32(1) - band
    return (cp.i32(head // heads), cp.i32(head % heads)), cp.i32(band) * t.height


def memory_of(t: Any) -> Any:
    """Shared memory for the rows of a cube, and for steps of the others."""
    deep, wide = t.pitches
    return (
        cp.shared((t.height, deep), t.dtype),
        cp.shared((t.height, wide), t.dtype),
        cp.shared((t.stages, t.step, deep), t.dtype),
        cp.shared((t.stages, t.step, wide), t.dtype),
    )


def others_at(where: Any, turn: Any, extents: Any, shared: Any, t: Any) -> Any:
    """Batch and head of the queries of a turn, and those of the other rows."""
    if t.is_of_queries:
        return where, (where[0] // cp.i32(shared[0]), where[1] // cp.i32(shared[1]))
    turn = cp.u32(turn)
    batch = where[0] * cp.i32(shared[0]) + cp.i32(turn // shared[1])
    head = batch, where[1] * cp.i32(shared[1]) + cp.i32(turn % shared[1])
    return head, head


# What rows see of each other


@dataclass(frozen=True, slots=True)
class Seen:
    """What the two rows of a unit in each block see of the others: the first, and the one behind
    the last; and their masks, [queries, keys], with the last query and key of these."""

    firsts: Any
    ends: Any
    row: Any
    masks: Any
    last: Any


def seen_by(masks: Any, head: Any, row: Any, extents: Any, window: Any, t: Any) -> Seen:
    """What rows see, of which `row` is the first of a unit."""
    rows = tuple(row + 8 * n for n in range(2 * t.rows))
    sides = tuple(sides_of(i, extents, window, t) for i in rows)
    firsts, ends = tuple(s[0] for s in sides), tuple(s[1] for s in sides)
    last = cp.i32(extents[2]) - 1, cp.i32(extents[3]) - 1
    return Seen(firsts, ends, row, tuple(m[head] for m in masks), last)


def sides_of(i: Any, extents: Any, window: Any, t: Any) -> Any:
    """The first of the others that row `i` and they see of each other, perhaps below 0, and the one
    behind the last."""
    if t.is_of_queries:
        return seen_from(i, window), seen_to(i, cp.i32(extents[3]), window, t)
    return asked_from(i, window, t), asked_to(i, cp.i32(extents[2]), window)


def steps_of(first: Any, extents: Any, window: Any, t: Any) -> Any:
    """The steps of others that some rows of the cube see, and those that all see: the first, from
    which and up to which, and the end."""
    of_first, of_last = (sides_of(i, extents, window, t) for i in (first, first + t.height - 1))
    end = (max(0, of_last[1]) + t.step - 1) // t.step
    begin = min(end, max(0, of_first[0]) // t.step)
    low = (max(0, of_last[0]) + t.step - 1) // t.step
    return begin, low, max(0, of_first[1]) // t.step, end


# Steps


def add_turn(
    theirs: Any,
    memory: Any,
    g: Any,
    sums: Any,
    outs: Any,
    numbers: Any,
    seen: Any,
    first: Any,
    extents: Any,
    window: Any,
    t: Any,
) -> None:
    """Add what all others of one head give."""
    begin, low, high, end = steps_of(first, extents, window, t)
    own = numbers_of(numbers, seen.row, t)
    cp.sync_cube()
    copy_step(theirs, begin, end, memory, 0, t)
    for step in range(begin, end):
        stage = (step - begin) % t.stages
        cp.cuda.async_wait(0)
        cp.sync_cube()
        if t.stages > 1:
            copy_step(theirs, step + 1, end, memory, t.stages - 1 - stage, t)
        is_whole = step >= low and step < high
        held = memory[0], memory[1], memory[2][stage], memory[3][stage]
        advance(held, g, sums, outs, numbers, own, (seen, step * t.step, is_whole), t)
        if t.stages == 1:
            cp.sync_cube()
            copy_step(theirs, step + 1, end, memory, 0, t)


def copy_step(theirs: Any, step: Any, end: Any, memory: Any, stage: Any, t: Any) -> None:
    """Begin to copy a step of the others, if it is there."""
    if step < end:
        copy_rows(theirs[0], step * t.step, memory[2][stage], t.size, t)
        copy_rows(theirs[1], step * t.step, memory[3][stage], t.width, t)
    cp.cuda.async_commit()


def numbers_of(numbers: Any, row: Any, t: Any) -> Any:
    """The logarithms and the products of results of a unit's queries, if rows are queries; those
    behind the last are of no use."""
    if not t.is_of_queries:
        return ()
    last = cp.i32(numbers[0].shape[0]) - 1
    return tuple(tuple(x[min(row + 8 * n, last)] for n in range(2 * t.rows)) for x in numbers)


def advance(
    held: Any, g: Any, sums: Any, outs: Any, numbers: Any, own: Any, place: Any, t: Any
) -> None:
    """Add what one step gives. `place`: what rows see, the first row of the step, and whether all
    see all of it."""
    scores = scores_of(held[0], held[2], g, (t.deep, t.step), t)
    changes = scores
    if len(outs[0]):
        changes = scores_of(held[1], held[3], g, (t.wide, t.step), t)
    by_score = cp.local((t.rows, t.step // 4), cp.u32)
    by_weight = cp.local((t.rows, t.step // 4), cp.u32)
    for r in cp.unroll(range(t.rows)):
        weights = weights_of(scores, g, numbers, own, place, r, t)
        if len(outs[1]):
            cp.store(by_weight, (r, 0), packed(weights, t.dtype))
        if len(outs[0]):
            slopes = slopes_of(weights, changes, g, numbers, own, place, r, t)
            cp.store(by_score, (r, 0), packed(slopes, t.dtype))
    if len(outs[1]):
        add_values(sums[1], by_weight, held[3], g, (t.wide, t.step), t)
    if len(outs[0]):
        add_values(sums[0], by_score, held[2], g, (t.deep, t.step), t)


def weights_of(scores: Any, g: Any, numbers: Any, own: Any, place: Any, r: int, t: Any) -> Any:
    """The weights of the r-th block; 0 where a query does not see the key."""
    seen, begin, is_whole = place
    found = cp.local(t.step // 2, cp.f32)
    first = begin + g.unit % 4 * 2
    for j in cp.unroll(range(t.step // 8)):
        pair = () if t.is_of_queries else cp.load(numbers[0], first + 8 * j, line=2, fill=None)
        for n in cp.unroll(range(4)):
            i, row = 4 * j + n, 2 * r + n // 2
            score = scores[r, i] * g.factor
            log = own[0][row] if t.is_of_queries else pair[n % 2]
            if len(seen.masks):
                at = seen.row + 8 * row, first + 8 * j + n % 2
                score = with_mask(score, seen, at, t) - log
                found[i] = power(min(score, cp.f32(0)))  # a large mask leaves its rounding
            else:
                found[i] = power(score - log)
    if not is_whole:
        hide(found, seen, first, r, t)
    return cp.load(found, 0, line=t.step // 2)


def hide(weights: Any, seen: Any, first: Any, r: int, t: Any) -> None:
    """Make weights 0 where rows do not see the others, of which `first` is the first of a unit."""
    for i in cp.unroll(range(t.step // 2)):
        other, row = first + i // 4 * 8 + i % 2, 2 * r + i // 2 % 2
        if other < seen.firsts[row] or other >= seen.ends[row]:
            weights[i] = cp.f32(0)


def with_mask(score: Any, seen: Any, at: Any, t: Any) -> Any:
    """A score to base 2 with its mask, of a row and one of the others."""
    query, key = at if t.is_of_queries else (at[1], at[0])
    mask = seen.masks[0][min(query, seen.last[0]), min(key, seen.last[1])]
    if mask.dtype == cp.bool_:
        return score if mask else -cp.f32(float("inf"))
    return score + cp.f32(mask) * cp.f32(LOG2_E)


def slopes_of(
    weights: Any, changes: Any, g: Any, numbers: Any, own: Any, place: Any, r: int, t: Any
) -> Any:
    """The gradients of scores of the r-th block, which are still to be scaled."""
    found = cp.local(t.step // 2, cp.f32)
    first = place[1] + g.unit % 4 * 2
    for j in cp.unroll(range(t.step // 8)):
        pair = () if t.is_of_queries else cp.load(numbers[1], first + 8 * j, line=2, fill=None)
        for n in cp.unroll(range(4)):
            i = 4 * j + n
            delta = own[1][2 * r + n // 2] if t.is_of_queries else pair[n % 2]
            found[i] = weights[i] * (changes[r, i] - delta)
    return cp.load(found, 0, line=t.step // 2)


def finish(out: Any, g: Any, sums: Any, share: Any, elements: int, first: Any, t: Any) -> None:
    """Store sums times `share`."""
    for r in cp.unroll(range(t.rows)):
        for half in cp.unroll(range(2)):
            row = first + g.row + BLOCK * r + 8 * half
            if row < out.count:
                store(out.row(row), g, sums, (r, half), share, elements)
