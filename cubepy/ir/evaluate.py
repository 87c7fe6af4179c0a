"""Evaluation of pure operations on Python numbers, through the meanings in the op table.

A value is a tuple with one number per lane; scalars have one lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cubepy.ir import meaning as m
from cubepy.ir import ops
from cubepy.ir.meaning import Meaning
from cubepy.ir.numbers import Number, convert, from_bits, to_bits
from cubepy.ir.opdef import Attrs, OpDef
from cubepy.ir.types import DType, Type, element_of, width_of

Lanes = tuple[Number, ...]
Evaluation = Callable[[Attrs, Sequence[Type], Sequence[Lanes]], "Lanes | None"]


def evaluate(
    row: OpDef, attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]
) -> Lanes | None:
    """What an operation gives for operands of these types; None where only a device knows."""
    special = _SPECIAL.get(row)
    if special is not None:
        return special(attrs, types, values)
    meaning = row.meaning
    if meaning is None:
        return None
    dtype = element_of(types[0])
    return tuple([meaning(dtype, *lane) for lane in zip(*values, strict=True)])


def _type(attrs: Attrs) -> Type:
    t = attrs["type"]
    assert not isinstance(t, int | float | str | tuple)
    return t


def _integer(attrs: Attrs, name: str) -> int:
    number = attrs[name]
    assert isinstance(number, int)
    return number


def _const(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    t, number = _type(attrs), attrs["value"]
    assert isinstance(number, int | float)
    return (convert(number, element_of(t)),) * width_of(t)  # literals are written in full


def _cast(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    target = element_of(_type(attrs))
    return tuple([convert(number, target) for number in values[0]])


def _bitcast(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes | None:
    """Python floats do not keep the payload of a NaN, so its bits stay unknown."""
    source, target = element_of(types[0]), element_of(_type(attrs))
    lanes = tuple([from_bits(to_bits(number, source), target) for number in values[0]])
    return None if any(map(math.isnan, values[0] + lanes)) else lanes


def _select(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    mask, yes, no = values
    if len(mask) < len(yes):
        return yes if mask[0] else no
    return tuple([a if chosen else b for chosen, a, b in zip(mask, yes, no, strict=True)])


def _splat(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    return values[0] * _integer(attrs, "lanes")


def _extract(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes | None:
    lane = int(values[1][0]) if len(values) > 1 else _integer(attrs, "lane")
    return (values[0][lane],) if 0 <= lane < len(values[0]) else None


def _insert(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    lane = _integer(attrs, "lane")
    return values[0][:lane] + values[1] + values[0][lane + 1 :]


def _shuffle(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    both, lanes = values[0] + values[1], attrs["lanes"]
    assert isinstance(lanes, tuple)
    return tuple([both[lane] for lane in lanes if isinstance(lane, int)])


def _lane_mask(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    first, end = values[0][0], values[1][0]
    return tuple([first <= lane < end for lane in range(_integer(attrs, "lanes"))])


def halves(lanes: Lanes, combine: Callable[[Number, Number], Number]) -> Number:
    """The lanes combined in the order that reductions promise: halves, lane by lane.

    An odd lane in the middle waits for the next round, behind the others.
    """
    while half := len(lanes) // 2:
        rest = lanes[2 * half :]
        lanes = tuple(map(combine, lanes[:half], lanes[half : 2 * half])) + rest
    return lanes[0]


def _reduction(meaning: Meaning) -> Evaluation:
    def evaluation(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
        dtype: DType = element_of(types[0])
        return (halves(values[0], lambda a, b: meaning(dtype, a, b)),)

    return evaluation


_SPECIAL: dict[OpDef, Evaluation] = {
    ops.CONST: _const,
    ops.CAST: _cast,
    ops.BITCAST: _bitcast,
    ops.SELECT: _select,
    ops.SPLAT: _splat,
    ops.EXTRACT: _extract,
    ops.INSERT: _insert,
    ops.SHUFFLE: _shuffle,
    ops.LANE_MASK: _lane_mask,
    ops.REDUCE_ADD: _reduction(m.add),
    ops.REDUCE_MUL: _reduction(m.mul),
    ops.REDUCE_MIN: _reduction(m.minimum),
    ops.REDUCE_MAX: _reduction(m.maximum),
    ops.REDUCE_AND: _reduction(m.bit_and),
    ops.REDUCE_OR: _reduction(m.bit_or),
}
