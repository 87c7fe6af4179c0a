"""How convolutions are cut into tiles on Hopper: the waves of cubes that take the least time.

A cube fills a multiprocessor. What a tile costs is the slowest of its products, of what these read
from shared memory, and of what is copied there; each is counted in cycles of a multiprocessor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from cubepy.ir.types import DType, bf16, f16
from cubepy.kernels.convolution.narrow import Filling, filled, fillings
from cubepy.kernels.convolution.problem import Problem, Window
from cubepy.kernels.convolution.tensor_core_gradient import BLOCK_BYTES, SIDE, Parts
from cubepy.kernels.convolution.tensor_cores import FILTERS, PIECE, Tiles
from cubepy.record import dataclass
from cubepy.targets import Target

FACTORS = 2048
"""Products of a cycle."""
READ, COPIED, APART = 128, 70, 28
"""Bytes of a cycle: read by products, copied to a multiprocessor, and copied to no other one."""
EFFORT = 1.02
"""How much longer products take than they would alone."""
TILE, STORED = 600, 12
"""Cycles of a tile that others do not hide, and those in which a pixel of the last is stored."""
MOST_PIXELS = 224
MOST_RUN = 1024
"""Pixels of a load."""
SHAPES = ((1, 2), (2, 1))
"""Warpgroups along filters and pixels."""
GRADIENT_SHAPES = ((1, 2), (2, 1), (1, 3))
MOST_BLOCKS = {2: 4, 3: 3}
"""Blocks of channels whose sums a warpgroup has registers for, by the number of warpgroups."""
JOIN, JOINED, LEAST_STEPS = 4000, 700, 8
"""Cycles of the launch that joins parts of tiles, the bytes of these that all multiprocessors write
and read in one, and the least steps of a part."""
MOST_WAVES = 3
ALONE, SUMMED, STEP = 34, 1600, 60
"""Of gradients by weights: `APART`, bytes of sums that all write or read in a cycle, and the cycles
of a step that products do not hide."""
DEPTHS = (16, 32, 64)
MOST_STAGES = 12
MOST_COUNT = 1 << 30
"""Pixels of all images are counted in 32 bits."""
_OFFSETS = {1: 1 << 15, 2: 128, 3: 16}
"""Corners of a tensor map are below these; offsets below twice as many."""
_STRIDES = 8
_RESERVED = 2048
"""Shared memory that barriers and alignment take."""


@dataclass(frozen=True, slots=True)
class Run:
    """How pixels are counted along the axes: `extents`, from `lower` to `upper` of a tensor map."""

    extents: tuple[int, ...]
    lower: tuple[int, ...]
    upper: tuple[int, ...]


def axes_of(problem: Problem) -> int:
    """Axes of the window that are not trivial: the last 1 to 3."""
    w = problem.window
    for axis in range(2):
        padding = w.before[axis] + w.after[axis]
        if problem.extents[axis] > 1 or w.kernel[axis] > 1 or padding or w.stride[axis] > 1:
            return 3 - axis
    return 1


def run_of(problem: Problem, shared: int) -> Run:
    """The pixels, where loads serve all taps of the last `shared` axes.

    There a row goes on to its last element that is seen, or through the padding behind it up to
    where that of the next one begins, which serves both.
    """
    w, axes = problem.window, axes_of(problem)
    extents: list[int] = []
    upper: list[int] = []
    for axis in range(3 - axes, 3):
        n, before, after = problem.extents[axis], w.before[axis], w.after[axis]
        results = problem.results[axis]
        if axis >= 3 - shared:
            seen = results + w.spans[axis] - 1
            extents.append(max(results, min(n + before, seen), seen - max(before, 0)))
            upper.append(extents[-1] - n - before)
        else:
            extents.append(results)
            upper.append(after - w.spans[axis] + 1)
    return Run(tuple(extents), tuple(-n for n in w.before[3 - axes :]), tuple(upper))


def tilings(target: Target, problem: Problem, elements: DType) -> list[Tiles]:
    """All ways for a convolution, the fastest first; none where the hardware has none."""
    if not (problem.filters and _is_served(target, problem, elements, problem.channels)):
        return []
    found = [
        t
        for shared in range(axes_of(problem) + 1)
        if _is_shared(problem.window, shared) and _has_corners(problem, shared)
        for t in _of_run(target, problem, elements, shared)
    ]
    return sorted(found, key=lambda t: duration(target, t))


def varied(ways: Sequence[Tiles]) -> list[Tiles]:
    """The fastest of each way to load, to divide filters and to share tiles; the first is the
    fastest of all."""
    found: dict[tuple[int, int, bool], Tiles] = {}
    for t in ways:
        found.setdefault((t.shared, t.down, t.parts > 1), t)
    return list(found.values())


def fillings_of(target: Target, problem: Problem, elements: DType) -> list[Filling]:
    """The ways to fill up channels for tensor cores, the fastest first; none where there is no
    need, or the hardware has none."""
    found = [(f, tilings(target, filled(problem, f), elements)) for f in fillings(problem)]
    times = [(duration(target, ways[0]), f) for f, ways in found if ways]
    return [f for _, f in sorted(times, key=lambda pair: pair[0])]


def gradient_fillings(target: Target, problem: Problem, elements: DType) -> list[Filling]:
    """As `fillings_of`, for the gradient by the weights."""
    found = [(f, divisions(target, filled(problem, f), elements)) for f in fillings(problem)]
    times = [(gradient_duration(target, ways[0]), f) for f, ways in found if ways]
    return [f for _, f in sorted(times, key=lambda pair: pair[0])]


def _is_served(target: Target, problem: Problem, elements: DType, *sizes: int) -> bool:
    """Whether the hardware has instructions for such elements and extents; `sizes`: those that are
    counted in eights."""
    w, axes = problem.window, axes_of(problem)
    reach = max(span - 1 for span in w.spans[3 - axes :])
    fits = max(w.stride) <= _STRIDES and reach < 2 * _OFFSETS[axes]
    fits = fits and problem.groups == 1 and 0 not in problem.extents
    return fits and has_tensor_cores(target, sizes, elements)


def has_tensor_cores(target: Target, sizes: Sequence[int], elements: DType) -> bool:
    """Whether tensor cores multiply such elements, of so many channels or filters."""
    sized = all(n > 0 and n % PIECE == 0 for n in sizes)
    return sized and target.arch == "sm_90a" and elements in (bf16, f16)


def _is_shared(w: Window, axes: int) -> bool:
    """Whether loads can serve all taps of the last axes, and more taps than without the first."""
    return not axes or (w.kernel[3 - axes] > 1 and all(s == 1 for s in w.stride[3 - axes :]))


def _has_corners(problem: Problem, shared: int) -> bool:
    """Whether a tensor map can describe the pixels."""
    run, most = run_of(problem, shared), _OFFSETS[axes_of(problem)]
    return all(-most <= n < most for n in (*run.lower, *run.upper))


def _of_run(target: Target, problem: Problem, elements: DType, shared: int) -> Iterator[Tiles]:
    w, run, first = problem.window, run_of(problem, shared), 3 - axes_of(problem)
    depth = next((d for d in DEPTHS if d >= problem.channels), DEPTHS[-1])
    if problem.batch * prod(run.extents) > MOST_COUNT:
        return
    for down, across in SHAPES:
        for pixels in range(PIECE * 4, MOST_PIXELS + 1, PIECE):
            t = Tiles(
                *(w.kernel[first:], w.dilation[first:], w.stride[first:], w.before[first:]),
                *(run.extents, problem.results[first:], problem.batch),
                *(problem.channels, problem.filters, shared, down, across, pixels, depth),
                *(1, 1, False, elements),
            )
            if FILTERS * (down - 1) < problem.filters:
                made = (_filled(target, t), _in_parts(target, t))
                yield from (m for m in made if m is not None)


def _in_parts(target: Target, t: Tiles) -> Tiles | None:
    """Tiles whose channels several cubes share, where there are so few that most would be idle."""
    steps = t.chunks * t.windows * t.shifts
    parts = min(target.multiprocessors // count(t), steps // LEAST_STEPS, t.chunks)
    if parts < 2:
        return None
    share = -(-t.chunks // parts)
    return _filled(target, replace(t, parts=-(-t.chunks // share)))


def _filled(target: Target, t: Tiles) -> Tiles | None:
    """With as many stages as fit in shared memory; all weights where these do, and serve several
    tiles."""
    out = t.consumers * t.pixels * FILTERS * t.dtype.itemsize
    room = target.shared_bytes - _RESERVED - out
    load, step = t.rows * t.swizzle, FILTERS * t.down * t.swizzle
    taps = t.chunks * t.windows * t.shifts
    if t.run > MOST_RUN:
        return None
    if (
        t.parts == 1
        and t.columns == 1
        and taps <= 4 * MOST_STAGES
        and room >= taps * step + 2 * load
    ):
        loads = min(MOST_STAGES, (room - taps * step) // load)
        return replace(t, loads=loads, steps=taps, is_resident=True)
    for ahead in range(-(-MOST_STAGES // t.shifts) + 1, 1, -1):
        steps = (room - ahead * load) // step
        if steps >= min(ahead * t.shifts, MOST_STAGES // 2):
            return replace(t, loads=ahead, steps=min(steps, MOST_STAGES))
    return None


def duration(target: Target, t: Tiles) -> float:
    """The cycles of all waves."""
    steps = t.share * t.windows * t.shifts
    products = t.consumers * steps * (t.depth // 16)
    multiplied = products * FILTERS * t.pixels * 16 / FACTORS
    read = products * (FILTERS + t.pixels) * 16 * t.dtype.itemsize / READ
    weights = 0 if t.is_resident else steps * FILTERS * t.down * t.swizzle
    pixels = t.share * t.windows * t.run * t.swizzle
    copied = max((pixels + weights) / COPIED, pixels / (APART * t.columns))
    waves = -(-count(t) * t.parts // target.multiprocessors)
    begin_and_end = t.run * t.swizzle / APART + STORED * t.pixels
    if t.parts > 1:
        begin_and_end += JOIN + count(t) * t.parts * t.consumers * FILTERS * t.pixels * 8 / JOINED
    return waves * (max(EFFORT * multiplied, read, copied) + TILE) + begin_and_end


def count(t: Tiles) -> int:
    """Tiles in all."""
    pixels = t.batch * prod(t.extents)
    return -(-pixels // (t.pixels * t.across)) * t.columns


def divisions(target: Target, problem: Problem, elements: DType) -> list[Parts]:
    """All ways for the gradient of a convolution by its weights, the fastest first."""
    pixels = problem.batch * prod(problem.results)
    sizes = problem.channels, problem.filters
    served = _is_served(target, problem, elements, *sizes) and _has_corners(problem, 0)
    if not served or not 0 < pixels <= MOST_COUNT:
        return []
    w, first = problem.window, 3 - axes_of(problem)
    found = []
    for down, across in GRADIENT_SHAPES:
        for blocks in range(1, MOST_BLOCKS[down * across] + 1):
            t = Parts(
                *(w.kernel[first:], w.dilation[first:], w.stride[first:], w.before[first:]),
                *(problem.results[first:], problem.batch, problem.channels, problem.filters),
                *(down, across, blocks, 1, 1, elements),
            )
            stages = (target.shared_bytes - _RESERVED) // (BLOCK_BYTES * (down + t.width))
            for waves in range(1, MOST_WAVES + 1):
                parts = min(max(1, waves * target.multiprocessors // t.tiles), t.steps)
                found.append(replace(t, parts=parts, stages=min(stages, MOST_STAGES // 2)))
    found = [t for t in found if t.stages >= 2]
    return sorted(found, key=lambda t: gradient_duration(target, t))


def gradient_duration(target: Target, t: Parts) -> float:
    """The cycles of all waves, and of the sums that are written and read."""
    multiplied = t.consumers * SIDE * SIDE * t.blocks * SIDE / FACTORS
    apart = t.down * t.rows / t.tiles + t.width / t.rows
    copied = BLOCK_BYTES * max((t.down + t.width) / COPIED, apart / ALONE)
    read = t.consumers * (1 + t.blocks) * BLOCK_BYTES / READ
    waves = -(-t.tiles * t.parts // target.multiprocessors)
    steps = -(-t.steps // t.parts)
    sums = 2 * 4 * t.parts * t.filters * t.columns * SIDE if t.parts > 1 else 0
    end = STORED * t.blocks * SIDE
    step = max(EFFORT * multiplied, copied, read) + STEP
    return waves * (steps * step + end) + sums / SUMMED
