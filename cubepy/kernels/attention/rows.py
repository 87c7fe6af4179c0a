"""Keys and values row by row, in arrays and in pages, and the sequences of ragged batches."""

from __future__ import annotations

from typing import Any

from cubepy.record import dataclass

FAR = 1 << 29
"""More positions than a sequence has."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a matrix."""

    matrix: Any

    @property
    def count(self) -> Any:
        """How many there are."""
        return self.matrix.shape[0]

    def row(self, i: Any) -> Any:
        """One of them."""
        return self.matrix[i]


@dataclass(frozen=True, slots=True)
class Pages:
    """The first `count` rows of pages: `pool` is [pages, rows, elements], `table` says which page
    has the first rows, the next and so on."""

    pool: Any
    table: Any
    count: Any

    def row(self, i: Any) -> Any:
        """One of them."""
        return self.pool[self.table[i // self.pool.shape[1]], i % self.pool.shape[1]]


@dataclass(frozen=True, slots=True)
class Packed:
    """`count` rows of `packed` neighbouring heads of each token, from a token and a head on;
    `matrix` is [tokens, heads, elements]."""

    matrix: Any
    token: Any
    head: Any
    packed: int
    count: Any

    def row(self, i: Any) -> Any:
        """One of them."""
        return self.matrix[self.token + i // self.packed, self.head + i % self.packed]


@dataclass(frozen=True, slots=True)
class PackedPages:
    """The first `count` rows of one head in pages of `page` rows: `matrix` is [pages * page, heads,
    elements], `table` says which page has the first rows, the next and so on."""

    matrix: Any
    table: Any
    head: Any
    page: int
    count: Any

    def row(self, i: Any) -> Any:
        """One of them."""
        return self.matrix[self.table[i // self.page] * self.page + i % self.page, self.head]


# Which queries a cube has


def slots(tokens: int, sequences: int, height: int) -> int:
    """How many bands of `height` queries any division of tokens into sequences has at most."""
    return tokens // height + sequences


def sequence_at(slot: Any, starts: Any, height: int) -> Any:
    """The sequence that a slot belongs to, and the first query of its band there.

    `starts`: the first token of each sequence, and the end of the last. The slots of a sequence
    begin at `starts[s] // height + s`, which leaves at least one for each of its bands.
    """
    low, high = 0, starts.shape[0] - 1
    while high - low > 1:
        middle = (low + high) // 2
        if starts[middle] // height + middle <= slot:
            low = middle
        else:
            high = middle
    return low, (slot - starts[low] // height - low) * height


def band_at(
    slot: Any, head: Any, arrays: Any, marks: Any, window: Any, height: int, is_guarded: bool
) -> Any:
    """Queries, keys, values and results of the sequence and the head of a slot, the first query of
    its band, the window of the sequence, and whether its marks are sound.

    `marks`: where the queries of sequences begin, unless all have as many; where their keys begin,
    or how many they have in pages; and which pages, if any. All pass for sound unless this
    `is_guarded`. See `shifted` for the window.
    """
    q, k, v, out = arrays
    starts, ends, tables = marks
    own = head // (q.shape[q.rank - 2] // k.shape[k.rank - 2])
    if len(starts):
        s, first = sequence_at(slot, starts[0], height)
        x, result = (m[starts[0][s] : starts[0][s + 1], head] for m in (q, out))
    else:
        bands = (q.shape[1] + height - 1) // height
        s, first = slot // bands, slot % bands * height
        x, result = q[s, :, head], out[s, :, head]
    if len(tables):
        y, z = (Pages(m[:, :, own], tables[0][s], ends[s]) for m in (k, v))
    else:
        y, z = (Rows(m[ends[s] : ends[s + 1], own]) for m in (k, v))
    is_sound = marks_are_sound(s, first, q, k, marks) if is_guarded else True
    return (x, y, z, result), first, shifted(window, x.shape[0], y.count), is_sound


def marks_are_sound(s: Any, first: Any, q: Any, k: Any, marks: Any) -> Any:
    """Whether what the marks say of a sequence is in range, and the first query of a band."""
    starts, ends, tables = marks
    of_queries = (first >= 0 and are_within(starts[0], s, q.shape[0])) if len(starts) else True
    if len(tables):
        of_keys = pages_exist(tables[0][s], ends[s], k)
    else:
        of_keys = are_within(ends, s, k.shape[0])
    return of_queries and of_keys


def are_within(offsets: Any, s: Any, rows: Any) -> Any:
    """Whether a sequence begins in so many rows, and ends behind that; views end at the last."""
    return offsets[s] >= 0 and offsets[s] <= rows and offsets[s] <= offsets[s + 1]


def pages_exist(table: Any, count: Any, pool: Any) -> Any:
    """Whether a table has pages for `count` rows, and all of them are in the pool."""
    pages, page = pool.shape[0], pool.shape[1]
    exist = count >= 0 and count <= table.shape[0] * page
    if exist:
        for i in range((count + page - 1) // page):
            exist = exist and table[i] >= 0 and table[i] < pages
    return exist


def shifted(window: Any, queries: Any, keys: Any) -> Any:
    """The window of a sequence, whose last query stands at its last key."""
    if len(window) == 0:
        return ()
    return window[0] - (keys - queries), window[1] + (keys - queries)
