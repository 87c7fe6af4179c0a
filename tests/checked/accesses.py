"""Ways to touch an element: each a helper whose one access has its comment's line, and what it is.

`f(x, i, v)` accesses `x` at `i` and, where it writes, writes `v`; a read comes back to be used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cubepy as cp
from tests.checked.lines import line_of


@dataclass(frozen=True)
class Access:
    """A way of access to a tensor of `shape`, whose `axis` has `extent` places for the index.

    A line of `width` lanes that begins inside and ends outside is at fault with its first lane
    outside.
    """

    function: Callable[..., Any]
    shape: tuple[int, ...]
    axis: int
    extent: int
    width: int = 1

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def line(self) -> int:
        """The line of the access."""
        return line_of(__file__, self.name)


@cp.cube
def read_1d(x, i, v):
    return x[i]  # read_1d


@cp.cube
def read_2d_first(x, i, v):
    return x[i, 1]  # read_2d_first


@cp.cube
def read_2d_last(x, i, v):
    return x[1, i]  # read_2d_last


@cp.cube
def read_3d(x, i, v):
    return x[1, i, 0]  # read_3d


@cp.cube
def read_row(x, i, v):
    return x[i][2]  # read_row


@cp.cube
def read_of_row(x, i, v):
    return x[1][i]  # read_of_row


@cp.cube
def read_view_of_view(x, i, v):
    return x[1][2][i]  # read_view_of_view


@cp.cube
def read_slice(x, i, v):
    return x[2:6][i]  # read_slice


@cp.cube
def read_stepped(x, i, v):
    return x[1::3][i]  # read_stepped


@cp.cube
def read_column(x, i, v):
    return x[1:3, 2][i]  # read_column


@cp.cube
def read_flat(x, i, v):
    return x.flat[i]  # read_flat


@cp.cube
def read_flat_of_columns(x, i, v):
    return x[:, 1:4].flat[i]  # read_flat_of_columns


@cp.cube
def read_line(x, i, v):
    return cp.load(x, i, line=4, fill=None).sum()  # read_line


@cp.cube
def read_line_2d(x, i, v):
    return cp.load(x, (1, i), line=2, fill=None).sum()  # read_line_2d


@cp.cube
def read_line_of_row(x, i, v):
    return cp.load(x, (i, 0), line=2).sum()  # read_line_of_row


@cp.cube
def read_line_flat(x, i, v):
    return cp.load(x.flat, i, line=8, fill=None).sum()  # read_line_flat


@cp.cube
def read_line_down(x, i, v):
    return cp.load(x[:, 1], i, line=2, fill=None).sum()  # read_line_down


@cp.cube
def read_atomic(x, i, v):
    return cp.atomic.load(x, i)  # read_atomic


@cp.cube
def write_1d(x, i, v):
    x[i] = v  # write_1d
    return v


@cp.cube
def write_2d_first(x, i, v):
    x[i, 1] = v  # write_2d_first
    return v


@cp.cube
def write_2d_last(x, i, v):
    x[1, i] = v  # write_2d_last
    return v


@cp.cube
def write_3d(x, i, v):
    x[1, 2, i] = v  # write_3d
    return v


@cp.cube
def write_row(x, i, v):
    x[i][2] = v  # write_row
    return v


@cp.cube
def write_slice(x, i, v):
    x[2:6][i] = v  # write_slice
    return v


@cp.cube
def write_flat(x, i, v):
    x.flat[i] = v  # write_flat
    return v


@cp.cube
def write_line(x, i, v):
    cp.store(x, i, cp.Line[cp.f32, 4](v), whole=True)  # write_line
    return v


@cp.cube
def write_line_of_row(x, i, v):
    cp.store(x, (i, 0), cp.Line[cp.f32, 2](v))  # write_line_of_row
    return v


@cp.cube
def write_augmented(x, i, v):
    x[i] += v  # write_augmented
    return v


@cp.cube
def write_atomic(x, i, v):
    return cp.atomic.add(x, i, v)  # write_atomic


@cp.cube
def write_atomic_2d(x, i, v):
    return cp.atomic.exchange(x, (1, i), v)  # write_atomic_2d


@cp.cube
def write_atomic_flat(x, i, v):
    return cp.atomic.max(x.flat, i, v)  # write_atomic_flat


ACCESSES = [
    Access(read_1d, (8,), 0, 8),
    Access(read_2d_first, (4, 6), 0, 4),
    Access(read_2d_last, (4, 6), 1, 6),
    Access(read_3d, (4, 3, 2), 1, 3),
    Access(read_row, (4, 6), 0, 4),
    Access(read_of_row, (4, 6), 1, 6),
    Access(read_view_of_view, (4, 3, 2), 2, 2),
    Access(read_slice, (8,), 0, 4),
    Access(read_stepped, (8,), 0, 3),
    Access(read_column, (4, 6), 0, 2),
    Access(read_flat, (4, 6), 0, 24),
    Access(read_flat_of_columns, (4, 6), 0, 12),
    Access(read_line, (8,), 0, 8, 4),
    Access(read_line_2d, (4, 6), 1, 6, 2),
    Access(read_line_of_row, (4, 6), 0, 4),
    Access(read_line_flat, (4, 6), 0, 24, 8),
    Access(read_line_down, (4, 6), 0, 4, 2),
    Access(read_atomic, (8,), 0, 8),
    Access(write_1d, (8,), 0, 8),
    Access(write_2d_first, (4, 6), 0, 4),
    Access(write_2d_last, (4, 6), 1, 6),
    Access(write_3d, (4, 3, 2), 2, 2),
    Access(write_row, (4, 6), 0, 4),
    Access(write_slice, (8,), 0, 4),
    Access(write_flat, (4, 6), 0, 24),
    Access(write_line, (8,), 0, 8, 4),
    Access(write_line_of_row, (4, 6), 0, 4),
    Access(write_augmented, (8,), 0, 8),
    Access(write_atomic, (8,), 0, 8),
    Access(write_atomic_2d, (4, 6), 1, 6),
    Access(write_atomic_flat, (4, 6), 0, 24),
]
