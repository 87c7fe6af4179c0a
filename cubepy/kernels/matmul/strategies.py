"""How products are made: which kernel for which problem, and its blocks, by the target's caches."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from cubepy.ir.types import DType, bf16, f32, i8, u8
from cubepy.kernels.calls.prefetching import fills_cache_lines
from cubepy.kernels.matmul.blocks import Blocks
from cubepy.kernels.matmul.narrow import Narrow
from cubepy.kernels.matmul.problem import ROWS, Problem
from cubepy.kernels.matmul.split import PARTS, Split
from cubepy.kernels.matmul.streams import Dots, Streams
from cubepy.kernels.matmul.strips import Strips
from cubepy.kernels.matmul.units import PANEL, ROW_BYTES, Units
from cubepy.record import dataclass
from cubepy.targets import Target

if TYPE_CHECKING:
    from cubepy.kernels.matmul.on_gpus import OnGpus

FEW = 16
"""Rows up to which the right factor is read once, as it lies."""
GROUP = 8
"""Rows whose sums are in registers together then."""
STEPS = 8
"""Rows of the right factor that are read side by side: as many as a prefetcher follows."""
FAR, AHEAD_BYTES = 8, 2048
"""Second caches that a right factor must exceed to be prefetched; how far, along dense columns."""
LONGEST = 1 << 12
"""Columns of a cube, at most."""
NEAR, LEAST_STRIPS, TALL_LINES = 4, 2, 4
"""Second caches that a right factor may fill of which each strip of columns is read for itself, and
strips up to which any is; lines of columns up to which more than `FEW` rows are made so."""
CHAINS = 8
"""Lines of sums that one row by some columns has, so that no sum waits for the one before."""
CUBE_WORK, VECTOR_WORK = 1 << 21, 1 << 19
"""Multiplications that are worth a cube of their own: 20 microseconds, also where each reads an
element of its own."""
CUBES = 4
"""Cubes for each core, so that one that is slow does not hold up all."""
BLOCK_WORK, LONG_WORK, BLOCK_CUBES = 1 << 19, 1 << 22, 2
"""As `CUBE_WORK` and `CUBES`, for blocks; and what a core has to do until it takes several cubes,
each of which packs for itself."""
FEW_WORK, FEW_BLOCKS = 1 << 17, 4
"""Multiplications that are worth a cube while there are so few: 3 microseconds, which a core that
is awake saves."""
PACKED = 10
"""Multiplications in the time in which one element of a factor is packed."""
LONG_ROW = 2048
"""Columns from which on one row is read whole by each core."""
FEW_RESULTS, LONG_SUM = 1 << 12, 1 << 13
"""Results that one cube makes, and elements of k that are worth more."""
UNIT_PART = 4
UNIT_DEPTH = 2048
"""The longest step along k of a matrix unit, in bytes."""
UNIT_WORK, UNIT_CUBES = 1 << 23, 1
"""As `CUBE_WORK` and `CUBES`, for matrix units: each cube packs the factors for itself."""
UNIT_TALL = 64
"""Rows of a cube for each column: it takes longer to pack the right factor than the left one."""
FEW_PANELS = 4
"""Panels of columns up to which rows are taken as they lie though they begin anywhere: tiles cross
lines of the cache then, so that more of them are better packed."""
SPLIT_DEPTH, SPLIT_WORK, SPLIT_PACKED, LEAST_SPLIT = 512, 1 << 19, 60, 1 << 20
"""The longest step along k, `CUBE_WORK` and `PACKED`, for factors that are split for matrix units;
and the least product for which they are."""
SPLIT_GAIN = 1.9
"""Multiplications of split factors in the time of one multiply-add."""
FAR_PACKED = 50
"""`PACKED`, of multiply-adds, where the second cache does not hold the right factor."""
SPLIT_FEW_DEPTH, SPLIT_FEW_WIDTH = 64, 1024
"""The longest step along k and the most columns of a cube where rows are few: the right factor is
read once, fastest in long runs."""
WHOLE = 1 << 30
"""The depth of steps where all of k is one."""
EVEN = 64
"""Rows up to which tiles are made equally high."""
DEEPEST = 512
"""The longest step along k."""


NARROW_ROWS = {1: 12, 2: 8, 4: 6}
"""Of tiles that have all columns: rows, by lines of columns, with many registers."""
SHORT_COLUMN, LONG_COLUMN, NARROW_WORK = 31, 128, 1 << 16
"""The most elements of k there, with matrix units and without, and multiplications that are worth a
cube, which brings all columns for itself."""
LEAST_NARROW, LEAST_OF_PAIRS = 128, 256
"""The least rows there, and where columns are brought in pairs, element by element."""
_DOTS = {i8: "avx512vnni", u8: "avx512vnni", bf16: "avx512bf16"}
"""What a processor that multiplies elements of a type by `cp.dot` is known by."""


@dataclass(frozen=True, slots=True)
class Division:
    """Rows and columns of a cube, and elements of k of a step."""

    height: int
    width: int
    depth: int


OnCpus = Blocks | Streams | Strips | Dots | Units | Split | Narrow
InBlocks = Blocks | Units | Split
"""Those of which cubes make blocks of the result."""


def is_cpu(target: Target) -> bool:
    """Whether a target takes the kernels of CPUs; what else there is is loaded for others alone."""
    return target.kind in ("cpu", "interpreter")


def choose(target: Target, problem: Problem) -> OnCpus | OnGpus:
    """The kernel for a problem, as its configuration."""
    if not is_cpu(target):
        from cubepy.kernels.matmul import on_gpus

        return on_gpus.choose(target, problem)
    if problem.m <= FEW and problem.left == ROWS:
        if problem.right == ROWS:
            return strips(target, problem) or streams(target, problem)
        return dots(target, problem)
    return narrow(target, problem) or strips(target, problem) or in_blocks(target, problem)


def in_blocks(target: Target, problem: Problem) -> InBlocks:
    """The kernel of a CPU whose cubes make blocks of the result."""
    return units(target, problem) or _faster(target, problem)


def _faster(target: Target, problem: Problem) -> Split | Blocks:
    """Split factors, where they take less time than multiply-adds."""
    whole, parts = blocks(target, problem), split(target, problem)
    if parts is None:
        return whole
    is_far = problem.k * problem.n * problem.factors.itemsize > target.cache_bytes
    slow, fast = (
        _effort(target, problem, t, divide(target, problem, t), packed) * rounded(problem.k, t.line)
        for t, packed in ((whole, FAR_PACKED if is_far else PACKED), (parts, SPLIT_PACKED))
    )
    return parts if fast <= SPLIT_GAIN * slow else whole


def parts_of_k(target: Target, problem: Problem) -> int:
    """Into how many parts k is cut, whose sums are added behind.

    One row reads the right factor in longer runs so; few results have work for one core else.
    """
    if not is_cpu(target):
        from cubepy.kernels.matmul import on_gpus

        return on_gpus.parts_of_k(target, problem)
    least = CUBE_WORK if problem.m > 1 and problem.n > 1 else VECTOR_WORK
    if target.kind != "cpu" or problem.batches > 1 or problem.work < least:
        return 1
    is_row = problem.m == 1 and problem.right == ROWS and problem.n >= LONG_ROW
    is_small = problem.m * problem.n <= FEW_RESULTS and problem.k >= LONG_SUM
    if not (is_row or is_small):
        return 1
    return target.cores if problem.k % target.cores == 0 else 1


# CPUs


def lanes(target: Target, problem: Problem) -> int:
    """Elements of a line of sums."""
    return max(1, target.line_bytes // problem.sums.itemsize)


def tile_extents(target: Target) -> tuple[int, int]:
    """Rows, and lines of columns, of a tile: sums fill the registers up to what factors need."""
    many = target.line_bytes >= 64 or target.family == "aarch64"
    return (12, 2) if many else (6, 2)


def blocks(target: Target, problem: Problem) -> Blocks:
    """Some rows of the left factor fill three quarters of the nearest cache, as the packed part of
    the right one, half of the next, streams past them; sums are brought once for each step."""
    line, (most, lines) = lanes(target, problem), tile_extents(target)
    size = problem.sums.itemsize
    rows = even_part(problem.m, most) if problem.m <= EVEN else most
    depth = target.near_bytes * 3 // 4 // (most * size) // 64 * 64
    depth = max(64, min(depth, DEEPEST))
    width = target.cache_bytes // 2 // (depth * size) // (line * lines) * (line * lines)
    return Blocks(
        rows,
        problem.m % rows,
        lines,
        line,
        depth,
        max(line * lines, width),
        problem.left,
        problem.right,
        problem.factors,
        problem.sums,
        is_finished=problem.is_finished,
        fetches=problem.m <= EVEN and problem.right == ROWS,
    )


def narrow(target: Target, problem: Problem) -> Narrow | None:
    """All columns in a tile, where they are few and short; None where they are not."""
    p, line, factors, least = problem, lanes(target, problem), problem.sums, LEAST_NARROW
    if p.elements is not None and has_dots(target, p.elements):
        if p.left != ROWS or p.elements is not bf16:
            return None
        least, factors = LEAST_OF_PAIRS, p.elements
    count = power_above(-(-p.n // line))
    most = SHORT_COLUMN if has_matrix_units(target) else LONG_COLUMN
    if count > max(NARROW_ROWS) or not 0 < p.k <= most or p.m < least:
        return None
    rows = NARROW_ROWS[count] // (1 if prod(tile_extents(target)) >= 24 else 2)
    depth = most + most % 2  # columns are brought in pairs
    return Narrow(rows, count, line, depth, p.left, p.right, factors, p.sums)


def narrow_height(target: Target, problem: Problem, t: Narrow) -> int:
    """Rows of a cube: as many as are worth a cube, or as few as give all cores their share."""
    wanted = min(CUBES * target.cores, problem.work // NARROW_WORK) // problem.batches
    return rounded(-(-problem.m // max(1, wanted)), t.rows)


def units(target: Target, problem: Problem) -> Units | None:
    """The packed part of the right factor fills half of the second cache; None where neither matrix
    units nor dot products take the factors."""
    if problem.elements is None:
        return None
    takes = (unit.factor for unit in target.matrix_units if unit.layout == "amx")
    has_unit = problem.elements.name in takes
    if not has_unit and not has_dots(target, problem.elements):
        return None
    size = problem.elements.itemsize
    depth = min(UNIT_DEPTH, rounded(problem.k * size, ROW_BYTES)) // size
    width = target.cache_bytes * UNIT_PART // 8 // (depth * size) // PANEL * PANEL
    return Units(
        PANEL if has_unit else tile_extents(target)[0],
        depth,
        min(max(PANEL, width), rounded(problem.n, PANEL)),
        problem.left,
        problem.right,
        problem.elements,
        problem.sums,
        is_finished=problem.is_finished,
        is_direct=has_unit
        and problem.left == ROWS
        and problem.has_dense_rows
        and (problem.k * size % ROW_BYTES == 0 or problem.n <= FEW_PANELS * PANEL),
        has_unit=has_unit,
    )


def split(target: Target, problem: Problem) -> Split | None:
    """Half of the second cache holds the parts of a cube's columns; None where there is no unit for
    them, too little to do, or so few elements of k that sums could err by more than `matmul` says.
    """
    if problem.elements is not f32 or problem.work < LEAST_SPLIT or problem.k < PANEL:
        return None
    if not has_split_units(target):
        return None
    is_few = problem.m <= EVEN
    depth = min(SPLIT_FEW_DEPTH if is_few else SPLIT_DEPTH, rounded(problem.k, PANEL))
    width = target.cache_bytes * UNIT_PART // 8 // (depth * PARTS * 2) // PANEL * PANEL
    width = min(width, SPLIT_FEW_WIDTH) if is_few else width
    return Split(
        depth,
        min(max(PANEL, width), rounded(problem.n, PANEL)),
        problem.left,
        problem.right,
        is_finished=problem.is_finished,
    )


def has_split_units(target: Target) -> bool:
    """Whether matrix units multiply the parts of numbers of f32."""
    return any(unit.layout == "amx" and unit.factor == "bf16" for unit in target.matrix_units)


def has_matrix_units(target: Target) -> bool:
    """Whether there are tiles of AMX."""
    return any(unit.layout == "amx" for unit in target.matrix_units)


def has_dots(target: Target, dtype: DType) -> bool:
    """Whether lines of 64 bytes are multiplied by one instruction."""
    feature = _DOTS.get(dtype)
    return target.line_bytes >= ROW_BYTES and feature in target.features


def divide(target: Target, problem: Problem, t: InBlocks) -> Division:
    """Cubes that are enough for all cores, and each worth its start."""
    if t.cut:
        height, width = -(-problem.m // t.cut[0]), min(-(-problem.n // t.cut[1]), t.width)
    elif isinstance(t, Units):
        height, width = _halved(target, problem, t)
    elif isinstance(t, Split):
        wanted = min(target.cores, problem.work // SPLIT_WORK)
        height, width = _balanced(target, problem, t, max(1, wanted))
    else:
        height, width = _balanced(target, problem, t, _blocks_wanted(target, problem))
    depth = even_part(problem.k, t.depth)
    return Division(
        rounded(height, t.rows), rounded(width, t.step), min(rounded(depth, t.line), t.depth)
    )


def cuts(target: Target, problem: Problem) -> list[tuple[int, int]]:
    """Cubes along rows and columns that the autotuner may try: one to four for each core."""
    if target.cores == 1:
        return []
    counts = [max(1, target.cores * n // problem.batches) for n in (1, 2, 4)]
    found = [(down, n // down) for n in (1, *counts) for down in range(1, n + 1) if n % down == 0]
    return list(dict.fromkeys(found))


def _halved(target: Target, problem: Problem, t: Units) -> tuple[int, int]:
    """Rows and columns of a cube: halves, until there are enough."""
    height, width = problem.m, min(even_part(problem.n, t.width), t.width)
    wanted = max(1, min(UNIT_CUBES * target.cores, problem.work // UNIT_WORK))
    while _cubes(problem, height, width) < wanted:
        is_tall = height >= UNIT_TALL * width or width <= 2 * t.step
        if is_tall and height > 4 * t.rows:
            height = rounded(-(-height // 2), t.rows)
        elif width > 2 * t.step:
            width = rounded(-(-width // 2), t.step)
        else:
            break
    return height, width


def _blocks_wanted(target: Target, problem: Problem) -> int:
    """Cubes that are enough, of those that multiply by multiply-adds."""
    most = BLOCK_CUBES if target.cores > 1 else 1
    turns = max(1, min(most, problem.work // (target.cores * LONG_WORK)))
    worth = max(problem.work // BLOCK_WORK, min(FEW_BLOCKS, problem.work // FEW_WORK))
    return max(1, min(turns * target.cores, worth))


def _balanced(target: Target, problem: Problem, t: Blocks | Split, wanted: int) -> tuple[int, int]:
    """Rows and columns of a cube: those with which the core that has most to do has least."""
    parts = -(-wanted // problem.batches)
    heights = {rounded(-(-problem.m // n), t.rows) for n in range(1, parts + 1)}
    least = -(-problem.n // t.width)
    widths = {rounded(-(-problem.n // n), t.step) for n in range(least, least + parts + 1)}
    many = [Division(h, w, t.depth) for h in heights for w in widths if w <= t.width]
    enough = [d for d in many if _cubes(problem, d.height, d.width) >= wanted]
    packed = SPLIT_PACKED if isinstance(t, Split) else PACKED
    d = min(enough or many, key=lambda d: (_effort(target, problem, t, d, packed), -d.height))
    return d.height, d.width


def _effort(target: Target, problem: Problem, t: Blocks | Split, d: Division, packed: int) -> int:
    """Multiplications for an element of k that the busiest core makes, where to pack an element
    takes as long as `packed` of them."""
    height = min(d.height, rounded(problem.m, t.rows))
    width = min(d.width, rounded(problem.n, t.step))
    turns = -(-_cubes(problem, d.height, d.width) // target.cores)
    return turns * (height * width + packed * (height + width))


def _cubes(problem: Problem, height: int, width: int) -> int:
    return problem.batches * -(-problem.m // height) * -(-problem.n // width)


def streams(target: Target, problem: Problem) -> Streams:
    """As many lines as registers hold sums of; columns are cut for all cores to have some. Rows are
    read fastest in long runs, also where sums then come from the second cache."""
    groups = -(-problem.m // GROUP)
    rows = -(-problem.m // groups)
    line = lanes(target, problem)
    lines = _lines_of_rows(target, rows) if rows > 1 else 1
    wanted = -(-target.cores // problem.batches)
    if problem.work < CUBE_WORK // 8:
        wanted = 1
    step = line * lines
    most = max(step, LONGEST // step * step)
    width = min(rounded(even_part(-(-problem.n // wanted), most), step), most)
    ahead = STEPS if _is_ahead(target, problem) else 0
    return Streams(rows, groups, line, lines, STEPS, width, ahead, problem.sums)


def strips(target: Target, problem: Problem) -> Strips | None:
    """As many rows and lines as registers hold sums of; None where rows of the right factor are
    better read in long runs, or there is so much to do that factors are better packed."""
    p, line = problem, lanes(target, problem)
    rows = even_part(p.m, _few_rows(target))
    t = Strips(rows, _lines_of_rows(target, rows), line, p.left, p.sums)
    nbytes = p.k * p.n * p.dtype.itemsize
    if p.m > FEW:
        fits = p.n <= TALL_LINES * line and nbytes <= target.cache_bytes and not p.lies_apart
    else:
        fits = p.n <= LEAST_STRIPS * t.step or nbytes <= NEAR * target.cache_bytes
    is_stream = p.m <= FEW and p.left == ROWS  # which no unit takes
    if p.right != ROWS or not fits or (p.m == 1 and p.n >= line):
        return None
    return t if is_stream or not _has_own_units(target, p) else None


def _has_own_units(target: Target, problem: Problem) -> bool:
    """Whether blocks of the factors are multiplied by dot products or matrix units."""
    elements = problem.elements
    is_split = elements is f32 and has_split_units(target)
    return is_split or (elements is not None and has_dots(target, elements))


def strip_cut(target: Target, problem: Problem, t: Strips) -> tuple[int, int]:
    """Rows and columns of a cube: columns are cut first, each worth its start."""
    worth = min(target.cores, max(1, problem.work // FEW_WORK))
    wanted = -(-worth // problem.batches)
    width = rounded(-(-problem.n // wanted), t.step)
    across = -(-problem.n // width)
    return rounded(-(-problem.m // -(-wanted // across)), t.rows), width


def _few_rows(target: Target) -> int:
    """Rows that are made together where they are few."""
    return tile_extents(target)[0] * 2 // 3


def _lines_of_rows(target: Target, rows: int) -> int:
    """Lines of columns whose sums registers then hold, of so many rows."""
    return max(1, min(4, _few_rows(target) * 2 // rows))


def dots(target: Target, problem: Problem) -> Dots:
    """Four rows by four columns, or more where registers are many, or one row by eight, of fewer
    in wider lines; columns that several groups of rows use fill a quarter of the nearest cache."""
    rows = even_part(problem.m, 4)
    groups = -(-problem.m // rows)
    many = prod(tile_extents(target)) >= 24
    columns = min(CHAINS, max(1, problem.n)) if rows == 1 else 6 if many and groups > 1 else 4
    line = lanes(target, problem)
    if rows == 1:
        line <<= (CHAINS // columns).bit_length() - 1
    near = target.near_bytes // 4 // (columns * problem.sums.itemsize)
    depth = max(line, near // line * line) if groups > 1 else WHOLE
    wanted = -(-target.cores * CUBES // problem.batches)
    if problem.work < CUBE_WORK // 8:
        wanted = 1
    width = rounded(-(-problem.n // wanted), columns)
    ahead = AHEAD_BYTES // problem.dtype.itemsize if _is_ahead(target, problem) else 0
    return Dots(rows, groups, columns, line, depth, width, ahead, problem.sums)


def _is_ahead(target: Target, problem: Problem) -> bool:
    """Whether right factors are prefetched: memory must bring most of them."""
    nbytes = problem.batches * problem.k * problem.n * problem.dtype.itemsize
    return fills_cache_lines(target) and nbytes > FAR * target.cache_bytes


def even_part(n: int, most: int) -> int:
    """The length of parts of `n`, at most `most`, as few and as equal as they can be."""
    count = max(1, -(-n // most))
    return max(1, -(-n // count))


def power_above(n: int) -> int:
    """The smallest power of two that is at least n; 1 for what is less."""
    return 1 << max(0, n - 1).bit_length()


def rounded(n: int, step: int) -> int:
    """The least multiple of `step` that is at least n, and no less than `step`."""
    return max(step, -(-n // step) * step)
