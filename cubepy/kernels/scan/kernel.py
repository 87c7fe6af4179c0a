"""Kernels of scans: along the lines of rows, and across rows of lines.

Long rows are cut into chunks: the totals of all chunks are made first, and each chunk starts with
what those before it add up to (reduce, then scan: Chatterjee, Blelloch and Zagha, 1990).
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.cubes import cube_prod, cube_sum
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.scan.problem import Scan
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class ScanTiling:
    """How a kernel goes through its data.

    `kept` axes come before the scanned one. `line` elements at a time; `chunk` of a row (or rows of
    a column) go together, of which a cube of one unit takes `band`. For columns, `band` is how many
    of them a cube takes. Cubes have `units` units. `stream`: results are too large for the
    caches.
    """

    kept: int
    line: int
    chunk: int
    band: int
    units: int = 1
    stream: bool = False


def joined(a: Any, b: Any, op: Any) -> Any:
    """a + b or a * b."""
    return a + b if op.name == "sum" else a * b


def read(x: Any, index: Any, line: Any, fill: Any, op: Any) -> Any:
    """A line in the running type."""
    v = cp.Line[x.dtype, 1](x[index]) if line == 1 else cp.load(x, index, line=line, fill=fill)
    return v if v.dtype == op.dtype else op.dtype(v)


def write(out: Any, index: Any, v: Any, whole: Any, stream: Any = False) -> None:
    """Store a line, or one number."""
    if v.line_size == 1:
        out[index] = v[0]
    else:
        cp.store(out, index, v, whole=whole, hint="stream" if stream else None)


def prefixes(v: Any, step: Any, op: Any) -> Any:
    """The scan of a line by doubling distances (Hillis and Steele, 1986)."""
    lanes = v.line_size
    if step >= lanes:
        return v
    both = cp.concat(cp.Line[op.dtype, lanes](op.nothing), v)
    return prefixes(joined(both[lanes - step : 2 * lanes - step], v, op), step * 2, op)


def folded(v: Any, op: Any) -> Any:
    """All lanes as one number."""
    return v.sum() if op.name == "sum" else v.prod()


def carried(totals: Any, chunk: Any, op: Any) -> Any:
    """What the chunks of a row before this one come to."""
    found = op.dtype(op.identity)
    for total in totals:
        for k in range(chunk):
            found = joined(found, total[k], op)
    return found


def chunk_at(i: Any, out: Any, tiling: Any) -> Any:
    """Of the i-th chunk of all: the kept axes, its number, and its elements [first, end)."""
    kept, n = tiling.kept, out.shape[tiling.kept]
    chunks = (n + tiling.chunk - 1) // tiling.chunk
    where, chunk = unravelled(i // chunks, out.shape[:kept]), i % chunks
    first = chunk * tiling.chunk
    return where, chunk, (first, min(first + tiling.chunk, n))


def chunks_of_cube(out: Any, tiling: Any) -> Any:
    """The chunks [begin, end) of all that a cube takes."""
    kept, n = tiling.kept, out.shape[tiling.kept]
    count = (n + tiling.chunk - 1) // tiling.chunk * product(out.shape[:kept])
    begin = cp.CUBE_POS * tiling.band
    return begin, min(begin + tiling.band, count)


# Rows


def scan_span(x: Any, out: Any, span: Any, start: Any, op: Any, tiling: Any) -> None:
    """The scan of the elements [first, end) of a row, after those that came to `start`.

    Lines that go past the caches begin where they are aligned in `out`.
    """
    first, end = span
    line = tiling.line
    carry = cp.Line[op.dtype, line](op.dtype(start))
    if tiling.stream:
        begin = min(end, first + (line - cp.misalignment(out, first, line=line)) % line)
        if begin > first:
            carry = scan_line(x[0:begin], out[0:begin], first, carry, False, op, tiling)
        first = begin
    whole = first + (end - first) // line * line
    for j in range(first, whole, line):
        carry = scan_line(x, out, j, carry, True, op, tiling)
    for j in range(whole, end, line):
        carry = scan_line(x[0:end], out[0:end], j, carry, False, op, tiling)


def scan_line(x: Any, out: Any, j: Any, carry: Any, whole: Any, op: Any, tiling: Any) -> Any:
    """Store the scan of a line after lines that came to `carry`, and what they come to with it; all
    lanes of both have that number."""
    v = prefixes(read(x, j, tiling.line, None if whole else op.identity, op), 1, op)
    write(out, j, joined(carry, v, op), whole, tiling.stream and whole)
    return joined(carry, cp.Line[op.dtype, tiling.line](v[tiling.line - 1]), op)


@cp.cube
def scan_rows(
    x: cp.Tensor,
    totals: Any,
    out: cp.Tensor,
    op: cp.Comptime[Scan],
    tiling: cp.Comptime[ScanTiling],
) -> None:
    """A cube of one unit scans `band` chunks of rows; `totals`: none, or those of all chunks."""
    begin, end = chunks_of_cube(out, tiling)
    for i in range(begin, end):
        where, chunk, span = chunk_at(i, out, tiling)
        start = carried(tuple(t[where] for t in totals), chunk, op)
        scan_span(x[where], out[where], span, start, op, tiling)


@cp.cube
def total_rows(
    x: cp.Tensor, out: cp.Tensor, op: cp.Comptime[Scan], tiling: cp.Comptime[ScanTiling]
) -> None:
    """A cube makes the total of one chunk of a row; the last axis of `out` counts the chunks."""
    kept, line = tiling.kept, tiling.line
    where = unravelled(cp.CUBE_POS, out.shape)
    row, first = x[where[:kept]], where[kept] * tiling.chunk
    end, step = min(first + tiling.chunk, row.shape[0]), line * cp.CUBE_DIM
    whole = first + (end - first) // step * step
    total = cp.Line[op.dtype, line](op.identity)
    for j in range(first + cp.UNIT_POS * line, whole, step):
        total = joined(total, read(row, j, line, None, op), op)
    for j in range(whole + cp.UNIT_POS * line, end, step):
        total = joined(total, read(row[0:end], j, line, op.identity, op), op)
    found = folded(total, op)
    found = cube_sum(found) if op.name == "sum" else cube_prod(found)
    if cp.UNIT_POS == 0:
        out[where] = found


# Rows of cubes of many units


def before_unit(v: Any, op: Any) -> Any:
    """What the units of a cube before this one come to, and what all units come to."""
    if op.name == "sum":
        own = cp.plane_inclusive_sum(v)
        before = cp.plane_exclusive_sum(v)
    else:
        own = cp.plane_inclusive_prod(v)
        before = cp.plane_exclusive_prod(v)
    parts = cp.shared(cp.PLANE_COUNT, op.dtype)
    plane = cp.UNIT_POS // cp.PLANE_DIM
    if cp.UNIT_POS % cp.PLANE_DIM == cp.PLANE_DIM - 1:
        parts[plane] = own
    cp.sync_cube()
    earlier, total = op.dtype(op.identity), op.dtype(op.identity)
    for k in range(cp.PLANE_COUNT):
        earlier = joined(earlier, parts[k], op) if k < plane else earlier
        total = joined(total, parts[k], op)
    cp.sync_cube()
    return joined(earlier, before, op), total


@cp.cube
def scan_wide_rows(
    x: cp.Tensor,
    totals: Any,
    out: cp.Tensor,
    op: cp.Comptime[Scan],
    tiling: cp.Comptime[ScanTiling],
) -> None:
    """A cube scans a chunk of a row, one line for each unit at a time."""
    kept, line, n = tiling.kept, tiling.line, out.shape[tiling.kept]
    chunks = (n + tiling.chunk - 1) // tiling.chunk
    where, chunk = unravelled(cp.CUBE_POS // chunks, out.shape[:kept]), cp.CUBE_POS % chunks
    first = chunk * tiling.chunk
    end = min(first + tiling.chunk, n)
    carry = carried(tuple(t[where] for t in totals), chunk, op)
    row, result = x[where][0:end], out[where][0:end]
    for j in range(first, end, line * cp.CUBE_DIM):
        at = j + line * cp.UNIT_POS
        v = prefixes(read_inside(row, at, line, op), 1, op)
        before, total = before_unit(v[line - 1], op)
        v = joined(cp.Line[op.dtype, line](joined(carry, before, op)), v, op)
        if at < end:
            write(result, at, v, False)
        carry = joined(carry, total, op)


def read_inside(x: Any, at: Any, line: Any, op: Any) -> Any:
    """A line that may start behind the end."""
    if line > 1:
        return read(x, at, line, op.identity, op)
    v = read(x, min(at, x.shape[0] - 1), 1, None, op)
    return cp.where(at < x.shape[0], v, cp.Line[op.dtype, 1](op.identity))


# Columns


@cp.cube
def scan_columns(
    x: cp.Tensor, out: cp.Tensor, op: cp.Comptime[Scan], tiling: cp.Comptime[ScanTiling]
) -> None:
    """A cube of one unit scans `band` columns, row by row; they are the last axis, and the scanned
    axis is the one before it."""
    kept, line, band = tiling.kept, tiling.line, tiling.band
    bands = (out.shape[kept + 1] + band - 1) // band
    where = unravelled(cp.CUBE_POS // bands, out.shape[:kept])
    begin = cp.CUBE_POS % bands * band
    end = min(begin + band, out.shape[kept + 1])
    whole = begin + (end - begin) // line * line
    state = cp.local(band // line, cp.Line[op.dtype, line], fill=op.identity)
    for i in range(out.shape[kept]):
        row, result = x[(*where, i)], out[(*where, i)]
        for at in range(begin, whole, line):
            k = (at - begin) // line
            v = joined(state[k], read(row, at, line, None, op), op)
            state[k] = v
            cp.store(result, at, v, whole=True, hint="stream" if tiling.stream else None)
        for at in range(whole, end, line):
            k = (at - begin) // line
            v = joined(state[k], read(row[0:end], at, line, op.identity, op), op)
            state[k] = v
            cp.store(result[0:end], at, v)


@cp.cube
def total_wide_columns(
    x: cp.Tensor, out: cp.Tensor, op: cp.Comptime[Scan], tiling: cp.Comptime[ScanTiling]
) -> None:
    """A unit makes the total of a chunk of one column; the last axis of `out` counts chunks."""
    if out.size > cp.ABSOLUTE_POS:
        kept, columns, chunks = tiling.kept, out.shape[tiling.kept], out.shape[tiling.kept + 1]
        c, item = cp.ABSOLUTE_POS % columns, cp.ABSOLUTE_POS // columns
        where, chunk = unravelled(item // chunks, out.shape[:kept]), item % chunks
        total = op.dtype(op.identity)
        first = chunk * tiling.chunk
        for i in range(first, min(first + tiling.chunk, x.shape[kept])):
            total = joined(total, op.dtype(x[(*where, i, c)]), op)
        out[(*where, c, chunk)] = total


@cp.cube
def scan_wide_columns(
    x: cp.Tensor,
    totals: Any,
    out: cp.Tensor,
    op: cp.Comptime[Scan],
    tiling: cp.Comptime[ScanTiling],
) -> None:
    """A unit scans a chunk of one column."""
    kept, n, columns = tiling.kept, out.shape[tiling.kept], out.shape[tiling.kept + 1]
    chunks, items = (n + tiling.chunk - 1) // tiling.chunk, columns * product(out.shape[:kept])
    if items * chunks > cp.ABSOLUTE_POS:
        c, item = cp.ABSOLUTE_POS % columns, cp.ABSOLUTE_POS // columns
        where, chunk = unravelled(item // chunks, out.shape[:kept]), item % chunks
        carry = carried(tuple(t[(*where, c)] for t in totals), chunk, op)
        first = chunk * tiling.chunk
        for i in range(first, min(first + tiling.chunk, n)):
            carry = joined(carry, op.dtype(x[(*where, i, c)]), op)
            out[(*where, i, c)] = carry


@cp.cube
def copy_flat(x: cp.Tensor, out: cp.Tensor) -> None:
    """The elements of `x`, in row-major order."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = x.flat[i]
