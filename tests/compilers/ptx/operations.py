"""What instructions of PTX compute, by name: functions of numbers and of the type's bits."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.compilers.ptx.numbers import BITS, bits_of, fused, meaning
from tests.compilers.ptx.parser import Instruction

Numbers = Callable[..., Any]


def _divided(a: int, b: int) -> int:
    quotient = abs(a) // abs(b) if b else -1  # as hardware does
    return -quotient if (a < 0) != (b < 0) and b else quotient


def _of_floats(name: str) -> Numbers:
    function = getattr(np, name)

    def computed(*numbers: float) -> float:
        with np.errstate(all="ignore"):
            return float(function(*map(np.float64, numbers)))

    return computed


def _extreme(name: str) -> Numbers:
    """The smaller or larger; of NaN and a number the number, and -0.0 is below 0.0."""

    def chosen(a: float, b: float) -> float:
        if math.isnan(a) or math.isnan(b):
            return b if math.isnan(a) else a
        first, second = sorted((a, b), key=lambda v: (v, math.copysign(1, v)))
        return first if name == "min" else second

    return chosen


INTEGERS: dict[str, Numbers] = {
    "add": operator.add,
    "sub": operator.sub,
    "neg": operator.neg,
    "not": operator.invert,
    "abs": abs,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "min": min,
    "max": max,
    "div": _divided,
    "rem": lambda a, b: a - b * _divided(a, b) if b else a,
}
FLOATS: dict[str, Numbers] = {
    "add": _of_floats("add"),
    "sub": _of_floats("subtract"),
    "mul": _of_floats("multiply"),
    "div": _of_floats("divide"),
    "sqrt": _of_floats("sqrt"),
    "neg": operator.neg,
    "abs": abs,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "copysign": lambda sign, v: math.copysign(v, sign),
}
"""Exact in f64 or rounded to it once: f32 and f16 are rounded a second time without harm."""
COMPARISONS: dict[str, Numbers] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_ROUNDED: dict[str, Numbers] = {
    "rni": lambda v: round(v),
    "rzi": math.trunc,
    "rmi": math.floor,
    "rpi": math.ceil,
}
_UNKNOWN = frozenset(("approx", "ftz", "sat", "NaN", "cc", "rz", "rm", "rp", "relu", "bf16"))
"""Modifiers of names that the machine does not have."""
_KNOWN = {"mul", "mad", "shl", "shr", "setp", "selp", "cvt", "fma", "popc", "clz", "bfe", "mov"}
_CONTROL = {"bra", "ret", "exit", "ld", "st", "cvta", "bar", "barrier", "membar", "fence"}


def is_known(one: Instruction) -> bool:
    """Whether the machine has the instruction."""
    table = FLOATS if one.type.startswith("f") else INTEGERS
    is_pair = any("|" in operand for operand in one.operands)
    known = one.name in _CONTROL or one.name in _KNOWN or one.name in table
    return known and not is_pair and _UNKNOWN.isdisjoint(one.parts)


def compute(one: Instruction, given: list[int]) -> int:
    """The bits of the result; `given` are the bits of the sources."""
    special = _SPECIAL.get(one.name)
    if special is not None:
        return special(one, given)
    kind = one.type
    numbers = [meaning(v, kind) for v in given]
    if one.name == "mul" and kind[0] != "f":
        return _product(one, numbers)
    table = FLOATS if kind[0] == "f" else INTEGERS
    return bits_of(table[one.name](*numbers), kind)


def _product(one: Instruction, numbers: list[Any], added: int = 0) -> int:
    kind, product = one.type, numbers[0] * numbers[1]
    if "hi" in one.parts:
        product >>= BITS[kind]
    wide = f"{kind[0]}{BITS[kind] * (2 if 'wide' in one.parts else 1)}"
    return bits_of(product + added, wide)


def _mad(one: Instruction, given: list[int]) -> int:
    numbers = [meaning(v, one.type) for v in given[:2]]
    return _product(one, numbers, given[2])


def _fma(one: Instruction, given: list[int]) -> int:
    a, b, c = (float(meaning(v, one.type)) for v in given)
    return bits_of(fused(a, b, c, one.type), one.type)


def _shift(one: Instruction, given: list[int]) -> int:
    size, by = BITS[one.type], given[1] & 0xFFFFFFFF
    number = int(meaning(given[0], one.type))
    if one.name == "shl":
        return bits_of(number << by if by < size else 0, one.type)
    return bits_of(number >> min(by, size), one.type)


def _setp(one: Instruction, given: list[int]) -> int:
    a, b = (meaning(v, one.type) for v in given[:2])
    word = one.parts[0]
    if one.parts[1] in ("and", "or", "xor"):
        plain = Instruction(one.name, (word, one.type), one.operands)
        return INTEGERS[one.parts[1]](_setp(plain, given[:2]), given[2])
    if one.type[0] == "f":
        either = math.isnan(a) or math.isnan(b)
        if word in ("num", "nan"):
            return either == (word == "nan")
        if word[-1] == "u" and len(word) == 3:
            return either or COMPARISONS[word[:2]](a, b)
        return not either and COMPARISONS[word](a, b)
    signless = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
    return COMPARISONS[signless.get(word, word)](a, b)


def _converted(one: Instruction, given: list[int]) -> int:
    target, source = one.parts[-2:]
    number = meaning(given[0], source)
    how = next((p for p in one.parts if p in _ROUNDED), None)
    if how is not None and math.isfinite(number):
        whole = _ROUNDED[how](number)
        number = math.copysign(whole, number) if target[0] == "f" else whole
    to_integer = source[0] == "f" and target[0] != "f"
    return bits_of(_saturated(number, target) if to_integer else number, target)


def _saturated(number: float, target: str) -> int:
    if number != number:
        return 0 if BITS[target] < 64 else -(1 << 63)
    low = -(1 << (BITS[target] - 1)) if target[0] == "s" else 0
    high = low + (1 << BITS[target]) - 1
    return int(min(max(number, low), high))


def _extracted(one: Instruction, given: list[int]) -> int:
    at, length = given[1] & 255, given[2] & 255
    field = (given[0] & ((1 << BITS[one.type]) - 1)) >> at & ((1 << length) - 1)
    is_negative = one.type[0] == "s" and length and field >> (length - 1)
    return bits_of(field - (1 << length) if is_negative else field, one.type)


_SPECIAL: dict[str, Callable[[Instruction, list[int]], int]] = {
    "mad": _mad,
    "fma": _fma,
    "shl": _shift,
    "shr": _shift,
    "setp": _setp,
    "selp": lambda one, given: given[0] if given[2] else given[1],
    "cvt": _converted,
    "popc": lambda one, given: (given[0] & ((1 << BITS[one.type]) - 1)).bit_count(),
    "clz": lambda one, given: BITS[one.type] - (given[0] % (1 << BITS[one.type])).bit_length(),
    "bfe": _extracted,
    "mov": lambda one, given: given[0],
}
