"""Attention of sequences of different lengths by the tensor cores of planes, as in `fragments`.

Heads that share keys are rows of one tile, as in `ragged`, and `dealing` says which steps of which
tiles a cube makes. Rows are copied one by one, so that pages need no more than another address.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.dealing import (
    Cursor,
    after,
    cursor,
    first_of,
    note_makers,
    tile_at,
)
from cubepy.kernels.attention.fragments import (
    attend_tile,
    finish,
    finish_part,
    lanes_of,
    memory_of,
    shared_parts,
)
from cubepy.kernels.attention.problem import Fragments, Sequences
from cubepy.kernels.attention.ragged import seen_by
from cubepy.kernels.attention.rows import Packed, PackedPages
from cubepy.kernels.attention.tiles import whole_steps


@cp.cube
def attend_ragged_fragments(
    q: cp.Tensor,
    k: cp.Tensor,
    v: cp.Tensor,
    out: cp.Tensor,
    parts: Any,
    marks: Any,
    extents: tuple[cp.i32, cp.i32, cp.i32],
    window: Any,
    scale: cp.f32,
    t: cp.Comptime[Fragments],
    r: cp.Comptime[Sequences],
) -> None:
    """All arrays are [tokens, heads, elements]; pages follow each other. The other operands are
    those of `ragged.attend_ragged`."""
    memory, held, g = memory_of(t), shared_parts(t), lanes_of(scale, t)
    at = agreed(first_of(marks, extents, window, t, r), cp.shared(7, cp.i32))
    while at.now < at.end:
        tile = tile_at(at, marks, extents, window, t, r)
        if tile.is_there:
            attend((q, k, v, out), parts, marks, memory, held, g, tile, scale, t, r)
            if t.is_split and cp.UNIT_POS == 0:
                note_makers(parts[2], at, tile, extents[1])
        at = after(at, tile, t)


def agreed(at: Cursor, memory: Any) -> Cursor:
    """What planes counted, each for itself, as one number for the cube, which barriers ask for."""
    numbers = at.now, at.end, at.start, at.slot, at.within, at.total, at.teams
    if cp.UNIT_POS == 0:
        for n in cp.unroll(range(7)):
            memory[n] = numbers[n]
    cp.sync_cube()
    found: Any = tuple(memory[n] for n in range(7))
    return cursor(*found)


def attend(
    arrays: Any,
    parts: Any,
    marks: Any,
    memory: Any,
    held: Any,
    g: Any,
    tile: Any,
    scale: Any,
    t: Any,
    r: Any,
) -> None:
    """One tile, or a part of its keys."""
    q, k, v, out = arrays
    first, count = tile.first * r.packed, tile.queries * r.packed
    x, result = (Packed(m, tile.row, tile.head * r.packed, r.packed, count) for m in (q, out))
    rows = x, keys_of(k, tile, marks, r), keys_of(v, tile, marks, r)
    high = t.height // r.packed
    low, end = whole_steps(tile.first, high, tile.begin, tile.keys, tile.window, t)
    steps = tile.begin, low, end, tile.end
    seen = tuple(seen_by(tile, g.block(n), scale, t, r) for n in range(t.rows))
    sums, state = attend_tile(rows, memory, g, seen, first, steps, t)
    if t.is_split and tile.part >= 0:
        finish_part(parts, (tile.part, 0), held, g, sums, state, count - first, t)
    else:
        finish((result, ()), held, g, sums, state, first, t)


def keys_of(x: Any, tile: Any, marks: Any, r: Any) -> Any:
    """The keys or values of a tile's sequence and head."""
    head = tile.head * r.packed // r.group
    if r.page:
        return PackedPages(x, marks[2][0][tile.sequence], head, r.page, tile.keys)
    return Packed(x, tile.key_row, head, 1, tile.keys)
