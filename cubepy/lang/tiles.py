"""Which unit of a plane holds which elements of a tile of `cp.cmma`.

The matrix units of a target prescribe it: for NVIDIA's the PTX ISA, "Matrix Fragments for mma";
for Apple's there is no document, MLX (mlx/backend/metal/kernels/steel/gemm/mma.h) relies on the
same; for processors Intel's manual of the instruction set (AMX). Elsewhere factors lie in shared
memory, and sums are dealt out to the units in turn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from cubepy.ir.types import (
    DType,
    bf16,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    find_dtype,
    i8,
    i16,
    i32,
    u8,
    u16,
)
from cubepy.record import dataclass
from cubepy.targets import MatrixUnit, Target

USES = ("a", "b", "accumulator")
SUMS: dict[DType, DType] = {
    **dict.fromkeys((f8e4m3, f8e5m2, f16, bf16, f32), f32),
    f64: f64,
    **dict.fromkeys((i8, u8, i16, u16, i32), i32),
}
"""Types of factors, and what their products are added in."""
_WORD_BITS = 32
Place = Callable[[Any, Any], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Layout:
    """A tile in blocks of `rows` x `columns`, of which each unit holds `count` elements as `dtype`.

    `place(lane, k)` is where element k of a unit lies in its block. `packed`: elements in a word of
    32 bits, 0 where they are held one by one. `is_shared`: all lie in shared memory instead, in
    order. `unit`: the matrix unit that takes such blocks, None for none. `in_memory`: it reads them
    there, so that they need not be in registers. `neighbours`: so many sums that a unit holds one
    after the other lie beside each other in a row.
    """

    rows: int
    columns: int
    count: int
    dtype: DType
    place: Place
    packed: int = 0
    is_shared: bool = False
    unit: MatrixUnit | None = None
    in_memory: bool = False
    neighbours: int = 1


def choose(
    use: Any, rows: Any, columns: Any, dtype: Any, target: Target, plane: int, units: int
) -> Layout:
    """The layout of a tile; `plane` units make a plane, `units` a cube. ValueError says why not."""
    element = _checked(use, rows, columns, dtype)
    if min(plane, units) > 1 and units > plane and units % plane:
        raise ValueError(
            f"the last of the planes of {plane} has units missing: the cube has {units}"
        )
    unit = _unit_for(use, element, target)
    if unit is not None and plane == unit.units and units % plane == 0:
        return _LAYOUTS[unit.layout](use, element, unit, (rows, columns))
    return _in_turn(use, rows, columns, element, min(plane, units))


def _checked(use: Any, rows: Any, columns: Any, dtype: Any) -> DType:
    if use not in USES:
        raise ValueError(f'a fragment is used as "a", "b" or "accumulator", not as {use!r}')
    for extent in (rows, columns):
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
            raise ValueError(f"a fragment has comptime extents from 1 on, not {extent!r}")
    element = find_dtype(dtype)
    known = SUMS if use != "accumulator" else SUMS.values()
    if element is None or element not in known:
        names = ", ".join(t.name for t in dict.fromkeys(known))
        what = "an accumulator" if use == "accumulator" else "a factor"
        raise ValueError(f"{what} is of {names}; got {getattr(element, 'name', dtype)}")
    return element


def _unit_for(use: str, dtype: DType, target: Target) -> MatrixUnit | None:
    """The first of the target's matrix units that takes factors, or makes sums, of the type."""
    for unit in target.matrix_units:
        if dtype.name in ((unit.sums,) if use == "accumulator" else unit.takes):
            return unit
    return None


def _held(unit: MatrixUnit) -> DType:
    found = find_dtype(unit.factor)
    assert found is not None
    return found


def _of_mma(use: str, dtype: DType, unit: MatrixUnit, extents: tuple[int, int]) -> Layout:
    """The fragments of mma.m16n8: elements of factors are packed into words, f64 lie one by one."""
    if use == "accumulator":
        return Layout(unit.m, unit.n, 4, dtype, _place_of_sums, unit=unit, neighbours=2)
    held = _held(unit)
    packed = _WORD_BITS // held.bits
    each = max(packed, 1)
    if use == "a":
        place = partial(_place_of_a, each)
        return Layout(unit.m, unit.k, 4, held, place, packed, unit=unit)
    return Layout(unit.k, unit.n, 2, held, partial(_place_of_b, each), packed, unit=unit)


def _of_simdgroup(use: str, dtype: DType, unit: MatrixUnit, extents: tuple[int, int]) -> Layout:
    """Blocks of 8 x 8, all alike."""
    held = dtype if use == "accumulator" else _held(unit)
    return Layout(unit.m, unit.n, 2, held, _place_of_apple, unit=unit, neighbours=2)


def _of_amx(use: str, dtype: DType, unit: MatrixUnit, extents: tuple[int, int]) -> Layout:
    """Factors in blocks with rows of 64 bytes; of a right factor each word holds neighbours of a
    column. Sums in rows, as if there were no unit, since factors of other types share them."""
    if use == "accumulator":
        rows, columns = -(-extents[0] // unit.m) * unit.m, -(-extents[1] // unit.n) * unit.n
        place = partial(_place_in_turn, 1, columns)
        return Layout(rows, columns, rows * columns, dtype, place, unit=unit, in_memory=True)
    held, count = _held(unit), unit.m * unit.k
    if use == "a":
        place = partial(_place_in_turn, 1, unit.k)
        return Layout(unit.m, unit.k, count, held, place, unit=unit, in_memory=True)
    place = partial(_place_in_words, unit.k, _WORD_BITS // held.bits)
    return Layout(unit.k, unit.n, count, held, place, unit=unit, in_memory=True)


def _in_turn(use: str, rows: int, columns: int, dtype: DType, units: int) -> Layout:
    """One block: factors in shared memory, sums dealt out; one unit alone has all for itself."""
    is_shared = use != "accumulator" and units > 1
    count = -(-rows * columns // units)
    place = partial(_place_in_turn, units, columns)
    return Layout(rows, columns, count, dtype, place, is_shared=is_shared)


def _place_of_a(packed: int, lane: Any, k: int) -> tuple[Any, Any]:
    word, part = divmod(k, packed)
    return lane // 4 + word % 2 * 8, lane % 4 * packed + word // 2 * 4 * packed + part


def _place_of_b(packed: int, lane: Any, k: int) -> tuple[Any, Any]:
    word, part = divmod(k, packed)
    return lane % 4 * packed + word * 4 * packed + part, lane // 4


def _place_of_sums(lane: Any, k: int) -> tuple[Any, Any]:
    return lane // 4 + k // 2 * 8, lane % 4 * 2 + k % 2


def _place_of_apple(lane: Any, k: int) -> tuple[Any, Any]:
    return lane // 16 * 4 + lane // 2 % 4, lane // 8 % 2 * 4 + lane % 2 * 2 + k


def _place_in_turn(units: int, columns: int, lane: Any, k: Any) -> tuple[Any, Any]:
    return (k * units + lane) // columns, (k * units + lane) % columns


def _place_in_words(depth: int, word: int, lane: Any, k: Any) -> tuple[Any, Any]:
    return k // depth * word + k % word, k % depth // word


_LAYOUTS: dict[str, Callable[[str, DType, MatrixUnit, tuple[int, int]], Layout]] = {
    "mma": _of_mma,
    "simdgroup": _of_simdgroup,
    "amx": _of_amx,
}
"""How each kind of matrix unit holds its matrices; see `targets.MatrixUnit`."""
