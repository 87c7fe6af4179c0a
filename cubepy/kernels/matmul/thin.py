"""Products of few rows on Hopper: the copy engine brings the weights to shared memory, once.

Such a product takes as long as its right factor, the weights, takes to come from memory. So what
counts is how many bytes are on their way, in long runs: a ring of stages in shared memory, which
one unit fills by tensor maps. Warpgroups multiply by `wgmma` in the transposed form: up to 64
columns of the result are the rows of an instruction, and the few rows of the result its columns, of
which there may be as few as 8. Cubes of a cluster may share k: each adds up what all of them have
for its part of the tile, in the order of their ranks, so that all runs give the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType, f32
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen, finished
from cubepy.kernels.matmul.problem import COLUMNS
from cubepy.lang import pipelines
from cubepy.record import dataclass

LANES = 4
"""Sums that are finished at once."""
DEPTH = 64
"""Elements of k in a row of shared memory, and columns where the weights are dense along these."""


@dataclass(frozen=True, slots=True)
class Thin:
    """`groups` warpgroups make `columns` columns each of all `rows` rows, both multiples of 8.

    A stage of the ring has `pieces` times 64 elements of k; there are `stages`. `parts` cubes of a
    cluster share k. `right`: the axis along which the weights are dense; where rows are, `columns`
    is 64.
    """

    groups: int
    columns: int
    rows: int
    pieces: int
    stages: int
    parts: int
    right: str
    factors: DType

    @property
    def width(self) -> int:
        """Columns of a cube."""
        return self.groups * self.columns

    @property
    def depth(self) -> int:
        """Elements of k of a stage."""
        return self.pieces * DEPTH

    @property
    def units(self) -> int:
        """Units of a cube: those of the warpgroups, and of one that copies."""
        return (self.groups + 1) * pipelines.WARPGROUP

    @property
    def right_box(self) -> tuple[int, int]:
        """What is copied of the weights at once."""
        return (self.width, DEPTH) if self.right == COLUMNS else (DEPTH, DEPTH)

    @property
    def stage_bytes(self) -> int:
        """Shared memory of a stage."""
        return self.pieces * (self.rows + self.width) * pipelines.ROW_BYTES

    @property
    def pitch(self) -> int:
        """The distance of rows of sums in shared memory, so that units of a plane share no bank."""
        return self.width + LANES

    @property
    def right_bytes(self) -> int:
        """Shared memory for the weights, of which an instruction reads 64 columns also where there
        are fewer; and for the sums behind them."""
        beyond = pipelines.ROWS - self.columns
        ring = (self.stages * self.pieces * self.width + beyond) * pipelines.ROW_BYTES
        return max(ring, self.rows * self.pitch * f32.itemsize)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a cube, with what alignment may take."""
        left = self.stages * self.pieces * self.rows * pipelines.ROW_BYTES
        return left + self.right_bytes + self.stages * 16 + 1024


@cp.cube
def multiply_thin(
    a: cp.cuda.TensorMap,
    b: cp.cuda.TensorMap,
    out: cp.Tensor,
    k: int,
    biases: Any,
    extras: Any,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Thin],
) -> None:
    """Cubes for `width` columns of each product of [..., m, k], in boxes of `rows` by 64, by
    [..., n, k], or [..., k, n] where rows are dense, in boxes of `t.right_box`."""
    across = (out.shape[out.rank - 1] + t.width - 1) // t.width
    part, tile = cp.CUBE_POS % t.parts, cp.CUBE_POS // t.parts
    where = unravelled(tile // across, out.shape[: out.rank - 2])
    j0 = tile % across * t.width
    left = cp.shared(t.stages * t.pieces * t.rows * DEPTH, t.factors)
    right = cp.shared(t.right_bytes // t.factors.itemsize, t.factors)
    ring = pipelines.ring(t.stages, t.groups)
    steps = (k + t.depth - 1) // t.depth
    each = (steps + t.parts - 1) // t.parts
    first = part * each
    last = min(first + each, steps)
    if cp.UNIT_POS == 0:
        copy(a, b, left, right, ring, (where, j0), 0, first, min(first + t.stages, last), t)
    cp.sync_cube()
    group = cp.i32(cp.UNIT_POS // pipelines.WARPGROUP)
    sums = cp.Line[cp.f32, t.rows // 2](0.0)
    if group == 0:
        if cp.UNIT_POS == 0:
            copy(a, b, left, right, ring, (where, j0), 1, first + t.stages, last, t)
        cp.sync_plane()
    else:
        sums = multiplied(left, right, ring, group - 1, first, last, t)
    cp.sync_cube()
    if group > 0:
        put(right, sums, group - 1, t)
    if t.parts > 1:
        cp.cuda.cluster_sync()
    else:
        cp.sync_cube()
    z = chosen(out, where)
    lines = t.width // LANES
    for e in range(part * t.units + cp.UNIT_POS, z.shape[0] * lines, t.parts * t.units):
        i, j = e // lines, e % lines * LANES
        if j0 + j < z.shape[1]:
            v = added(right, i * t.pitch + j, t)
            cp.store(z[i], j0 + j, finished(v, (*where, i, j0 + j), biases, extras, epilogue))
    if t.parts > 1:
        cp.cuda.cluster_sync()  # others read the sums of this cube


def copy(
    a: Any,
    b: Any,
    left: Any,
    right: Any,
    ring: Any,
    corner: Any,
    trip: Any,
    first: Any,
    last: Any,
    t: Any,
) -> None:
    """Fill stages for the steps from `first` to `last`, on a trip around the ring; by one unit."""
    where, j0 = corner
    place = pipelines.Place(cp.i32(0), cp.i32(trip))
    boxes = 1 if t.right == "columns" else t.groups
    for step in range(first, last):
        ring.acquire(place, t.pieces * (a.nbytes + boxes * b.nbytes))
        for p in cp.unroll(range(t.pieces)):
            k, at = (step * t.pieces + p) * DEPTH, place.stage * t.pieces + p
            if t.right == "columns":
                origin = *where, j0, k
                begin = at * t.width * DEPTH
                cp.cuda.tensor_load(right, begin, b, origin, ring.full, place.stage)
            else:
                for g in cp.unroll(range(t.groups)):
                    origin = *where, k, j0 + g * DEPTH
                    begin = (at * t.width + g * DEPTH) * DEPTH
                    cp.cuda.tensor_load(right, begin, b, origin, ring.full, place.stage)
        for p in cp.unroll(range(t.pieces)):
            k, at = (step * t.pieces + p) * DEPTH, place.stage * t.pieces + p
            begin = at * t.rows * DEPTH
            cp.cuda.tensor_load(left, begin, a, (*where, 0, k), ring.full, place.stage)
        place = ring.following(place)


def multiplied(left: Any, right: Any, ring: Any, group: Any, first: Any, last: Any, t: Any) -> Any:
    """The sums of one warpgroup."""
    unit = cp.UNIT_POS % pipelines.WARPGROUP
    me = cp.plane_shuffle(group, 0)  # for descriptors to stay in uniform registers
    is_turned = t.right == "rows"
    x0 = cp.cuda.wgmma_descriptor(right, me * t.columns * DEPTH, 16, 1024, swizzle=128)
    y0 = cp.cuda.wgmma_descriptor(left, 0, 16, 1024, swizzle=128)
    sums = cp.Line[cp.f32, t.rows // 2](0.0)
    place = ring.start()
    for _ in range(first, last):
        ring.wait(place)
        cp.cuda.wgmma_fence()
        for p in cp.unroll(range(t.pieces)):
            at = place.stage * t.pieces + p
            x, y = x0 + cp.u64(at * (t.width * 8)), y0 + cp.u64(at * (t.rows * 8))
            for q in cp.unroll(range(pipelines.STEPS)):
                ahead = 128 * q if is_turned else 2 * q
                sums = cp.cuda.wgmma(
                    sums, x + cp.u64(ahead), y + cp.u64(2 * q), t.factors, a_transposed=is_turned
                )
        cp.cuda.wgmma_commit()
        sums = cp.cuda.wgmma_wait(sums, 0)
        if unit == 0:
            ring.release(place.stage)
        place = ring.following(place)
    return sums


def put(found: Any, sums: Any, group: Any, t: Any) -> None:
    """Put the sums of a warpgroup where the weights were, [row, column] of the result."""
    unit = cp.UNIT_POS % pipelines.WARPGROUP
    for half in cp.unroll(range(2)):
        column = unit // 32 * 16 + half * 8 + unit % 32 // 4
        if column < t.columns:
            for i in cp.unroll(range(t.rows // 4)):
                row = i // 2 * 8 + unit % 4 * 2 + i % 2
                place = row * t.pitch + group * t.columns + column
                v = cp.Line[cp.f32, 1](sums[i // 2 * 4 + half * 2 + i % 2])
                cp.store(found, 2 * place, cp.bitcast(v, t.factors), whole=True)


def added(found: Any, place: Any, t: Any) -> Any:
    """A line of sums, over all cubes that share k."""
    if t.parts == 1:
        return cp.bitcast(cp.load(found, 2 * place, line=2 * LANES, fill=None), cp.f32)
    v, at = cp.Line[cp.f32, LANES](0.0), cp.cuda.address(found, 2 * place)
    for rank in cp.unroll(range(t.parts)):
        v = v + cp.cuda.ptx(
            "{ .reg .b32 at; mapa.shared::cluster.u32 at, %4, %5; "
            "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [at]; }",
            at,
            cp.u32(rank),
            result=cp.Line[cp.f32, LANES],
        )
    return v
