"""Attention on Hopper: warpgroups multiply and weigh by turns, a warp copies for them.

Each cube makes one tile of queries after another. One unit fills rings of keys and of values by the
copy engine. Each of the other warpgroups has 64 queries: their scores, weights and sums never leave
registers. While the products of the next scores and of the last weights are under way it weighs the
scores before them, and the warpgroups start their products by turns, so that one weighs while
another multiplies (Shah et al., "FlashAttention-3", 2024).
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.problem import Warpgroups
from cubepy.kernels.attention.strips import LOWEST
from cubepy.kernels.calls.positions import unravelled
from cubepy.lang import pipelines
from cubepy.record import dataclass

PIECE = 64
"""Elements of a row of shared memory, which has 128 bytes."""
UNITS = pipelines.WARPGROUP
OWN = 4
"""The first of the barriers that the units of one warpgroup have; those below are for turns."""
LOG2_E, LN_2 = 1.4426950408889634, 0.6931471805599453


@cp.cube
def attend_warpgroups(
    q: cp.cuda.TensorMap,
    k: cp.cuda.TensorMap,
    v: cp.cuda.TensorMap,
    out: cp.cuda.TensorMap,
    logs: Any,
    masks: Any,
    parts: Any,
    extents: tuple[cp.u32, cp.u32, cp.u32, cp.u32],
    shared: tuple[cp.u32, cp.u32],
    order: tuple[cp.u32, cp.u32, cp.u32, cp.u32, cp.u32],
    scale: cp.f32,
    t: cp.Comptime[Warpgroups],
) -> None:
    """All arrays are [batches, heads, rows, elements]. `extents`: batches, heads, queries, keys;
    `shared`: how many neighbouring batches and heads have keys in common; `order`: the numbers of
    an `Order`. `logs`: perhaps what the logarithms of the sums of exponentials are stored to.
    `parts`: where tiles are split, the results over each part of their keys, [parts,
    tiles, queries, elements], and the logarithms to base 2 of their sums of weights; see
    `join_parts`."""
    queries = cp.shared((t.tiles, t.pieces, t.height, PIECE), t.dtype)
    keys = cp.shared((t.stages, t.pieces, t.keys, PIECE), t.dtype)
    values = cp.shared((t.stages, t.wide_pieces, t.keys, PIECE), t.dtype)
    staged = queries[0] if t.shares_memory else cp.shared((t.wide_pieces, t.height, PIECE), t.dtype)
    asked = pipelines.ring(t.tiles, t.consumers)
    by_key = pipelines.ring(t.stages, t.consumers)
    by_value = pipelines.ring(t.stages, t.consumers)
    cp.sync_cube()
    few, many = t.registers
    group = cp.i32(cp.UNIT_POS // UNITS)
    if group == 0:
        if few:
            cp.cuda.decrease_registers(few)
        if cp.UNIT_POS == 0:
            rings = asked, by_key, by_value
            copy_all((q, k, v), (queries, keys, values), rings, extents, shared, order, t)
    else:
        if many:
            cp.cuda.increase_registers(many)
        memory, rings = (queries, keys, values, staged), (asked, by_key, by_value)
        attend_tiles((out, logs), masks, parts, memory, rings, extents, order, scale, t)


# Which tile a cube makes


def turns(order: Any, t: Any) -> Any:
    """How many tiles, or parts of them, the cube makes."""
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


def tile_at(turn: Any, extents: Any, order: Any, t: Any) -> Any:
    """Batch and head, part and number of a split tile, first query, and the steps of keys.

    Some causal heads are done before the next, of them the longest tiles first.
    """
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
    return where, cp.i32(band) * t.height, cp.i32(begin), cp.i32(end)


# The unit that copies


def copy_all(
    maps: Any, memory: Any, rings: Any, extents: Any, shared: Any, order: Any, t: Any
) -> None:
    """Queries of each tile, and all steps of keys and values, the last first."""
    q, k, v = maps
    asked, by_key, by_value = rings
    turn_of_queries, place, behind = asked.start(), by_key.start(), by_value.start()
    for turn in range(turns(order, t)):
        where, first, begin, end = tile_at(cp.u32(turn), extents, order, t)
        batch, head, _, _ = where
        asked.acquire(turn_of_queries, t.pieces * q.nbytes)
        copy_rows(q, memory[0], (batch, head), first, asked, turn_of_queries.stage)
        source = cp.i32(cp.u32(batch) // shared[0]), cp.i32(cp.u32(head) // shared[1])
        turn_of_queries = asked.following(turn_of_queries)
        for step in range(end - begin):
            row = (end - 1 - cp.i32(step)) * t.keys
            by_key.acquire(place, t.pieces * k.nbytes)
            copy_rows(k, memory[1], source, row, by_key, place.stage)
            place = by_key.following(place)
            if step > 0:
                by_value.acquire(behind, t.wide_pieces * v.nbytes)
                copy_rows(v, memory[2], source, row + t.keys, by_value, behind.stage)
                behind = by_value.following(behind)
        by_value.acquire(behind, t.wide_pieces * v.nbytes)
        copy_rows(v, memory[2], source, begin * t.keys, by_value, behind.stage)
        behind = by_value.following(behind)


def copy_rows(tensor: Any, memory: Any, where: Any, row: Any, ring: Any, stage: Any) -> None:
    """Rows from `row` on, piece by piece."""
    for piece in cp.unroll(range(memory.shape[-3])):
        place, origin = (stage, piece, 0, 0), (*where, row, PIECE * piece)
        cp.cuda.tensor_load(memory, place, tensor, origin, ring.full, stage)


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


def attend_tiles(
    outs: Any,
    masks: Any,
    parts: Any,
    memory: Any,
    rings: Any,
    extents: Any,
    order: Any,
    scale: Any,
    t: Any,
) -> None:
    """All tiles of the cube, 64 queries of each."""
    queries, keys, values, staged = memory
    asked, by_key, by_value = rings
    me = cp.plane_shuffle(cp.i32(cp.UNIT_POS // UNITS), 0) - 1
    g = Group(
        me,
        cp.i32(cp.UNIT_POS) % UNITS,
        cp.cuda.wgmma_descriptor(queries, (0, 0, 64 * me, 0), 16, 1024, swizzle=128),
        cp.cuda.wgmma_descriptor(keys, (0, 0, 0, 0), 16, 1024, swizzle=128),
        cp.cuda.wgmma_descriptor(values, (0, 0, 0, 0), 128 * t.keys, 1024, swizzle=128),
        asked,
        by_key,
        by_value,
        scale * cp.f32(LOG2_E),
    )
    places = g.asked.start(), g.by_key.start(), g.by_value.start()
    if g.me == t.consumers - 1:
        pass_turn(g, t)
    for turn in range(turns(order, t)):
        where, first, begin, end = tile_at(cp.u32(turn), extents, order, t)
        seen = seen_by(masks, where, first + g.row, extents, scale, t)
        sums, state, places = attend_tile(g, places, seen, first, begin, end, t)
        is_part = t.is_split and where[2] >= 0
        if is_part:
            note(parts, g, sums, state, where, t)
        else:
            finish(outs[0], staged, g, sums, state, (where, first), t)
            note_logs(outs[1], g, state, (where, first), extents)
        if g.unit == 0 and t.shares_memory:
            cp.cuda.bulk_wait(0, read=True)
            g.asked.release(0)
    if g.unit == 0:
        cp.cuda.bulk_wait()
    if g.me == 0:
        await_turn(g, t)


def attend_tile(g: Any, places: Any, seen: Any, first: Any, begin: Any, end: Any, t: Any) -> Any:
    """Sums of values, the state of the softmax, and the places after the tile."""
    asked, place, behind = places
    g.asked.wait(asked)
    g.by_key.wait(place)
    x = g.x + cp.u64(asked.stage * (t.pieces * t.height * 8))
    scores = cp.cuda.wgmma_wait(begin_scores(x, g.y, place.stage, t), 0)
    if g.unit == 0:
        g.by_key.release(place.stage)
    has_mask = len(seen[1]) > 0
    if has_mask or t.is_causal or end * t.keys > seen[0][0]:
        scores = hidden(scores, seen, (end - 1) * t.keys, g.unit, t)
    state = (cp.f32(LOWEST), cp.f32(LOWEST), cp.f32(0), cp.f32(0))
    weights, state, _ = weigh(scores, state, g.factor, t)
    sums = cp.Line[cp.f32, t.width // 2](0.0)
    carried = sums, packed(weights, t), state, g.by_key.following(place), behind
    step = end - 2
    if has_mask or (t.is_causal and t.keys % t.height):
        masked = begin if has_mask else (first + 1) // t.keys
        while step >= masked:
            carried = advance(g, x, carried, (seen, step * t.keys), t)
            step -= 1
    if not has_mask:
        while step >= begin:
            carried = advance(g, x, carried, None, t)
            step -= 1
    if g.unit == 0 and not t.shares_memory:
        g.asked.release(asked.stage)
    sums, words, state, place, behind = carried
    g.by_value.wait(behind)
    sums = cp.cuda.wgmma_wait(add_values(sums, words, g.z, behind.stage, t), 0)
    if g.unit == 0:
        g.by_value.release(behind.stage)
    return sums, state, (g.asked.following(asked), place, g.by_value.following(behind))


def begin_scores(x: Any, y: Any, stage: Any, t: Any) -> Any:
    """The products of the queries with a step of keys, once they are waited for."""
    y = y + cp.u64(stage * (t.pieces * t.keys * 8))
    scores = cp.Line[cp.f32, t.keys // 2](0.0)
    cp.cuda.wgmma_fence()
    for d in cp.unroll(range(0, t.size, 16)):
        piece, within = d // PIECE, d % PIECE // 8
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
    """The sums plus the products of weights and values, once they are waited for."""
    z = z + cp.u64(stage * (t.wide_pieces * t.keys * 8))
    cp.cuda.wgmma_fence()
    for j in cp.unroll(range(t.keys // 16)):
        own = words[4 * j : 4 * j + 4]
        sums = cp.cuda.wgmma(sums, own, z + cp.u64(128 * j), t.dtype, b_transposed=True)
    cp.cuda.wgmma_commit()
    return sums


def advance(g: Any, x: Any, carried: Any, hiding: Any, t: Any) -> Any:
    """Weigh the next scores, while the products of the last weights are under way.

    `hiding`: what queries see and the first key, None where they see all.
    """
    sums, words, state, place, behind = carried
    g.by_key.wait(place)
    await_turn(g, t)
    scores = begin_scores(x, g.y, place.stage, t)
    g.by_value.wait(behind)
    sums = add_values(sums, words, g.z, behind.stage, t)
    pass_turn(g, t)
    scores = cp.cuda.wgmma_wait(scores, 1)
    if g.unit == 0:
        g.by_key.release(place.stage)
    if hiding is not None:
        scores = hidden(scores, hiding[0], hiding[1], g.unit, t)
    weights, state, scales = weigh(scores, state, g.factor, t)
    # It is full; asking again keeps ptxas from waiting for the sums before it weighs.
    g.by_value.wait(behind)
    sums = cp.cuda.wgmma_wait(sums, 0)
    if g.unit == 0:
        g.by_value.release(behind.stage)
    sums = scaled(sums, scales)
    places = g.by_key.following(place), g.by_value.following(behind)
    return sums, packed(weights, t), state, *places


def await_turn(g: Any, t: Any) -> None:
    """Wait until the warpgroup before has started its products."""
    if t.consumers > 1:
        cp.cuda.ptx("bar.sync %0, 256;", g.me + 1)


def pass_turn(g: Any, t: Any) -> None:
    """Let the next warpgroup start its products."""
    if t.consumers > 1:
        after = cp.i32(0) if g.me == t.consumers - 1 else g.me + 1
        cp.cuda.ptx("bar.arrive %0, 256;", after + 1)


# Weights


def seen_by(masks: Any, where: Any, row: Any, extents: Any, scale: Any, t: Any) -> Any:
    """How many keys each of the two queries of a unit sees; their masks, and what scales them."""
    limits = cp.i32(extents[3]), cp.i32(extents[3])
    if t.is_causal:
        limits = min(row + 1, limits[0]), min(row + 9, limits[1])
    if len(masks) == 0:
        return limits, (), scale
    last = cp.i32(extents[2]) - 1
    mask = masks[0][where[0], where[1]]
    return limits, (mask[min(row, last)], mask[min(row + 8, last)]), 1 / scale


def hidden(scores: Any, seen: Any, first_key: Any, unit: Any, t: Any) -> Any:
    """Scores of a step without those of keys that queries do not see."""
    limits, masks, share = seen
    found = cp.local(t.keys // 2, cp.f32)
    own = first_key + unit % 4 * 2
    for i in cp.unroll(range(t.keys // 2)):
        column, row = i // 4 * 8 + i % 2, i // 2 % 2
        if len(masks) == 0:
            found[i] = scores[i] if column < limits[row] - own else cp.f32(LOWEST)
        else:
            found[i] = cp.f32(LOWEST)
            if column < limits[row] - own:
                found[i] = with_mask(scores[i], masks[row][own + column], share)
    return cp.load(found, 0, line=t.keys // 2)


def with_mask(score: Any, mask: Any, share: Any) -> Any:
    """A score plus the mask in the same measure, or only where it is true."""
    if mask.dtype == cp.bool_:
        return score if mask else cp.f32(LOWEST)
    return score + cp.f32(mask) * share


def weigh(scores: Any, state: Any, factor: Any, t: Any) -> Any:
    """Exponentials of scores, the state with them, and the scales of what was summed before."""
    high, low = of_row(scores, 0, state[0], factor, t), of_row(scores, 1, state[1], factor, t)
    weights = cp.local(t.keys // 2, cp.f32)
    parts = cp.local(8, cp.f32, fill=0)
    for i in cp.unroll(range(t.keys // 2)):
        base = (high, low)[i // 2 % 2][1]
        weights[i] = power(scores[i] * factor - base)
        parts[i % 8] = parts[i % 8] + weights[i]
    one = (parts[0] + parts[1]) + (parts[4] + parts[5])
    two = (parts[2] + parts[3]) + (parts[6] + parts[7])
    state = high[0], low[0], state[2] * high[2] + one, state[3] * low[2] + two
    return cp.load(weights, 0, line=t.keys // 2), state, (high[2], low[2])


def of_row(scores: Any, row: Any, top: Any, factor: Any, t: Any) -> Any:
    """The greatest score so far of one row, what is subtracted, and the scale of earlier sums."""
    parts = cp.local(4, cp.f32, fill=LOWEST)
    parts[0] = top
    for i in cp.unroll(range(t.keys // 4)):
        lane = i // 2 * 4 + i % 2 + 2 * row
        parts[i % 4] = max(parts[i % 4], scores[lane])
    most = max(max(parts[0], parts[1]), max(parts[2], parts[3]))
    most = max(most, cp.plane_shuffle_xor(most, 1))
    most = max(most, cp.plane_shuffle_xor(most, 2))
    base = cp.f32(0) if most == cp.f32(LOWEST) else most
    return most, base * factor, power((top - base) * factor)


def power(x: Any) -> Any:
    """2 to the x: within 2 ULP, 0 below 2^-126."""
    return cp.cuda.ptx("ex2.approx.ftz.f32 %0, %1;", x, result=cp.f32)


def scaled(sums: Any, scales: Any) -> Any:
    """Sums times the scale of their row."""
    found = cp.local(sums.line_size, cp.f32)
    for i in cp.unroll(range(sums.line_size)):
        found[i] = sums[i] * scales[i // 2 % 2]
    return cp.load(found, 0, line=sums.line_size)


def packed(values: Any, t: Any) -> Any:
    """Pairs of neighbours as words, rounded to the type of the arrays."""
    words = cp.local(values.line_size // 2, cp.u32)
    kind = "bf16x2" if t.dtype == cp.bf16 else "f16x2"
    for i in cp.unroll(range(values.line_size // 2)):
        words[i] = cp.cuda.ptx(
            f"cvt.rn.{kind}.f32 %0, %2, %1;", values[2 * i], values[2 * i + 1], result=cp.u32
        )
    return cp.load(words, 0, line=values.line_size // 2)


# The end of a tile


def finish(out: Any, staged: Any, g: Any, sums: Any, state: Any, place: Any, t: Any) -> None:
    """Store sums over the sums of weights; zeros where a query sees no key."""
    (batch, head, _, _), first = place
    words = packed(scaled(sums, (inverse(whole(state[2])), inverse(whole(state[3])))), t)
    unit, lane = g.unit, g.unit % 32
    row = unit // 32 * 16 + lane % 16
    if not t.shares_memory and unit == 0:
        cp.cuda.bulk_wait(0, read=True)
    cp.cuda.ptx("bar.sync %0, 128;", g.me + OWN)
    for j in cp.unroll(range(t.width // 16)):
        column = (j % 4 * 2 + lane // 16 ^ row % 8) * 8
        cp.cuda.stmatrix(staged, (j // 4, 64 * g.me + row, column), words[4 * j : 4 * j + 4])
    if t.width % 16:
        column = (t.width // 16 % 4 * 2 ^ row % 8) * 8
        last = words[t.width // 4 - 2 : t.width // 4]
        cp.cuda.stmatrix(staged, (t.width // 64, 64 * g.me + row, column), last)
    cp.cuda.fence_async()
    cp.cuda.ptx("bar.sync %0, 128;", g.me + OWN)
    if unit == 0:
        for piece in cp.unroll(range(t.wide_pieces)):
            origin = batch, head, first + 64 * g.me, PIECE * piece
            cp.cuda.tensor_store(out, origin, staged, (piece, 64 * g.me, 0))
        cp.cuda.bulk_commit()


def note_logs(logs: Any, g: Any, state: Any, place: Any, extents: Any) -> None:
    """Store the natural logarithms of the sums of exponentials of a unit's two queries."""
    (batch, head, _, _), first = place
    for log in logs:
        for half in cp.unroll(range(2)):
            row, total = first + g.row + 8 * half, whole(state[2 + half])
            if g.unit % 4 == 0 and row < cp.i32(extents[2]):
                log[batch, head, row, 0] = (state[half] * g.factor + cp.log2(total)) * LN_2


def whole(total: Any) -> Any:
    """The sum over the units that have parts of a row."""
    total = total + cp.plane_shuffle_xor(total, 1)
    return total + cp.plane_shuffle_xor(total, 2)


def inverse(total: Any) -> Any:
    """1 over a sum of weights; 0 of 0."""
    return cp.f32(0) if total == cp.f32(0) else 1 / total


# Parts of the keys


def note(parts: Any, g: Any, sums: Any, state: Any, where: Any, t: Any) -> None:
    """Store the results over a part of the keys in f32."""
    column = g.unit % 4 * 2
    for half in cp.unroll(range(2)):
        row = g.row + 8 * half
        total = whole(state[2 + half])
        share = inverse(total)
        results = parts[0][where[2], where[3], row]
        for j in cp.unroll(range(t.width // 8)):
            results[8 * j + column] = sums[4 * j + 2 * half] * share
            results[8 * j + column + 1] = sums[4 * j + 2 * half + 1] * share
        if column == 0:
            size = state[half] * g.factor + cp.log2(total)
            parts[1][where[2], where[3], row] = size if total != cp.f32(0) else cp.f32(LOWEST)


@cp.cube
def join_parts(
    results: cp.Tensor,
    sizes: cp.Tensor,
    out: cp.Tensor,
    logs: Any,
    order: tuple[int, int, int, int, int],
) -> None:
    """Results over parts of the keys, weighted by their sums of weights, whose logarithms to base 2
    are `sizes`; a unit for each element of split tiles."""
    extents = results.shape[1:]
    i, count = cp.ABSOLUTE_POS, extents[0] * extents[1] * extents[2]
    if i < count:
        index, within, column = unravelled(i, extents)
        down = (out.shape[2] + extents[1] - 1) // extents[1]
        tile = order[1] + index
        head, row = tile // down, tile % down * extents[1] + within
        if row < out.shape[2] and column < out.shape[3]:
            steps = order[2] * order[4]
            first = ((index * order[4] + 1) * order[3] - 1) // steps
            parts = ((index + 1) * order[4] * order[3] - 1) // steps - first + 1
            top = cp.f32(LOWEST)
            for part in range(parts):
                top = max(top, sizes[part, index, within])
            base = cp.f32(0) if top == cp.f32(LOWEST) else top
            found, total = cp.f32(0), cp.f32(0)
            for part in range(parts):
                weight = cp.exp2(sizes[part, index, within] - base)
                found += weight * results[part, index, within, column]
                total += weight
            heads = out.shape[1]
            out[head // heads, head % heads, row, column] = found * inverse(total)
            for log in logs:
                if column == 0:
                    log[head // heads, head % heads, row, 0] = (top + cp.log2(total)) * LN_2
