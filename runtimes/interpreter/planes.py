"""What plane operations give: the result of each lane, from the operands of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cubepy.ir import ops
from cubepy.ir.evaluate import halves
from cubepy.ir.opdef import OpDef, Scan
from cubepy.ir.types import DType

Operands = Sequence["tuple[Any, ...] | None"]
"""The operands of each lane; None for units that returned."""
Combine = Callable[[Any, Any], Any]


def exchange(
    name: str, dtype: DType | None, combine: Combine | None, operands: Operands
) -> list[Any]:
    """The result of each lane. `operands` has an entry for each unit of the plane.

    `combine`: the step of the row on numbers of type `dtype`, or on lines of them.
    """
    row = ops.TABLE[name]
    if row is ops.PLANE_ELECT:
        first = next(k for k, b in enumerate(operands) if b is not None)
        return [k == first for k in range(len(operands))]
    if row is ops.PLANE_BALLOT:
        bits = sum(1 << k for k, b in enumerate(operands) if b is not None and b[0])
        return [bits] * len(operands)
    assert dtype is not None
    if row.step is None:
        return _shuffle(row, dtype, operands)
    assert combine is not None
    start = row.start(dtype)
    values = [_widened(start, operands) if b is None else b[0] for b in operands]
    if row.scan is not None:
        return _scan(values, combine, _widened(start, operands), row.scan is Scan.INCLUSIVE)
    return [halves(tuple(values), combine)] * len(operands)


def _widened(number: Any, operands: Operands) -> Any:
    """A number in as many lanes as the lines have that units give; itself beside scalars."""
    line = next((b[0] for b in operands if b is not None), None)
    return (number,) * len(line) if isinstance(line, tuple) else number


def pad(operands: Operands, plane_dim: int) -> list[tuple[Any, ...] | None]:
    """With lanes that have no unit, which give the identity as well."""
    return [*operands, *[None] * (plane_dim - len(operands))]


def _scan(values: list[Any], combine: Combine, start: Any, inclusive: bool) -> list[Any]:
    results: list[Any] = []
    for value in values:
        after = combine(start, value)
        results.append(after if inclusive else start)
        start = after
    return results


def _shuffle(row: OpDef, dtype: DType, operands: Operands) -> list[Any]:
    return [
        None if b is None else _taken(row, dtype, k, b, operands) for k, b in enumerate(operands)
    ]


_LANES: dict[OpDef, Callable[[int, int], int]] = {
    ops.PLANE_SHUFFLE: lambda own, chosen: chosen,
    ops.PLANE_SHUFFLE_XOR: lambda own, mask: own ^ mask,
    ops.PLANE_SHUFFLE_UP: lambda own, delta: own - delta,
    ops.PLANE_SHUFFLE_DOWN: lambda own, delta: own + delta,
}


def _taken(row: OpDef, dtype: DType, own: int, mine: tuple[Any, ...], operands: Operands) -> Any:
    value, chosen = mine
    lane = _LANES[row](own, chosen)
    if not 0 <= lane < len(operands):
        return value
    there = operands[lane]
    return _widened(row.start(dtype), operands) if there is None else there[0]
