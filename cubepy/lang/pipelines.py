"""`cp.pipelines`: parts of kernels that copy, multiply and store at the same time, from sm_90 on.

Some units of a cube fill stages of shared memory by the copy engine, others multiply what is in
them by `wgmma`. A `Ring` says which stage is full and which may be filled, a `Tiles` how the
elements of a stage lie in memory. All are plain functions of the language, made of `cp.cuda`.
Reference: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions" and "Tensors".
"""

from __future__ import annotations

from typing import Any

from cubepy.ir.types import i32, u64
from cubepy.lang import cuda
from cubepy.lang.builtins import UNIT_POS, shared, unroll
from cubepy.record import dataclass

WARPGROUP = 128
"""Units that issue a `wgmma` together."""
ROWS = 64
"""Rows of its left factor and of its result."""
ROW_BYTES = 128
"""Bytes of a row of a tile, which its swizzle spans."""
STEPS = 4
"""Products along a row: each takes 32 bytes of it."""
_PATTERN = 8 * ROW_BYTES
"""Bytes after which the swizzle repeats."""
_UNIT = 16
"""Descriptors count bytes in these."""


# Which stage is full


@dataclass(frozen=True, slots=True)
class Place:
    """A stage of a ring, and the parity of the trip around it."""

    stage: Any
    phase: Any


@dataclass(frozen=True, slots=True)
class Ring:
    """Barriers of `stages` stages: when each is full, and when it may be filled again."""

    full: Any
    empty: Any
    stages: int

    def start(self) -> Place:
        """The first place of a producer and of a consumer."""
        return Place(i32(0), i32(0))

    def following(self, place: Place) -> Place:
        """The place after another."""
        if self.stages == 1:
            return Place(place.stage, place.phase ^ 1)
        last = place.stage == self.stages - 1
        return Place(i32(0) if last else place.stage + 1, place.phase ^ 1 if last else place.phase)

    def acquire(self, place: Place, nbytes: Any) -> None:
        """Wait until a stage may be filled; so many bytes will be copied to it. By one unit."""
        cuda.barrier_wait(self.empty, place.stage, place.phase ^ 1)
        cuda.barrier_expect(self.full, place.stage, nbytes)

    def wait(self, place: Place) -> None:
        """Wait until a stage is full. All units of a consumer must have waited before one of them
        releases it: once it is filled again, a late one finds the parity of an empty stage and
        waits for ever."""
        cuda.barrier_wait(self.full, place.stage, place.phase)

    def release(self, stage: Any) -> None:
        """Say that a consumer is done with a stage. By one unit of each consumer."""
        cuda.barrier_arrive(self.empty, stage)

    def reserve(self, place: Place) -> None:
        """Wait until a stage may be filled by ordinary stores."""
        cuda.barrier_wait(self.empty, place.stage, place.phase ^ 1)

    def publish(self, stage: Any) -> None:
        """Say that a producer has stored its part of a stage. By one unit of each producer."""
        cuda.barrier_arrive(self.full, stage)


def ring(stages: int, consumers: int, producers: int = 1) -> Ring:
    """A ring that one unit fills, or so many `producers`, and that so many consumers release.

    All units of the cube call it, and `cp.sync_cube()` before its first use.
    """
    made = Ring(shared(stages, u64), shared(stages, u64), stages)
    if UNIT_POS == 0:
        for s in unroll(range(stages)):
            cuda.barrier_init(made.full, s, producers)
            cuda.barrier_init(made.empty, s, consumers)
        cuda.fence_barriers()
    return made


# How a stage lies in memory


@dataclass(frozen=True, slots=True)
class Tiles:
    """A tile of `rows` x `depth` elements for each stage, swizzled by 128 bytes.

    `memory`: [stage, row, element of k], or with `is_transposed` [stage, block of rows, element of
    k, row in the block], where blocks have rows of 128 bytes.
    """

    memory: Any
    rows: int
    depth: int
    is_transposed: bool

    @property
    def nbytes(self) -> int:
        """The size of a stage."""
        return self.rows * self.depth * self.memory.dtype.itemsize

    def load(self, ring: Ring, stage: Any, tensor: Any, where: Any, row: Any, k: Any) -> None:
        """Copy a tile from `row` and `k` on of matrices of a tensor map; by one unit.

        `where`: the indices before those of the matrix. See `box` for the map.
        """
        if self.is_transposed:
            block = ROW_BYTES // self.memory.dtype.itemsize
            for part in unroll(range(self.rows // block)):
                origin = (*where, k, row + part * block)
                cuda.tensor_load(self.memory, (stage, part, 0, 0), tensor, origin, ring.full, stage)
        else:
            cuda.tensor_load(self.memory, (stage, 0, 0), tensor, (*where, row, k), ring.full, stage)

    def load_part(
        self,
        ring: Ring,
        stage: Any,
        tensor: Any,
        where: Any,
        row: Any,
        k: Any,
        part: tuple[Any, int],
    ) -> None:
        """Copy one of some parts of a tile, (which, how many), to all cubes of a cluster of so
        many; by one unit of each. The box has a part of the tile's rows, which run along k; bytes
        of all parts arrive at the ring of each cube."""
        rank, parts = part
        first = rank * (self.rows // parts)
        origin, place = (*where, row + first, k), (stage, first, 0)
        everyone = (1 << parts) - 1
        cuda.tensor_load(self.memory, place, tensor, origin, ring.full, stage, everyone)

    def factor(self, row: Any = 0) -> Any:
        """The descriptor of stage 0 from a row on, a multiple of 64; see `part`."""
        if self.is_transposed:
            block = ROW_BYTES // self.memory.dtype.itemsize
            place = (0, row // block, 0, 0)
            return cuda.wgmma_descriptor(
                self.memory, place, self.depth * ROW_BYTES, _PATTERN, swizzle=ROW_BYTES
            )
        return cuda.wgmma_descriptor(self.memory, (0, row, 0), _UNIT, _PATTERN, swizzle=ROW_BYTES)

    def at(self, factor: Any, stage: Any) -> Any:
        """The descriptor of another stage."""
        return factor + u64(stage * (self.nbytes // _UNIT))

    def part(self, factor: Any, step: int) -> Any:
        """The descriptor of one of the `STEPS` parts along k that a product takes."""
        along = self.depth // STEPS * ROW_BYTES if self.is_transposed else ROW_BYTES // STEPS
        return factor + u64(along // _UNIT * step)


def tiles(stages: int, rows: int, dtype: Any, is_transposed: bool = False) -> Tiles:
    """Tiles whose rows have 128 bytes of k; transposed, whose steps of k have 128 bytes of rows."""
    depth = ROW_BYTES // dtype.itemsize
    if is_transposed:
        memory = shared((stages, rows // depth, depth, depth), dtype)
    else:
        memory = shared((stages, rows, depth), dtype)
    return Tiles(memory, rows, depth, is_transposed)


def box(rows: int, dtype: Any, is_transposed: bool = False) -> tuple[int, int]:
    """The box of matrices that `Tiles.load` copies at once; its swizzle is 128 bytes."""
    depth = ROW_BYTES // dtype.itemsize
    return (depth, depth) if is_transposed else (rows, depth)


def multiply(
    sums: Any, left: Tiles, x: Any, right: Tiles, y: Any, elements: Any, accumulate: Any = True
) -> Any:
    """Sums plus the product of two tiles along their whole depth; `x`, `y` are their descriptors.

    `elements`: as of `wgmma`. Unless `accumulate`, the product alone. It has begun when this
    returns: `wgmma_commit` and `wgmma_wait` say when it is done.
    """
    for step in unroll(range(STEPS)):
        sums = cuda.wgmma(
            sums,
            left.part(x, step),
            right.part(y, step),
            elements,
            left.is_transposed,
            right.is_transposed,
            accumulate if step == 0 else True,
        )
    return sums


def swizzled(row: Any, byte: Any, span: int = ROW_BYTES) -> Any:
    """Where a byte of a row of `span` bytes (32, 64 or 128) lies in it, swizzled by as many."""
    exchanged = row // (ROW_BYTES // span) % (span // _UNIT)
    return (byte // _UNIT ^ exchanged) * _UNIT + byte % _UNIT
