"""Attention on CPUs without matrix units: a cube for some queries of a head, of one unit."""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.few import attend_few
from cubepy.kernels.attention.problem import Few, Strips
from cubepy.kernels.attention.rows import Rows, band_at
from cubepy.kernels.attention.strips import attend_band
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen


@cp.cube
def attend_strips(
    q: cp.Tensor,
    k: cp.Tensor,
    v: cp.Tensor,
    out: cp.Tensor,
    logs: Any,
    masks: Any,
    window: Any,
    scale: float,
    t: cp.Comptime[Strips],
) -> None:
    """A cube for `t.height` queries of each head: `q` is [..., queries, size], `k` [..., keys,
    size], `v` [..., keys, width], masks [..., queries, keys]; `logs`: perhaps what the logarithms
    of the sums of exponentials are stored to, [..., queries]. `window`: see `window.seen_from`."""
    bands = (out.shape[out.rank - 2] + t.height - 1) // t.height
    where = unravelled(cp.CUBE_POS // bands, out.shape[: out.rank - 2])
    first = cp.CUBE_POS % bands * t.height
    rows = Rows(chosen(k, where)), Rows(chosen(v, where))
    arrays = chosen(q, where), *rows, chosen(out, where)
    beside = tuple(chosen(m, where) for m in logs), tuple(chosen(m, where) for m in masks)
    attend = attend_few if isinstance(t, Few) else attend_band
    attend(arrays, first, beside, window, scale, t)


@cp.cube
def attend_ragged_strips(
    q: cp.Tensor,
    k: cp.Tensor,
    v: cp.Tensor,
    out: cp.Tensor,
    marks: Any,
    window: Any,
    scale: float,
    t: cp.Comptime[Strips],
    is_guarded: cp.Comptime[bool],
) -> None:
    """A cube for a slot of `t.height` queries of each head, see `rows.band_at`: `q` is [tokens,
    heads, size] or [sequences, tokens, heads, size], `k` [tokens, heads, size] or [pages, tokens,
    heads, size]."""
    heads = out.shape[out.rank - 2]
    slot, head = cp.CUBE_POS // heads, cp.CUBE_POS % heads
    band = band_at(slot, head, (q, k, v, out), marks, window, t.height, is_guarded)
    arrays, first, reach, is_sound = band
    if is_sound and first < arrays[0].shape[0]:
        attend = attend_few if isinstance(t, Few) else attend_band
        attend(arrays, first, ((), ()), reach, scale, t)
