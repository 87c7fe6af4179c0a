"""How sorting divides its work."""

from __future__ import annotations

from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.sorting.merges import MergeTiling
from cubepy.kernels.sorting.problem import Order
from cubepy.kernels.sorting.radix import RadixTiling
from cubepy.kernels.sorting.selection import SelectTiling
from cubepy.record import dataclass
from cubepy.targets import Target

Tiling = RadixTiling | MergeTiling | SelectTiling


@dataclass(frozen=True, slots=True)
class Division:
    """What bounds the ways to sort.

    `long`: elements of a row from which on fewer, longer digits pay; `inserted`: elements up to
    which insertion does; `kept`: elements of the result that are kept in order while a row is read,
    at most; `selected`: how many times as many a row has at least, where they are selected first.
    `block`: elements that a cube of many units sorts in shared memory; `most`: elements of the
    result that it selects from a longer row, and `spare` times as many it has room for.
    """

    long: int = 1 << 14
    inserted: int = 24
    kept: int = 32
    selected: int = 4
    block: int = 1024
    most: int = 256
    spare: int = 8


def divisions(target: Target) -> tuple[Division, ...]:
    """The divisions for a target, the preferred one first."""
    if is_wide(target):
        return Division(), Division(block=512), Division(block=2048)
    return Division(), Division(long=1 << 30), Division(long=0), Division(kept=0)


def tilings(
    target: Target, how: Order, n: int, rows: int, wanted: int, is_dense: bool
) -> tuple[Tiling, ...]:
    """The ways to sort rows of `n` elements of which the first `wanted` are kept; the preferred one
    first."""
    if is_wide(target):
        merges = tuple(_merge(target, way.block, n) for way in divisions(target))
        way = divisions(target)[0]
        if wanted > way.most or n <= way.block:
            return merges
        line = max(1, target.line_bytes // how.dtype.itemsize) if is_dense else 1
        return (_select(way, target, n, wanted, line), *merges)
    ways = divisions(target)
    found = [_radix(way, target, how, n, rows, wanted, is_dense) for way in ways]
    return (*found, _merge(target, ways[0].block, n))


def _radix(
    way: Division, target: Target, how: Order, n: int, rows: int, wanted: int, is_dense: bool
) -> RadixTiling:
    slots = max(1, min(rows, 4 * target.cores))
    digit = 11 if how.dtype.bits > 16 and n >= way.long else 8
    is_few = wanted * way.selected <= n
    keeps = is_few and wanted <= way.kept
    line = max(1, target.line_bytes // how.key.itemsize) if is_dense else 1
    return RadixTiling(slots, digit, is_few, way.inserted, line if keeps else 0)


def _select(way: Division, target: Target, n: int, wanted: int, line: int) -> SelectTiling:
    """Units with some lines each, and room for more elements than are asked for."""
    units = 512 if n >= 1 << 14 else 256
    planes = units // max(1, target.plane_dim)
    room = 1 << max(256, way.spare * wanted - 1).bit_length()
    return SelectTiling(line, units, min(room, 2048), -(-wanted // planes))


def _merge(target: Target, block: int, n: int) -> MergeTiling:
    while block > 2 and block // 2 >= n:
        block //= 2
    return MergeTiling(block, max(1, block // 2) if is_wide(target) else 1)
