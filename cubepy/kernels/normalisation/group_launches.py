"""The launches of norms of groups of channels that lie side by side, on CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from cubepy.array.memory import Memory
from cubepy.kernels.calls.axes import Axis, merged, seen
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.calls.plans import Planner
from cubepy.kernels.normalisation.groups import group_parts, join_groups, normalise_groups
from cubepy.kernels.normalisation.launches import Norm
from cubepy.kernels.normalisation.problem import Places
from cubepy.kernels.normalisation.strategies import pixel_groups

LEAST_GROUPED = 1 << 12
"""Elements from which on three launches cost less than lines that are not full."""
WIDE_GROUP = 4
"""Lines of channels that make a group fill lines by itself."""


def is_beside(planner: Planner, n: Norm, groups: int) -> bool:
    """Whether lines of pixels hold channels of several groups, and that is worth it; `n` has the
    axes [item, channel, ...]."""
    x, channels = n.x, n.x.shape[1]
    if is_wide(planner.target) or groups < 2 or prod(x.shape) < LEAST_GROUPED:
        return False
    line = max(1, planner.target.line_bytes // n.dtype.itemsize)
    dense = all(m.strides[1] == m.dtype.itemsize for m in (x, n.out))
    others = [k for k in range(2, len(x.shape)) if x.shape[k] > 1]
    apart = all(abs(x.strides[k]) > x.strides[1] for k in others)
    return dense and apart and bool(others) and channels // groups < WIDE_GROUP * line


def launch_groups(planner: Planner, n: Norm, groups: int) -> None:
    """Moments of each channel of parts of the pixels, those of its group, and then the norm."""
    axes, places = _arranged(n)
    x, out = seen(n.x, axes), seen(n.out, axes, 1)
    items, channels, pixels = x.shape[0], x.shape[-1], prod(x.shape[1:-1])
    t = pixel_groups(planner.target, n.dtype, x, channels // groups)
    t = replace(t, prologue=n.prologue)
    parts = -(-pixels // t.part)
    means, spreads = (planner.scratch((items, parts, channels), n.dtype) for _ in range(2))
    mean, scale = (planner.scratch((items, channels), n.dtype) for _ in range(2))
    planner.launch(group_parts, items * parts, x=x, means=means, spreads=spreads, t=t)
    planner.launch(
        join_groups,
        items,
        means=means,
        spreads=spreads,
        mean=mean,
        scale=scale,
        pixels=pixels,
        eps=n.eps,
        t=t,
    )
    planner.launch(
        normalise_groups,
        items * -(-pixels // t.band),
        x=x,
        mean=mean,
        scale=scale,
        weight=tuple(map(_of_channels, n.weights)),
        bias=tuple(map(_of_channels, n.biases)),
        out=out,
        extras=n.extras,
        epilogue=n.epilogue,
        places=places,
        t=t,
    )


def _of_channels(m: Memory) -> Memory:
    return seen(m, [Axis(m.shape[1], (m.strides[1],))])


def _arranged(n: Norm) -> tuple[Sequence[Axis], Places]:
    """The axis of items, those of pixels from the slowest to the fastest, and the channels; as few
    as there can be, or each for itself where an epilogue asks for an index."""
    own = [
        Axis(extent, (a, b))
        for extent, a, b in zip(n.x.shape, n.x.strides, n.out.strides, strict=True)
    ]
    pixels = range(2, len(own))
    if n.epilogue is None:
        return [own[0], *merged([own[k] for k in pixels]), own[1]], Places()
    walked = [0, *sorted(pixels, key=lambda k: -abs(n.x.strides[k])), 1]
    terms = tuple(((walked.index(k), 1),) for k in range(len(own)))
    return [own[k] for k in walked], Places(terms)
