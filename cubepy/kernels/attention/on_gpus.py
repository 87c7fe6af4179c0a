"""Launches of attention on GPUs, whose kernels are loaded where there is one."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from cubepy.array.memory import Memory
from cubepy.ir.types import f32
from cubepy.jit.grid import Fixed
from cubepy.kernels.attention.boxes import Boxed
from cubepy.kernels.attention.fragments import attend_fragments
from cubepy.kernels.attention.parts import MOST_JOINING, join_parts
from cubepy.kernels.attention.problem import CLUSTER, Fragments, Order, Squares, Warpgroups
from cubepy.kernels.attention.squares import attend_squares
from cubepy.kernels.attention.views import pieces
from cubepy.kernels.attention.warpgroups import attend_warpgroups
from cubepy.kernels.calls.plans import Planner
from cubepy.lang.pipelines import ROWS, WARPGROUP


def launch_boxes(
    planner: Planner,
    boxes: Boxed,
    t: Warpgroups,
    dealt: Order,
    window: tuple[int, ...],
    scale: float,
) -> None:
    """One cube for each multiprocessor, if there are as many tiles or parts."""
    cubes = min(planner.target.multiprocessors, dealt.cubes)
    parts = () if t.is_clustered else _scratch(planner, dealt, t)
    planner.launch(
        attend_warpgroups.configure(cluster=CLUSTER if t.is_clustered else None),
        Fixed((cubes, 1, 1), ((t.consumers + 1) * WARPGROUP, 1, 1)),
        q=pieces(boxes.q, t.height),
        k=pieces(boxes.k, t.keys),
        v=pieces(boxes.v, t.keys),
        out=pieces(boxes.out, ROWS),
        wide=(boxes.out,) if t.is_clustered or not t.result_pieces else (),
        parts=parts,
        **_common(boxes, dealt, window, scale),
        t=t,
    )
    _join(planner, boxes, parts, dealt)


def launch_fragments(
    planner: Planner,
    boxes: Boxed,
    t: Fragments,
    dealt: Order,
    window: tuple[int, ...],
    scale: float,
) -> None:
    """A cube for each tile or part."""
    parts = _scratch(planner, dealt, t)
    planner.launch(
        attend_fragments,
        Fixed((dealt.cubes, 1, 1), (t.units, 1, 1)),
        q=boxes.q,
        k=boxes.k,
        v=boxes.v,
        out=boxes.out,
        parts=parts,
        **_common(boxes, dealt, window, scale),
        t=t,
    )
    _join(planner, boxes, parts, dealt)


def _common(boxes: Boxed, dealt: Order, window: tuple[int, ...], scale: float) -> dict[str, Any]:
    """What kernels of tiles take alike."""
    return {
        "logs": () if boxes.log is None else (boxes.log,),
        "masks": () if boxes.mask is None else (boxes.mask,),
        "extents": boxes.extents,
        "shared": boxes.shared,
        "order": dealt.numbers,
        "window": tuple(map(np.int32, window)),
        "scale": scale,
    }


def _scratch(planner: Planner, dealt: Order, t: Warpgroups | Fragments) -> tuple[Memory, ...]:
    """Memory for results over parts of the keys, if there are any, and for their sizes."""
    if not t.is_split:
        return ()
    rows = dealt.parts, dealt.tiles, t.height
    return planner.scratch((*rows, t.width), f32), planner.scratch((*rows, 2), f32)


def _join(planner: Planner, boxes: Boxed, parts: tuple[Memory, ...], dealt: Order) -> None:
    """Make results of parts, if there are any."""
    if parts:
        results, sizes = parts
        *rows, width = boxes.out.shape
        units = min(MOST_JOINING, -(-width // planner.target.plane_dim) * planner.target.plane_dim)
        common: dict[str, Any] = {"results": results, "sizes": sizes, "out": boxes.out}
        common["logs"] = () if boxes.log is None else (boxes.log,)
        common |= {"order": dealt.numbers, "height": results.shape[2]}
        grid = Fixed((prod(rows), 1, 1), (units, 1, 1))
        planner.launch(join_parts, grid, line_size=None, **common)


def launch_squares(planner: Planner, cubes: int, common: dict[str, Any], t: Squares) -> None:
    """A cube of units for each square of queries and elements."""
    grid = Fixed((cubes, 1, 1), (t.side * t.side, 1, 1))
    planner.launch(attend_squares, grid, **common)
