"""How pooling divides its work: kernels by layout and window, tilings by target."""

from __future__ import annotations

from math import prod

from cubepy.array.memory import Memory
from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.pooling.lines import LineTiling
from cubepy.kernels.pooling.numbers import compared
from cubepy.kernels.pooling.pixels import PixelTiling
from cubepy.kernels.pooling.problem import Pooling, Window
from cubepy.kernels.pooling.rows import RowTiling
from cubepy.kernels.pooling.tiles import TileTiling
from cubepy.kernels.pooling.windows import WindowTiling
from cubepy.record import dataclass
from cubepy.targets import Target

Tiling = RowTiling | PixelTiling | TileTiling | LineTiling | WindowTiling


@dataclass(frozen=True, slots=True)
class Division:
    """What bounds the pieces of a pooling.

    `band_bytes`: input of one cube, enough to hide its start, little enough to spread over many
    threads. `ahead_bytes`: how far the input is prefetched, at least. `strip_bytes`: of a row of
    the columns of one cube, where channels lie side by side, so that the nearer caches hold the
    rows of a window and those that are prefetched. `streamed`: caches that
    arrays must exceed before results bypass them. `most_block`: lines of channels that registers
    hold for all columns of a window; `line_scale`: a line of columns in those that `_lanes_of_row`
    gives; `most_taps`: columns, and `most_rows` rows of it that a kernel
    names; `most_lanes`: elements of the widest line that is loaded at once; `named`: elements of a
    window up to which each is named. For devices whose cubes have many: `units` of a cube, at most
    `tile_across` of them side by side, with `tile_band` rows each where windows overlap;
    `most_seen` elements that one may load at once, `most_named` of a window by lines of channels,
    which are shorter where each multiprocessor would have less than `busy` units.
    """

    band_bytes: int = 1 << 17
    ahead_bytes: int = 1 << 14
    strip_bytes: int = 1 << 15
    streamed: int = 16
    most_block: int = 8
    line_scale: float = 1.0
    most_taps: int = 16
    most_rows: int = 27
    most_lanes: int = 128
    named: int = 16
    units: int = 256
    tile_across: int = 128
    tile_band: int = 4
    most_seen: int = 192
    most_named: int = 128
    busy: int = 192


def divisions(target: Target) -> tuple[Division, ...]:
    """The divisions for a target, the preferred one first."""
    if is_wide(target):
        rows = tuple(Division(tile_across=n, units=u) for n, u in ((32, 128), (32, 256), (64, 256)))
        shapes = (Division(units=128), Division(units=64), *rows, Division(tile_band=2))
        named = (Division(most_named=64), Division(busy=64), Division(busy=384))
        return (Division(), *shapes, *named)
    return (
        Division(),
        Division(line_scale=0.5),
        Division(line_scale=2),
        Division(line_scale=0.25),
        Division(band_bytes=1 << 19),
        Division(streamed=1 << 20),
        Division(streamed=4, ahead_bytes=1 << 15),
        Division(most_block=0, named=0),
    )


def has_channels_last(x: Memory) -> bool:
    """Whether the channels of [n, c, depth, row, column] lie side by side, and the columns do
    not."""
    size = x.dtype.itemsize
    return x.shape[1] > 1 and x.strides[1] == size and (x.strides[4] != size or x.shape[4] == 1)


def is_unit(x: Memory, axis: int) -> bool:
    """Whether the elements along an axis lie side by side."""
    return x.strides[axis] == x.dtype.itemsize or x.shape[axis] == 1


def tilings(target: Target, how: Pooling, x: Memory, results: list[Memory]) -> tuple[Tiling, ...]:
    """The ways to pool [n, c, depth, row, column] into values and, if so, indices; the preferred
    one first."""
    return tuple(_tiling(way, target, how, x, results) for way in divisions(target))


def _tiling(
    way: Division, target: Target, how: Pooling, x: Memory, results: list[Memory]
) -> Tiling:
    out = results[0]
    if is_wide(target) and not how.is_adaptive and len(results) == 1:
        tile = tile_tiling(way, target, how.window, x, out)
        if tile is not None:
            return tile
        lines = lines_tiling(way, target, how.window, x, out)
        if lines is not None:
            return lines
    if is_wide(target) or how.is_adaptive:
        return windows_tiling(way, target, how, x, results)
    if all(is_unit(m, 4) for m in (x, *results)):
        rows = rows_tiling(way, target, how.window, x, out)
        if rows is not None:
            return rows
    if len(results) == 1 and has_channels_last(x) and is_unit(out, 1):
        return pixels_tiling(way, target, how.window, x, out)
    return windows_tiling(way, target, how, x, results)


def lanes(target: Target, x: Memory) -> int:
    """Elements of a line, as they are compared."""
    return target.line_bytes // compared(x.dtype).itemsize


def _power_above(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _is_streamed(way: Division, target: Target, x: Memory, out: Memory) -> bool:
    """Whether input and output are so large that no cache holds the output for its reader."""
    nbytes = sum(m.dtype.itemsize * prod(m.shape) for m in (x, out))
    return nbytes > way.streamed * target.cache_bytes


def rows_tiling(
    way: Division, target: Target, window: Window, x: Memory, out: Memory
) -> RowTiling | None:
    """Lines of columns; None for windows that are too large to be named tap by tap."""
    line = _lanes_of_row(way, target, window, x, out)
    if window.reach > line or line * window.stride[2] > way.most_lanes:
        return None
    if window.kernel[2] > way.most_taps or window.rows > way.most_rows:
        return None
    row_bytes = max(1, x.shape[4] * x.dtype.itemsize)
    band = min(max(out.shape[3], 1), max(4, way.band_bytes // row_bytes))
    streamed = _is_streamed(way, target, x, out)
    ahead = max(1, way.ahead_bytes // row_bytes) if streamed else 0
    return RowTiling(line, band, ahead, streamed)


def _lanes_of_row(way: Division, target: Target, window: Window, x: Memory, out: Memory) -> int:
    """Lanes of a line of columns. Without AVX-512 there are few: missing lanes of short elements
    are branches there, and columns with long strides are picked one by one."""
    most = lanes(target, x)
    if target.line_bytes < 64:
        most = min(most, 8 if window.stride[2] < 3 else 4)
    fitting = max(2, _power_above(max(out.shape[4], window.reach)))
    line = int(min(most, fitting) * way.line_scale)
    return max(2, _power_above(window.reach), line)


def pixels_tiling(
    way: Division, target: Target, window: Window, x: Memory, out: Memory
) -> PixelTiling:
    """Lines of channels; the results of a pixel are streamed where they are whole lines.

    Windows that overlap go along rows of pixels (`block` is not 0) where registers hold all
    channels of some columns, the others pixel by pixel.
    """
    line = min(lanes(target, x), max(2, _power_above(x.shape[1])))
    pixel_bytes = max(1, x.shape[1] * x.dtype.itemsize)
    seen = max(window.stride[2], way.strip_bytes // pixel_bytes)
    columns = max(1, min(out.shape[4], seen // window.stride[2]))
    row_bytes = min(x.shape[4], columns * window.stride[2]) * pixel_bytes
    band = min(max(out.shape[3], 1), max(1, way.band_bytes // max(1, row_bytes)))
    streamed = _is_streamed(way, target, x, out)
    block = -(-x.shape[1] // line)
    overlap = window.dilation[2] == 1 and window.kernel[2] > window.stride[2]
    few = window.rows <= way.named and window.kernel[2] <= 4 and block <= way.most_block
    along = overlap and few and not window.may_miss
    is_whole = x.shape[1] % line == 0
    ahead = max(1, way.strip_bytes // row_bytes) if streamed else 0
    return PixelTiling(
        line,
        band,
        columns,
        ahead,
        streamed and is_whole,
        block if along else 0,
        way.named,
        is_whole,
    )


def tile_tiling(
    way: Division, target: Target, window: Window, x: Memory, out: Memory
) -> TileTiling | None:
    """Lines of columns by units of cubes; None where columns are not dense, and for windows with
    gaps between rows or so large that what a unit loads fills its registers."""
    line = min(8, max(1, target.line_bytes // x.dtype.itemsize))
    seen = window.before + line * window.stride[2] + window.behind
    gaps = window.dilation[0] > 1 or window.dilation[1] > 1
    if gaps or not (is_unit(x, 4) and is_unit(out, 4)) or out.shape[4] < line:
        return None
    band = way.tile_band if window.kernel[1] > window.stride[1] == 1 else 1
    rows = window.kernel[0] * ((band - 1) * window.stride[1] + window.kernel[1])
    if rows * seen > way.most_seen or window.rows > way.most_rows:
        return None
    across = min(way.tile_across, _power_above(-(-out.shape[4] // line)))
    down = min(way.units // across, _power_above(-(-out.shape[3] // band)))
    return TileTiling(line, band, across, max(1, down))


def lines_tiling(
    way: Division, target: Target, window: Window, x: Memory, out: Memory
) -> LineTiling | None:
    """Lines of channels by units of cubes; None where channels are not dense, and for windows of
    which registers do not hold a line of two channels."""
    if not has_channels_last(x) or not is_unit(out, 1):
        return None
    line, channels = max(1, target.line_bytes // x.dtype.itemsize), x.shape[1]
    most = prod(out.shape) // max(1, way.busy * target.multiprocessors)
    while line > 2 and (line > most or line > channels or line * window.size > way.most_named):
        line //= 2
    if line < 2 or line > channels or line * window.size > way.most_named:
        return None
    units = way.units
    while units > target.plane_dim and prod(out.shape) < 2 * target.multiprocessors * units * line:
        units //= 2
    return LineTiling(line, units, channels % line == 0)


def windows_tiling(
    way: Division, target: Target, how: Pooling, x: Memory, results: list[Memory]
) -> WindowTiling:
    """Outputs one after the other: lines of channels where these are dense, or lines along the
    columns of large windows."""
    wide, out = is_wide(target), results[0]
    is_last = has_channels_last(x) and all(is_unit(m, 1) for m in results)
    units = way.units if wide else 1
    window, line = how.window, lanes(target, x)
    area = prod(-(-n // m) for n, m in zip(x.shape[2:], out.shape[2:], strict=True) if m)
    size = area if how.is_adaptive else window.size
    band = 1 if wide else max(1, way.band_bytes // x.dtype.itemsize // max(1, size))
    if is_last:
        line = 1 if wide else min(line, max(2, _power_above(x.shape[1])))
        return WindowTiling(line, max(1, band // line), units, True)
    gaps = not how.is_adaptive and window.dilation[2] > 1
    columns = x.shape[4] // max(1, out.shape[4]) if how.is_adaptive else window.kernel[2]
    along = not wide and not gaps and len(results) == 1 and is_unit(x, 4) and columns >= line
    return WindowTiling(line if along else 1, band, units, False, along)
