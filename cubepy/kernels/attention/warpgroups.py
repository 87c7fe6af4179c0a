"""Attention on Hopper: warpgroups multiply and weigh by turns, a warp copies for them.

Each cube makes one tile of queries after another. One unit fills rings of keys and of values by the
copy engine. Each of the other warpgroups has 64 queries: their scores, weights and sums never leave
registers. While the products of the next scores and of the last weights are under way it weighs the
scores before them, and the warpgroups start their products by turns, so that one weighs while
another multiplies (Shah et al., "FlashAttention-3", 2024). Values of 8 bits are transposed on their
way, see `turning`; their products with a step of weights are added in f32, as tensor cores add with
fewer bits.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.parts import join_cluster, note, shared_parts
from cubepy.kernels.attention.problem import Warpgroups
from cubepy.kernels.attention.rows import Rows
from cubepy.kernels.attention.tiles import quotient, tile_at, turns, whole_steps
from cubepy.kernels.attention.turning import FIRST, TURNING, turn_step
from cubepy.kernels.attention.weighing import LOWEST, inverse, portion
from cubepy.kernels.attention.weights import (
    LN_2,
    LOG2_E,
    factor_words,
    hidden,
    packed,
    portions,
    scaled,
    scaled_with,
    seen_by,
    weigh,
    whole,
)
from cubepy.lang import pipelines
from cubepy.record import dataclass

PIECE = 64
"""Elements of a row of shared memory, which has 128 bytes."""
UNITS = pipelines.WARPGROUP
PLANES = UNITS // 32
OWN = 4
"""The first of the barriers that the units of one warpgroup have; those below are for turns."""


@cp.cube
def attend_warpgroups(
    q: cp.cuda.TensorMap,
    k: cp.cuda.TensorMap,
    v: cp.cuda.TensorMap,
    out: cp.cuda.TensorMap,
    wide: Any,
    logs: Any,
    masks: Any,
    parts: Any,
    extents: tuple[cp.u32, cp.u32, cp.u32, cp.u32],
    shared: tuple[cp.u32, cp.u32],
    order: tuple[cp.u32, cp.u32, cp.u32, cp.u32, cp.u32],
    window: Any,
    scale: cp.f32,
    t: cp.Comptime[Warpgroups],
) -> None:
    """All arrays are [batches, heads, rows, elements]. `extents`: batches, heads, queries, keys;
    `shared`: how many neighbouring batches and heads have keys in common; `order`: the numbers of
    an `Order`; `window`: see `window.seen_from`. `wide`: results as a tensor where
    they are f32; `logs`: perhaps what the logarithms of the sums of
    exponentials are stored to. `parts`: where tiles are split, the results over each part of their
    keys, [parts, tiles, queries, elements], and their sizes, [parts, tiles, queries, 2]; see
    `parts.join_parts`."""
    memory, rings = memory_of(t), rings_of(t)
    held = held_parts(parts, t)
    cp.sync_cube()
    few, many = t.registers
    group = cp.i32(cp.UNIT_POS // UNITS)
    if group == 0:
        if few:
            cp.cuda.decrease_registers(few)
        if cp.UNIT_POS == 0:
            copy_all((q, k, v), memory, rings, extents, shared, order, window, t)
        if t.turns_values and cp.UNIT_POS // 32 >= FIRST:
            turn_all(memory, rings, extents, order, window, t)
    else:
        if many:
            cp.cuda.increase_registers(many)
        outs = out, wide, logs
        attend_tiles(outs, masks, held, memory, rings, extents, order, window, scale, t)
    if t.is_clustered:
        cp.sync_plane()  # one unit of a plane copied
        cp.cuda.cluster_sync()
        where, first, _, _ = tile_at(cp.u32(0), extents, order, window, t)
        join_cluster(held, wide[0], logs, where, first, cp.i32(extents[2]))
        cp.cuda.cluster_sync()


@cp.cube
def memory_of(t: Any) -> Any:
    """Shared memory for queries, keys, values, results, and values as products take them."""
    queries = cp.shared((t.tiles, t.pieces, t.height, t.piece), t.dtype)
    keys = cp.shared((t.stages, t.pieces, t.keys, t.piece), t.dtype)
    values = cp.shared((t.stages, t.wide_pieces, t.keys, t.piece), t.dtype)
    return queries, keys, values, staged_of(queries[0], t), turned_of(values, t)


@cp.cube
def held_parts(parts: Any, t: Any) -> Any:
    """What results over parts of the keys are noted in."""
    return shared_parts(t) if t.is_clustered else parts


@cp.cube
def staged_of(queries: Any, t: Any) -> Any:
    """Shared memory for results."""
    if t.shares_memory or not t.result_pieces:
        return queries
    return cp.shared((t.result_pieces, t.height, PIECE), t.result)


@cp.cube
def turned_of(values: Any, t: Any) -> Any:
    """Shared memory for values as products take them."""
    if not t.turns_values:
        return values
    return cp.shared((t.stages, t.turned_pieces, t.turned_rows, t.piece), t.dtype)


@cp.cube
def rings_of(t: Any) -> Any:
    """Those of queries, keys, values, and values as products take them, which each plane releases:
    a unit asks for them twice, and finds them full only if none of its plane is ahead."""
    asked = pipelines.ring(t.tiles, t.consumers)
    by_key = pipelines.ring(t.stages, t.consumers)
    if not t.turns_values:
        by_value = pipelines.ring(t.stages, t.consumers * PLANES)
        return asked, by_key, by_value, by_value
    by_value = pipelines.ring(t.stages, TURNING)
    return asked, by_key, by_value, pipelines.ring(t.stages, t.consumers * PLANES, TURNING)


# The unit that copies


def copy_all(
    maps: Any,
    memory: Any,
    rings: Any,
    extents: Any,
    shared: Any,
    order: Any,
    window: Any,
    t: Any,
) -> None:
    """All steps of keys and values of each tile, the last first, and its queries behind the first
    keys, which take longest."""
    q, k, v = maps
    asked, by_key, by_value = rings[:3]
    turn_of_queries, place, behind = asked.start(), by_key.start(), by_value.start()
    for turn in range(turns(order, t)):
        where, first, begin, end = tile_at(cp.u32(turn), extents, order, window, t)
        batch, head, _, _ = where
        source = tuple(
            cp.i32(quotient(cp.u32(n), count))
            for n, count in zip((batch, head), shared, strict=True)
        )
        for step in range(end - begin):
            row = (end - 1 - cp.i32(step)) * t.keys
            by_key.acquire(place, t.pieces * k.nbytes)
            copy_rows(k, memory[1], source, row, by_key, place.stage)
            place = by_key.following(place)
            if step == 0:
                asked.acquire(turn_of_queries, t.pieces * q.nbytes)
                copy_rows(q, memory[0], (batch, head), first, asked, turn_of_queries.stage)
                turn_of_queries = asked.following(turn_of_queries)
            else:
                by_value.acquire(behind, t.wide_pieces * v.nbytes)
                copy_rows(v, memory[2], source, row + t.keys, by_value, behind.stage)
                behind = by_value.following(behind)
        by_value.acquire(behind, t.wide_pieces * v.nbytes)
        copy_rows(v, memory[2], source, begin * t.keys, by_value, behind.stage)
        behind = by_value.following(behind)


def copy_rows(tensor: Any, memory: Any, where: Any, row: Any, ring: Any, stage: Any) -> None:
    """Rows from `row` on, piece by piece."""
    for piece in cp.unroll(range(memory.shape[-3])):
        place, origin = (stage, piece, 0, 0), (*where, row, memory.shape[-1] * piece)
        cp.cuda.tensor_load(memory, place, tensor, origin, ring.full, stage)


def turn_all(memory: Any, rings: Any, extents: Any, order: Any, window: Any, t: Any) -> None:
    """All steps of values of all tiles, transposed."""
    by_value, by_turned = rings[2:]
    place, behind = by_value.start(), by_turned.start()
    for turn in range(turns(order, t)):
        begin, end = tile_at(cp.u32(turn), extents, order, window, t)[2:]
        for _ in range(end - begin):
            turn_step(memory, by_value, place, by_turned, behind, t)
            place, behind = by_value.following(place), by_turned.following(behind)


# The warpgroups that compute


@dataclass(frozen=True, slots=True)
class Group:
    """What a warpgroup keeps for all tiles: its number and its unit, descriptors of its queries in
    the first tile and of the first stages, rings, and what scores are multiplied by."""

    me: Any
    unit: Any
    x: Any
    y: Any
    z: Any
    asked: Any
    by_key: Any
    by_value: Any
    factor: Any

    @property
    def row(self) -> Any:
        """The first of the two queries of a unit in a tile; the other is 8 behind."""
        return 64 * self.me + self.unit // 32 * 16 + self.unit % 32 // 4


def group_of(memory: Any, rings: Any, scale: Any, t: Any) -> Group:
    """What the warpgroup of this unit keeps."""
    queries, keys, values = memory[0], memory[1], memory[4]
    me = cp.plane_shuffle(cp.i32(cp.UNIT_POS // UNITS), 0) - 1
    leading = 16 if t.turns_values else 128 * t.keys
    return Group(
        me,
        cp.i32(cp.UNIT_POS) % UNITS,
        cp.cuda.wgmma_descriptor(queries, (0, 0, 64 * me, 0), 16, 1024, swizzle=128),
        cp.cuda.wgmma_descriptor(keys, (0, 0, 0, 0), 16, 1024, swizzle=128),
        cp.cuda.wgmma_descriptor(values, (0, 0, 0, 0), leading, 1024, swizzle=128),
        rings[0],
        rings[1],
        rings[3],
        scale * cp.f32(LOG2_E),
    )


def attend_tiles(
    outs: Any,
    masks: Any,
    parts: Any,
    memory: Any,
    rings: Any,
    extents: Any,
    order: Any,
    window: Any,
    scale: Any,
    t: Any,
) -> None:
    """All tiles of the cube, 64 queries of each."""
    g = group_of(memory, rings, scale, t)
    places = g.asked.start(), g.by_key.start(), g.by_value.start()
    if g.me == t.consumers - 1:
        pass_turn(g, t)
    for turn in range(turns(order, t)):
        where, first, begin, end = tile_at(cp.u32(turn), extents, order, window, t)
        seen = seen_by(masks, where, first + g.row, extents, window, scale, t)
        low, high = whole_steps(first, t.height, begin, cp.i32(extents[3]), window, t)
        sums, state, places = attend_tile(g, places, seen, (begin, low, high, end), t)
        is_part = t.is_split and where[2] >= 0
        if is_part:
            place = (0, 0) if t.is_clustered else (where[2], where[3])
            note(parts, place, g, sums, state, cp.i32(extents[2]) - first, t)
        else:
            origin = where[0], where[1], first + 64 * g.me
            if t.result_pieces:
                finish(outs[0], memory[3], g, sums, state, origin, t)
            else:
                rows = Rows(outs[1][0][where[0], where[1]])
                store_sums(rows, first, g, sums, state, cp.i32(extents[2]), t)
            note_logs(outs[2], g, state, (where, first), extents, t)
        if g.unit == 0 and t.shares_memory:
            cp.cuda.bulk_wait(0, read=True)
            g.asked.release(0)
    if g.unit == 0:
        cp.cuda.bulk_wait()
    if g.me == 0:
        await_turn(g, t)


def attend_tile(g: Any, places: Any, seen: Any, steps: Any, t: Any) -> Any:
    """Sums of values, the state of the softmax, and the places after the tile.

    `steps`: the first, those that all queries see from which and up to which, and the end.
    """
    asked, place, behind = places
    begin, low, high, end = steps
    g.asked.wait(asked)
    g.by_key.wait(place)
    x = g.x + cp.u64(asked.stage * (t.pieces * t.height * 8))
    scores = cp.cuda.wgmma_wait(begin_scores(x, g.y, place.stage, t), 0)
    if g.unit == 0:
        g.by_key.release(place.stage)
    has_mask, has_window = len(seen.masks) > 0, len(seen.lows) > 0
    if has_mask or t.is_causal or has_window or end * t.keys > seen.limits[0]:
        scores = hidden(scores, seen, (end - 1) * t.keys, g.unit, t)
    state = (cp.f32(LOWEST), cp.f32(LOWEST), cp.f32(0), cp.f32(0))
    weights, state, scales = weigh(scores, state, g.factor, has_mask, t)
    sums = cp.Line[cp.f32, t.width // 2](0.0)
    carried = sums, factor_words(weights, t), scales, state, g.by_key.following(place), behind
    step = end - 2
    if has_mask or has_window or (t.is_causal and t.keys % t.height):
        masked = begin if has_mask else high
        while step >= masked:
            carried = advance(g, x, carried, (seen, step * t.keys), t)
            step -= 1
    if not has_mask:
        while step >= low:
            carried = advance(g, x, carried, None, t)
            step -= 1
    if has_window and not has_mask:
        while step >= begin:
            carried = advance(g, x, carried, (seen, step * t.keys), t)
            step -= 1
    if g.unit == 0 and not t.shares_memory:
        g.asked.release(asked.stage)
    sums, words, scales, state, place, behind = carried
    g.by_value.wait(behind)
    added = cp.cuda.wgmma_wait(add_values(sums, words, g.z, behind.stage, t), 0)
    if g.unit % 32 == 0:
        g.by_value.release(behind.stage)
    sums = scaled_with(sums, scales, added) if t.turns_values else added
    return sums, state, (g.asked.following(asked), place, g.by_value.following(behind))


def begin_scores(x: Any, y: Any, stage: Any, t: Any) -> Any:
    """The products of the queries with a step of keys, once they are waited for."""
    y = y + cp.u64(stage * (t.pieces * t.keys * 8))
    scores = cp.Line[cp.f32, t.keys // 2](0.0)
    cp.cuda.wgmma_fence()
    for d in cp.unroll(range(0, t.size, t.depth)):
        piece, within = d // t.piece, d % t.piece * t.dtype.itemsize // 16
        scores = cp.cuda.wgmma(
            scores,
            x + cp.u64(piece * t.height * 8 + within),
            y + cp.u64(piece * t.keys * 8 + within),
            t.dtype,
            accumulate=d > 0,
        )
    cp.cuda.wgmma_commit()
    return scores


def add_values(sums: Any, words: Any, z: Any, stage: Any, t: Any) -> Any:
    """The sums plus the products of weights and values, once they are waited for; of 8 bits the
    products alone."""
    if t.turns_values:
        return multiplied_values(words, z, stage, t)
    z = z + cp.u64(stage * (t.wide_pieces * t.keys * 8))
    cp.cuda.wgmma_fence()
    for j in cp.unroll(range(t.keys // 16)):
        own = words[4 * j : 4 * j + 4]
        sums = cp.cuda.wgmma(sums, own, z + cp.u64(128 * j), t.dtype, b_transposed=True)
    cp.cuda.wgmma_commit()
    return sums


def multiplied_values(words: Any, z: Any, stage: Any, t: Any) -> Any:
    """The products of weights and values of 8 bits, once they are waited for."""
    z = z + cp.u64(stage * (t.turned_pieces * t.turned_rows * 8))
    sums = cp.Line[cp.f32, t.width // 2](0.0)
    cp.cuda.wgmma_fence()
    for j in cp.unroll(range(t.keys // t.depth)):
        own, place = words[4 * j : 4 * j + 4], z + cp.u64(j // 4 * t.turned_rows * 8 + j % 4 * 2)
        kinds = cp.f8e4m3, t.dtype
        sums = cp.cuda.wgmma(sums, own, place, kinds, accumulate=j > 0)
    cp.cuda.wgmma_commit()
    return sums


def advance(g: Any, x: Any, carried: Any, hiding: Any, t: Any) -> Any:
    """Weigh the next scores, while the products of the last weights are under way.

    `hiding`: what queries see and the first key, None where they see all.
    """
    sums, words, scales, state, place, behind = carried
    g.by_key.wait(place)
    await_turn(g, t)
    scores = begin_scores(x, g.y, place.stage, t)
    g.by_value.wait(behind)
    added = add_values(sums, words, g.z, behind.stage, t)
    pass_turn(g, t)
    scores = cp.cuda.wgmma_wait(scores, 1)
    if g.unit == 0:
        g.by_key.release(place.stage)
    has_mask = False
    if hiding is not None:
        scores = hidden(scores, hiding[0], hiding[1], g.unit, t)
        has_mask = len(hiding[0].masks) > 0
    weights, state, following = weigh(scores, state, g.factor, has_mask, t)
    # It is full; asking again keeps ptxas from waiting for the sums before it weighs.
    g.by_value.wait(behind)
    added = cp.cuda.wgmma_wait(added, 0)
    if g.unit % 32 == 0:
        g.by_value.release(behind.stage)
    sums = scaled_with(sums, scales, added) if t.turns_values else scaled(added, following)
    places = g.by_key.following(place), g.by_value.following(behind)
    return sums, factor_words(weights, t), following, state, *places


def await_turn(g: Any, t: Any) -> None:
    """Wait until the warpgroup before has started its products."""
    if t.consumers > 1:
        cp.cuda.ptx("bar.sync %0, 256;", g.me + 1)


def pass_turn(g: Any, t: Any) -> None:
    """Let the next warpgroup start its products."""
    if t.consumers > 1:
        after = cp.i32(0) if g.me == t.consumers - 1 else g.me + 1
        cp.cuda.ptx("bar.arrive %0, 256;", after + 1)


# The end of a tile


def finish(out: Any, staged: Any, g: Any, sums: Any, state: Any, origin: Any, t: Any) -> None:
    """Store sums over the sums of weights; zeros where a query sees no key. `origin`: of the
    warpgroup's rows."""
    results = portions(sums, (inverse(whole(state[2])), inverse(whole(state[3]))))
    words = packed(results, t.result)
    if not t.shares_memory and g.unit == 0:
        cp.cuda.bulk_wait(0, read=True)
    cp.cuda.ptx("bar.sync %0, 128;", g.me + OWN)
    stage_rows(staged, g, words, t.width)
    cp.cuda.fence_async()
    cp.cuda.ptx("bar.sync %0, 128;", g.me + OWN)
    if g.unit == 0:
        for piece in cp.unroll(range(t.result_pieces)):
            cp.cuda.tensor_store(out, (*origin, PIECE * piece), staged, (piece, 64 * g.me, 0))
        cp.cuda.bulk_commit()


def store_sums(rows: Any, first: Any, g: Any, sums: Any, state: Any, count: Any, t: Any) -> None:
    """The same from registers, to rows from `first` on of `count`."""
    column = g.unit % 4 * 2
    for half in cp.unroll(range(2)):
        row, share = first + g.row + 8 * half, inverse(whole(state[2 + half]))
        if row < count:
            for j in cp.unroll(range(t.width // 8)):
                rows.row(row)[8 * j + column] = portion(sums[4 * j + 2 * half], share)
                rows.row(row)[8 * j + column + 1] = portion(sums[4 * j + 2 * half + 1], share)


def stage_rows(staged: Any, g: Any, words: Any, width: int) -> None:
    """The 64 rows of a warpgroup to shared memory [piece, row, element], as the copy engine reads
    them."""
    lane = g.unit % 32
    row = g.unit // 32 * 16 + lane % 16
    for j in cp.unroll(range(width // 16)):
        column = (j % 4 * 2 + lane // 16 ^ row % 8) * 8
        cp.cuda.stmatrix(staged, (j // 4, 64 * g.me + row, column), words[4 * j : 4 * j + 4])
    if width % 16:
        column = (width // 16 % 4 * 2 ^ row % 8) * 8
        last = words[width // 4 - 2 : width // 4]
        cp.cuda.stmatrix(staged, (width // 64, 64 * g.me + row, column), last)


def note_logs(logs: Any, g: Any, state: Any, place: Any, extents: Any, t: Any) -> None:
    """Store the natural logarithms of the sums of exponentials of a unit's two queries."""
    (batch, head, _, _), first = place
    for log in logs:
        for half in cp.unroll(range(2)):
            row, total = first + g.row + 8 * half, whole(state[2 + half])
            if g.unit % 4 == 0 and row < cp.i32(extents[2]):
                log[batch, head, row, 0] = (
                    state[half] * g.factor + cp.log2(total) - t.shift
                ) * LN_2
