"""Products of floats and weights of few bits on Hopper: weights are widened in registers.

As in `thin`, the product is made in its transposed form: up to 64 columns of the result are the
rows of a `wgmma`, whose left factor comes from registers. The copy engine brings weights to shared
memory as they lie; each unit reads the numbers that it has of an instruction's rows, turns two at a
time into floats by their bits (after Kim et al., "Who Says Elephants Can't Run", 2022), and
multiplies them by their scales. Cubes of a cluster may share k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen, finished
from cubepy.kernels.matmul.thin import LANES, added, put
from cubepy.kernels.matmul.widened import Numbers, Stored
from cubepy.lang import pipelines
from cubepy.record import dataclass

DEPTH = 128
"""Elements of k in a stage."""
PIECE = 64
"""Those in a row of shared memory of the other factor."""
WORD = 4
"""Bytes that weights are copied and read in."""
REGISTERS = (40, 232)
"""Of a unit that copies and of one that multiplies, where sums take most of them."""
PLANES = 4
"""Planes of a warpgroup."""
FEW_ROWS = 32
"""Rows up to which they do not."""


@dataclass(frozen=True, slots=True)
class Mixed:
    """`groups` warpgroups make `columns` columns each of `rows` rows, both multiples of 8, with
    `stages` of both factors under way; `parts` cubes of a cluster share k. `bits` of a number."""

    groups: int
    columns: int
    rows: int
    stages: int
    parts: int
    factors: DType
    bits: int
    sign: bool
    numbers: Numbers

    @property
    def width(self) -> int:
        """Columns of a cube."""
        return self.groups * self.columns

    @property
    def units(self) -> int:
        """Units of a cube."""
        return (self.groups + 1) * pipelines.WARPGROUP

    @property
    def per_sm(self) -> int:
        """Cubes that a multiprocessor has room for."""
        return 1 if self.rows > FEW_ROWS else 2

    @property
    def pitch(self) -> int:
        """The distance of rows of sums in shared memory."""
        return self.width + LANES

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of weights in a stage, which their swizzle spans."""
        return DEPTH * self.bits // 8

    @property
    def row_words(self) -> int:
        """The same in words."""
        return self.row_bytes // WORD

    @property
    def left_elements(self) -> int:
        """Shared memory for the other factor; and for sums behind it."""
        sums = self.rows * self.pitch * 4 // self.factors.itemsize
        return max(self.stages * self.rows * DEPTH, sums)

    @property
    def right_words(self) -> int:
        """Shared memory for weights, of which 64 rows are read also where a group has fewer."""
        return (self.stages * self.width + PIECE - self.columns) * self.row_words

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube, with what alignment may take."""
        both = self.left_elements * self.factors.itemsize + self.right_words * WORD
        return both + self.stages * 16 + 2048

    @property
    def blocks(self) -> int:
        """Scales of a row of weights in a stage."""
        deep = self.numbers.block[1]
        return DEPTH // deep if deep and deep < DEPTH else 1


@cp.cube
def multiply_mixed(
    a: cp.cuda.TensorMap,
    b: cp.cuda.TensorMap,
    scales: Stored,
    out: cp.Tensor,
    k: int,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Mixed],
) -> None:
    """Cubes for `rows` by `width` results of each product of [..., m, k], in boxes of `rows` by 64,
    by weights [..., n, words of k], in boxes of `width` by `row_words`."""
    rank, m, n = out.rank, out.shape[out.rank - 2], out.shape[out.rank - 1]
    across, down = (n + t.width - 1) // t.width, (m + t.rows - 1) // t.rows
    part, tile = cp.CUBE_POS % t.parts, cp.CUBE_POS // t.parts
    where = unravelled(tile // (across * down), out.shape[: rank - 2])
    i0, j0 = tile % down * t.rows, tile // down % across * t.width
    left, right = cp.shared(t.left_elements, t.factors), cp.shared(t.right_words, cp.u32)
    ring = pipelines.ring(t.stages, t.groups * PLANES)
    steps = (k + DEPTH - 1) // DEPTH
    each = (steps + t.parts - 1) // t.parts
    first = min(part * each, steps)
    last = min(first + each, steps)
    cp.sync_cube()
    group = cp.i32(cp.UNIT_POS // pipelines.WARPGROUP)
    if group == 0:
        if t.rows > FEW_ROWS:
            cp.cuda.decrease_registers(REGISTERS[0])
        if cp.UNIT_POS == 0:
            copy(a, b, left, right, ring, (where, i0, j0), first, last, t)
        cp.sync_plane()
    else:
        if t.rows > FEW_ROWS:
            cp.cuda.increase_registers(REGISTERS[1])
        own = scales.matrix(where)
        sums = multiplied(left, right, own, ring, group - 1, first, last, (j0, n), t)
        cp.sync_units(1, t.groups * pipelines.WARPGROUP)
        put(left, sums, group - 1, t)
        if t.parts == 1:
            cp.sync_units(1, t.groups * pipelines.WARPGROUP)
    if t.parts > 1:
        cp.cuda.cluster_sync()
    if group > 0:
        units, z = t.groups * pipelines.WARPGROUP, chosen(out, where)
        lines = t.width // LANES
        me = part * units + cp.UNIT_POS - pipelines.WARPGROUP
        for e in range(me, min(t.rows, m - i0) * lines, t.parts * units):
            i, j = e // lines, e % lines * LANES
            if j0 + j < n:
                v = added(left, i * t.pitch + j, t)
                v = finished(v, (*where, i0 + i, j0 + j), biases, extras, epilogue)
                cp.store(z[i0 + i], j0 + j, v)
    if t.parts > 1:
        cp.cuda.cluster_sync()  # others read the sums of this cube


def copy(
    a: Any, b: Any, left: Any, right: Any, ring: Any, corner: Any, first: Any, last: Any, t: Any
) -> None:
    """Fill stages for the steps from `first` to `last`; by one unit."""
    where, i0, j0 = corner
    place = ring.start()
    for step in range(first, last):
        ring.acquire(place, 2 * a.nbytes + b.nbytes)
        stage = place.stage
        begin = stage * (t.width * t.row_words)
        origin = *where, j0, step * t.row_words
        cp.cuda.tensor_load(right, begin, b, origin, ring.full, stage)
        for p in cp.unroll(range(2)):
            origin = *where, i0, step * DEPTH + p * PIECE
            begin = (2 * stage + p) * (t.rows * PIECE)
            cp.cuda.tensor_load(left, begin, a, origin, ring.full, stage)
        place = ring.following(place)


def multiplied(
    left: Any,
    right: Any,
    weights: Any,
    ring: Any,
    group: Any,
    first: Any,
    last: Any,
    columns: Any,
    t: Any,
) -> Any:
    """The sums of one warpgroup. `columns`: of the result, where the cube's begin, and where they
    end."""
    unit = cp.UNIT_POS % pipelines.WARPGROUP
    me = cp.plane_shuffle(group, 0)  # for descriptors to stay in uniform registers
    row = me * t.columns + unit // 32 * 16 + unit % 32 // 4
    rows = tuple(min(columns[0] + row + 8 * half, columns[1] - 1) for half in range(2))
    y0 = cp.cuda.wgmma_descriptor(left, 0, 16, 1024, swizzle=128)
    held = right, weights, ring, rows, row, y0
    return ahead(held, first, last, t) if t.rows > FEW_ROWS else in_turn(held, first, last, t)


def in_turn(held: Any, first: Any, last: Any, t: Any) -> Any:
    """The sums where other warpgroups multiply while this one widens; scales come a stage ahead."""
    right, weights, ring, rows, row, y0 = held
    unit = cp.UNIT_POS % pipelines.WARPGROUP
    sums, place = cp.Line[cp.f32, t.rows // 2](0.0), ring.start()
    following = scales_of(weights, rows, first, t)
    for step in range(first, last):
        scales = following
        following = scales_of(weights, rows, min(step + 1, last - 1), t)
        ring.wait(place)
        pairs = widened(right, place.stage * t.width + row, cp.u32(unit % 4), scales, t)
        words = scaled(pairs, scales, t)
        sums = cp.cuda.wgmma_wait(begun(sums, words, y0, place.stage, t), 0)
        if unit % 32 == 0:  # each plane has read its own rows
            ring.release(place.stage)
        place = ring.following(place)
    return sums


def ahead(held: Any, first: Any, last: Any, t: Any) -> Any:
    """The sums where a stage is widened while the one before is multiplied; scales come one ahead
    of that."""
    right, weights, ring, rows, row, y0 = held
    unit = cp.UNIT_POS % pipelines.WARPGROUP
    lane = cp.u32(unit % 4)
    sums, place = cp.Line[cp.f32, t.rows // 2](0.0), ring.start()
    words = cp.Line[cp.u32, DEPTH // 4](0)
    if first < last:
        ring.wait(place)
        scales = scales_of(weights, rows, first, t)
        words = scaled(widened(right, row, lane, scales, t), scales, t)
    following = scales_of(weights, rows, min(first + 1, last - 1), t)
    for step in range(first, last):
        sums = begun(sums, words, y0, place.stage, t)
        scales, following = following, scales_of(weights, rows, min(step + 2, last - 1), t)
        after = ring.following(place)
        if step + 1 == last:
            after = place  # which is full: nothing else will be
        ring.wait(after)
        pairs = widened(right, after.stage * t.width + row, lane, scales, t)
        sums = cp.cuda.wgmma_wait(sums, 0)
        words = scaled(pairs, scales, t)  # behind the wait: else ptxas waits before all of it
        if unit % 32 == 0:
            ring.release(place.stage)
        place = after
    return sums


def begun(sums: Any, words: Any, y0: Any, stage: Any, t: Any) -> Any:
    """The sums plus the products of a stage, once they are waited for."""
    y = y0 + cp.u64(stage * (2 * t.rows * 8))
    cp.cuda.wgmma_fence()
    for part in cp.unroll(range(DEPTH // 16)):
        along = part // 4 * (t.rows * 8) + part % 4 * 2
        own = words[4 * part : 4 * part + 4]
        sums = cp.cuda.wgmma(sums, own, y + cp.u64(along), t.factors)
    cp.cuda.wgmma_commit()
    return sums


def scales_of(weights: Any, rows: Any, step: Any, t: Any) -> Any:
    """The scales of two rows for each block of a stage, as words of two; then the zero points."""
    found = words_of(weights.scale, rows, step, t)
    return found + words_of(weights.zero[0], rows, step, t) if t.numbers.has_zero else found


def words_of(x: Any, rows: Any, step: Any, t: Any) -> Any:
    """The numbers of two rows for each block of a stage."""
    deep = DEPTH // t.blocks
    return tuple(
        word_of(x, rows[e % 2], step * DEPTH + e // 2 * deep, t) for e in range(2 * t.blocks)
    )


def word_of(x: Any, row: Any, k: Any, t: Any) -> Any:
    """The number for a row and an element of k, twice; the last one stands for those behind it."""
    i, j = t.numbers.place(row, k)
    v = t.factors(x[i, min(j, x.shape[1] - 1)])
    return cp.bitcast(cp.Line[t.factors, 2](v), cp.u32)


def widened(right: Any, row: Any, lane: Any, scales: Any, t: Any) -> Any:
    """What a unit has of the rows `row` and `row + 8`, for all products of a stage, less their zero
    points: four words of two numbers for each 16 elements of k."""
    words = cp.local(DEPTH // 4, cp.u32)
    chunks = t.row_bytes // 16
    each = 16 * 8 // t.bits  # numbers of a chunk
    for chunk in cp.unroll(range(chunks)):
        for half in cp.unroll(range(2)):
            at = row + 8 * half
            byte = pipelines.swizzled(at, chunk * 16, t.row_bytes)
            found = cp.load(right, at * t.row_words + byte // WORD, line=4, fill=None)
            for e in cp.unroll(range(each // 8)):
                k = chunk * each + 8 * e
                pair = pair_of_4(found[e], lane, t) if t.bits == 4 else pair_of_8(found, e, lane, t)
                if t.numbers.has_zero:
                    block = k // (DEPTH // t.blocks)
                    pair = two("sub", pair, scales[2 * (t.blocks + block) + half], t)
                words[k // 8 * 2 + half] = pair
    return cp.load(words, 0, line=DEPTH // 4, fill=None)


def scaled(pairs: Any, scales: Any, t: Any) -> Any:
    """The words of a stage times the scales of their rows."""
    words = cp.local(DEPTH // 4, cp.u32)
    for e in cp.unroll(range(DEPTH // 4)):
        block = e // 2 * 8 // (DEPTH // t.blocks)
        words[e] = two("mul", pairs[e], scales[2 * block + e % 2], t)
    return cp.load(words, 0, line=DEPTH // 4, fill=None)


# From bits to floats: numbers become the fraction of a float of known exponent


def pair_of_4(word: Any, lane: Any, t: Any) -> Any:
    """Both numbers of byte `lane` of a word."""
    byte = permuted(word, cp.u32(0), 0x4440 + lane)
    spread = (byte * 4097) & 0x000F000F
    if t.sign:
        return two("sub", spread ^ (above(t) ^ 0x00080008), above(t) + 0x00080008, t)
    return two("sub", spread | above(t), above(t), t)


def above(t: Any) -> Any:
    """Two floats whose last bits count ones: 128 as bf16, 1024 as f16."""
    return cp.u32(0x43004300 if t.factors == cp.bf16 else 0x64006400)


def pair_of_8(found: Any, e: Any, lane: Any, t: Any) -> Any:
    """Bytes `2 * lane` and the next of the e-th eight bytes."""
    word = cp.where(lane < 2, found[2 * e], found[2 * e + 1])
    word = word ^ 0x80808080 if t.sign else word
    byte = lane % 2 * 2
    if t.factors == cp.f16:
        spread = permuted(word, cp.u32(0x64646464), 0x4140 + byte * 0x101)
        return two("sub", spread, cp.u32(0x64806480 if t.sign else 0x64006400), t)
    less = 2.0**23 + (128 if t.sign else 0)
    high = cp.u32(0x4B000000)
    one = cp.bitcast(permuted(word, high, 0x7650 + byte), cp.f32) - less
    other = cp.bitcast(permuted(word, high, 0x7651 + byte), cp.f32) - less
    pair = cp.concat(cp.Line[cp.f32, 1](one), cp.Line[cp.f32, 1](other))
    return cp.bitcast(cp.Line[t.factors, 2](pair), cp.u32)


def permuted(one: Any, other: Any, which: Any) -> Any:
    """Four bytes of eight, by the numbers in the last half-bytes of `which`."""
    return cp.cuda.ptx("prmt.b32 %0, %1, %2, %3;", one, other, cp.u32(which), result=cp.u32)


def two(operation: str, x: Any, y: Any, t: Any) -> Any:
    """An operation on words of two floats, rounded to nearest even."""
    kind = "bf16x2" if t.factors == cp.bf16 else "f16x2"
    return cp.cuda.ptx(f"{operation}.rn.{kind} %0, %1, %2;", x, y, result=cp.u32)
