"""How sorting divides its work."""

from __future__ import annotations

from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.sorting.digits import BITS, DIGITS, DigitTiling
from cubepy.kernels.sorting.merges import MergeTiling
from cubepy.kernels.sorting.parts import PartTiling
from cubepy.kernels.sorting.problem import Order
from cubepy.kernels.sorting.radix import RadixTiling
from cubepy.kernels.sorting.selection import SelectTiling
from cubepy.record import dataclass
from cubepy.targets import Target

Tiling = RadixTiling | MergeTiling | SelectTiling | DigitTiling | PartTiling


MOST_COUNTED = (1 << 32) - 1
"""Elements of a row that cubes which select can count."""


@dataclass(frozen=True, slots=True)
class Division:
    """What bounds the ways to sort.

    `long`: elements of a row from which on fewer, longer digits of 32 bits pay; `inserted`:
    elements up to which insertion does; `kept`: elements of the result that are kept in order while
    a row is read, at most; `selected`: how many times as many a row has at least, where they are
    selected, from `room` elements at least.
    `shared`: elements of a row from which on several threads sort it, if there are fewer rows.
    `block`: elements that a cube of many units sorts in shared memory; `most`: elements of the
    result that it selects from a longer row, and `spare` times as many it has room for. `merged`:
    elements of a row up to which sorted blocks are merged; longer ones are sorted by digits, by
    `units` units with `held` elements each, or by one cube up to `whole` elements.
    """

    long: int = 1 << 14
    inserted: int = 24
    kept: int = 32
    selected: int = 4
    room: int = 256
    shared: int = 1 << 16
    block: int = 1024
    most: int = 256
    spare: int = 8
    merged: int = 32
    whole: int = 8192
    units: int = 256
    held: int = 16


def divisions(target: Target) -> tuple[Division, ...]:
    """The divisions for a target, the preferred one first."""
    if is_wide(target):
        tiles = (Division(held=8), Division(units=512), Division(units=512, held=8))
        tiles = (*tiles, Division(whole=4096), Division(whole=0))
        blocks = tuple(Division(block=n, merged=1 << 62) for n in (1024, 512, 2048))
        return (Division(), *tiles, *blocks)
    return Division(), Division(long=1 << 30), Division(long=0), Division(kept=0)


def tilings(
    target: Target, how: Order, n: int, rows: int, wanted: int, is_dense: bool
) -> tuple[Tiling, ...]:
    """The ways to sort rows of `n` elements of which the first `wanted` are kept; the preferred one
    first."""
    if is_wide(target):
        ways = tuple(dict.fromkeys(_wide(way, target, how, n, rows) for way in divisions(target)))
        way = divisions(target)[0]
        if wanted > way.most or n <= way.block or n > MOST_COUNTED:
            return ways
        line = max(1, target.line_bytes // how.dtype.itemsize) if is_dense else 1
        return (_select(way, target, n, wanted, line), *ways)
    ways = divisions(target)
    found = [_radix(way, target, how, n, rows, wanted, is_dense) for way in ways]
    whole = (*found, _merge(target, ways[0].block, n))
    if found[0].room or n < ways[0].shared or rows >= target.cores:
        return whole
    return PartTiling(-(-target.cores // rows), BITS), *whole


def _radix(
    way: Division, target: Target, how: Order, n: int, rows: int, wanted: int, is_dense: bool
) -> RadixTiling:
    slots = max(1, min(rows, 4 * target.cores))
    line = max(1, target.line_bytes // how.key.itemsize) if is_dense else 1
    is_few = wanted * way.selected <= n
    keeps = is_few and wanted <= way.kept
    room = _room(way, n, wanted) if is_few else 0
    digit = 11 if how.dtype.bits == 32 and (room or n) >= way.long else BITS
    return RadixTiling(slots, digit, way.inserted, room, keeps, line)


def _room(way: Division, n: int, wanted: int) -> int:
    """A power of two, so that one kernel serves many extents; a row that is not much longer."""
    room = 1 << max(way.room, way.selected * wanted).bit_length()
    return room if n > 4 * room else 1 << (2 * n).bit_length()


def _select(way: Division, target: Target, n: int, wanted: int, line: int) -> SelectTiling:
    """Units with some lines each, and room for more elements than are asked for."""
    units = min(512 if n >= 1 << 14 else 256, target.max_cube_dim)
    planes = units // max(1, target.plane_dim)
    room = 1 << max(256, way.spare * wanted - 1).bit_length()
    return SelectTiling(line, units, min(room, 2048), -(-wanted // planes))


def _wide(way: Division, target: Target, how: Order, n: int, rows: int) -> Tiling:
    """By digits where rows are long, and cubes have room for tiles; smaller tiles where there are
    few."""
    if n <= way.merged or target.plane_dim == 1 or way.units > target.max_cube_dim:
        return _merge(target, way.block, n)
    if n <= way.whole:
        found = _whole(way, target, how, n)
        if found is not None:
            return found
    held = way.held
    while held > 1 and _tile_bytes(target, how, way.units, held) > target.shared_bytes:
        held //= 2
    while held > 4 and rows * n < target.multiprocessors * way.units * held:
        held //= 2
    return DigitTiling(way.units, held)


def _whole(way: Division, target: Target, how: Order, n: int) -> DigitTiling | None:
    """As few units as hold a row; None where shared memory has no room for two."""
    units, held, most = target.plane_dim, 2, min(2 * way.units, target.max_cube_dim)
    while units * held < n and units <= most:
        if 2 * held <= way.held // 2 or (units >= way.units and held < way.held):
            held *= 2
        else:
            units *= 2
    fits = units <= most and 2 * _tile_bytes(target, how, units, held) <= target.shared_bytes
    return DigitTiling(units, held, True) if fits else None


def _tile_bytes(target: Target, how: Order, units: int, held: int) -> int:
    """Shared memory of a cube: keys and positions, and what digits count."""
    size = how.key.itemsize + how.position.itemsize
    counts = 4 * (units // target.plane_dim + 1) + how.position.itemsize
    return units * held * size + DIGITS * counts


def _merge(target: Target, block: int, n: int) -> MergeTiling:
    while block > 2 and block // 2 >= n:
        block //= 2
    most = target.max_cube_dim if is_wide(target) else 1
    return MergeTiling(block, max(1, min(block // 2, most)))
