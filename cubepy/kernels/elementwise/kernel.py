"""The kernel that applies a function to each element of some arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cubepy as cp
from cubepy.frontend.promote import literal_type
from cubepy.ir.types import DTYPES, INDICES
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.lang.hooks import is_literal, is_no_number, refuse_result
from cubepy.record import dataclass

RESULTS = tuple(dtype for dtype in DTYPES if dtype not in INDICES)
"""What functions may give: no positions, of which a line has one for all its elements."""


@dataclass(frozen=True, slots=True)
class MapTiling:
    """How a kernel goes through its data.

    `line` elements at a time, or 1 for a function that takes no lines; `unroll` lines in a row;
    `rows` and `columns` of the result in a cube. Inputs are prefetched `ahead` elements before they
    are needed, 0 for not; `stream`: results are too large for the caches. `is_broadcast` says for
    each input whether its last axis is one element for all.
    """

    line: int
    unroll: int
    rows: int
    columns: int
    ahead: int
    stream: bool
    is_broadcast: tuple[bool, ...]


def element(x: Any, j: Any, is_broadcast: Any, line: Any, fill: Any) -> Any:
    """What the function is given of one input: a line, or an element where lines have length 1."""
    if line == 1:
        return x[0] if is_broadcast else x[j]
    if is_broadcast:
        return cp.Line[x.dtype, line](x[0])
    return cp.load(x, j, line=line, fill=fill)


def put(function: Any, inputs: Any, out: Any, j: Any, tiling: Any, fill: Any) -> None:
    """Store the function's result for the elements from `j` on."""
    line, kinds = tiling.line, tiling.is_broadcast
    v = function(*(element(inputs[k], j, kinds[k], line, fill) for k in range(len(inputs))))
    if line == 1:
        out[j] = v
    elif is_literal(v):
        cp.store(out, j, cp.Line[out.dtype, line](v))
    else:  # a number of its own, which does not depend on lines, is one for all lanes
        lanes = cp.Line[v.dtype, line](v)
        cp.store(out, j, lanes, hint="stream" if tiling.stream else None, whole=fill is None)


def prefetch_ahead(inputs: Any, j: Any, tiling: Any) -> None:
    """Ask for the elements that come some steps later."""
    if tiling.ahead:
        for n in cp.unroll(range(len(inputs))):
            if not tiling.is_broadcast[n]:
                for k in cp.unroll(range(tiling.unroll)):
                    cp.prefetch(inputs[n], j + (tiling.ahead + k * tiling.line))


def map_row(function: Any, inputs: Any, out: Any, first: Any, end: Any, tiling: Any) -> None:
    """The elements [first, end) of a row; a line may start before 0 and end after the row."""
    line, step = tiling.line, tiling.line * tiling.unroll
    whole_from = first if line == 1 else max(first, (0 - first + line - 1) // line * line + first)
    whole_to = whole_from + max(0, min(end, out.shape[0]) - whole_from) // step * step
    for j in range(first, min(whole_from, end), line):
        put(function, inputs, out, j, tiling, 0)
    for j in range(whole_from, whole_to, step):
        prefetch_ahead(inputs, j, tiling)
        for k in cp.unroll(range(tiling.unroll)):
            put(function, inputs, out, j + k * line, tiling, None)
    for j in range(whole_to, min(end, out.shape[0]), line):
        put(function, inputs, out, j, tiling, 0)


@cp.cube
def map_rows(
    function: cp.Comptime[Callable[..., Any]],
    inputs: Any,
    out: cp.Tensor,
    tiling: cp.Comptime[MapTiling],
) -> None:
    """A cube fills some rows by some columns; lines lie where they are aligned in `out`."""
    line, columns = tiling.line, tiling.columns
    axis = out.rank - 1
    # A row may start up to a line before its first element.
    bands = (out.shape[axis] + (line - 1) + columns - 1) // columns
    first = cp.CUBE_POS // bands * tiling.rows
    rows = product(out.shape[:axis])
    for i in range(first, min(first + tiling.rows, rows)):
        where = unravelled(i, out.shape[:axis])
        row = out[where]
        begin = cp.CUBE_POS % bands * columns
        if line > 1:
            begin = begin - cp.misalignment(row, 0, line=line)
        map_row(function, tuple(x[where] for x in inputs), row, begin, begin + columns, tiling)


@cp.cube
def map_lines(
    function: cp.Comptime[Callable[..., Any]],
    inputs: Any,
    out: cp.Tensor,
    tiling: cp.Comptime[MapTiling],
) -> None:
    """Each unit of a wide cube fills `unroll` lines, neighbours beside each other; of arrays with
    more axes than one it fills one."""
    line, columns = tiling.line, out.shape[-1]
    if tiling.unroll > 1:
        step = line * cp.CUBE_DIM
        begin = cp.CUBE_POS * (step * tiling.unroll)
        first = begin + cp.UNIT_POS * line
        if begin + step * tiling.unroll <= columns:
            for k in cp.unroll(range(tiling.unroll)):
                put(function, inputs, out, first + k * step, tiling, None)
        else:
            for j in range(first, columns, step):
                put(function, inputs, out, j, tiling, 0)
        return
    lines, rows = (columns + line - 1) // line, product(out.shape[:-1])
    if rows * lines > cp.ABSOLUTE_POS:
        where = unravelled(cp.ABSOLUTE_POS // lines, out.shape[:-1])
        j = cp.ABSOLUTE_POS * line if out.rank == 1 else cp.ABSOLUTE_POS % lines * line
        seen = tuple(x[where] for x in inputs)
        if j + line <= columns:
            put(function, seen, out[where], j, tiling, None)
        else:
            put(function, seen, out[where], j, tiling, 0)


@cp.cube
def trace_result(function: cp.Comptime[Callable[..., Any]], inputs: Any, results: Any) -> None:
    """Runs nowhere: of `results`, arrays of `RESULTS`, it writes the one of the dtype that
    `function` gives for some inputs, so that the array it writes has the dtype."""
    v = function(*(x.flat[0] for x in inputs))
    if is_no_number(v):
        refuse_result(function, v)
    dtype = literal_type(v) if is_literal(v) else v.dtype
    if dtype not in RESULTS:
        refuse_result(function, v)
    results[RESULTS.index(dtype)].flat[0] = v
