"""Sorting by one unit for each row: by digits of keys, or by insertion where rows are short.

A row is filled into scratch as keys and their positions, and digits are sorted from the lowest on,
each stably (Knuth, TAOCP 5.2.5). Where only the first elements are asked for, scratch is filled
with those that may be among them: whenever it is full these are selected by digits, and the last of
them bounds what is taken from then on.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp
from cubepy.kernels.calls.positions import product, unravelled
from cubepy.kernels.sorting.keys import key_of
from cubepy.kernels.sorting.problem import Order
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class RadixTiling:
    """How units sort: `slots` of them, each with scratch for a row at a time, by digits of `digit`
    bits. `inserted`: elements up to which they are inserted one by one. Where `room` is not 0 the
    first elements are selected from so many, which must be a line more than are asked for; or, if
    `keeps`, they are kept in order all the time. Then `line` elements at a time are compared with
    the last of them.
    """

    slots: int
    digit: int
    inserted: int
    room: int = 0
    keeps: bool = False
    line: int = 1


@cp.cube
def sort_rows(
    x: cp.Tensor,
    keys: cp.Tensor,
    order: cp.Tensor,
    values: cp.Tensor,
    indices: cp.Tensor,
    how: cp.Comptime[Order],
    tiling: cp.Comptime[RadixTiling],
) -> None:
    """A cube of one unit sorts every `slots`th row; `keys` and `order` are [slot, 2, element], of
    as many elements as are held at once."""
    slot, rows = cp.CUBE_POS, product(values.shape[:-1])
    for r in range(slot, rows, tiling.slots):
        where = unravelled(r, values.shape[:-1])
        place, wanted = 0, values.shape[-1]
        if tiling.keeps:
            keep_least(x[where], keys[slot, 0], order[slot, 0], wanted, how, tiling.line)
        else:
            place = sorted_row(x[where], keys[slot], order[slot], wanted, how, tiling)
        for j in range(wanted):
            at = order[slot, place, j]
            values[(*where, j)] = x[(*where, at)]
            indices[(*where, j)] = at


def sorted_row(x: Any, keys: Any, order: Any, wanted: Any, how: Any, tiling: Any) -> Any:
    """Sort a row; gives which half of the scratch has the result."""
    count = x.shape[0]
    counts = cp.local(1 << tiling.digit, how.position)
    if tiling.room:
        gather_least(x, keys[0], order[0], wanted, counts, how, tiling)
        count = wanted
    else:
        for j in range(count):
            keys[0, j] = key_of(x[j], how)
            order[0, j] = how.position(j)
    place = cp.i32(0)
    if count <= tiling.inserted:
        insert(keys[0], order[0], count)
    else:
        for shift in range(0, how.dtype.bits, tiling.digit):
            place = sort_digit(keys, order, place, count, shift, counts, how, tiling.digit)
    return place


def digit_of(key: Any, shift: Any, how: Any, digit: Any) -> Any:
    """One digit of a key, as an index."""
    return cp.i64((key >> how.key(shift)) & how.key((1 << digit) - 1))


def insert(keys: Any, order: Any, n: Any) -> None:
    """Sort by insertion."""
    for j in range(1, n):
        put_before_greater(keys, order, j, keys[j], order[j])


def put_before_greater(keys: Any, order: Any, place: Any, key: Any, position: Any) -> None:
    """Put an element before those of the first `place` that are greater, which move up by one."""
    k = place
    while k > 0 and keys[max(k - 1, 0)] > key:
        keys[k] = keys[k - 1]
        order[k] = order[k - 1]
        k = k - 1
    keys[k] = key
    order[k] = position


def keep_least(x: Any, keys: Any, order: Any, wanted: Any, how: Any, line: Any) -> None:
    """The `wanted` least elements of a row in order, of equal ones the first."""
    for j in range(wanted):
        put_before_greater(keys, order, j, key_of(x[j], how), how.position(j))
    worst, n = keys[wanted - 1], x.shape[0]
    for j in range(wanted, n, line):
        if (key_of(cp.load(x, j, line=line), how) < worst).any():
            for k in range(j, min(j + line, n)):
                key = key_of(x[k], how)
                if key < worst:
                    put_before_greater(keys, order, wanted - 1, key, how.position(k))
                    worst = keys[wanted - 1]


def gather_least(
    x: Any, keys: Any, order: Any, wanted: Any, counts: Any, how: Any, tiling: Any
) -> None:
    """Move the `wanted` least elements of a row to the front, as they follow each other."""
    j, count, worst, bounds, n = 0, 0, how.key(0), False, x.shape[0]
    while j < n:
        while j < n and count <= tiling.room - tiling.line:
            if not bounds or (key_of(cp.load(x, j, line=tiling.line), how) < worst).any():
                for k in range(j, min(j + tiling.line, n)):
                    key = key_of(x[k], how)
                    if not bounds or key < worst:
                        keys[count] = key
                        order[count] = how.position(k)
                        count = count + 1
            j = j + tiling.line
        select(keys, order, count, wanted, counts, how, tiling.digit)
        count, bounds, worst = wanted, True, keys[0]
        for k in range(1, wanted):
            worst = max(worst, keys[k])


def sort_digit(
    keys: Any, order: Any, place: Any, n: Any, shift: Any, counts: Any, how: Any, digit: Any
) -> Any:
    """Move the elements into the other half by one digit, unless they all share it."""
    for d in range(1 << digit):
        counts[d] = 0
    for j in range(n):
        d = digit_of(keys[place, j], shift, how, digit)
        counts[d] = counts[d] + 1
    found = place
    if counts[digit_of(keys[place, 0], shift, how, digit)] != how.position(n):
        begin = how.position(0)
        for d in range(1 << digit):
            size = counts[d]
            counts[d] = begin
            begin = begin + size
        for j in range(n):
            key = keys[place, j]
            d = digit_of(key, shift, how, digit)
            at = counts[d]
            counts[d] = at + 1
            keys[1 - place, at] = key
            order[1 - place, at] = order[place, j]
        found = 1 - place
    return found


def select(keys: Any, order: Any, n: Any, wanted: Any, counts: Any, how: Any, digit: Any) -> None:
    """Move the `wanted` least elements to the front, in the order in which they are; of equal ones
    the first."""
    bits = how.dtype.bits
    passes = (bits + digit - 1) // digit
    bound, known = how.key(0), how.key(0)
    rest, is_settled = how.position(wanted), False
    for p in range(passes):
        if not is_settled:
            shift = (passes - 1 - p) * digit
            for d in range(1 << digit):
                counts[d] = 0
            for j in range(n):
                if (keys[j] & known) == bound:
                    d = digit_of(keys[j], shift, how, digit)
                    counts[d] = counts[d] + 1
            top = cp.i64(0)
            while rest > counts[top]:
                rest = rest - counts[top]
                top = top + 1
            bound = bound | (how.key(top) << how.key(shift))
            known = known | (how.key((1 << digit) - 1) << how.key(shift))
            is_settled = rest == counts[top]
    found = cp.i64(0)
    for j in range(n):
        part = keys[j] & known
        is_equal = part == bound
        if part < bound or (is_equal and rest > 0):
            rest = rest - 1 if is_equal else rest
            keys[found] = keys[j]
            order[found] = order[j]
            found = found + 1
