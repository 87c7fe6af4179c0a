"""What plane operations give: from what each lane brings, what each lane takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from cubepy.ir.evaluate import halves
from cubepy.ir.numbers import Number, limits
from cubepy.ir.types import DType, Kind

Brought = Sequence["tuple[Any, ...] | None"]
"""The operands of each lane; None for units that returned."""
Combine = Callable[[Any, Any], Any]


def exchange(row: str, dtype: DType | None, combine: Combine | None, brought: Brought) -> list[Any]:
    """What each lane takes. `brought` has an entry for each unit of the plane."""
    if row == "plane_elect":
        first = next(k for k, b in enumerate(brought) if b is not None)
        return [k == first for k in range(len(brought))]
    if row == "plane_ballot":
        bits = sum(1 << k for k, b in enumerate(brought) if b is not None and b[0])
        return [bits] * len(brought)
    assert dtype is not None
    if row.startswith("plane_shuffle"):
        return _shuffle(row, dtype, brought)
    assert combine is not None
    start = identity(row, dtype)
    values = [start if b is None else b[0] for b in brought]
    if "clusive" in row:
        return _scan(values, combine, start, row.startswith("plane_inclusive"))
    return [halves(tuple(values), combine)] * len(brought)


def pad(brought: Brought, plane_dim: int) -> list[tuple[Any, ...] | None]:
    """With lanes that have no unit, which give the identity as well."""
    return [*brought, *[None] * (plane_dim - len(brought))]


def identity(row: str, dtype: DType) -> Number:
    """What units that returned give."""
    if row.endswith("prod"):
        return 1.0 if dtype.is_float else 1
    if row in ("plane_min", "plane_max"):
        if dtype.is_float:
            return -math.inf if row == "plane_max" else math.inf
        return limits(dtype)[row == "plane_min"]
    if dtype.kind is Kind.BOOL:
        return row == "plane_all"
    return 0.0 if dtype.is_float else 0


def _scan(values: list[Any], combine: Combine, start: Any, inclusive: bool) -> list[Any]:
    results: list[Any] = []
    for value in values:
        after = combine(start, value)
        results.append(after if inclusive else start)
        start = after
    return results


def _shuffle(row: str, dtype: DType, brought: Brought) -> list[Any]:
    return [None if b is None else _taken(row, dtype, k, b, brought) for k, b in enumerate(brought)]


def _taken(row: str, dtype: DType, own: int, mine: tuple[Any, ...], brought: Brought) -> Any:
    value, chosen = mine
    lane = {
        "plane_shuffle": chosen,
        "plane_shuffle_xor": own ^ chosen,
        "plane_shuffle_up": own - chosen,
        "plane_shuffle_down": own + chosen,
    }[row]
    if not 0 <= lane < len(brought):
        return value
    there = brought[lane]
    if there is not None:
        return there[0]
    zero = identity(row, dtype)
    return (zero,) * len(value) if isinstance(value, tuple) else zero
