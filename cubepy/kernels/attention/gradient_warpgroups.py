"""Gradients of attention on Hopper: warpgroups multiply what a warp copies for them.

A cube has 128 keys with their values, 64 for each of two warpgroups, and loops over the queries
that attend to them. Scores and gradients of weights are made with keys along the rows: weights and
gradients of scores, from registers, are then the left factors of what is summed for values and for
keys. Gradients of scores also go through shared memory, where both warpgroups multiply them with
the keys; that is added to the gradients of queries in memory, by all cubes in any order (Shah et
al., "FlashAttention-3", 2024; Dao, "FlashAttention-2", 2023).
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.problem import KEYS, GradientWarpgroups
from cubepy.kernels.attention.warpgroups import PIECE, stage_rows
from cubepy.kernels.attention.weighing import LOWEST
from cubepy.kernels.attention.weights import LOG2_E, packed, power
from cubepy.kernels.attention.window import asked_from, asked_to
from cubepy.lang import pipelines
from cubepy.record import dataclass

UNITS = pipelines.WARPGROUP
HIGHEST = float("inf")
READY, FREE, OWN = 1, 2, 4
"""Barriers: gradients of scores are there; they may be overwritten; of one warpgroup."""
FEW, MANY = 24, 240
"""Registers of a unit that copies, and of one that computes."""
AT_ONCE = 2
"""Blocks of 8 queries whose masks of bools a unit reads at once: with 3, products wait for longer
(5.05 ms instead of 4.68, see docs/decisions/0021)."""


@cp.cube
def sum_gradients_by_warpgroups(
    asked: Any,
    held: Any,
    outs: Any,
    logs: cp.Tensor[cp.f32],
    deltas: cp.Tensor[cp.f32],
    sums: cp.Tensor[cp.f32],
    masks: Any,
    extents: tuple[cp.u32, cp.u32, cp.u32, cp.u32],
    shared: tuple[cp.u32, cp.u32],
    window: Any,
    scale: cp.f32,
    t: cp.Comptime[GradientWarpgroups],
) -> None:
    """A cube for each 128 keys of each of their heads; it sums for what `t` says.

    `asked`: queries and gradients of results, `held`: keys and values, `outs`: their gradients, all
    maps of [batches, heads, rows, elements]. `logs`, `deltas`: [head, query], see
    `prepare_gradients`; `sums`: what is added for queries, see `finish_gradients`. `masks`: perhaps
    one, [batches, heads, queries, keys]. `extents`: batches, heads, queries, keys; `shared`: how
    many neighbouring batches and heads have keys in common; `window`: see `window.seen_from`.
    """
    keys = cp.shared((t.pieces, KEYS, PIECE), t.dtype)
    values = cp.shared((t.pieces, KEYS, PIECE), t.dtype) if t.is_of_keys else keys
    queries = cp.shared((t.stages, t.pieces, t.rows, PIECE), t.dtype)
    slopes = cp.shared((t.slope_stages, t.pieces, t.rows, PIECE), t.dtype)
    changes = cp.shared((2, t.rows, PIECE), t.dtype) if t.is_of_keys else keys
    numbers = cp.shared((t.stages, t.rows), cp.f32), cp.shared((t.slope_stages, t.rows), cp.f32)
    once, by_query, by_slope = (
        pipelines.ring(1, 2),
        pipelines.ring(t.stages, 2),
        pipelines.ring(t.slope_stages, 2),
    )
    cp.sync_cube()
    group = cp.i32(cp.UNIT_POS // UNITS)
    memory, rings = (keys, values, queries, slopes, changes, numbers), (once, by_query, by_slope)
    where, first = place_of(extents, shared)
    if group == 0:
        cp.cuda.decrease_registers(FEW)
        if cp.UNIT_POS == 0:
            maps = asked, held, logs, deltas
            copy_all(maps, memory, rings, (where, first), extents, shared, window, t)
    else:
        cp.cuda.increase_registers(MANY)
        results = outs, sums
        compute(results, masks, memory, rings, (where, first), extents, shared, window, scale, t)


def place_of(extents: Any, shared: Any) -> Any:
    """Batch and head of the keys of a cube, and its first key: of causal keys the first have the
    most queries, and come first."""
    down = (extents[3] + cp.u32(KEYS - 1)) // cp.u32(KEYS)
    cube = cp.u32(cp.CUBE_POS)
    heads = extents[1] // shared[1]
    head = cube // down
    return (head // heads, head % heads), cp.i32(cube % down) * KEYS


def bounds(first: Any, extents: Any, window: Any, t: Any) -> Any:
    """The steps of queries that see some of the keys, and those of which all see all: the first,
    from which and up to which, and the end."""
    last = first + KEYS - 1
    end = (asked_to(last, cp.i32(extents[2]), window) + t.rows - 1) // t.rows
    begin = min(end, max(0, asked_from(first, window, t)) // t.rows)
    low = min(end, (max(0, asked_from(last, window, t)) + t.rows - 1) // t.rows)
    high = end
    if len(window):
        high = max(low, min(end, (first + window[0] + 1) // t.rows))
    if last >= cp.i32(extents[3]):
        low, high = end, end
    return begin, low, high, end


def sharer(where: Any, turn: Any, shared: Any) -> Any:
    """Batch and head of queries, by turns of those that have keys in common."""
    turn = cp.u32(turn)
    return where[0] * shared[0] + turn // shared[1], where[1] * shared[1] + turn % shared[1]


# The unit that copies


def copy_all(
    maps: Any,
    memory: Any,
    rings: Any,
    place: Any,
    extents: Any,
    shared: Any,
    window: Any,
    t: Any,
) -> None:
    """Keys and values, then queries and gradients of results step by step."""
    (q, grad), (k, v), logs, deltas = maps
    once, by_query, by_slope = rings
    where, first = place
    begin, _, _, end = bounds(first, extents, window, t)
    origin = cp.i32(where[0]), cp.i32(where[1])
    start = once.start()
    once.acquire(start, t.pieces * (k.nbytes + (v.nbytes if t.is_of_keys else 0)))
    for piece in cp.unroll(range(t.pieces)):
        corner = (*origin, first, PIECE * piece)
        cp.cuda.tensor_load(memory[0], (piece, 0, 0), k, corner, once.full, 0)
        if t.is_of_keys:
            cp.cuda.tensor_load(memory[1], (piece, 0, 0), v, corner, once.full, 0)
    places = by_query.start(), by_slope.start()
    for turn in range(shared[0] * shared[1]):
        batch, head = sharer(where, turn, shared)
        row = batch * extents[1] + head
        source = cp.i32(batch), cp.i32(head)
        for step in range(begin, end):
            for n in cp.unroll(range(2)):
                ring, x, y = (by_query, by_slope)[n], (q, grad)[n], (logs, deltas)[n]
                at, held = places[n], memory[5][n]
                ring.acquire(at, t.pieces * x.nbytes + t.rows * 4)
                for piece in cp.unroll(range(t.pieces)):
                    corner = (*source, step * t.rows, PIECE * piece)
                    inside = at.stage, piece, 0, 0
                    cp.cuda.tensor_load(memory[2 + n], inside, x, corner, ring.full, at.stage)
                at_row = row, step * t.rows
                cp.cuda.bulk_load(held, (at.stage, 0), y, at_row, t.rows, ring.full, at.stage)
            places = by_query.following(places[0]), by_slope.following(places[1])


# The warpgroups that compute


@dataclass(frozen=True, slots=True)
class Group:
    """What a warpgroup keeps: its number and its unit, descriptors, shared memory, rings, and what
    scores are multiplied by.

    `keys`, `values`: left factors with keys along rows; `queries`, `slopes`: the right ones of the
    first stage; `wide_queries`, `wide_slopes`: the same as right factors of sums; `turned`: keys
    along columns, `changes`: what they are multiplied with.
    """

    me: Any
    unit: Any
    keys: Any
    values: Any
    queries: Any
    slopes: Any
    wide_queries: Any
    wide_slopes: Any
    turned: Any
    changes: Any
    stored: Any
    numbers: Any
    by_query: Any
    by_slope: Any
    factor: Any


def group_of(memory: Any, rings: Any, scale: Any, t: Any) -> Group:
    """The warpgroup of a unit."""
    keys, values, queries, slopes, changes, numbers = memory
    me = cp.plane_shuffle(cp.i32(cp.UNIT_POS // UNITS), 0) - 1
    describe, pattern = cp.cuda.wgmma_descriptor, 1024
    wide = 128 * t.rows
    origin = 0, 0, 0, 0
    return Group(
        me,
        cp.i32(cp.UNIT_POS) % UNITS,
        describe(keys, (0, 64 * me, 0), 16, pattern, swizzle=128),
        describe(values, (0, 64 * me, 0), 16, pattern, swizzle=128),
        describe(queries, origin, 16, pattern, swizzle=128),
        describe(slopes, origin, 16, pattern, swizzle=128),
        describe(queries, origin, wide, pattern, swizzle=128),
        describe(slopes, origin, wide, pattern, swizzle=128),
        describe(
            keys, (0 if t.pieces % 2 else me * t.parts, 0, 0), 128 * KEYS, pattern, swizzle=128
        ),
        describe(changes, (0, me * t.columns if t.pieces % 2 else 0, 0), 16, pattern, swizzle=128),
        changes,
        numbers,
        rings[1],
        rings[2],
        scale * cp.f32(LOG2_E),
    )


@dataclass(frozen=True, slots=True)
class Seen:
    """Which queries see the two keys of a unit: the first, with a window the one behind the last;
    the keys, their masks, and the last query that these have; and 0, which compilers don't know."""

    firsts: Any
    ends: Any
    keys: Any
    masks: Any
    last: Any
    zero: Any


def seen_by(masks: Any, source: Any, own: Any, extents: Any, window: Any, t: Any) -> Seen:
    """What the queries of batch and head `source` see of two keys, the first of which is `own`."""
    queries, keys = cp.i32(extents[2]), cp.i32(extents[3])
    firsts = tuple(
        max(0, asked_from(key, window, t)) if key < keys else cp.i32(2**31 - 1)
        for key in (own, own + 8)
    )
    ends = tuple(asked_to(key, queries, window) for key in (own, own + 8)) if len(window) else ()
    rows = tuple(m[source[0], source[1]] for m in masks)
    own_keys = min(own, keys - 1), min(own + 8, keys - 1)
    zero = cp.cuda.ptx("shr.s32 %0, %1, 31;", queries, result=cp.u32)
    return Seen(firsts, ends, own_keys, rows, queries - 1, zero)


def compute(
    outs: Any,
    masks: Any,
    memory: Any,
    rings: Any,
    place: Any,
    extents: Any,
    shared: Any,
    window: Any,
    scale: Any,
    t: Any,
) -> None:
    """All steps of a cube, for the 64 keys of a warpgroup. `outs`: maps of the gradients of keys
    and values, and the sums of queries."""
    g = group_of(memory, rings, scale, t)
    where, first = place
    begin, low, high, end = bounds(first, extents, window, t)
    own = first + 64 * g.me + g.unit // 32 * 16 + g.unit % 32 // 4
    steps = (extents[2] + cp.u32(t.rows - 1)) // cp.u32(t.rows)
    rings[0].wait(rings[0].start())
    if t.is_of_keys:
        let_overwrite(g)
    by_keys = cp.Line[cp.f32, t.size // 2](0.0)
    by_values = cp.Line[cp.f32, t.size // 2](0.0)
    carried = by_keys, by_values, g.by_query.start(), g.by_slope.start()
    tile = t.rows * t.size
    for turn in range(shared[0] * shared[1]):
        batch, head = sharer(where, turn, shared)
        row = cp.u64(batch * extents[1] + head) * cp.u64(steps)
        seen = seen_by(masks, (batch, head), own, extents, window, t)
        for step in range(begin, end if len(masks) else low):
            at = cp.cuda.address(outs[1], (row + cp.u64(step)) * cp.u64(tile))
            carried = advance(g, carried, at, (seen, step * t.rows), t)
        if len(masks) == 0:
            for step in range(low, high):
                at = cp.cuda.address(outs[1], (row + cp.u64(step)) * cp.u64(tile))
                carried = advance(g, carried, at, None, t)
            if len(window):
                for step in range(high, end):
                    at = cp.cuda.address(outs[1], (row + cp.u64(step)) * cp.u64(tile))
                    carried = advance(g, carried, at, (seen, step * t.rows), t)
    if t.is_of_keys:
        cp.cuda.ptx("bar.sync %0, 256;", g.me + FREE)
    finish(outs[0], memory, g, carried, where, first, scale, t)


def let_overwrite(g: Any) -> None:
    """Let the other warpgroup overwrite the gradients of scores."""
    cp.cuda.ptx("bar.arrive %0, 256;", 1 - g.me + FREE)


def advance(g: Any, carried: Any, at: Any, hiding: Any, t: Any) -> Any:
    """Add what one step of queries gives.

    `at`: the address of the sums of these queries; `hiding`: what they see and the first of them,
    None where all see all.
    """
    by_keys, by_values, place, behind = carried
    g.by_query.wait(place)
    scores = begin_product(g.keys, at_stage(g.queries, place.stage, t), t)
    g.by_slope.wait(behind)
    if t.is_of_keys:
        changes = begin_product(g.values, at_stage(g.slopes, behind.stage, t), t)
        hiding = with_bits(g, hiding, t)
        scores = cp.cuda.wgmma_wait(scores, 1)
        words = packed(weigh(scores, g, place.stage, hiding, t), t.dtype)
        if t.is_of_values:
            by_values = add_product(by_values, words, at_stage(g.wide_slopes, behind.stage, t), t)
        changes = cp.cuda.wgmma_wait(changes, 1 if t.is_of_values else 0)
        steps = packed(slopes_of(words, changes, g, behind.stage, t), t.dtype)
        sums, places = (by_keys, by_values), (place, behind)
        by_keys, by_values = add_steps(g, sums, steps, at, places, t)
    else:
        hiding = with_bits(g, hiding, t)
        scores = cp.cuda.wgmma_wait(scores, 0)
        words = packed(weigh(scores, g, place.stage, hiding, t), t.dtype)
        by_values = add_product(by_values, words, at_stage(g.wide_slopes, behind.stage, t), t)
        cp.cuda.ptx("bar.sync %0, 128;", g.me + OWN)
        if g.unit == 0:
            g.by_query.release(place.stage)
        by_values = cp.cuda.wgmma_wait(by_values, 0)
        if g.unit == 0:
            g.by_slope.release(behind.stage)
    return by_keys, by_values, g.by_query.following(place), g.by_slope.following(behind)


def add_steps(g: Any, sums: Any, steps: Any, at: Any, places: Any, t: Any) -> Any:
    """Add what gradients of scores give keys and, in memory, queries; the product for values may
    still be under way. Gives the sums of keys and values."""
    (by_keys, by_values), (place, behind) = sums, places
    cp.cuda.ptx("bar.sync %0, 256;", g.me + FREE)
    store_steps(g, steps, t)
    cp.cuda.fence_async()
    cp.cuda.ptx("bar.sync %0, 256;", cp.i32(READY))
    by_queries = turn_product(g, t)
    if t.is_of_values:
        by_values = cp.cuda.wgmma_wait(by_values, 1)
    if g.unit == 0:
        g.by_slope.release(behind.stage)
    by_keys = add_product(by_keys, steps, at_stage(g.wide_queries, place.stage, t), t)
    by_queries = tuple(cp.cuda.wgmma_wait(x, 1) for x in by_queries)
    let_overwrite(g)
    add_to_memory(g, at, by_queries, t)
    by_keys = cp.cuda.wgmma_wait(by_keys, 0)
    if g.unit == 0:
        g.by_query.release(place.stage)
    return by_keys, by_values


def at_stage(descriptor: Any, stage: Any, t: Any) -> Any:
    """The descriptor of queries or gradients of results in another stage."""
    return descriptor + cp.u64(stage * (t.pieces * t.rows * 8))


def begin_product(x: Any, y: Any, t: Any) -> Any:
    """The products of the keys or values of a warpgroup with a step, once they are waited for."""
    found = cp.Line[cp.f32, t.rows // 2](0.0)
    cp.cuda.wgmma_fence()
    for d in cp.unroll(range(0, t.size, 16)):
        piece, within = d // PIECE, d % PIECE // 8
        left = x + cp.u64(piece * KEYS * 8 + within)
        right = y + cp.u64(piece * t.rows * 8 + within)
        found = cp.cuda.wgmma(found, left, right, t.dtype, accumulate=d > 0)
    cp.cuda.wgmma_commit()
    return found


def add_product(sums: Any, words: Any, z: Any, t: Any) -> Any:
    """The sums plus the products of words and a step, once they are waited for."""
    cp.cuda.wgmma_fence()
    for j in cp.unroll(range(t.rows // 16)):
        own = words[4 * j : 4 * j + 4]
        sums = cp.cuda.wgmma(sums, own, z + cp.u64(128 * j), t.dtype, b_transposed=True)
    cp.cuda.wgmma_commit()
    return sums


def turn_product(g: Any, t: Any) -> Any:
    """What the step adds to the gradients of queries: elements along rows, queries along columns.
    A warpgroup makes half of the elements, or all for half of the queries."""
    found = tuple(cp.Line[cp.f32, t.columns // 2](0.0) for _ in range(t.parts))
    cp.cuda.wgmma_fence()
    for j in cp.unroll(range(0, KEYS, 16)):
        right = g.changes + cp.u64(j // 64 * t.rows * 8 + j % 64 // 8)
        left = tuple(g.turned + cp.u64(part * KEYS * 8 + 8 * j) for part in range(t.parts))
        found = tuple(
            cp.cuda.wgmma(found[n], left[n], right, t.dtype, a_transposed=True, accumulate=j > 0)
            for n in range(t.parts)
        )
    cp.cuda.wgmma_commit()
    return found


def weigh(scores: Any, g: Any, stage: Any, hiding: Any, t: Any) -> Any:
    """The weights of scores; 0 where a query does not see the key."""
    weights = cp.local(t.rows // 2, cp.f32)
    own = g.unit % 4 * 2
    logs = g.numbers[0][stage]
    for j in cp.unroll(range(t.rows // 8)):
        pair = cp.load(logs, 8 * j + own, line=2, fill=None)
        for n in cp.unroll(range(4)):
            i = 4 * j + n
            score = scores[i] * g.factor
            if hiding is None:
                weights[i] = power(score - pair[n % 2])
            else:
                seen, first, bits = hiding
                place, bit = (first + own, 8 * j + n % 2, n // 2), (bits[i // 32], 1 << i % 32)
                weights[i] = weight_of(score, pair[n % 2], seen, place, bit)
    return cp.load(weights, 0, line=t.rows // 2)


def with_bits(g: Any, hiding: Any, t: Any) -> Any:
    """What is hidden, with masks of bools as bits, which are read while products are under way.

    Keys depend on what was read before by a 0 that compilers do not know: they would else begin all
    reads at once, and have no registers for them.
    """
    if hiding is None:
        return None
    seen, first = hiding
    bits = cp.local(-(-t.rows // 64), cp.u32, fill=0)
    own, late = first + g.unit % 4 * 2, cp.i32(0)
    for mask in seen.masks:
        if mask.dtype == cp.bool_:
            for i in cp.unroll(range(t.rows // 2)):
                query = min(own + i // 4 * 8 + i % 2, seen.last)
                held = mask[query, seen.keys[i // 2 % 2] + late]
                bits[i // 32] = bits[i // 32] | cp.u32(held) << i % 32
                if cp.comptime(i % (4 * AT_ONCE) == 4 * AT_ONCE - 1):
                    late = cp.i32(bits[i // 32] & seen.zero)
    return seen, first, bits


def weight_of(score: Any, log: Any, seen: Any, place: Any, bit: Any) -> Any:
    """One weight, 0 where the query does not see the key. `place`: the first query of a unit, how
    far behind this one is, and which of the unit's keys; `bit`: the word in which a mask of bools
    says so, and its bit. Nothing is done conditionally: behind branches each element would wait for
    itself."""
    first, column, n = place
    sees = column >= seen.firsts[n] - first
    if len(seen.ends):
        sees = sees & (column < seen.ends[n] - first)
    for mask in seen.masks:
        if mask.dtype == cp.bool_:
            sees = sees & (bit[0] & cp.u32(bit[1]) != 0)
        else:
            held = mask[min(first + column, seen.last), seen.keys[n]]
            score = score + cp.f32(held) * cp.f32(LOG2_E)
    # A large mask leaves its rounding; weights are at most 1.
    weight = power(min(score - log, cp.f32(0)))
    return weight if sees else cp.f32(0)


def slopes_of(words: Any, changes: Any, g: Any, stage: Any, t: Any) -> Any:
    """The gradients of scores, which are still to be scaled."""
    found = cp.local(t.rows // 2, cp.f32)
    own = g.unit % 4 * 2
    deltas = g.numbers[1][stage]
    for j in cp.unroll(range(t.rows // 8)):
        pair = cp.load(deltas, 8 * j + own, line=2, fill=None)
        for n in cp.unroll(range(4)):
            i = 4 * j + n
            weight = cp.f32(cp.bitcast(words[i // 2], cp.Line[t.dtype, 2])[i % 2])
            found[i] = weight * (changes[i] - pair[n % 2])
    return cp.load(found, 0, line=t.rows // 2)


def store_steps(g: Any, words: Any, t: Any) -> None:
    """Gradients of scores to shared memory, with queries along rows."""
    lane, plane = g.unit % 32, g.unit // 32
    column = (2 * plane + lane // 8 % 2 ^ lane % 8) * 8
    for j in cp.unroll(range(t.rows // 16)):
        place = g.me, 16 * j + lane // 16 * 8 + lane % 8, column
        cp.cuda.stmatrix(g.stored, place, words[4 * j : 4 * j + 4], transposed=True)


def add_to_memory(g: Any, at: Any, found: Any, t: Any) -> None:
    """Add to the sums of queries, which lie as the units have them."""
    blocks = t.columns // 8
    at = at + cp.u64(g.me * (t.parts * blocks * UNITS * 16) + g.unit * 16)
    for n in cp.unroll(range(t.parts * blocks)):
        part, j = n // blocks, n % blocks
        text = f"red.global.add.v4.f32 [%0 + {n * UNITS * 16}], {{%1, %2, %3, %4}};"
        cp.cuda.ptx(text, at, found[part][4 * j : 4 * j + 4])


def finish(
    outs: Any, memory: Any, g: Any, carried: Any, where: Any, first: Any, scale: Any, t: Any
) -> None:
    """Store the gradients of keys and values, through their own memory."""
    by_keys, by_values, _, _ = carried
    if t.is_of_keys:
        scaled = cp.local(t.size // 2, cp.f32)
        for i in cp.unroll(range(t.size // 2)):
            scaled[i] = by_keys[i] * scale
        stage_rows(memory[0], g, packed(cp.load(scaled, 0, line=t.size // 2), t.dtype), t.size)
    if t.is_of_values:
        stage_rows(memory[1], g, packed(by_values, t.dtype), t.size)
    cp.cuda.fence_async()
    cp.cuda.ptx("bar.sync %0, 128;", g.me + OWN)
    if g.unit == 0:
        for n in cp.unroll(range(2)):
            if (t.is_of_keys, t.is_of_values)[n]:
                for piece in cp.unroll(range(t.pieces)):
                    origin = cp.i32(where[0]), cp.i32(where[1]), first + 64 * g.me, PIECE * piece
                    cp.cuda.tensor_store(outs[n], origin, memory[n], (piece, 64 * g.me, 0))
        cp.cuda.bulk_commit()
        cp.cuda.bulk_wait()


# Before and after


@cp.cube
def prepare_gradients(
    result: cp.Tensor,
    grad: cp.Tensor,
    lse: cp.Tensor,
    logs: cp.Tensor[cp.f32],
    deltas: cp.Tensor[cp.f32],
    sums: Any,
    size: cp.Comptime[int],
) -> None:
    """For each query, by a plane: the logarithm to base 2 of its sum of exponentials, the product
    of its result and the gradient of that, and `size` zeros in `sums`, a tuple of one array or
    none. Queries behind the last, and those that see no key, have weights of 0."""
    row, lane = cp.ABSOLUTE_POS // cp.PLANE_DIM, cp.UNIT_POS % cp.PLANE_DIM
    padded, heads = logs.shape[1], result.shape[1]
    if row < logs.shape[0] * padded:
        head, i = row // padded, row % padded
        total = cp.f32(0)
        if i < result.shape[2]:
            x, y = result[head // heads, head % heads, i], grad[head // heads, head % heads, i]
            for c in range(4 * lane, x.shape[0], 4 * cp.PLANE_DIM):
                left = cp.Line[cp.f32, 4](cp.load(x, c, line=4))
                total += (left * cp.Line[cp.f32, 4](cp.load(y, c, line=4))).sum()
        total = cp.plane_sum(total)
        if lane == 0:
            log = cp.f32(LOWEST)
            if i < result.shape[2]:
                log = lse[head // heads, head % heads, i, 0]
            log = log * cp.f32(LOG2_E)
            logs[head, i] = cp.f32(HIGHEST) if log == cp.f32(LOWEST) else log
            deltas[head, i] = total
        for held in sums:
            for c in range(4 * lane, size, 4 * cp.PLANE_DIM):
                cp.store(held, row * size + c, cp.Line[cp.f32, 4](0), whole=True)


@cp.cube
def finish_gradients(
    sums: cp.Tensor[cp.f32],
    out: cp.Tensor,
    scale: cp.f32,
    t: cp.Comptime[GradientWarpgroups],
) -> None:
    """Scale the sums of queries and store them; a cube of 256 units for 16 rows of 64 elements."""
    tile = cp.shared((16, PIECE + 4), cp.f32)
    blocks = t.columns // 8 * t.parts
    block, place = cp.CUBE_POS % blocks, cp.CUBE_POS // blocks
    part, band = block // (t.columns // 8), block % (t.columns // 8)
    me, unit = cp.UNIT_POS // UNITS, cp.UNIT_POS % UNITS
    lines = ((2 * place + me) * blocks + block) * UNITS + unit
    found = cp.load(sums, 4 * lines, line=4, fill=None)
    for n in cp.unroll(range(4)):
        column = unit // 32 * 16 + unit % 32 // 4 + 8 * (n // 2)
        tile[8 * me + unit % 4 * 2 + n % 2, column] = found[n] * scale
    cp.sync_cube()
    steps = (out.shape[2] + t.rows - 1) // t.rows
    head, first = place // steps, place % steps * t.rows + 8 * band
    row, column = cp.UNIT_POS // 16, cp.UNIT_POS % 16 * 4
    own, query = (row // 8 * t.parts + part) * PIECE, row % 8
    if t.pieces % 2:
        own, query = part * PIECE, row // 8 * t.columns + row % 8
    if first + query < out.shape[2]:
        line = cp.load(tile[row], column, line=4, fill=None)
        heads = out.shape[1]
        cp.store(out[head // heads, head % heads, first + query], own + column, line)
