"""What convolutions do on processors with matrix units alone."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.ir.types import DType
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.convolution import unit_strategies
from cubepy.kernels.convolution.launches import Convolution, source_of
from cubepy.kernels.convolution.packing import CHANNEL_AXIS, Packing
from cubepy.kernels.convolution.split import SplitPacking, convolve_split, pack_split_weights
from cubepy.kernels.convolution.split_runs import RunPacking, convolve_runs, pack_runs
from cubepy.kernels.convolution.unit_runs import UnitRunPacking, convolve_unit_runs
from cubepy.kernels.convolution.units import convolve_units
from cubepy.kernels.convolution.volumes import channels_last
from cubepy.kernels.convolution.weights import pack_lines
from cubepy.kernels.matmul.units import ROW_BYTES
from cubepy.kernels.transposition.entry import copy_transposed
from cubepy.targets import Target

UnitPacking = Packing | SplitPacking | RunPacking | UnitRunPacking


def packing_of(
    target: Target, shape: tuple[int, ...], groups: int, dtype: DType, is_kept: bool
) -> UnitPacking | None:
    """Panels for matrix units, of f32 only where they are kept for many calls; None where products
    are too few."""
    found = unit_strategies.unit_packing(target, shape, groups, dtype)
    if found is None and is_kept:
        return unit_strategies.split_packing(target, shape, groups, dtype)
    return found


def pack(planner: Planner, w: Memory, panels: Memory, p: UnitPacking) -> None:
    """Fill panels of one group with weights [filter, channel, depth, row, column]."""
    cubes = p.panels(w.shape[0]) * p.parts(w.shape[1])
    match p:
        case SplitPacking():
            planner.launch(pack_split_weights, cubes, weight=w, panels=in_rows(panels), t=p)
        case RunPacking():
            planner.launch(pack_runs, cubes, weight=w, panels=in_rows(panels), t=p)
        case UnitRunPacking():
            pack_lines(planner, _in_runs(planner, w, p), panels, 1, CHANNEL_AXIS, p.packing)


def launch(planner: Planner, c: Convolution, p: UnitPacking, panels: Memory) -> None:
    """Multiply what was packed."""
    problem, more = c.problem, dict[str, int]()
    t: Any
    match p:
        case SplitPacking():
            kernel, t = convolve_split, unit_strategies.split_bands(planner.target, problem, p)
            more = {"strip": t.strip}
        case RunPacking():
            kernel, t = convolve_runs, unit_strategies.split_runs(planner.target, problem, p)
        case UnitRunPacking():
            kernel, t = convolve_unit_runs, unit_strategies.unit_runs(planner.target, problem, p)
        case Packing():
            kernel, t = convolve_units, unit_strategies.unit_bands(planner.target, problem, p)
            more = {"groups": problem.groups, "strip": t.strip, "blocks": t.blocks}
    strips = -(-problem.results[2] // more.get("strip", problem.results[2]))
    shares = problem.groups * -(-p.panels(problem.group_filters) // t.panels)
    planner.launch(
        kernel,
        problem.batch * problem.results[0] * -(-problem.results[1] // t.band) * strips * shares,
        x=source_of(c.x, t),
        panels=in_rows(panels),
        out=channels_last(c.out) if t.puts_channels_last else c.out,
        band=t.band,
        panels_each=t.panels,
        t=t.compiled,
        **more,
        **c.beside,
    )


def _in_runs(planner: Planner, w: Memory, p: UnitRunPacking) -> Memory:
    """A copy of weights [filter, channel, depth, row, column] as [filter, depth, row, 1, element of
    a run]."""
    w = channels_last(w)
    dense = planner.scratch(w.shape, w.dtype)
    copy_transposed(planner, w, dense)
    shape, strides = (*w.shape[:3], 1, p.run), (*dense.strides[:3], 0, w.dtype.itemsize)
    return replace(dense, shape=shape, strides=strides)


def in_rows(panels: Memory) -> Memory:
    """Panels as rows of 64 bytes."""
    size = panels.dtype.itemsize
    row = ROW_BYTES // size
    shape = (prod(panels.shape) // row, row)
    return replace(panels, shape=shape, strides=(ROW_BYTES, size))
