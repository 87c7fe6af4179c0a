"""Products of many rows by few columns of few elements each, on CPUs.

A cube brings the whole right factor into the nearest cache, as lines of columns, and then makes its
rows one tile after the other. The left factor is read where it lies, element by element, once:
there is nothing to pack that would be read again.
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
class Narrow:
    """A tile has `rows` rows and `lines` lines of `line` columns, which are all; there is room for
    `depth` elements of k. `left`, `right`: the axis along which the factors are dense.

    Where `factors` have half the bits of `sums`, a line has two elements of k for each column, as
    `cp.dot` takes them.
    """

    rows: int
    lines: int
    line: int
    depth: int
    left: str
    right: str
    factors: DType
    sums: DType

    @property
    def word(self) -> int:
        """Elements of k of a line."""
        return self.sums.itemsize // self.factors.itemsize

    @property
    def step(self) -> int:
        """Columns of a tile."""
        return self.lines * self.line


@cp.cube
def multiply_narrow(
    a: cp.Tensor,
    b: cp.Tensor,
    out: cp.Tensor,
    biases: Any,
    extras: Any,
    height: int,
    epilogue: cp.Comptime[Callable[..., Any] | None],
    t: cp.Comptime[Narrow],
) -> None:
    """A cube for each `height` rows of each product.

    `a` is [..., m, k], or [..., k, m] where it is dense along columns; `b` is [..., k, n] or
    [..., n, k].
    """
    m = out.shape[out.rank - 2]
    down = (m + height - 1) // height
    where = unravelled(cp.CUBE_POS // down, out.shape[: out.rank - 2])
    x, y = chosen(a, where), chosen(b, where)
    right = cp.shared(t.depth * t.step, t.factors)
    bring(y, right, t)
    begin = cp.CUBE_POS % down * height
    end = min(begin + height, m)
    whole = begin + (end - begin) // t.rows * t.rows
    for i in range(begin, whole, t.rows):
        found = multiplied(x, right, i, t.rows, t)
        put(found, out, where, i, biases, extras, epilogue, t.rows, t)
    for i in range(whole, end):
        found = multiplied(x, right, i, 1, t)
        put(found, out, where, i, biases, extras, epilogue, 1, t)


def bring(y: Any, right: Any, t: Any) -> None:
    """The right factor as lines, with zeros for what a last one lacks."""
    inner, n = (y.shape[0], y.shape[1]) if t.right == "rows" else (y.shape[1], y.shape[0])
    if t.word == 1 and t.right == "rows":
        for k in range(inner):
            for j in range(0, t.step, t.line):
                v = cp.Line[t.factors, t.line](cp.load(y[k], j, line=t.line))
                cp.store(right, k * t.step + j, v, whole=True)
        return
    for k in range((inner + t.word - 1) // t.word * t.word):
        into = right[k // t.word * (t.word * t.step) + k % t.word :]
        for j in range(t.step):
            v = t.factors(0)
            if k < inner and j < n:
                v = t.factors(y[k, j] if t.right == "rows" else y[j, k])
            into[j * t.word] = v


def multiplied(x: Any, right: Any, i: Any, rows: Any, t: Any) -> Any:
    """The products of some rows and all columns, in registers."""
    found = cp.local((rows, t.lines), cp.Line[t.sums, t.line], fill=0)
    inner = x.shape[1] if t.left == "rows" else x.shape[0]
    for k in range(inner // t.word):
        for r in cp.unroll(range(rows)):
            add(found, r, factor_of(x, i + r, k, t), right, k, t)
    if t.word > 1 and inner % t.word:
        k = inner // t.word
        for r in cp.unroll(range(rows)):
            last = cp.Line[t.factors, 1](x[i + r, inner - 1])
            pair = cp.concat(last, cp.Line[t.factors, 1](0))
            add(found, r, pair[same_words(t.line, t.word)], right, k, t)
    return found


def factor_of(x: Any, i: Any, k: Any, t: Any) -> Any:
    """An element of a row of the left factor; as many as a line has of each column, for all."""
    if t.word == 1:
        return t.sums(x[i, k] if t.left == "rows" else x[k, i])
    word = cp.load(x[i], k * t.word, line=t.word, fill=None)
    return word[same_words(t.line, t.word)]


def same_words(lanes: int, word: int) -> tuple[int, ...]:
    """The lanes of one word for each lane of sums."""
    return tuple(e for _ in range(lanes) for e in range(word))


def add(found: Any, r: Any, factor: Any, right: Any, k: Any, t: Any) -> None:
    """Add the products of one row with a line of k for each column."""
    size = t.word * t.line
    for c in cp.unroll(range(t.lines)):
        v = cp.load(right, (k * t.lines + c) * size, line=size, fill=None)
        if t.word == 1:
            found[r, c] = found[r, c] + v * factor
        else:
            found[r, c] = cp.dot(factor, v, found[r, c])


def put(
    found: Any,
    out: Any,
    where: Any,
    i: Any,
    biases: Any,
    extras: Any,
    epilogue: Any,
    rows: Any,
    t: Any,
) -> None:
    """Store the sums of some rows, or what bias and epilogue make of them."""
    for r in cp.unroll(range(rows)):
        row = out[(*where, i + r)]
        for c in cp.unroll(range(t.lines)):
            index = (*where, i + r, c * t.line)
            cp.store(row, c * t.line, finished(found[r, c], index, biases, extras, epilogue))
