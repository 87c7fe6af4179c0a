"""What the autotuner may try in place of the configuration that the rule chose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from cubepy.autotune.space import anchor, variants
from cubepy.kernels.matmul.blocks import Blocks
from cubepy.kernels.matmul.narrow import Narrow
from cubepy.kernels.matmul.problem import Problem
from cubepy.kernels.matmul.split import Split
from cubepy.kernels.matmul.strategies import OnCpus, cuts, divide
from cubepy.kernels.matmul.streams import Dots, Streams
from cubepy.kernels.matmul.strips import Strips
from cubepy.kernels.matmul.units import PANEL, Units
from cubepy.targets import Target

if TYPE_CHECKING:
    from cubepy.kernels.matmul.on_gpus import OnGpus

_PANEL_AXES = {"depth": (0.25, 0.5, 1), "width": (0.5, 1, 2)}


def problem_key(problem: Problem) -> tuple[Any, ...]:
    """What problems that share a pick have in common: sizes within a factor of two, and kinds."""
    p = problem
    sizes = tuple(anchor(n) for n in (p.m, p.n, p.k, p.batches))
    kinds = (p.dtype, p.factors, p.sums, p.result, p.left, p.right, p.is_finished, p.precision)
    takes_boxes = p.dtype is not p.factors or p.precision is not None
    boxes = (p.has_boxes, p.has_factor_boxes) if takes_boxes else ()
    return (*sizes, *kinds, *boxes)


def others(
    target: Target, first: OnCpus | OnGpus, problem: Problem
) -> Mapping[str, OnCpus | OnGpus]:
    """Neighbours of a configuration, by what distinguishes them; all are right for the problem."""
    match first:
        case Streams():
            axes = {"lines": (1, 2, 4), "width": (0.5, 1, 2), "ahead": (0, first.steps)}
            return variants(first, axes, _streams)
        case Strips():
            return variants(first, {"lines": (1, 2, 4)}, lambda t, lines: replace(t, lines=lines))
        case Dots():
            shapes = [
                s for s in ((1, 8), (2, 4), (4, 4), (4, 6), (4, 2), (1, 4)) if s[0] <= problem.m
            ]
            return variants(first, {"rows, columns": shapes}, _dots)
        case Units():
            return _divided(target, problem, first, variants(first, _PANEL_AXES, _units))
        case Split():
            return _divided(target, problem, first, variants(first, _PANEL_AXES, _units))
        case Narrow():
            rows = [n for n in (2, 3, 4, 6, 8, 12) if n <= first.rows]
            return variants(first, {"rows": rows}, lambda t, rows: replace(t, rows=rows))
        case Blocks():
            axes = {"depth": (64, 128, 256, 384, 512), "width": (0.5, 1, 2, 4)}
            return _divided(target, problem, first, variants(first, axes, _blocks))
        case _:
            from cubepy.kernels.matmul import on_gpus  # of which calls on CPUs load nothing

            return on_gpus.others(target, first, problem)


Divided = TypeVar("Divided", Blocks, Units, Split)
Panels = TypeVar("Panels", Units, Split)


def _divided(
    target: Target, problem: Problem, first: Divided, found: dict[str, Divided]
) -> dict[str, Divided]:
    """Those, and others in how cubes are cut, that divide the very problem in another way than the
    first and than each other."""
    cut = variants(first, {"cut": cuts(target, problem)}, lambda t, cut: replace(t, cut=cut))
    seen, kept = {divide(target, problem, first)}, dict[str, Divided]()
    for text, t in (found | cut).items():
        division = divide(target, problem, t)
        if division not in seen:
            seen.add(division)
            kept[text] = t
    return kept


def _streams(first: Streams, lines: int, width: float, ahead: int) -> Streams:
    width = _rounded(int(first.width * width), first.line * lines)
    return replace(first, lines=lines, width=width, ahead=ahead)


def _dots(first: Dots, shape: tuple[int, int]) -> Dots:
    rows, columns = shape
    groups = -(-first.rows * first.groups // rows)
    width = _rounded(first.width, columns)
    return replace(first, rows=rows, groups=groups, columns=columns, width=width)


def _blocks(first: Blocks, depth: int, width: float) -> Blocks:
    """The width is a multiple of what the rule takes, for the depth: packed bytes stay alike."""
    columns = int(first.width * first.depth / depth * width)
    return replace(first, depth=depth, width=_rounded(columns, first.step))


def _units(first: Panels, depth: float, width: float) -> Panels:
    columns = int(first.width / depth * width)
    return replace(
        first,
        depth=_rounded(int(first.depth * depth), first.line),
        width=_rounded(columns, PANEL),
    )


def _rounded(n: int, step: int) -> int:
    return max(step, n // step * step)
