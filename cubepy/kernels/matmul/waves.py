"""How products are cut into tiles on Hopper: the waves of cubes that take the least time.

A cube fills a multiprocessor, so all tiles that run at the same time make a wave, and the last wave
may leave multiprocessors idle. A tile takes as long as the slower of its products and its copies,
for which all multiprocessors that are busy share the last cache: large tiles copy less, small ones
fill waves better.
"""

from __future__ import annotations

from dataclasses import replace

from cubepy.ir.types import DType, bf16, f8e4m3, f8e5m2, f16, f32, i8, u8
from cubepy.kernels.matmul.experts_on_hopper import Grouped
from cubepy.kernels.matmul.pipelined import Pipelined
from cubepy.kernels.matmul.problem import COLUMNS, ROWS, Problem
from cubepy.lang.pipelines import ROWS as ROWS_OF_UNIT
from cubepy.targets import Target

TILES = (
    *((128, 256), (128, 224), (128, 192), (128, 160), (128, 128), (128, 96)),
    *((192, 192), (192, 160), (192, 128)),
    *((64, 256), (64, 192), (64, 128), (64, 64)),
)
"""Heights and widths."""
FACTORS = 2048
"""Products of two bytes each of a multiprocessor in a cycle."""
SHARES = {64: 0.71, 128: 0.97, 192: 0.95}
"""What of that tiles reach, by height: one warpgroup waits for its own products."""
COPIED, APART = 57, 0.37
"""Bytes of a cycle that are copied to a multiprocessor if all are busy, and how much of the shorter
of products and copies the longer one does not hide."""
TILE, RESULT = 1140, 0.127
"""Cycles of a tile that others do not hide, and those in which one of its results leaves."""
BAND = 8
"""Rows of tiles that are gone through together, so that they share the right factor."""
BANDS = (BAND, 4, 16, 2, 32, 12, 1, 64)
FEWER = (0, 1)
"""What the autotuner may try: other bands, and stages less than fit."""
JOIN, JOINED, LEAST_PART = 4000, 500, 256
"""Cycles of the launch that adds parts of k, bytes of these that all multiprocessors add in one,
and the least length of a part."""
MOST_STAGES, LEAST_STAGES = 8, 3
ROW_ELEMENTS = 64
"""Columns of a right factor that is dense along them, in one row of shared memory."""


SECTOR = 32
"""Bytes of memory that are read together."""
LEAST_SHARED = 1 << 10
"""Bytes along k from which on cubes copy a factor together."""
TF32 = "tf32"
PROMOTED_WIDTH, PROMOTED_HEIGHT = 128, 128
"""Columns of the widest tile whose stages are added apart, and rows of the highest: their sums fill
the registers."""


def pipelined(target: Target, problem: Problem) -> Pipelined | None:
    """The tiles for a product; None where the target or the layout of the factors has no way."""
    if not is_taken(target, problem):
        return None
    found = min(tilings(target, problem), key=lambda t: duration(target, problem, t))
    return replace(found, cluster=cluster_of(target, problem, found))


def cluster_of(target: Target, problem: Problem, t: Pipelined) -> int:
    """How many cubes copy the right factor together: two, where all tiles are made at the same time
    and rows along k begin within sectors of memory, so that copies take most of that time, unless
    there are so few that the barriers of the cubes take longer."""
    along_k = problem.left == ROWS and problem.right == COLUMNS
    row_bytes = problem.k * t.factors.itemsize
    begins_within = row_bytes % SECTOR > 0 and row_bytes >= LEAST_SHARED
    cubes = 2 * count(problem, replace(t, cluster=2))
    is_short = problem.m > t.height and cubes <= target.multiprocessors
    return 2 if along_k and begins_within and is_short else 1


def is_taken(target: Target, problem: Problem) -> bool:
    """Whether the copy engine and `wgmma` take the factors of a product as they lie."""
    elements = elements_of(problem)
    if target.arch != "sm_90a" or elements is None:
        return False
    if not (problem.has_boxes or problem.has_factor_boxes):
        return False
    along_k = problem.left == ROWS and problem.right == COLUMNS
    return problem.result.itemsize in (2, 4) and (along_k or elements in (bf16, f16))


def elements_of(problem: Problem) -> DType | str | None:
    """What `wgmma` multiplies; None where it takes no such factors, or not without loss."""
    if problem.elements is f32:
        return TF32 if problem.precision == TF32 else None
    taken = (bf16, f16, f8e4m3, f8e5m2, i8, u8)
    return problem.elements if problem.elements in taken else None


def tilings(target: Target, problem: Problem) -> list[Pipelined]:
    """All that may be faster than others."""
    elements = elements_of(problem)
    assert problem.elements is not None and elements is not None
    promotes = _promotes(problem)
    return [
        _filled(
            target,
            Pipelined(
                *(height, width, 1, BAND, problem.left != ROWS, problem.right != COLUMNS),
                *(problem.elements, elements, problem.sums, promotes),
                *(problem.result, problem.is_finished, not problem.has_boxes or problem.n % 2 > 0),
            ),
        )
        for height, width in TILES
        if (problem.right == COLUMNS or width % ROW_ELEMENTS == 0)
        and (not promotes or (width <= PROMOTED_WIDTH and height <= PROMOTED_HEIGHT))
    ]


def _promotes(problem: Problem) -> bool:
    """Whether stages are added apart, as tensor cores would do it with fewer bits."""
    return problem.elements in (f8e4m3, f8e5m2) and problem.precision != "fast_accum"


def varied(target: Target, problem: Problem) -> dict[str, Pipelined]:
    """All ways by what distinguishes them: every tile as the rule would have it, the fastest by
    `duration` first; then with other bands, and with fewer stages."""
    ways = sorted(tilings(target, problem), key=lambda t: duration(target, problem, t))
    found: dict[str, Pipelined] = {}
    for fewer in FEWER:
        for band in BANDS:
            for t in ways:
                stages = t.stages - fewer
                text = f"{t.height}x{t.width}, {stages} stages, bands of {band}"
                if stages >= LEAST_STAGES or not fewer:
                    found[text] = replace(t, stages=stages, band=band)
    return found


def _filled(target: Target, t: Pipelined) -> Pipelined:
    """With as many stages as fit in shared memory."""
    rest = target.shared_bytes - (t.shared_bytes - t.stage_bytes)
    return replace(t, stages=min(MOST_STAGES, rest // (t.stage_bytes + 16)))


WIDTHS = (32, 64, 96, 128, 160, 192, 224, 256)
"""Rows of a group that a tile may have."""


def grouped(target: Target, problem: Problem, groups: int) -> Grouped | None:
    """The tiles for products of so many groups of `m` rows in all; None where Hopper has no way."""
    elements = elements_of(problem)
    if not problem.has_boxes or not is_taken(target, problem):
        return None
    assert problem.elements is not None and elements is not None
    tall = 2 * ROWS_OF_UNIT
    tiles = (min(groups, problem.m) + problem.m // WIDTHS[-1]) * -(-problem.n // tall)
    promotes = _promotes(problem)
    t = Grouped(
        tall if tiles >= target.multiprocessors else ROWS_OF_UNIT,
        tuple(w for w in WIDTHS if w <= PROMOTED_WIDTH or not promotes),
        *(1, BAND, groups, problem.right != COLUMNS),
        *(problem.elements, elements, problem.sums, promotes),
        problem.sums if problem.is_finished else problem.result,
    )
    rest = target.shared_bytes - (t.shared_bytes - t.stage_bytes)
    t = replace(t, stages=min(MOST_STAGES, rest // t.stage_bytes))
    return t if t.stages >= LEAST_STAGES else None


def duration(target: Target, problem: Problem, t: Pipelined) -> float:
    """The cycles of all waves."""
    tiles, size = t.cluster * count(problem, t), t.factors.itemsize
    waves = -(-tiles // target.multiprocessors)
    busy = min(tiles, target.multiprocessors) / target.multiprocessors
    results = t.height * t.width
    multiplied = results * problem.k * size / 2 / (FACTORS * SHARES[t.height])
    copied = (t.height + t.width / t.cluster) * problem.k * size * busy / COPIED
    longer, shorter = max(multiplied, copied), min(multiplied, copied)
    return waves * (longer + APART * shorter + TILE + RESULT * results)


def parts_of_k(target: Target, problem: Problem) -> int:
    """Into how many parts k is cut where that is faster: a sum of all of them then follows."""
    least, found = _joined(target, problem, 1), 1
    parts = 2
    while problem.k % (parts * ROW_ELEMENTS) == 0 and problem.k // parts >= LEAST_PART:
        made = _joined(target, problem, parts)
        if made < least:
            least, found = made, parts
        parts *= 2
    return found


def _joined(target: Target, problem: Problem, parts: int) -> float:
    """The cycles of a product in parts of k, and of their sum."""
    if parts == 1:
        return min(duration(target, problem, t) for t in tilings(target, problem))
    more = {"k": problem.k // parts, "result": problem.sums, "is_finished": False}
    part = replace(problem, batch=(parts,), **more)
    read = parts * problem.m * problem.n * problem.sums.itemsize
    return _joined(target, part, 1) + JOIN + read / JOINED


def count(problem: Problem, t: Pipelined) -> int:
    """Tiles of clusters in all."""
    down = -(-problem.m // (t.height * t.cluster))
    return problem.batches * down * -(-problem.n // t.width)
