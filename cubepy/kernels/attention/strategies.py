"""How attention is divided: by the registers and caches of a CPU, by the shared memory of a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd

import numpy as np

from cubepy.ir.types import bf16, f8e4m3, f8e5m2, f16, f32
from cubepy.kernels.attention.problem import (
    CHUNK,
    CLUSTER,
    LINE_BYTES,
    Configuration,
    Few,
    Fragments,
    GradientFragments,
    GradientSquares,
    GradientStrips,
    GradientWarpgroups,
    Order,
    Problem,
    Squares,
    Strips,
    UnitStrips,
    Warpgroups,
)
from cubepy.kernels.calls.prefetching import fills_cache_lines
from cubepy.kernels.matmul.strategies import FAR, even_part, is_cpu, tile_extents
from cubepy.kernels.matmul.units import PANEL
from cubepy.lang.pipelines import ROWS
from cubepy.targets import Target

HIGHEST = 1024
"""Queries of a cube on CPUs: enough that packing keys costs little beside."""
LARGEST = 2048
"""The largest size of a query or value whose packed keys fit a near cache."""
CUBES = 4
"""Cubes for each core, so that one that is slow does not hold up all."""
SIDE, WIDE = 16, (2, 4, 8, 16)
"""Units along each side of a cube of a GPU, and elements of a result that a unit may have."""


def choose(target: Target, p: Problem) -> Configuration:
    """The kernel for a problem, as its configuration."""
    if is_cpu(target) and max(p.size, p.width) <= LARGEST:
        return unit_strips(target, p) or few(target, p) or strips(target, p)
    return warpgroups(target, p) or fragments(target, p) or squares(p)


def strips(target: Target, p: Problem) -> Strips:
    """Keys of a step fill a quarter of the second cache, with their values, and the scores of the
    queries in registers half of the nearest; cubes are high, but enough for all cores."""
    line = max(1, target.line_bytes // p.dtype.itemsize)
    most, lines = tile_extents(target)
    rows = even_part(p.queries, most) if p.queries <= 4 * most else most
    step, size = line * lines, p.dtype.itemsize
    keys = target.cache_bytes // 4 // ((p.size + p.width + 2 * step) * size)
    keys = min(keys, max(target.near_bytes // 2 // (rows * size), step))
    keys = min(max(1, keys // step) * step, in_steps(p.keys, step))
    room = target.cache_bytes // 4 // (size * max(1, p.width + step))
    height = min(p.queries, HIGHEST, max(rows, room))
    while p.heads * -(-p.queries // height) < CUBES * target.cores and height > 8 * rows:
        height = -(-height // 2)
    height = -(-height // rows) * rows
    return Strips(rows, lines, line, height, keys, p.size, p.width, p.dtype, p.is_causal)


def in_steps(keys: int, step: int) -> int:
    """Room for some keys in steps. Few lengths have code of their own: sequences grow by a key."""
    return step << (max(1, -(-keys // step)) - 1).bit_length()


FEW_QUERIES, FEW_ROWS, FEW_KEYS = 8, 4, 256
"""Queries that need no packed keys, those whose sums are in registers together, and the most keys
of a step."""


def few(target: Target, p: Problem) -> Few | None:
    """Keys of a step fill a quarter of the second cache, with their values; None where so many
    queries see them that they are better packed.

    Short lines are read one key after the other from memory (Zen 1, 32 heads of 1x4096x128: 6.4 ms,
    four keys side by side 7.9), long ones side by side (Emerald Rapids, 16 cores: 0.74 and 0.51).
    """
    if p.queries > FEW_QUERIES:
        return None
    line, size = max(1, target.line_bytes // p.dtype.itemsize), p.dtype.itemsize
    rows = even_part(p.queries, FEW_ROWS)
    is_far = p.heads * p.keys * (p.size + p.width) * size > FAR * target.cache_bytes
    together = 1 if is_far and not fills_cache_lines(target) else FEW_ROWS // rows
    keys = min(FEW_KEYS, target.cache_bytes // 4 // (max(1, p.size + p.width) * size))
    keys = max(1, keys // line) * line
    height = -(-p.queries // rows) * rows
    wide = max(1, -(-p.width // line))
    lines = gcd(wide, FEW_ROWS // rows)  # no line of a value ends early
    sizes = p.size, p.width, p.dtype, p.is_causal
    return Few(rows, lines, line, height, keys, *sizes, together)


def heads_together(target: Target, heads: int, groups: int) -> int:
    """How many heads of one query each, of the `groups` that share keys, are queries of one head,
    so that keys are read once for them: as many as leave a head for each core."""
    cores = target.cores if is_cpu(target) else target.multiprocessors
    most = max(1, min(groups, heads // cores))
    return max(n for n in range(1, most + 1) if groups % n == 0)


UNIT_KEYS = 512
"""Keys of a step of matrix units: what is done once for a query and a step costs little beside."""


def unit_strips(target: Target, p: Problem) -> UnitStrips | None:
    """Cubes as high as those of `strips`; None where no matrix unit takes the factors, or queries
    are fewer than a block of them."""
    takes = (unit.factor for unit in target.matrix_units if unit.layout == "amx")
    if p.factors is not bf16 or bf16.name not in takes or p.queries < SIDE:
        return None
    height = min(HIGHEST, -(-p.queries // PANEL) * PANEL)
    while p.heads * -(-p.queries // height) < CUBES * target.cores and height > 8 * PANEL:
        height = -(-height // 2)
    height = -(-height // PANEL) * PANEL
    keys = min(UNIT_KEYS, in_steps(p.keys, PANEL))
    deep, wide = (max(1, -(-n // PANEL)) for n in (p.size, p.width))
    return UnitStrips(height, keys, deep, wide, bf16, p.dtype, p.is_causal)


def squares(p: Problem) -> Squares:
    """Sixteen by sixteen units; shared memory stays below 32 KiB."""
    line = LINE_BYTES // p.dtype.itemsize
    wide = next((n for n in WIDE if n >= line and p.width <= n * SIDE), WIDE[-1])
    rows = next((n for n in (1, 2) if p.queries <= n * SIDE), line)
    return Squares(SIDE, min(rows, line), line, wide, SIDE, p.dtype, p.is_causal)


KEYS_OF_BLOCK, QUERIES_OF_BLOCK = 256, 192
"""The most keys and queries of a block of weights on CPUs: sums that stay in registers are long
enough."""


MOST_PARTS = 16
"""Parts of the keys of a head on CPUs, at most."""


def gradient_strips(target: Target, p: Problem) -> GradientStrips | None:
    """Packed keys and values with their gradients fill a sixth of the second cache, queries with
    weights a quarter; None for other targets and longer rows."""
    if not is_cpu(target) or max(p.size, p.width) > LARGEST:
        return None
    line = max(1, target.line_bytes // p.dtype.itemsize)
    rows, lines = tile_extents(target)
    step, itemsize = line * lines, p.dtype.itemsize
    size, width = (-(-n // step) * step for n in (p.size, p.width))
    keys = target.cache_bytes // 6 // ((3 * size + 2 * width) * itemsize)
    keys = min(keys, KEYS_OF_BLOCK, -(-p.keys // step) * step)
    keys = max(1, keys // step) * step
    queries = target.cache_bytes // 4 // (2 * (size + width + keys) * itemsize)
    queries = min(queries, QUERIES_OF_BLOCK, -(-p.queries // rows) * rows)
    queries = max(1, queries // rows) * rows
    return GradientStrips(rows, lines, line, queries, keys, size, width, p.dtype, p.is_causal)


def keys_of_part(target: Target, p: Problem, t: GradientStrips, heads: int) -> int:
    """How many keys a cube has: all of a head, unless cores would be left without work; sums of
    each part have memory of their own."""
    parts = max(1, min(MOST_PARTS, -(-CUBES * target.cores // heads)))
    return -(-even_part(p.keys, -(-p.keys // parts)) // t.keys) * t.keys


def gradient_squares(target: Target, p: Problem, is_of_keys: bool) -> GradientSquares:
    """Shared memory stays below 32 KiB; a core runs few units in turns, each with more to do."""
    if is_cpu(target):
        side, tile = 8, (2, 2, 4)
    else:
        wide = 4 if p.dtype.bits == 64 or max(p.size, p.width) <= 4 * SIDE else 8
        side, tile = SIDE, (1 if p.dtype.bits == 64 else 2, 2, wide)
    return GradientSquares(side, *tile, SIDE, p.dtype, p.is_causal, is_of_keys)


PASSES = {
    64: ((128, 2, True, True),),
    128: ((80, 2, True, True),),
    192: ((112, 2, False, True), (64, 2, True, False)),
    256: ((80, 2, False, True), (48, 1, True, False)),
}
"""Kernels for gradients by the elements of a row: queries of a step whose scores and gradients of
weights, beside the sums of keys and values, fill the registers of two warpgroups; steps of
gradients of results that shared memory has room for; whether keys, and values, are summed. Where
sums of both do not fit, those of values come first, at the cost of a sixth product."""


def gradient_warpgroups(target: Target, p: Problem) -> tuple[GradientWarpgroups, ...]:
    """The tiles for Hopper, one after another, the last of which sums for queries; none where the
    target or the arrays have no way."""
    largest = max(p.size, p.width)
    if target.arch != "sm_90a" or p.elements is None or largest > max(PASSES):
        return ()
    if p.elements not in (bf16, f16):
        return ()
    size, passes = next(pair for pair in PASSES.items() if largest <= pair[0])
    return tuple(
        GradientWarpgroups(rows, 2, stages, size, p.elements, p.is_causal, *of)
        for rows, stages, *of in passes
    )


TILES = {64: (3, 128), 128: (2, 128), 192: (2, 112), 256: (2, 80)}
"""Warpgroups that compute and keys of a step, whose scores and sums fill their registers, by the
elements of a query or value."""
SMALL_TILES = {64: (3, 96), 256: (2, 128)}
"""The same of 8 bits, where also the products of a step fill registers."""
SMALL_WIDTH, SMALL_PART = 128, 16
"""The most elements of a value of 8 bits that a launch sums, and of what multiple it begins."""
SMALL = (f8e4m3, f8e5m2)
MOST_STAGES = 4
BEGIN, JOIN = 1, 2
"""Steps of keys that the begin of a tile is worth, and for each warpgroup joining its parts."""
CLUSTERS = 15
"""Clusters of `CLUSTER` cubes that an H200 runs at once (`cuOccupancyMaxActiveClusters`)."""
LAUNCH = 5
"""Steps of keys that a launch to join parts is worth."""
DEALT, MOST_IDLE = 8, 1 / 16
"""Tiles for each multiprocessor that are not made by turns, if a tile serves a sequence; and the
share of the multiprocessors that teams may leave."""
TOGETHER, SHARED_BY = 16, 4
"""Causal heads that are done together where their number hardly matters; and cubes that read the
keys of one head at about the same time, at least."""
READING = 0.001
"""What each of those heads costs, as a share of the time: keys leave the last cache sooner."""
MANY_TURNS = 64
"""Tiles of a cube among which those of the last turn do not matter."""


def warpgroups(target: Target, p: Problem) -> Warpgroups | None:
    """The tiles for Hopper; None where the target or the arrays have no way."""
    largest, tiles = max(p.size, p.width), SMALL_TILES if p.elements in SMALL else TILES
    if target.arch != "sm_90a" or p.elements is None or largest > max(tiles):
        return None
    result = p.result or p.elements
    if p.elements not in (bf16, f16, *SMALL) or result not in (bf16, f16, f32):
        return None
    if p.elements in SMALL and p.width > SMALL_WIDTH:
        return None
    if result is f32 and p.width % 8:  # it leaves registers in whole pieces of 8 columns
        return None
    consumers, keys = next(tile for size, tile in tiles.items() if largest <= size)
    consumers = 1 if p.queries <= ROWS else consumers
    depth = 32 // p.elements.itemsize
    size, width = -(-p.size // depth) * depth, -(-p.width // 8) * 8
    own = Warpgroups(consumers, keys, 2, size, width, 2, False, p.elements, result, p.is_causal)
    if own.turns_values:
        own = with_stages(target, own)
    dealt = order(target, p, own)
    own = replace(own, is_split=dealt.sharers > 0)
    less = replace(own, tiles=1)
    can_share = not own.turns_values and 0 < own.result_pieces <= own.pieces
    least = replace(less, shares_memory=True) if can_share else less
    each = [own, less, least]
    if joins_in_clusters(target, dealt, own):
        together = replace(own, is_clustered=True)
        each = [together, replace(together, tiles=1), *each]
    return next((x for x in each if x.shared_bytes <= target.shared_bytes), None)


FEW = 16
"""Queries of one block: cubes that have no more divide keys among their planes."""
LOW = 4 * FEW
"""Queries of four planes with a block each."""
_Tiles = tuple[tuple[int, int, int, int, int], ...]
BLOCKS: dict[int, _Tiles] = {
    64: ((4, 1, 2, 64, 1), (4, 1, 1, 64, 2)),
    128: ((4, 1, 2, 64, 2), (4, 1, 2, 64, 1), (4, 1, 1, 64, 2), (4, 1, 1, 64, 1)),
    256: ((4, 1, 1, 32, 2), (4, 1, 1, 32, 1)),
}
"""Planes below and beside each other, blocks of queries of a plane, keys of a step, and stages, by
the elements of a query or value: sums, scores and weights fit registers. The first that fits twice
on a multiprocessor is taken, if any does; one without more than `LOW` queries where there are no
more."""
BLOCKS_OF_FEW: _Tiles = (
    (1, 8, 1, 128, 2),
    (1, 4, 1, 64, 2),
    (1, 2, 1, 32, 2),
    (1, 2, 1, 32, 1),
)
"""The same of cubes with `FEW` queries, the first that fits at all."""
FRAGMENTS_SINCE = 80
CUBES_OF_MULTIPROCESSOR = 2
RESERVED = 1 << 10
"""Bytes of shared memory that CUDA keeps for itself in each cube."""


def fragments(target: Target, p: Problem, noted: int = 0) -> Fragments | None:
    """The tiles for the tensor cores of planes; None where the target or the arrays have no way.
    `noted`: the most queries of a tile whose results planes join, 0 if there are those of `p`."""
    largest = max(p.size, p.width)
    if target.kind != "cuda" or target.version < FRAGMENTS_SINCE or largest > max(BLOCKS):
        return None
    elements = p.elements
    if elements is None or elements not in (bf16, f16) or p.size % CHUNK or p.width % CHUNK:
        return None
    noted = noted or min(FEW, 1 << (p.queries - 1).bit_length())
    tiles = BLOCKS_OF_FEW
    if p.queries > FEW:
        tiles = next(found for size, found in BLOCKS.items() if largest <= size)
    each = [Fragments(*tile, p.size, p.width, elements, p.is_causal, noted) for tile in tiles]
    low = [x for x in each if p.queries > LOW or x.height <= LOW]
    fit = [x for x in low if x.shared_bytes <= target.shared_bytes]
    twice = [x for x in fit if x.across == 1 and per_multiprocessor(target, x) > 1]
    t = next(iter(twice + fit), None)
    return None if t is None else replace(t, is_split=order_of_fragments(target, p, t).sharers > 0)


def fragments_of_sequences(target: Target, p: Problem, is_even: bool) -> Fragments | None:
    """The same of ragged and paged sequences; of those that are not even, which means that all have
    as many queries, one may fill a tile."""
    return fragments(target, replace(p, has_window=True), 0 if is_even else FEW)


def order_of_fragments(target: Target, p: Problem, t: Fragments) -> Order:
    """A cube for each tile, of which causal heads have their longest first; if that leaves the
    target idle, tiles are split, where that saves more than joining their parts costs."""
    tiles, steps = p.heads * -(-p.queries // t.height), -(-p.keys // t.keys)
    if p.is_causal or p.has_window:
        return Order(min(p.heads, TOGETHER) if p.is_causal else 1, tiles, steps)
    sharers = min(target.multiprocessors * per_multiprocessor(target, t), tiles * steps)
    saved = steps - -(-tiles * steps // sharers)
    is_long = tiles * steps >= 1 << 31
    if tiles >= sharers or saved <= JOIN or is_long:
        return Order(1, tiles, steps)
    return Order(1, tiles, steps, sharers)


def per_multiprocessor(target: Target, t: Fragments) -> int:
    """Cubes of a multiprocessor at a time, by their shared memory and what the hardware keeps."""
    fit = (target.shared_bytes + RESERVED) // (t.shared_bytes + RESERVED)
    return max(1, min(CUBES_OF_MULTIPROCESSOR, fit))


_Passes = tuple[tuple[int, int, int, bool, bool, bool], ...]
_BY_ROWS = (False, True, True), (True, False, False)
GRADIENT_BLOCKS: dict[int, tuple[_Passes, ...]] = {
    64: (((4, 2, 32, *_BY_ROWS[0]), (4, 2, 64, *_BY_ROWS[1])),),
    128: (((4, 1, 32, *_BY_ROWS[0]), (4, 2, 32, *_BY_ROWS[1])),),
    256: tuple(
        (
            (planes, 1, 32, False, False, True),
            (planes, 1, 32, False, True, False),
            (planes, 1, 32, True, False, False),
        )
        for planes in (8, 4)
    ),
}
"""Kernels for gradients by the elements of a row: planes, blocks of rows of a plane, the others of
a step, and whether queries, keys and values are summed. Sums, scores and gradients of weights fit
registers; where sums of keys and values do not, each has a kernel. The first that fits is taken."""


def gradient_fragments(target: Target, p: Problem) -> tuple[GradientFragments, ...]:
    """The tiles for the tensor cores of planes, one after another; none where the target or the
    arrays have no way. A step is copied ahead where shared memory has room for two."""
    largest = max(p.size, p.width)
    if target.kind != "cuda" or target.version < FRAGMENTS_SINCE or largest > max(GRADIENT_BLOCKS):
        return ()
    elements = p.elements
    if elements is None or elements not in (bf16, f16) or p.size % CHUNK or p.width % CHUNK:
        return ()

    def tiles(planes: int, rows: int, step: int, *of: bool) -> GradientFragments:
        common = p.size, p.width, elements, p.is_causal, *of
        two = GradientFragments(planes, rows, step, 2, *common)
        return two if two.shared_bytes <= target.shared_bytes else replace(two, stages=1)

    every = next(found for size, found in GRADIENT_BLOCKS.items() if largest <= size)
    made = (tuple(tiles(*each) for each in passes) for passes in every)
    fit = (x for x in made if all(t.shared_bytes <= target.shared_bytes for t in x))
    return next(fit, ())


Tiler = Callable[[Target, Problem], Warpgroups | None]


def launches(
    target: Target, p: Problem, tiles: Tiler = warpgroups
) -> list[tuple[int, Problem, Warpgroups]]:
    """What Hopper makes a problem of, empty where the target or the arrays have no way: from which
    element of the values on, attention to those of one launch, and its tiles. Wide values of 8 bits
    take more than one, each of which makes the weights again."""
    each = p.width
    if p.elements in SMALL and p.width > SMALL_WIDTH:
        count = -(-p.width // SMALL_WIDTH)
        each = -(-p.width // (count * SMALL_PART)) * SMALL_PART
    parts = [(n, replace(p, width=min(each, p.width - n))) for n in range(0, p.width, each)]
    found = [(n, x, t) for n, x in parts if (t := tiles(target, x)) is not None]
    return found if len(found) == len(parts) else []


def joins_in_clusters(target: Target, dealt: Order, t: Warpgroups) -> bool:
    """Whether the cubes of a cluster make one tile and join what they have by themselves: where
    fewer cubes that take longer cost less than joining parts by another kernel."""
    tiles, steps = dealt.tiles, dealt.steps
    most = min(CLUSTERS, target.multiprocessors // CLUSTER)
    fits = dealt.sharers > 0 and tiles <= most and t.consumers == 1 and steps >= CLUSTER
    return fits and -(-steps // CLUSTER) - tiles * steps // dealt.sharers <= LAUNCH


def with_stages(target: Target, t: Warpgroups) -> Warpgroups:
    """As many stages as fit: values of 8 bits wait to be transposed, and the steps are short."""
    each = (replace(t, stages=n) for n in range(MOST_STAGES, 2, -1))
    return next((x for x in each if x.shared_bytes <= target.shared_bytes), t)


def warpgroups_of_sequences(target: Target, p: Problem) -> Warpgroups | None:
    """The tiles for Hopper of ragged and paged sequences; boxes of pages fill steps of keys that
    are powers of two."""
    found = warpgroups(target, replace(p, has_window=True))
    if found is None:
        return None
    return replace(found, keys=1 << found.keys.bit_length() - 1)


def are_dealt(target: Target, bands: int, heads: int, rows: int, steps: int, height: int) -> bool:
    """Whether cubes make equal shares of all steps of keys of sequences, whose lengths are not
    known, in place of tiles by turns: where a tile serves a sequence as a rule, teams of a cube for
    each head fill the target, and one sequence that is long could keep all waiting."""
    cubes = target.multiprocessors
    is_full = heads <= cubes and cubes % heads <= cubes * MOST_IDLE
    return rows <= height and is_full and bands * heads < DEALT * cubes and steps > 1


def order(target: Target, p: Problem, t: Warpgroups) -> Order:
    """Tiles by turns; if they do not fill the target, all are split, where that saves more than
    joining their parts costs. (Splitting the last of many turns was slower.)"""
    tiles, steps = p.heads * -(-p.queries // t.height), -(-p.keys // t.keys)
    if p.is_causal:
        return Order(together(target, p, t), tiles, steps)
    if p.has_window:
        return Order(1, tiles, steps)
    if t.is_clustered:
        return Order(1, tiles, steps, tiles * CLUSTER)
    sharers = min(target.multiprocessors, tiles * steps)
    saved = steps - -(-tiles * steps // sharers)
    is_long = tiles * steps >= 1 << 31
    if tiles >= target.multiprocessors or saved <= JOIN * t.consumers or is_long:
        return Order(1, tiles, steps)
    return Order(1, tiles, steps, sharers)


def together(target: Target, p: Problem, t: Warpgroups) -> int:
    """How many causal heads are done together, so that all cubes have about as much to do."""
    most = min(p.heads, max(1, target.multiprocessors // SHARED_BY))
    if p.heads * -(-p.queries // t.height) > MANY_TURNS * target.multiprocessors:
        return min(most, TOGETHER)

    def duration(count: int) -> float:
        return longest(target, p, t, count) * (1 + count * READING)

    return min(range(1, most + 1), key=duration)


def longest(target: Target, p: Problem, t: Warpgroups, count: int) -> int:
    """The steps of keys of the cube that has the most, as `tiles.tile_at` deals out tiles."""
    down, cubes = -(-p.queries // t.height), target.multiprocessors
    place = np.arange(p.heads * down)
    turn, seat = place // cubes, place % cubes
    section, within = place // (count * down), place % (count * down)
    band = down - 1 - within // np.minimum(p.heads - section * count, count)
    steps = -(-np.minimum((band + 1) * t.height, p.keys) // t.keys) + BEGIN
    cube = np.where(turn % 2 == 1, cubes - 1 - seat, seat)
    return int(np.bincount(cube, steps).max())
