"""Finds inlined calls again: runs of operations that were traced in one call of the user's.

Each run becomes a function of its own, so that a debugger shows the user's calls, files and lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from cubepy.ir import ops
from cubepy.ir.core import Op, Region
from cubepy.span import Span

Key = tuple[Span, str, str]


@lru_cache(maxsize=1 << 16)
def path(span: Span | None) -> tuple[Span, ...]:
    """The spans from the kernel's own line inwards."""
    return tuple(reversed(list(span.chain()))) if span is not None else ()


def shown(span: Span | None, level: int) -> Span | None:
    """The part of a span that lies in the function at `level` inlined calls."""
    spans = path(span)
    return spans[min(level, len(spans) - 1)] if spans else None


def call_of(op: Op, level: int) -> Key | None:
    """The call that inlined `op` into the function at `level`: its place, file and function."""
    spans = path(op.span)
    if op.row.is_terminator or len(spans) <= level + 1:
        return None
    inner = spans[level + 1]
    return spans[level], inner.file, inner.function


def split(ops_: Sequence[Op], level: int) -> Iterator[tuple[bool, list[Op]]]:
    """Operations in order: (False, [one of this function]) or (True, those of one call)."""
    pending: list[Op] = []
    key: Key | None = None
    for op in ops_:
        found = call_of(op, level)
        if pending and found != key:
            yield from _finish(pending)
            pending = []
        key = found
        if found is None:
            yield False, [op]
        else:
            pending.append(op)
    yield from _finish(pending)


def _finish(pending: list[Op]) -> Iterator[tuple[bool, list[Op]]]:
    """A run whose jumps stay inside is a call; another one is left where it is."""
    if pending and not any(_jumps_out(op, False) for op in pending):
        yield True, pending
    else:
        yield from ((False, [op]) for op in pending)


def _jumps_out(op: Op, in_loop: bool) -> bool:
    if op.row is ops.RETURN or (op.row in (ops.BREAK, ops.CONTINUE) and not in_loop):
        return True
    inside = in_loop or op.row in (ops.FOR, ops.LOOP)
    return any(_jumps_out(inner, inside) for region in op.regions for inner in region.ops)


def contains(region: Region | Sequence[Op], rows: frozenset[ops.OpDef]) -> bool:
    """Whether an operation of `rows` stands here or in nested regions."""
    walked = region.walk() if isinstance(region, Region) else Region((), tuple(region)).walk()
    return any(op.row in rows for op in walked)
