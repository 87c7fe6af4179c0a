"""Products on GPUs: which kernel makes them, what the autotuner may try, and their launches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from cubepy.array.memory import Memory
from cubepy.autotune.space import variants
from cubepy.jit.grid import Fixed, Over
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.matmul import waves
from cubepy.kernels.matmul.aligned import aligned, in_lines, is_rounded, is_worth_copies
from cubepy.kernels.matmul.fragments import Fragments, multiply_fragments
from cubepy.kernels.matmul.grids import (
    adders_for,
    choose_grid,
    copied_first,
    fragments,
    parts_for,
    tiles,
)
from cubepy.kernels.matmul.maps import boxes
from cubepy.kernels.matmul.pipelined import Pipelined, multiply_by_elements, multiply_pipelined
from cubepy.kernels.matmul.problem import COLUMNS, Problem, Product, turned
from cubepy.kernels.matmul.skinny import (
    launch_thin,
    launch_vectors,
    other_cuts,
    parts_of_long,
    skinny,
)
from cubepy.kernels.matmul.steps import add_many_parts
from cubepy.kernels.matmul.thin import Thin
from cubepy.kernels.matmul.tiles import Tiles, multiply_tiles
from cubepy.kernels.matmul.vectors import Vectors
from cubepy.lang.pipelines import ROWS as ROWS_OF_UNIT
from cubepy.lang.pipelines import box
from cubepy.targets import Target

OnGpus = Tiles | Fragments | Pipelined | Thin | Vectors


def choose(target: Target, problem: Problem) -> OnGpus:
    """The kernel for a problem, as its configuration."""
    found = skinny(target, problem) or waves.pipelined(target, problem)
    return found or choose_grid(target, problem)


def parts_of_k(target: Target, problem: Problem) -> int:
    """Into how many parts k is cut, whose sums are added behind."""
    t = choose(target, problem)
    if isinstance(t, Pipelined):
        return waves.parts_of_k(target, problem)
    if isinstance(t, Thin | Vectors):
        return parts_of_long(target, problem, t)
    return parts_for(target, problem, t)


def others(target: Target, first: OnGpus, problem: Problem) -> Mapping[str, OnGpus]:
    """Neighbours of a configuration, by what distinguishes them; all are right for the problem."""
    match first:
        case Tiles():
            return _others(first, tiles(target, problem))
        case Fragments():
            return _others(first, fragments(target, problem))
        case Pipelined():
            found = waves.varied(target, problem)
            return {text: t for text, t in found.items() if t != first}
        case Thin():
            cuts = other_cuts(target, problem)
            return {text: t for text, t in cuts.items() if t != first}
        case Vectors():
            return variants(first, {"loads": (1, 2, 4, 8)}, _vectors)


Grid = TypeVar("Grid", Tiles, Fragments)


def _others(first: Grid, candidates: Sequence[Grid]) -> dict[str, Grid]:
    """All but the first, by the extents of a cube and of a unit."""
    return {f"{t.height}x{t.width} of {t.rows}x{t.columns}": t for t in candidates if t != first}


def _vectors(first: Vectors, loads: int) -> Vectors:
    return replace(first, loads=loads)


def for_maps(planner: Planner, p: Product, problem: Problem) -> Product:
    """A product whose factors tensor maps can describe: copied, where that is worth it."""
    if not is_worth_copies(planner.target, problem):
        return p
    axes = (-1, -2) if is_rounded(problem) else (None, None)
    return replace(p, a=aligned(planner, p.a, axes[0]), b=aligned(planner, p.b, axes[1]))


def copied(planner: Planner, problem: Problem, p: Product, t: OnGpus) -> Product | None:
    """The product of factors that are copied before; None where it takes them as they are."""
    left, right = copied_first(problem, t)
    if not (left or right):
        return None
    a = turned(in_lines(planner, turned(p.a))) if left else p.a
    return replace(p, a=a, b=in_lines(planner, p.b) if right else p.b)


def launch(planner: Planner, problem: Problem, p: Product, t: OnGpus) -> None:
    """The launch of the kernel of a configuration."""
    if isinstance(t, Pipelined):
        launch_pipelined(planner, problem, p, t)
        return
    b = turned(p.b) if problem.right == COLUMNS else p.b
    finish = {"biases": p.biases, "extras": p.extras, "epilogue": p.epilogue}
    match t:
        case Tiles() | Fragments():
            count = -(-problem.m // t.height) * -(-problem.n // t.width) * problem.batches
            grid = Fixed((count, 1, 1), (t.units, 1, 1))
            kernel = multiply_tiles if isinstance(t, Tiles) else multiply_fragments
            a = turned(p.a) if problem.left == COLUMNS else p.a
            planner.launch(kernel, grid, a=a, b=b, out=p.out, **finish, t=t)
        case Thin():
            launch_thin(planner, problem, p.a, b, p.out, t, finish)
        case Vectors():
            launch_vectors(planner, problem, p.a, b, p.out, t, finish)


def launch_pipelined(planner: Planner, problem: Problem, p: Product, t: Pipelined) -> None:
    """One cube for each multiprocessor, if there are as many tiles."""
    a = turned(p.a) if t.left_turned else p.a
    b = p.b if t.right_turned else turned(p.b)
    clusters = min(planner.target.multiprocessors // t.cluster, waves.count(problem, t))
    cubes = clusters * t.cluster
    t = replace(t, has_bias_row=t.result.itemsize == 2 and any(map(is_row, p.biases)))
    kernel = multiply_by_elements if t.by_elements else multiply_pipelined
    planner.launch(
        kernel.configure(cubes_per_sm=1, cluster=t.cluster),
        Fixed((cubes, 1, 1), (t.units, 1, 1)),
        a=boxes(a, box(t.height, t.factors, t.left_turned)),
        b=boxes(b, box(t.width // t.cluster, t.factors, t.right_turned)),
        out=p.out if t.by_elements else boxes(p.out, (ROWS_OF_UNIT, t.chunk), t.out_swizzle),
        extents=p.out.shape,
        k=problem.k,
        biases=p.biases,
        extras=p.extras,
        epilogue=p.epilogue,
        t=t,
    )


def is_row(bias: Memory) -> bool:
    """Whether all rows of a matrix are the same memory."""
    return bias.shape[-2] == 1 or bias.strides[-2] == 0


def launch_sum_of_parts(
    planner: Planner, parts: Memory, rows: int, columns: int, added: Mapping[str, Any]
) -> None:
    """The launch that adds up products over parts of k; `added`: arguments of the kernel."""
    lines = rows * -(-columns // added["line"])
    share = adders_for(planner.target, lines, parts.shape[0])
    planes = -(-lines // (planner.target.plane_dim // share))
    units = Over(planes * planner.target.plane_dim, "unit", None)
    planner.launch(add_many_parts, units, parts=parts, **added, share=share)
