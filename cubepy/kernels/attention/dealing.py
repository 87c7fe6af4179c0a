"""Which tiles of sequences of different lengths, or which of their steps of keys, a cube makes.

A tile has some queries of a head of a sequence, see `rows.sequence_at`. Many tiles are made by
turns. Few are dealt out by the steps of their keys: each team of cubes, of which one has a head,
makes an equal share of all steps in a row, however they are spread over sequences (as "Stream-K"
deals out products of matrices; Osama et al., 2023). So cubes that run at the same time read the
same rows of memory, which have the keys of all heads. Results over a part of the keys are noted,
and joined behind; a cube has two such parts at most, of its first and of its last tile.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.attention.rows import sequence_at, shifted
from cubepy.kernels.attention.tiles import begin_of_share, maker
from cubepy.kernels.attention.window import steps_within
from cubepy.record import dataclass

LEAST_STEPS = 4
"""Steps of keys of a share at least, unless there are fewer."""


@dataclass(frozen=True, slots=True)
class Tile:
    """Some queries of a head of a sequence: the sequence, the head, the first query, the row of the
    sequence's first query and how many it has; the same of its keys; the window; the steps of keys
    that the cube makes, of how many that some queries see; and the part they are, -1 if all."""

    sequence: Any
    head: Any
    first: Any
    row: Any
    queries: Any
    key_row: Any
    keys: Any
    window: Any
    begin: Any
    end: Any
    steps: Any
    part: Any

    @property
    def is_there(self) -> Any:
        """Whether the slot has any queries."""
        return self.first < self.queries


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where a cube is: its next turn, or step among those of all tiles of a head, and the one
    behind its last. Of steps also the first, the slot, the step of the tile, and how many steps
    there are of how many teams."""

    now: Any
    end: Any
    start: Any
    slot: Any
    within: Any
    total: Any
    teams: Any


def cursor(
    now: Any, end: Any, start: Any, slot: Any, within: Any, total: Any, teams: Any
) -> Cursor:
    """One of 32-bit numbers."""
    steps = cp.i32(now), cp.i32(end), cp.i32(start)
    return Cursor(*steps, cp.i32(slot), cp.i32(within), cp.i32(total), cp.i32(teams))


def first_of(marks: Any, extents: Any, window: Any, t: Any, r: Any) -> Cursor:
    """Where a cube begins."""
    cubes, cube = cp.i32(cp.CUBE_COUNT), cp.i32(cp.CUBE_POS)
    if not t.is_split:
        count = (extents[0] * extents[1] - cube + cubes - 1) // cubes
        return cursor(0, count, 0, 0, 0, 0, 0)
    total = counted(marks, extents, window, FAR_STEPS, t, r)[1]
    teams, team = max(1, min(cubes // extents[1], total // LEAST_STEPS)), cube // extents[1]
    begin, end = share(team, total, teams), share(team + 1, total, teams)
    slot, before = counted(marks, extents, window, begin, t, r)
    return cursor(begin, end, begin, slot, begin - before, total, teams)


FAR_STEPS = (1 << 31) - 1


def share(team: Any, total: Any, teams: Any) -> Any:
    """The first step of a team."""
    return cp.i32(begin_of_share(cp.u32(min(team, teams)), *least_of(total, teams)))


def team_of(step: Any, total: Any, teams: Any) -> Any:
    """The team that makes a step."""
    return cp.i32(maker(cp.u32(step), *least_of(total, teams)))


def least_of(total: Any, teams: Any) -> Any:
    """The steps of a team, and how many teams, the first, have one more."""
    least = cp.u32(total) // cp.u32(teams)
    return least, cp.u32(total) - least * cp.u32(teams)


def counted(marks: Any, extents: Any, window: Any, most: Any, t: Any, r: Any) -> Any:
    """How many slots have no step behind the first `most`, and their steps; by a plane."""
    lane, slot, before, seen = cp.i32(cp.UNIT_POS_PLANE), cp.i32(0), cp.i32(0), cp.i32(0)
    for first in range(0, extents[0], cp.PLANE_DIM):
        own, steps = cp.i32(first) + lane, cp.i32(0)
        if own < extents[0]:
            steps = steps_of(own, marks, extents, window, t, r)
        so_far = seen + cp.plane_inclusive_sum(steps)
        is_before = own < extents[0] and so_far <= most
        slot += cp.plane_sum(cp.i32(1) if is_before else cp.i32(0))
        before += cp.plane_sum(steps if is_before else cp.i32(0))
        seen += cp.plane_sum(steps)
    return slot, before


def band_of(slot: Any, marks: Any, extents: Any, window: Any, t: Any, r: Any) -> Any:
    """Of a slot what a `Tile` has from its sequence to its steps, but the head."""
    starts, ends, tables = marks
    count = t.height // r.packed
    if len(starts):
        s, first = sequence_at(slot, starts[0], count)
        row = cp.i32(starts[0][s])
        queries = cp.i32(starts[0][s + 1]) - row
    else:
        bands = (extents[2] + count - 1) // count
        s, first, queries = slot // bands, slot % bands * count, extents[2]
        row = s * queries
    if len(tables):
        key_row, keys = cp.i32(0), cp.i32(ends[s])
    else:
        key_row = cp.i32(ends[s])
        keys = cp.i32(ends[s + 1]) - key_row
    reach = shifted(window, queries, keys)
    begin, end = steps_within(cp.i32(first), count, keys, reach, t)
    return cp.i32(s), cp.i32(first), row, queries, key_row, keys, reach, begin, end


def steps_of(slot: Any, marks: Any, extents: Any, window: Any, t: Any, r: Any) -> Any:
    """How many steps of keys a slot has."""
    band = band_of(slot, marks, extents, window, t, r)
    return cp.i32(band[8] - band[7]) if band[1] < band[3] else cp.i32(0)


def tile_at(at: Cursor, marks: Any, extents: Any, window: Any, t: Any, r: Any) -> Tile:
    """The tile where a cube is; by turns the last slots come first, as they see the most keys."""
    slot, head = at.slot, cp.i32(cp.CUBE_POS) % extents[1]
    if not t.is_split:
        place = at.now * cp.i32(cp.CUBE_COUNT) + cp.i32(cp.CUBE_POS)
        place = extents[0] * extents[1] - 1 - place
        slot, head = place // extents[1], place % extents[1]
    band = band_of(slot, marks, extents, window, t, r)
    begin, end, part = band[7], band[8], cp.i32(-1)
    own, last = begin, end
    if t.is_split:
        own = begin + at.within
        last = min(end, own + at.end - at.now)
        if at.within > 0 or last < end:
            part = 2 * cp.i32(cp.CUBE_POS) + (0 if at.now == at.start else 1)
    numbers: Any = band[0], head, *band[1:7], own, last, end - begin, part
    return Tile(*numbers)


def after(at: Cursor, tile: Tile, t: Any) -> Cursor:
    """Where a cube is behind a tile."""
    rest = at.total, at.teams
    if not t.is_split:
        return cursor(at.now + 1, at.end, at.start, at.slot, at.within, *rest)
    made = tile.end - tile.begin if tile.is_there else cp.i32(0)
    return cursor(at.now + made, at.end, at.start, at.slot + 1, 0, *rest)


def note_makers(makers: Any, at: Cursor, tile: Tile, heads: Any) -> None:
    """Say of a tile which part is the first, -1 if there are none, and which team makes the last;
    by the cube that makes its first step."""
    if at.within == 0:
        number = at.slot * heads + tile.head
        makers[number, 0] = tile.part
        makers[number, 1] = team_of(at.now + tile.steps - 1, at.total, at.teams)
