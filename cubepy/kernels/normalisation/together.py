"""Norms of long rows by cubes of many units, some rows at the same time, which share their weights.

A row is read for its statistics and again, from a cache, for its results: rows in registers beside
their weights would leave room for too few cubes.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.cubes import cube_sum
from cubepy.kernels.normalisation.reading import read_element, read_input, read_line
from cubepy.kernels.reduction.moments import moments_of


def normalise_together(
    rows: Any,
    outs: Any,
    are_there: Any,
    weight: Any,
    bias: Any,
    eps: Any,
    finishes: Any,
    op: Any,
    tiling: Any,
) -> None:
    """Layer or RMS norms of some rows, of which those are stored that are there."""
    n, line = rows[0].shape[0], tiling.line
    found = tuple(statistics(row, op, tiling) for row in rows)
    count = op.dtype(n)
    scales = tuple(1 / cp.sqrt(spread / count + op.dtype(eps)) for _, spread in found)
    stride = line * cp.CUBE_DIM
    whole = n // stride * stride
    for j in range(line * cp.UNIT_POS, whole, stride):
        put_lines(rows, outs, are_there, weight, bias, found, scales, finishes, j, None, op, tiling)
    for j in range(whole + line * cp.UNIT_POS, n, stride):
        put_lines(rows, outs, are_there, weight, bias, found, scales, finishes, j, 0, op, tiling)


def put_lines(
    rows: Any,
    outs: Any,
    are_there: Any,
    weight: Any,
    bias: Any,
    found: Any,
    scales: Any,
    finishes: Any,
    j: Any,
    fill: Any,
    op: Any,
    tiling: Any,
) -> None:
    """One line of each row; `fill` is None where it is whole."""
    weights = tuple(read_line(w, j, op, tiling, fill) for w in weight)
    biases = tuple(read_line(b, j, op, tiling, fill) for b in bias)
    for k in cp.unroll(range(tiling.together)):
        v = (read_input(rows[k], j, op, tiling, fill) - found[k][0]) * scales[k]
        for w in weights:
            v = v * w
        for b in biases:
            v = v + b
        if are_there[k]:
            cp.store(outs[k], j, finishes[k](v, j), whole=fill is None)


def statistics(row: Any, op: Any, tiling: Any) -> Any:
    """What is subtracted from a row, and the sum of the squares of what is left."""
    n, line = row.shape[0], tiling.line
    if op.name == "layer_norm":
        pivot = read_element(row, 0, op)[0]
        mean, spread = moments_of(
            lambda p: read_input(row, p * line, op, tiling, None) - pivot,
            lambda j: read_element(row, j, op) - pivot,
            n,
            line,
            op.dtype,
            tiling.unroll,
        )
        return pivot + mean, spread
    return op.dtype(0), cube_sum(squares_of(row, op, tiling))


def squares_of(row: Any, op: Any, tiling: Any) -> Any:
    """The sum of the squares of a unit's elements of a row."""
    n, line, unroll = row.shape[0], tiling.line, tiling.unroll
    stride = line * cp.CUBE_DIM
    block, first = stride * unroll, line * cp.UNIT_POS
    whole = n // block * block
    totals = tuple(cp.Line[op.dtype, line](0) for _ in range(unroll))
    for j in range(first, whole, block):
        lines = tuple(read_input(row, j + k * stride, op, tiling, None) for k in range(unroll))
        totals = tuple(totals[k] + lines[k] * lines[k] for k in range(unroll))
    for j in range(whole + first, n, stride):
        v = read_input(row, j, op, tiling, 0)
        totals = (totals[0] + v * v, *totals[1:])
    total = totals[0]
    for v in totals[1:]:
        total = total + v
    return total.sum()
