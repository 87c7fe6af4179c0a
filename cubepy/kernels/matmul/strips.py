"""Products of few rows by few columns on CPUs: sums stay in registers along all of k.

Nothing is packed: each element of the left factor is read once for each strip of columns, and the
right factor once for each group of rows, which is as fast while a cache holds it or a strip is all
of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.ir.types import DType
from cubepy.kernels.calls.positions import unravelled
from cubepy.kernels.matmul.finish import chosen, finished
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Strips:
    """`rows` rows by `lines` lines of `line` columns at a time. `left`: the axis along which the
    left factor is dense."""

    rows: int
    lines: int
    line: int
    left: str
    sums: DType

    @property
    def step(self) -> int:
        """Columns of a strip."""
        return self.lines * self.line


@cp.cube
def multiply_strips(
    a: cp.Tensor,
    b: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    height: int,
    width: int,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Strips],
) -> None:
    """A cube for `height` rows by `width` columns, multiples of those of a strip, of each product.

    `a` is [..., m, k], or [..., k, m] where it is dense along columns; `b` is [..., k, n].
    """
    m, n = out.shape[out.rank - 2], out.shape[out.rank - 1]
    down, across = (m + height - 1) // height, (n + width - 1) // width
    block = cp.CUBE_POS // across
    where = unravelled(block // down, out.shape[: out.rank - 2])
    x, y = chosen(a, where), chosen(b, where)
    top, begin = block % down * height, cp.CUBE_POS % across * width
    end = min(begin + width, n)
    whole = begin + (end - begin) // t.step * t.step
    for i in range(top, min(top + height, m), t.rows):
        for j in range(begin, whole, t.step):
            found = multiplied(x, y, i, j, t.lines, None, t)
            put(found, out, where, i, j, biases, extras, epilogue, t.lines, t)
        for j in range(whole, end, t.line):
            found = multiplied(x, y, i, j, 1, 0, t)
            put(found, out, where, i, j, biases, extras, epilogue, 1, t)


def multiplied(x: Any, y: Any, i: Any, j: Any, lines: Any, fill: Any, t: Any) -> Any:
    """The products of some rows, of which the last stands for missing ones, and some lines."""
    found = cp.local((t.rows, lines), cp.Line[t.sums, t.line], fill=0)
    m = x.shape[0 if t.left == "rows" else 1]
    rows = tuple(min(i + r, m - 1) for r in range(t.rows))
    for k in range(y.shape[0]):
        row = tuple(cp.load(y[k], j + c * t.line, line=t.line, fill=fill) for c in range(lines))
        for r in cp.unroll(range(t.rows)):
            factor = t.sums(x[rows[r], k] if t.left == "rows" else x[k, rows[r]])
            for c in cp.unroll(range(lines)):
                found[r, c] = found[r, c] + cp.Line[t.sums, t.line](row[c]) * factor
    return found


def put(
    found: Any,
    out: Any,
    where: Any,
    i: Any,
    j: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    lines: Any,
    t: Any,
) -> None:
    """Store the sums of some rows, or what bias and epilogue make of them."""
    for r in range(min(t.rows, out.shape[out.rank - 2] - i)):
        row = out[(*where, i + r)]
        for c in cp.unroll(range(lines)):
            index = (*where, i + r, j + c * t.line)
            cp.store(row, j + c * t.line, finished(found[r, c], index, biases, extras, epilogue))
