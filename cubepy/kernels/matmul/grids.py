"""How products are cut into tiles on GPUs, where no tensor maps serve: what takes the least time.

A multiprocessor that has one cube is slower than one that has several, and one that has none does
nothing; large tiles load less for each product.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from cubepy.ir.types import DType, bf16, f16, f32, f64, i8, u8
from cubepy.kernels.matmul.fragments import CHUNK, Fragments
from cubepy.kernels.matmul.problem import COLUMNS, ROWS, Problem
from cubepy.kernels.matmul.tiles import LANES_ACROSS, LANES_DOWN, LINE_BYTES, Tiles
from cubepy.record import dataclass
from cubepy.targets import Target

ASYNC_SINCE, TENSOR_CORES_SINCE, TALL_SINCE = 80, 80, 90
"""The first architectures of NVIDIA with asynchronous copies, with these products, and with those
of f64 that have 16 rows."""
ROUNDED = ("tf32", "flex32")
"""What lets tensor cores take f32 with a fraction of 10 bits."""
THIN, CUBES_THIN = 16, 8
"""Rows of tiles that memory bounds, and how many of those a multiprocessor should have."""
SHORTEST, SHORTEST_THIN = 256, 64
"""Elements of k of a part."""
PASS, ADDITION = 870_000, 46
"""What adding up parts of k costs: a second launch, and each sum of a part, in the time of one
multiplication of a multiprocessor, and of all."""
CUT_WORK = 1 << 30
"""Multiplications from which on tiles are chosen for a sum of parts."""
ADDERS, FEWEST_ADDED = 1024, 4
"""Units of a multiprocessor that add parts of k, if there are so many, and the parts of each."""
WORD = 4
"""The fewest bytes of an asynchronous copy."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Groups of units down and across, and what each unit or plane makes.

    `alone`, `full`: shares of what a multiprocessor can do, with one cube, and with as many as
    there is room for.
    """

    down: int
    across: int
    rows: int
    columns: int
    alone: float
    full: float


TILES = (
    Shape(2, 4, 16, 8, 0.80, 0.80),
    Shape(2, 2, 16, 8, 0.45, 0.78),
    Shape(4, 2, 8, 8, 0.60, 0.72),
    Shape(2, 2, 8, 8, 0.40, 0.70),
    Shape(2, 2, 8, 4, 0.28, 0.55),
    Shape(2, 2, 4, 4, 0.18, 0.40),
    Shape(1, 4, 4, 4, 0.18, 0.38),
    Shape(1, 4, 1, 4, 0.06, 0.20),
)
FRAGMENTS = (
    Shape(2, 4, 4, 8, 0.60, 0.60),
    Shape(2, 4, 4, 4, 0.50, 0.50),
    Shape(2, 2, 4, 4, 0.30, 0.45),
    Shape(2, 2, 2, 4, 0.20, 0.40),
    Shape(1, 4, 1, 4, 0.08, 0.20),
)
DOUBLES = (
    Shape(2, 4, 4, 4, 0.80, 0.80),
    Shape(2, 4, 2, 4, 0.55, 0.81),
    Shape(2, 2, 2, 4, 0.30, 0.84),
    Shape(1, 4, 1, 4, 0.10, 0.30),
)
"""The same for f64."""
DEPTH = 16
"""Elements of k of a step in ordinary arithmetic; half as many where memory is scarcer."""
UNROLLED = 4
"""Elements of k that are written out in a loop with asynchronous copies."""
MOST_SUMS = 512
"""Bytes of the sums of a unit; half of it where copies go through registers."""
LANES = 8
"""Units that copy from a row of a factor that is dense along k: with more, rows of shared memory
would have to lie so that no line of 16 bytes could be read from them."""
TURNED_ROWS, TURNED_COLUMNS = 1 << 10, 3 << 10
"""Rows of a product from which on a right factor that is dense along k is transposed first, columns
from which on a left one is: tiles turn them on the way for a tenth, and a thirtieth, of the time
that the products take."""
COPIED, COPIED_WORK = 1 << 10, 1 << 33
"""Rows, or columns, from which on the other factor is copied to rows of whole lines, if it has
others, and multiplications from which on any is: pieces of 4 bytes take a sixth longer each."""
STAGES = 3
"""Steps in shared memory where copies are asynchronous."""
STEP_BYTES = 128
"""Bytes along k of a step of tensor cores."""
Tiling = TypeVar("Tiling", Tiles, Fragments)


def choose_grid(target: Target, problem: Problem) -> Tiles | Fragments:
    """The tiles for a product, in tensor cores where they take the factors."""
    found = fragments(target, problem)
    if found:
        shapes = _fragment_shapes(problem)
        return min(found, key=lambda t: _duration(target, problem, t, shapes))
    if problem.work < CUT_WORK:
        return min(tiles(target, problem), key=lambda t: _duration(target, problem, t, TILES))
    return min(tiles(target, problem), key=lambda t: min(_cut_durations(target, problem, t)))


def _duration(
    target: Target, problem: Problem, t: Tiles | Fragments, shapes: tuple[Shape, ...]
) -> float:
    """The time of the multiprocessor that has the most cubes."""
    key = t.down, t.across, t.rows, t.columns
    shape = next(s for s in shapes if (s.down, s.across, s.rows, s.columns) == key)
    cubes = problem.batches * -(-problem.m // t.height) * -(-problem.n // t.width)
    most = -(-cubes // target.multiprocessors)
    return t.height * t.width * max(1 / shape.alone, most / shape.full)


def _cut_durations(target: Target, problem: Problem, t: Tiles) -> list[float]:
    """The times of a product whose k is in one part, two, four, and so on, as far as it may be cut;
    in the time of one product of a multiprocessor."""
    found = list[float]()
    for exponent in range(_cuts(target, problem, t) + 1):
        parts = 1 << exponent
        cut = replace(problem, batch=(*problem.batch, parts), k=problem.k // parts)
        added = PASS + ADDITION * parts * problem.m * problem.n / target.multiprocessors
        products = cut.k * _duration(target, cut, t, TILES)
        found.append(products + (added if parts > 1 else 0))
    return found


def _cuts(target: Target, problem: Problem, t: Tiles | Fragments) -> int:
    """How many times k may be halved: while multiprocessors have nothing to do."""
    if problem.batches > 1 or target.multiprocessors == 1:
        return 0
    cubes, cuts = -(-problem.m // t.height) * -(-problem.n // t.width), 0
    shortest, most = SHORTEST, target.multiprocessors
    if t.height < THIN:
        shortest, most = SHORTEST_THIN, CUBES_THIN * most
    while problem.k % (2 * t.depth << cuts) == 0 and problem.k >> (cuts + 1) >= shortest:
        if cubes << cuts >= most:
            break
        cuts += 1
    return cuts


def parts_for(target: Target, problem: Problem, t: Tiles | Fragments) -> int:
    """Into how many parts k is cut so that all multiprocessors have work: a power of two that
    divides it."""
    if isinstance(t, Tiles) and problem.work >= CUT_WORK:
        durations = _cut_durations(target, problem, t)
        return 1 << durations.index(min(durations))
    cubes = -(-problem.m // t.height) * -(-problem.n // t.width)
    wanted = (CUBES_THIN if t.height < THIN else 1) * target.multiprocessors // cubes
    return 1 << min(_cuts(target, problem, t), max(0, wanted.bit_length() - 1))


def adders_for(target: Target, lines: int, parts: int) -> int:
    """How many units add up the parts of each of some lines: a power of two, so many that
    multiprocessors have enough of them, but at most half of a plane, so that neighbours read 32
    bytes."""
    share = 1
    while 4 * share <= target.plane_dim and parts >= 2 * share * FEWEST_ADDED:
        if lines * share >= ADDERS * target.multiprocessors:
            break
        share *= 2
    return share


# Ordinary arithmetic


def tiles(target: Target, problem: Problem) -> list[Tiles]:
    """Tiles of all shapes that fit the target."""
    is_async = has_async(target) and problem.dtype is problem.factors
    most = MOST_SUMS if is_async else MOST_SUMS // 2
    size = problem.sums.itemsize
    made = [_tiles(problem, s, is_async) for s in TILES if s.rows * s.columns * size <= most]
    return [t for t in made if t.shared_bytes <= target.shared_bytes]


def _tiles(problem: Problem, shape: Shape, is_async: bool) -> Tiles:
    height, width = (
        shape.down * LANES_DOWN * shape.rows,
        shape.across * LANES_ACROSS * shape.columns,
    )
    depth = DEPTH if is_async and problem.factors.itemsize == WORD else DEPTH // 2
    left = _copied(problem, 0, depth if problem.left == ROWS else height, is_async)
    right = _copied(problem, 1, depth if problem.right == COLUMNS else width, is_async)
    if is_async:  # elements that follow each other along k go to different rows of shared memory
        left = 1 if problem.left == ROWS else left
        right = 1 if problem.right == COLUMNS else right
    return Tiles(
        *(shape.down, shape.across, shape.rows, shape.columns, depth, STAGES if is_async else 2),
        *(problem.left, problem.right, left, right, problem.factors, problem.sums, is_async),
        unrolled=_unrolled(problem, depth) if is_async else 2,
        lanes=LANES,
    )


def _unrolled(problem: Problem, depth: int) -> int:
    """All elements of a step where copies are few, which are spread over them."""
    return depth if (problem.left, problem.right) == (COLUMNS, ROWS) else UNROLLED


def copied_first(problem: Problem, t: object) -> tuple[bool, bool]:
    """Which factors are copied before they are multiplied, as rows of whole lines that run along
    the result: those that tiles would turn on the way, and those that have no whole lines."""
    if problem.batch or problem.work < COPIED_WORK:
        return False, False
    if isinstance(t, Fragments):
        is_taken, turns = t.factors is f64, (False, False)
    else:
        is_taken = isinstance(t, Tiles) and t.is_async
        turns = problem.left == ROWS, problem.right == COLUMNS
    if not is_taken:
        return False, False
    left = problem.n >= TURNED_COLUMNS if turns[0] else _is_short(problem, 0, problem.n)
    right = problem.m >= TURNED_ROWS if turns[1] else _is_short(problem, 1, problem.m)
    return left, right


def _is_short(problem: Problem, which: int, across: int) -> bool:
    """Whether less than a line of a factor can be copied at once, of a product so much longer than
    copies of the factor that it matters."""
    return across >= COPIED and problem.runs[which] * problem.dtype.itemsize < LINE_BYTES


def _copied(problem: Problem, which: int, extent: int, is_async: bool) -> int:
    """How many elements of a factor are copied at once."""
    most = LINE_BYTES // problem.factors.itemsize if is_async else DEPTH // 2
    return min(problem.runs[which], most, extent)


# Tensor cores


def fragments(target: Target, problem: Problem) -> list[Fragments]:
    """Tiles of all shapes; none where no tensor core takes the factors."""
    kind = _kind(problem)
    if target.kind != "cuda" or target.version < TENSOR_CORES_SINCE or kind is None:
        return []
    made = (_fragments(target, problem, s, kind) for s in _fragment_shapes(problem))
    return [t for t in made if t is not None and t.shared_bytes <= target.shared_bytes]


def _fragment_shapes(problem: Problem) -> tuple[Shape, ...]:
    return DOUBLES if problem.dtype is f64 else FRAGMENTS


def _kind(problem: Problem) -> DType | str | None:
    """As what tensor cores take the factors: f64 always, which they round as all others do."""
    if problem.dtype is f64:
        return f64
    if problem.precision in ROUNDED and problem.elements is f32:
        return "tf32"
    return problem.elements if problem.elements in (f16, bf16, i8, u8) else None


def _fragments(
    target: Target, problem: Problem, shape: Shape, kind: DType | str
) -> Fragments | None:
    size = problem.dtype.itemsize
    chunk = CHUNK // size
    left, right = (min(run, chunk) for run in problem.runs)
    if size in (1, 4):  # factors that are not dense along k are turned on the way
        left = left if problem.left == ROWS else 1
        right = right if problem.right == COLUMNS else 1
    is_async = min(left, right) * size >= WORD
    if not is_async and shape.rows * shape.columns > 16:
        return None
    return Fragments(
        *(shape.down, shape.across, shape.rows, shape.columns, STEP_BYTES // size),
        *(STAGES if is_async else 2, problem.left, problem.right, left, right),
        *(problem.dtype, problem.sums, kind, is_async),
        is_square=kind is f64 and target.version < TALL_SINCE,
    )


def has_async(target: Target) -> bool:
    """Whether memory is copied into shared memory without going through registers."""
    return target.kind == "cuda" and target.version >= ASYNC_SINCE
