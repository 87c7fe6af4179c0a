"""Max pooling of images against torch, and against the best copy of as many bytes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bench import peers, reference
from bench.arrays import make_empty, make_random
from bench.rows.bandwidth import COPIES, find_copies
from bench.suite import OURS, Case, Claim, Contender, Row, only_present

GROUP, ALIGNMENT = "max_pool2d", "max_pool2d alignment"
SHAPES = ((2, 32, 512, 512), (2, 128, 512, 512))
SMALL = (2, 2, 66, 512)  # wide rows, because kernels may be made for a width
OF_COPY, OF_ALIGNED, CHANNELS_LAST = 0.9, 0.8, 3.5
ALIGNED = "aligned"  # the way in which the problem without `less` and `offset` is solved


@dataclass(frozen=True, slots=True)
class Window:
    """Kernel size, stride and padding, and how many times torch's speed we want on NCHW."""

    kernel: int
    stride: int
    padding: int
    floor: float

    def __str__(self) -> str:
        return f"{self.kernel}x{self.kernel}/{self.stride}/{self.padding}"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """As torch's functions take them."""
        return self.kernel, self.stride, self.padding

    def out_extent(self, extent: int) -> int:
        """How many windows fit along an axis."""
        return (extent + 2 * self.padding - self.kernel) // self.stride + 1


WINDOWS = (Window(3, 1, 1, 40), Window(3, 2, 1, 20), Window(2, 2, 0, 14))


@dataclass(frozen=True, slots=True)
class Problem:
    """A pooling of one array; `less` takes columns off the width, `offset` unaligns the start."""

    shape: tuple[int, ...]
    window: Window
    less: int = 0
    offset: int = 0
    is_channels_last: bool = False

    def __str__(self) -> str:
        return f"{'x'.join(map(str, self.shape))} {self.window}"

    def in_shape(self, small: bool) -> tuple[int, int, int, int]:
        """NCHW, whatever the order in memory."""
        n, c, height, width = SMALL if small else self.shape
        return n, c, height, width - self.less

    def out_shape(self, small: bool) -> tuple[int, int, int, int]:
        """NCHW."""
        n, c, height, width = self.in_shape(small)
        return n, c, self.window.out_extent(height), self.window.out_extent(width)

    def make_arrays(self, small: bool) -> tuple[np.ndarray, np.ndarray]:
        """Input and output, both seen as NCHW."""
        shapes = self.in_shape(small), self.out_shape(small)
        if not self.is_channels_last:
            return make_random(shapes[0], offset=self.offset), make_empty(shapes[1])
        n_hwc = [(n, h, w, c) for n, c, h, w in shapes]
        x, out = make_random(n_hwc[0]), make_empty(n_hwc[1])
        return x.transpose(0, 3, 1, 2), out.transpose(0, 3, 1, 2)


def rows() -> Iterator[Row]:
    """All shapes and windows in both orders; then what widths and addresses change."""
    for problem in _problems():
        yield Row(GROUP, str(problem), partial(_make_against_peers, problem))
        last = replace(problem, is_channels_last=True)
        yield Row(GROUP, f"{problem} channels last", partial(_make_against_peers, last))
    for problem in _problems():
        for less in (1, 3):
            label = f"{problem} width {problem.shape[-1] - less}"
            make = partial(_make_against_aligned, replace(problem, less=less))
            yield Row(ALIGNMENT, label, make)
        make = partial(_make_against_aligned, replace(problem, offset=1))
        yield Row(ALIGNMENT, f"{problem} unaligned", make)


def _problems() -> list[Problem]:
    return [Problem(shape, window) for shape in SHAPES for window in WINDOWS]


def _make_against_peers(problem: Problem, small: bool) -> Case:
    x, out = problem.make_arrays(small)
    nbytes = x.nbytes + out.nbytes
    contenders = [
        *_ours(problem, x, out),
        *_torch(problem, x, out),
        _numba(problem, x, out),
        *find_copies(nbytes),
    ]
    last = problem.is_channels_last
    floor = CHANNELS_LAST if last else problem.window.floor
    # torch's out= is no public function; on channels last it is as fast as memory by itself, so
    # that the floor, which was measured beside the public one, holds for returned results.
    claims = [
        Claim("out", "cubepy out", ("torch out",), None if last else floor),
        Claim("returned", "cubepy returned", ("torch returned",), floor),
        Claim("roof", "cubepy out", COPIES, OF_COPY, is_rate=True),
    ]
    return Case(only_present(contenders), claims, _reference(problem, x))


def _make_against_aligned(problem: Problem, small: bool) -> Case:
    aligned = Problem(problem.shape, problem.window)
    base, base_out = aligned.make_arrays(small)
    x, out = problem.make_arrays(small)
    contenders = [*_ours(problem, x, out), *_ours(aligned, base, base_out, ALIGNED)]
    claims = [Claim("relative", "cubepy out", ("cubepy aligned",), OF_ALIGNED, is_rate=True)]
    return Case(only_present(contenders), claims, _reference(problem, x))


def _reference(problem: Problem, x: np.ndarray) -> Any:
    return lambda: reference.max_pool2d(x, *problem.window.sizes)


def _ours(
    problem: Problem, x: np.ndarray, out: np.ndarray, only: str | None = None
) -> list[Contender]:
    """Both ways; or, named `only`, the one that is given its result."""
    pool = peers.find_prebuilt("max_pool2d")
    if pool is None:
        return []
    sizes, nbytes = problem.window.sizes, x.nbytes + out.nbytes
    given = Contender(
        OURS,
        lambda: pool(x, *sizes, out=out),
        only or "out",
        nbytes,
        result=lambda: out,
        reference=_reference(problem, x),
    )
    if only or problem.less or problem.offset:
        return [given]
    return [given, Contender(OURS, lambda: pool(x, *sizes), "returned", nbytes)]


def _torch(problem: Problem, x: np.ndarray, out: np.ndarray) -> list[Contender]:
    """`max_pool2d`, and what it calls, which takes `out=` for values and indices."""
    torch = peers.find("torch")
    if torch is None:
        return []
    (kernel, stride, padding), nbytes = problem.window.sizes, x.nbytes + out.nbytes
    source, values = peers.as_torch(x), peers.as_torch(out)
    indices = torch.empty_like(values, dtype=torch.int64)  # keeps the order of the axes
    pool = torch.ops.aten.max_pool2d_with_indices.out

    def call_out() -> None:
        pool(source, [kernel] * 2, [stride] * 2, [padding] * 2, out=values, indices=indices)

    def call_returned() -> Any:
        return torch.nn.functional.max_pool2d(source, kernel, stride, padding)

    return [
        Contender("torch", call_out, "out", nbytes, result=lambda: out),
        Contender("torch", call_returned, "returned", nbytes),
    ]


def _numba(problem: Problem, x: np.ndarray, out: np.ndarray) -> Contender | None:
    if problem.is_channels_last or not peers.find("numba"):
        return None
    from bench import numba_kernels

    sizes, nbytes = problem.window.sizes, x.nbytes + out.nbytes
    return Contender(
        "numba",
        lambda: numba_kernels.max_pool2d(x, *sizes, out),
        "out",
        nbytes,
        result=lambda: out,
    )
