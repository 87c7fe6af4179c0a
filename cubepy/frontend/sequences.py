"""Sequences and what Python's functions make of them: `len`, `range`, `zip` and their like."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from typing import Any, cast

from cubepy.frontend.attributes import counted_shape, node_here
from cubepy.frontend.dispatch import intrinsic
from cubepy.frontend.iterables import (
    backwards,
    count_of,
    enumerated,
    is_lazy,
    turned,
    zipped,
)
from cubepy.frontend.overloads import apply_method
from cubepy.frontend.running import comptime_result
from cubepy.frontend.tracer import Frame
from cubepy.frontend.unpacking import items_of, limited
from cubepy.frontend.values import (
    FlatRef,
    Iterated,
    Range,
    Record,
    Row,
    Table,
    TensorRef,
    Unroll,
    is_comptime,
    is_number,
    is_sequence,
)
from cubepy.frontend.wording import describe
from cubepy.ir.core import Value
from cubepy.lang import builtins as lang


@intrinsic(builtins.len)
def _len(frame: Frame, x: Any) -> Any:
    if isinstance(x, TensorRef):
        frame.tracer.facts.shaped.add(x.name)
        return counted_shape(frame, x)[0]
    found = apply_method(frame, node_here(frame), x, "__len__")
    if found is not NotImplemented:
        return found
    if isinstance(x, Range | FlatRef):
        return count_of(frame, x)
    if isinstance(x, Value | Record | Iterated):
        line = "a line has `line_size` lanes; a number has no length"
        hint = line if isinstance(x, Value) else None
        raise frame.tracer.error(
            "E207", what="len()", expected="a tensor or a sequence", given=describe(x), hint=hint
        )
    return x.shape[0] if isinstance(x, Table) else len(x)


@intrinsic(builtins.range)
def _range(frame: Frame, *args: Any) -> Any:
    if not 1 <= len(args) <= 3:
        reason = f"it takes 1 to 3 numbers, not {len(args)}"
        signature = "range(start, stop, step)"
        raise frame.tracer.error("E106", name="range", reason=reason, signature=signature)
    parts = [frame.tracer.index(a, "range()") for a in args]
    start, stop, step = (0, parts[0], 1) if len(parts) == 1 else (*parts, 1)[:3]
    if all(isinstance(p, int) for p in (start, stop, step)):
        return range(start, stop, step)  # type: ignore[arg-type]
    return Range(start, stop, step)


@intrinsic(lang.unroll)
def _unroll(frame: Frame, iterable: Any) -> Unroll:
    if isinstance(iterable, Unroll):
        return iterable
    if isinstance(iterable, Range) or not (is_comptime(iterable) or is_sequence(iterable)):
        hint = "loop over range(...) itself, which need not be unrolled"
        raise frame.tracer.error("E112", what="the length of an unrolled loop", hint=hint)
    if not isinstance(iterable, Iterable):
        given = describe(iterable)
        raise frame.tracer.error(
            "E207", what="cp.unroll", expected="range(...) or a tuple", given=given
        )
    return Unroll(limited(frame, cast("Iterable[Any]", iterable)))


@intrinsic(builtins.zip)
def _zip(frame: Frame, *sequences: Any, strict: bool = False) -> Any:
    if not any(is_lazy(s) for s in sequences):
        items = [items_of_call(frame, s, "zip") for s in sequences]
        return tuple(comptime_result(frame, list, zip(*items, strict=strict)))
    if strict:
        hint = "leave `strict` out: the shortest ends the loop"
        raise frame.tracer.error("E112", what="how many items zip() compares", hint=hint)
    parts = [iterable_of_call(frame, s, "zip") for s in sequences]
    return () if any(count_of(frame, p) == 0 for p in parts) else zipped(*parts)


@intrinsic(builtins.enumerate)
def _enumerate(frame: Frame, iterable: Any, start: Any = 0) -> Any:
    start = frame.tracer.index(start, "the start of enumerate()")
    if is_lazy(iterable):
        return enumerated(iterable, start)
    items = items_of_call(frame, iterable, "enumerate")
    return tuple([(frame.tracer.add(start, k), item) for k, item in enumerate(items)])


@intrinsic(builtins.reversed)
def _reversed(frame: Frame, sequence: Any) -> Any:
    if isinstance(sequence, Range):
        return backwards(frame, sequence)
    if isinstance(sequence, range) and is_lazy(sequence):
        return sequence[::-1]
    if isinstance(sequence, TensorRef | Table) and is_lazy(sequence):
        return turned(sequence)
    if isinstance(sequence, Iterated | FlatRef):
        given = sequence.function if isinstance(sequence, Iterated) else "numpy.flatiter"
        text = f"TypeError: '{given}' object is not reversible"
        raise frame.tracer.error("E113", error=text)
    return tuple(reversed(items_of_call(frame, sequence, "reversed")))


@intrinsic(builtins.tuple, builtins.list)
def _tuple(frame: Frame, sequence: Any = ()) -> Any:
    return tuple(items_of_call(frame, sequence, "tuple"))


def items_of_call(
    frame: Frame, sequence: Any, what: str, hint: str = "loop over range(n), and index"
) -> tuple[Any, ...]:
    """The items of a sequence that a function takes; E112 where their number is not known."""
    if isinstance(sequence, Unroll):
        return sequence.items
    items = items_of(sequence)
    if items is None:
        if isinstance(sequence, Value) or is_number(sequence):
            given = describe(sequence)
            raise frame.tracer.error("E207", what=f"{what}()", expected="a sequence", given=given)
        if isinstance(sequence, TensorRef) and not sequence.rank:
            hint = f"it has no axes: read it as {sequence.name}[()]"
        raise frame.tracer.error("E112", what=f"what {what}() runs over", hint=hint)
    return limited(frame, items)


def iterable_of_call(frame: Frame, sequence: Any, what: str) -> Any:
    """What has items, known or not: as it is, or a tuple where each of few is traced."""
    is_kept = is_lazy(sequence) or isinstance(sequence, range | Row)
    return sequence if is_kept else items_of_call(frame, sequence, what)
