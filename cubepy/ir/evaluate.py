"""Evaluation of pure operations on Python numbers, through the meanings in the op table.

A value is a tuple with one number per lane; scalars have one lane. Most rows have a meaning per
lane; the functions below are the evaluations of the others, to which their rows refer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cubepy.ir.meaning import Meaning
from cubepy.ir.numbers import Number, convert, from_bits, to_bits
from cubepy.ir.opdef import Attrs, Evaluation, Lanes, OpDef
from cubepy.ir.types import Type, element_of, width_of


def evaluate(
    row: OpDef, attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]
) -> Lanes | None:
    """What an operation gives for operands of these types; None where only a device knows."""
    if row.evaluation is not None:
        return row.evaluation(attrs, types, values)
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


def const(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    """The literal, in every lane."""
    t, number = _type(attrs), attrs["value"]
    assert isinstance(number, int | float)
    return (convert(number, element_of(t)),) * width_of(t)  # literals are written in full


def cast(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    """Each lane converted."""
    target = element_of(_type(attrs))
    return tuple([convert(number, target) for number in values[0]])


def bitcast(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes | None:
    """Python floats do not keep the payload of a NaN, so its bits are unknown."""
    source, target = element_of(types[0]), element_of(_type(attrs))
    lanes = tuple([from_bits(to_bits(number, source), target) for number in values[0]])
    return None if any(map(math.isnan, values[0] + lanes)) else lanes


def select(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    """Of each lane, or as a whole: the first where the mask is true, else the second."""
    mask, yes, no = values
    if len(mask) < len(yes):
        return yes if mask[0] else no
    return tuple([a if chosen else b for chosen, a, b in zip(mask, yes, no, strict=True)])


def lookup(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    """The number at each index, which is clamped to the table."""
    table = attrs["table"]
    assert isinstance(table, tuple)
    found = (table[min(max(int(place), 0), len(table) - 1)] for place in values[0])
    numbers = (number for number in found if isinstance(number, int | float))
    return tuple([convert(number, element_of(_type(attrs))) for number in numbers])


def splat(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    """The scalar in every lane."""
    return values[0] * _integer(attrs, "lanes")


def extract(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes | None:
    """One lane; None where there is no such lane."""
    lane = int(values[1][0]) if len(values) > 1 else _integer(attrs, "lane")
    return (values[0][lane],) if 0 <= lane < len(values[0]) else None


def insert(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    """The line with one lane replaced."""
    lane = _integer(attrs, "lane")
    return values[0][:lane] + values[1] + values[0][lane + 1 :]


def shuffle(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    """Lanes of the concatenation."""
    both, lanes = values[0] + values[1], attrs["lanes"]
    assert isinstance(lanes, tuple)
    return tuple([both[lane] for lane in lanes if isinstance(lane, int)])


def lane_mask(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
    """True in lanes from the first up to the end."""
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


def reduction(meaning: Meaning) -> Evaluation:
    """The lanes combined in the order of `halves`."""

    def evaluation(attrs: Attrs, types: Sequence[Type], values: Sequence[Lanes]) -> Lanes:
        dtype = element_of(types[0])
        return (halves(values[0], lambda a, b: meaning(dtype, a, b)),)

    return evaluation
