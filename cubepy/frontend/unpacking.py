"""Unpacking: what has items whose number is known, and which target takes which of them."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from cubepy.errors import Error
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import TensorRef, is_mapping, is_sequence
from cubepy.frontend.wording import describe
from cubepy.lang.arrays import is_numpy

MAX_UNROLLED = 1 << 16
"""Iterations that one loop may be unrolled to."""


def items_of(value: Any) -> Sequence[Any] | None:
    """The items of a tuple, range, text, bytes, mapping or constant array; None for others."""
    if isinstance(value, range):
        return value  # of any length
    if isinstance(value, str | bytes | bytearray) or is_sequence(value) or is_mapping(value):
        return list(value)
    return list(value) if is_numpy(value) and value.ndim else None


def limited(frame: Frame, items: Iterable[Any]) -> tuple[Any, ...]:
    """The items of a comptime sequence; E120 where each of so many would be traced."""
    found = tuple(islice(items, MAX_UNROLLED + 1))
    if len(found) > MAX_UNROLLED:
        count = str(len(items)) if isinstance(items, list | tuple) else None
        raise too_many(frame, count)
    return found


def too_many(frame: Frame, count: str | None = None) -> Error:
    """E120: more items than are traced, `count` where that is known."""
    count = f"over {MAX_UNROLLED}" if count is None else count
    return frame.tracer.error("E120", count=count, limit=MAX_UNROLLED)


def paired(frame: Frame, target: ast.Tuple | ast.List, value: Any) -> list[tuple[ast.expr, Any]]:
    """Each target of `a, *b, c = value` with what it takes: the starred one a tuple.

    E207 where `value` has too few items or too many, or their number is not known.
    """
    parts, items = target.elts, items_of(value)
    star = next((k for k, part in enumerate(parts) if isinstance(part, ast.Starred)), None)
    if items is None or len(items) < len(parts) - 1:
        raise _mismatch(frame, target, value, star is not None)
    if star is not None:
        end = len(items) - (len(parts) - star - 1)
        items = [*items[:star], limited(frame, items[star:end]), *items[end:]]
    if len(items) != len(parts):
        raise _mismatch(frame, target, value, star is not None)
    names = [part.value if isinstance(part, ast.Starred) else part for part in parts]
    return list(zip(names, items, strict=True))


def _mismatch(frame: Frame, target: ast.Tuple | ast.List, value: Any, has_star: bool) -> Error:
    frame.tracer.b.span = frame.span(target)
    count = len(target.elts)
    given = f"a tuple of {len(value)}" if is_sequence(value) else describe(value)
    expected = f"a tuple of {count - 1} or more" if has_star else f"a tuple of {count}"
    what = f"unpacking into {count} names"
    hint = None
    if isinstance(value, TensorRef) and value.rank == 1:
        hint = (
            "read the elements, as in `a, b = x[0], x[1]`, or lines of them: cp.load(x, 0, line=2)"
        )
    return frame.tracer.error("E207", what=what, expected=expected, given=given, hint=hint)
