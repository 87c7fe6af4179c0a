"""How scans divide their work."""

from __future__ import annotations

from math import lcm, prod

from cubepy.kernels.calls.axes import Axis
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.scan.kernel import ScanTiling
from cubepy.kernels.scan.narrow import NarrowTiling
from cubepy.kernels.scan.problem import Scan
from cubepy.record import dataclass
from cubepy.targets import Target

MOST_CHUNKS = 64
"""Of a column, each of which adds the totals of those before it."""


@dataclass(frozen=True, slots=True)
class Division:
    """What bounds the pieces of a scan.

    `cube_elements`: elements of a cube of short rows; `chunk`: of a part of a long row, at least,
    and `cubes` for each core are enough. `near`: running results of columns that the nearest cache
    holds, `least` columns that go together. `units` of a cube, and `items`: units that keep a
    device busy, for cubes of many units. `lines` of a unit in a chunk, or of a row of results that
    bypasses caches, where arrays exceed `streamed` of them.
    """

    cube_elements: int = 1 << 16
    chunk: int = 1 << 17
    cubes: int = 4
    near: int = 2048
    least: int = 256
    units: int = 256
    lines: int = 16
    items: int = 1 << 16
    streamed: int = 16


def divisions(target: Target) -> tuple[Division, ...]:
    """The divisions for a target, the preferred one first."""
    if is_wide(target):
        return Division(), Division(units=128, lines=8), Division(units=512, lines=32)
    return Division(), Division(near=1024, least=1024), Division(chunk=1 << 19, cubes=1)


def _count(axes: list[Axis]) -> int:
    return prod(a.extent for a in axes)


def row_tilings(
    target: Target, op: Scan, rest: list[Axis], row: Axis, size: int, is_dense: bool
) -> tuple[ScanTiling, ...]:
    """Lines of dense rows, whose elements have `size` bytes; long ones in chunks where there are
    few.

    Floats of 64 bits go one by one on a CPU, because no wider type keeps a line of them from
    overflowing where its sums one after the other do not.
    """
    line = 1
    if is_dense and is_wide(target):
        line = max(1, 16 // size)
    elif is_dense and not (op.dtype.is_float and size == 8):
        line = max(1, target.line_bytes // op.dtype.itemsize)
    divide = _wide_rows if is_wide(target) else _rows
    return tuple(divide(way, target, rest, row, line) for way in divisions(target))


def _rows(way: Division, target: Target, rest: list[Axis], row: Axis, line: int) -> ScanTiling:
    wanted, chunk = way.cubes * target.cores, row.extent
    if target.cores > 1 and _count(rest) < wanted and row.extent >= 2 * way.chunk:
        chunk = max(way.chunk, -(-row.extent // wanted) // 64 * 64)
    band = max(1, way.cube_elements // min(row.extent, chunk))
    is_long = line > 1 and row.extent >= way.lines * line
    stream = is_long and _is_streamed(way, target, _count(rest) * row.extent, row)
    return ScanTiling(len(rest), line, chunk, min(band, max(1, _count(rest))), stream=stream)


def _is_streamed(way: Division, target: Target, elements: int, axis: Axis) -> bool:
    """Whether no cache holds the results for their reader; `axis` is dense in both arrays."""
    return elements * sum(map(abs, axis.strides)) > way.streamed * target.cache_bytes


def _wide_rows(way: Division, target: Target, rest: list[Axis], row: Axis, line: int) -> ScanTiling:
    units = max(1, target.plane_dim)
    while units < way.units and units * line < row.extent:
        units *= 2
    chunk, least = row.extent, units * line * way.lines
    if _count(rest) * units < way.items and row.extent >= 2 * least:
        chunks = min(-(-way.items // (units * _count(rest))), row.extent // least)
        step = units * line
        chunk = -(-row.extent // chunks // step) * step
    return ScanTiling(len(rest), line, chunk, 1, units)


def column_tilings(
    target: Target, op: Scan, kept: list[Axis], row: Axis, columns: Axis
) -> tuple[ScanTiling, ...]:
    """Bands of columns; on wide devices a unit for each, and chunks of rows where they are few."""
    divide = _wide_columns if is_wide(target) else _columns
    return tuple(divide(way, target, op, kept, row, columns) for way in divisions(target))


def _columns(
    way: Division, target: Target, op: Scan, kept: list[Axis], row: Axis, columns: Axis
) -> ScanTiling:
    line = max(1, target.line_bytes // op.dtype.itemsize)
    share = columns.extent * _count(kept) // (way.cubes * target.cores)
    band = min(way.near, max(way.least, share), -(-columns.extent // line) * line)
    stream = _is_streamed(way, target, _count(kept) * row.extent * columns.extent, columns)
    return ScanTiling(len(kept), line, row.extent, max(1, band // line) * line, stream=stream)


def _wide_columns(
    way: Division, target: Target, op: Scan, kept: list[Axis], row: Axis, columns: Axis
) -> ScanTiling:
    items = columns.extent * _count(kept)
    chunks = max(1, min(-(-way.items // items), row.extent // (4 * way.lines)))
    return ScanTiling(len(kept), 1, -(-row.extent // chunks), 1, way.units // 2)


def narrow_tilings(
    target: Target, op: Scan, rest: list[Axis], row: Axis
) -> tuple[NarrowTiling, ...]:
    """Lines of several rows of few columns, on CPUs; none for more of them. `rest` ends with the
    columns.

    Floats of 64 bits are added one by one, as in `row_tilings`: a line holds no column twice.
    Chunks are the same for any number of cores.
    """
    *kept, columns = rest
    most = 2 * max(1, target.line_bytes // op.dtype.itemsize)
    if is_wide(target) or not 1 < columns.extent <= most:
        return ()
    line = most
    if columns.strides[0] == 8 and op.dtype.is_float:
        line = 1 << columns.extent.bit_length() - 1
    ways = (_narrow(way, kept, row, columns.extent, min(line, most)) for way in divisions(target))
    return tuple(dict.fromkeys(ways))


def _narrow(way: Division, kept: list[Axis], row: Axis, columns: int, line: int) -> NarrowTiling:
    elements, step = row.extent * columns, lcm(columns, line)
    least = max(way.chunk, elements // MOST_CHUNKS)
    chunk = elements if elements < 2 * way.chunk else -(-least // step) * step
    band = max(1, way.cube_elements // min(elements, chunk))
    return NarrowTiling(len(kept), columns, line, max(1, chunk), min(band, max(1, _count(kept))))
