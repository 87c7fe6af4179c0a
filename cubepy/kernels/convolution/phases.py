"""Transposed convolutions as convolutions, phase by phase.

Results whose places are equal modulo the stride depend on the same taps, and on neighbouring
elements: each such phase is a convolution of stride 1 whose result lies with gaps. Phases that
begin at the same element are one convolution with as many times the filters, whose results are then
put between each other.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import gcd, prod

from cubepy.array.memory import Memory, contiguous_strides
from cubepy.kernels.calls.axes import Axis, in_order
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.convolution import strategies, waves
from cubepy.kernels.convolution.copies import copy_dense
from cubepy.kernels.convolution.gathered import ordered, writable
from cubepy.kernels.convolution.launches import Convolution, launch_convolution, launch_each
from cubepy.kernels.convolution.phase_epilogues import Finish, Places
from cubepy.kernels.convolution.problem import Window, triple
from cubepy.kernels.convolution.volumes import (
    VOLUME,
    has_channels_last,
    permuted,
    problem_of,
)
from cubepy.kernels.convolution.weights import Weights
from cubepy.kernels.elementwise.launches import launch_each as launch_elements
from cubepy.kernels.elementwise.launches import same
from cubepy.kernels.matmul.problem import is_dense
from cubepy.kernels.matmul.strategies import has_matrix_units, is_cpu
from cubepy.kernels.transposition.entry import copy_transposed
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """Results at `first`, `first` + stride, ... of an axis: the convolution of stride 1 with `taps`
    taps, from `last` on backwards in steps of `step`, that lie `dilation` elements apart, of which
    the first meets element `-before`."""

    first: int
    count: int
    taps: int
    last: int
    step: int
    dilation: int
    before: int


def phases(extent: int, taps: int, stride: int, before: int, dilation: int) -> list[Phase]:
    """The phases of an axis whose result has `extent` places."""
    found = []
    for first in range(min(stride, extent)):
        met = [t for t in range(taps) if (first + before - t * dilation) % stride == 0]
        last = met[-1] if met else 0
        found.append(
            Phase(
                first,
                -(-(extent - first) // stride),
                len(met),
                last,
                stride // gcd(stride, dilation),
                dilation // gcd(stride, dilation),
                -((first + before - last * dilation) // stride),
            )
        )
    return found


def _seeing(phase: Phase, extent: int) -> Phase:
    """A phase over an axis of so many elements: without taps where all windows lie outside, which
    matrix units would read."""
    seen = phase.count + (phase.taps - 1) * phase.dilation - phase.before
    return phase if -phase.before < extent and seen > 0 else replace(phase, taps=0)


def alike(found: list[Phase]) -> list[list[Phase]]:
    """The phases in runs: those of one follow each other, begin at the same element, and their taps
    lie equally far apart."""
    runs: list[list[Phase]] = []
    for phase in found:
        if runs and _goes_on(runs[-1], phase):
            runs[-1].append(phase)
        else:
            runs.append([phase])
    return runs


def _goes_on(run: list[Phase], phase: Phase) -> bool:
    last = run[-1]
    if replace(phase, first=last.first, last=last.last) != last:
        return False
    return len(run) == 1 or phase.last - last.last == last.last - run[-2].last


def launch_phases(
    planner: Planner,
    window: Window,
    groups: int,
    x: Memory,
    w: Memory,
    out: Memory,
    finish: Finish,
) -> None:
    """Fill `out` with a transposed convolution; arrays are [n, channel, depth, row, column], and
    `w` as it was given, [channel, filter of a group, ...]."""
    if 0 in out.shape:
        return
    volume, result = Weights(w, None).volume, out
    steps = zip(
        out.shape[2:], window.kernel, window.stride, window.before, window.dilation, strict=True
    )
    axes = zip((phases(*step) for step in steps), x.shape[2:], strict=True)
    runs = list(product(*(alike([_seeing(p, n) for p in axis]) for axis, n in axes)))
    has_cores = groups == 1 and waves.has_tensor_cores(planner.target, w.shape[:1], x.dtype)
    if has_cores:
        x = ordered(planner, x)
        if any(prod(map(len, run)) == 1 for run in runs):
            volume, out = ordered(planner, volume), writable(planner, result)
    weight = _filters_first(planner, volume, groups)
    alone: list[tuple[Phase, ...]] = []
    for run in runs:
        if groups == 1 and _is_one(run, weight, out, has_cores):
            _launch_run(planner, run, window, x, weight, out, finish, has_cores)
        else:
            alone += product(*run)
    if alone and groups == 1:
        weight = _filters_dense(planner, weight)
    for at in alone:
        _launch_phase(planner, at, window, groups, x, weight, out, finish)
    if out is not result:
        copy_transposed(planner, out, result)


def _filters_first(planner: Planner, w: Memory, groups: int) -> Memory:
    """Weights [channel, filter of a group, ...] as [filter, channel of a group, ...]."""
    each, filters = w.shape[0] // groups, w.shape[1]
    shape = (groups, filters, each, *w.shape[2:])
    strides = (each * w.strides[0], w.strides[1], w.strides[0], *w.strides[2:])
    if groups == 1 or filters == 1 or strides[0] == filters * strides[1]:
        step = strides[0] if filters == 1 else strides[1]
        return replace(w, shape=(groups * filters, *shape[2:]), strides=(step, *strides[2:]))
    made = planner.scratch(shape, w.dtype)
    if prod(shape):
        copy_dense(planner, replace(w, shape=shape, strides=strides), made)
    return replace(made, shape=(groups * filters, *shape[2:]), strides=made.strides[1:])


def _filters_dense(planner: Planner, w: Memory) -> Memory:
    """Weights [filter, channel, ...] as they are packed by lines: a copy of them tap by tap, with
    filters side by side, where taps lie so, of which phases read every other one or backwards."""
    target, size = planner.target, w.dtype.itemsize
    is_packed = is_cpu(target) and strategies.is_blocked(w.shape, 1)
    has_lines = any(is_dense(w, axis) and w.shape[axis] > 1 for axis in (0, 1))
    if not is_packed or has_lines or (size < 4 and has_matrix_units(target)):
        return w
    made = planner.scratch((*w.shape[2:], w.shape[1], w.shape[0]), w.dtype)
    made = permuted(made, (4, 3, 0, 1, 2))
    copy_transposed(planner, *(permuted(m, (2, 3, 4, 1, 0)) for m in (w, made)))
    return made


def _begins(run: tuple[list[Phase], ...]) -> tuple[Phase, ...]:
    """The first phase of each axis."""
    return tuple(axis[0] for axis in run)


def _is_one(run: tuple[list[Phase], ...], w: Memory, out: Memory, has_cores: bool) -> bool:
    """Whether a run of phases is one convolution: unless the copy of its weights would cost more
    than it saves, which tensor cores are fed by in any case."""
    if prod(map(len, run)) == 1:
        return False
    has_stride = len(in_order(_filters_of(run, w, has_channels_last(out)))) <= 1
    return has_cores or has_stride or prod(w.shape) <= prod(out.shape)


def _filters_of(run: tuple[list[Phase], ...], w: Memory, last: bool) -> list[Axis]:
    """The filters of all phases of a run: phases first where channels are `last` in the result,
    else phases of a filter beside each other, so that they come to lie so."""
    apart = (p[1].last - p[0].last if len(p) > 1 else 0 for p in run)
    axes = [Axis(len(p), (d * s,)) for p, d, s in zip(run, apart, w.strides[2:], strict=True)]
    own = Axis(w.shape[0], (w.strides[0],))
    return [*axes, own] if last else [own, *axes]


def _launch_run(
    planner: Planner,
    run: tuple[list[Phase], ...],
    window: Window,
    x: Memory,
    w: Memory,
    out: Memory,
    finish: Finish,
    has_cores: bool,
) -> None:
    """Phases of each axis that are alike: one convolution to memory of its own, with the filters of
    all, and a copy to their places."""
    first, numbers = _begins(run), tuple(map(len, run))
    last = has_channels_last(out)
    filters = prod(numbers) * out.shape[1]
    weight = _filters_of_run(planner, run, w, last, has_cores)
    shape = x.shape[0], *(p.count for p in first)
    if has_cores or last:
        made = permuted(planner.scratch((*shape, filters), out.dtype), VOLUME)
    else:
        made = planner.scratch((shape[0], filters, *shape[1:]), out.dtype)
    seen = _window_of(first, x)
    ends = tuple(_of_all_filters(planner, bias, numbers, last) for bias in finish.biases)
    problem = problem_of(seen, 1, x, made)
    places = Places(window.stride, numbers, out.shape[1], last)
    after = finish.of_phases(places, [p.first for p in first], made.shape)
    phase = Convolution(problem, x, Weights(weight, None), made, ends, *after)
    if seen.taps and x.shape[1]:
        launch_convolution(planner, phase)
    else:
        launch_each(planner, phase)
    _put_between(planner, made, _places_of(out, run, window), numbers, last)


def _filters_of_run(
    planner: Planner, run: tuple[list[Phase], ...], w: Memory, last: bool, has_cores: bool
) -> Memory:
    """Weights of all phases of a run: as they lie where one stride leads from filter to filter, or
    a copy."""
    seen = _taps_of(w, _begins(run))
    filters = _filters_of(run, w, last)
    count, found = prod(a.extent for a in filters), in_order(filters)
    if len(found) <= 1:
        stride = found[0].strides[0] if found else w.dtype.itemsize
        return replace(seen, shape=(count, *seen.shape[1:]), strides=(stride, *seen.strides[1:]))
    shape = (count, *seen.shape[2:], seen.shape[1]) if has_cores else (count, *seen.shape[1:])
    made = planner.scratch(shape, w.dtype)
    if has_cores:
        made = permuted(made, VOLUME)
    if prod(made.shape):
        extents = tuple(a.extent for a in filters)
        steps = contiguous_strides(extents, made.strides[0])
        inner = seen.shape[1:]
        copy_transposed(
            planner,
            replace(
                seen,
                shape=(*extents, *inner),
                strides=(*(a.strides[0] for a in filters), *seen.strides[1:]),
            ),
            replace(made, shape=(*extents, *inner), strides=(*steps, *made.strides[1:])),
        )
    return made


def _of_all_filters(planner: Planner, bias: Memory, numbers: tuple[int, ...], last: bool) -> Memory:
    """The biases of the filters of all phases."""
    count, own = prod(numbers), (bias.shape[0], bias.strides[0])
    pairs = ((count, 0), own) if last else (own, (count, 0))
    shape, strides = (tuple(p[k] for p in pairs) for k in range(2))
    made = planner.scratch((count * bias.shape[0],), bias.dtype)
    size = bias.dtype.itemsize
    dense = replace(made, shape=shape, strides=(shape[1] * size, size))
    launch_elements(planner, same, [replace(bias, shape=shape, strides=strides)], dense)
    return made


def _places_of(out: Memory, run: tuple[list[Phase], ...], window: Window) -> Memory:
    """The results of a run as [n, filter, depth phase, row phase, column phase, depth, row,
    column]."""
    first, steps = _begins(run), out.strides[2:]
    return replace(
        out,
        address=out.address + sum(p.first * s for p, s in zip(first, steps, strict=True)),
        shape=(*out.shape[:2], *map(len, run), *(p.count for p in first)),
        strides=(
            *out.strides[:2],
            *steps,
            *(s * n for s, n in zip(steps, window.stride, strict=True)),
        ),
    )


def _put_between(
    planner: Planner, made: Memory, places: Memory, numbers: tuple[int, ...], last: bool
) -> None:
    """Copy the results of all phases, whose filters are [phase, filter] or [filter, phase], to
    their places."""
    extents = (*numbers, places.shape[1]) if last else (places.shape[1], *numbers)
    steps = contiguous_strides(extents, made.strides[1])
    own, between = (steps[-1], steps[:-1]) if last else (steps[0], steps[1:])
    strides = (made.strides[0], own, *between, *made.strides[2:])
    copy_transposed(planner, replace(made, shape=places.shape, strides=strides), places)


def _launch_phase(
    planner: Planner,
    at: tuple[Phase, ...],
    window: Window,
    groups: int,
    x: Memory,
    w: Memory,
    out: Memory,
    finish: Finish,
) -> None:
    """One phase of each axis: its places of the result, and its taps."""
    result = replace(
        out,
        address=out.address + sum(p.first * s for p, s in zip(at, out.strides[2:], strict=True)),
        shape=(*out.shape[:2], *(p.count for p in at)),
        strides=(
            *out.strides[:2],
            *(s * n for s, n in zip(out.strides[2:], window.stride, strict=True)),
        ),
    )
    weight, seen = _taps_of(w, at), _window_of(at, x)
    problem = problem_of(seen, groups, x, result)
    after = finish.of_phases(Places(window.stride), [p.first for p in at], result.shape)
    phase = Convolution(problem, x, Weights(weight, None), result, finish.biases, *after)
    if seen.taps and x.shape[1]:
        launch_convolution(planner, phase)
    else:
        launch_each(planner, phase)


def _taps_of(w: Memory, at: tuple[Phase, ...]) -> Memory:
    """The weights [filter, channel, ...] of the taps of one phase of each axis."""
    return replace(
        w,
        address=w.address + sum(p.last * s for p, s in zip(at, w.strides[2:], strict=True)),
        shape=(*w.shape[:2], *(p.taps for p in at)),
        strides=(*w.strides[:2], *(-s * p.step for p, s in zip(at, w.strides[2:], strict=True))),
    )


def _window_of(at: tuple[Phase, ...], x: Memory) -> Window:
    """The window through which one phase of each axis sees the array."""
    behind = (
        p.count + (p.taps - 1) * p.dilation - p.before - n
        for p, n in zip(at, x.shape[2:], strict=True)
    )
    return Window(
        triple(tuple(p.taps for p in at)),
        (1, 1, 1),
        triple(tuple(p.before for p in at)),
        triple(tuple(behind)),
        triple(tuple(p.dilation for p in at)),
    )
