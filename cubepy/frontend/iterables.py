"""What loops run over at run time: ranges, tensors, and `zip`, `enumerate`, `map` and `reversed` of
them. Their items are computed one by one, where the loop asks for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from cubepy.frontend.attributes import counted_shape, node_here
from cubepy.frontend.calls import call
from cubepy.frontend.tables import look_up, table_of
from cubepy.frontend.tensors import load_item
from cubepy.frontend.tracer import Frame
from cubepy.frontend.unpacking import MAX_UNROLLED, items_of
from cubepy.frontend.values import (
    FlatRef,
    Generated,
    Index,
    Iterated,
    Range,
    Table,
    TensorRef,
    Unroll,
)


def is_lazy(sequence: Any) -> bool:
    """Whether the items of `sequence` are computed one by one, at run time: they are not known, or
    too many."""
    if isinstance(sequence, TensorRef):
        return sequence.rank > 0
    if isinstance(sequence, range):
        return bool(sequence[MAX_UNROLLED:])
    return isinstance(sequence, Range | FlatRef | Iterated | Table | Generated)


def count_of(frame: Frame, sequence: Any) -> Index:
    """How many items an iterable has."""
    if isinstance(sequence, TensorRef):
        frame.tracer.facts.shaped.add(sequence.name)
        return counted_shape(frame, sequence)[0]
    if isinstance(sequence, FlatRef):
        return frame.tracer.product(counted_shape(frame, sequence.tensor))
    if isinstance(sequence, Table):
        return sequence.shape[0]
    if isinstance(sequence, Range):
        return _length(frame, sequence)
    if isinstance(sequence, Iterated):
        return reduce(frame.tracer.minimum, [count_of(frame, part) for part in sequence.parts])
    items = sequence.items if isinstance(sequence, Unroll) else items_of(sequence)
    assert items is not None
    return len(items)


def _length(frame: Frame, r: Range) -> Index:
    """The number of items of a range: the distance in steps, rounded up."""
    tracer, step = frame.tracer, known_step(frame, r)
    distance = tracer.sub(r.stop, r.start) if step > 0 else tracer.sub(r.start, r.stop)
    steps = tracer.floordiv(tracer.add(distance, abs(step) - 1), abs(step))
    return tracer.maximum(steps, 0)


def known_step(frame: Frame, r: Range) -> int:
    """The step of a range, which is not 0; E112 where it is known at run time only."""
    if not isinstance(r.step, int):
        hint = "loop over range(n), and compute the position"
        raise frame.tracer.error("E112", what="the step of a range whose items count", hint=hint)
    if r.step == 0:
        raise frame.tracer.error("E113", error="ValueError: range() arg 3 must not be zero")
    return r.step


def item_at(frame: Frame, sequence: Any, i: Index) -> Any:
    """The item of an iterable at a position from 0."""
    tracer = frame.tracer
    if isinstance(sequence, TensorRef | FlatRef):
        return load_item(tracer, sequence, i)
    if isinstance(sequence, Range | range):
        return tracer.add(sequence.start, tracer.mul(i, sequence.step))
    if isinstance(sequence, Iterated):
        return _ITEMS[sequence.function](frame, sequence, i)
    if isinstance(sequence, Table):
        return look_up(tracer, sequence, i)
    known = sequence.items if isinstance(sequence, Unroll) else sequence
    table = table_of(tracer, known, "a sequence")
    if table is None:
        hint = "zip it with what are numbers at comptime, or put values into a cp.local"
        raise tracer.error("E112", what="what stands beside a tensor or its like", hint=hint)
    return look_up(tracer, table, i)


def backwards(frame: Frame, r: Range) -> Range:
    """The items of a range from its end."""
    tracer, step = frame.tracer, known_step(frame, r)
    last = tracer.sub(r.stop, 1 if step > 0 else -1)
    if abs(step) > 1:
        steps = tracer.floordiv(tracer.sub(last, r.start), step)
        last = tracer.add(r.start, tracer.mul(steps, step))
    return Range(last, tracer.sub(r.start, step), -step)


# `zip` and its like


def zipped(*sequences: Any) -> Iterated:
    """Tuples of the items of all sequences, as many as the shortest has."""
    return Iterated("zip", sequences)


def enumerated(sequence: Any, start: Any) -> Iterated:
    """Pairs of a number, which counts from `start`, and an item."""
    return Iterated("enumerate", (sequence,), start)


def mapped(function: Any, *sequences: Any) -> Iterated:
    """Results of a function of the items of all sequences."""
    return Iterated("map", sequences, function)


def turned(sequence: Any) -> Iterated:
    """The items from the last to the first."""
    return Iterated("reversed", (sequence,))


def _parts_at(frame: Frame, of: Iterated, i: Index) -> tuple[Any, ...]:
    return tuple([item_at(frame, part, i) for part in of.parts])


def _pair(frame: Frame, of: Iterated, i: Index) -> Any:
    return frame.tracer.add(of.other, i), item_at(frame, of.parts[0], i)


def _result(frame: Frame, of: Iterated, i: Index) -> Any:
    return call(frame, node_here(frame), of.other, list(_parts_at(frame, of, i)), {})


def _from_end(frame: Frame, of: Iterated, i: Index) -> Any:
    last = frame.tracer.sub(count_of(frame, of), 1)
    return item_at(frame, of.parts[0], frame.tracer.sub(last, i))


_ITEMS: dict[str, Callable[[Frame, Iterated, Index], Any]] = {
    "zip": _parts_at,
    "enumerate": _pair,
    "map": _result,
    "reversed": _from_end,
}
