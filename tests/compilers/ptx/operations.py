"""What instructions of PTX compute, by name: functions of numbers and of the type's bits."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tests.compilers.ptx.numbers import BITS, bits_of, directed, fused, is_float, meaning
from tests.compilers.ptx.parser import Instruction
from tests.compilers.ptx.warps import EXCHANGES, is_exchange

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
    "mul": operator.mul,
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
    "rcp": lambda v: FLOATS["div"](1.0, v),
    "rsqrt": lambda v: FLOATS["div"](1.0, FLOATS["sqrt"](v)),
    "ex2": _of_floats("exp2"),
    "lg2": _of_floats("log2"),
    "sin": _of_floats("sin"),
    "cos": _of_floats("cos"),
    "tanh": _of_floats("tanh"),
    "neg": operator.neg,
    "abs": abs,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "copysign": lambda sign, v: math.copysign(v, sign),
}
"""Exact in f64 or rounded to it once: f32 and f16 are rounded a second time without harm.

The hardware may be off by some ULP in those that are named `approx`.
"""
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
_PACKED = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2")
_UNKNOWN = frozenset(("cc", "relu", *_PACKED))
"""Modifiers of names that the machine does not have."""
_DIRECTIONS = ("rz", "rm", "rp")
_DIRECTED = ("add", "sub", "mul", "fma", "cvt")
"""What may round otherwise than to the nearest."""
_CONTROL = {
    "bra",
    "ret",
    "exit",
    "ld",
    "st",
    "cvta",
    "bar",
    "barrier",
    "membar",
    "fence",
    "griddepcontrol",
    "mbarrier",
}
_UPDATES: dict[str, Numbers] = {
    **{name: INTEGERS[name] for name in ("add", "min", "max", "and", "or", "xor")},
    "exch": lambda old, new: new,
}


def updated(one: Instruction, old: int, given: list[int]) -> int:
    """The bits that an atomic operation leaves."""
    kind = one.type
    if "cas" in one.parts:
        return given[1] % (1 << BITS[kind]) if old == given[0] % (1 << BITS[kind]) else old
    name = next(part for part in one.parts if part in _UPDATES)
    numbers = [meaning(bits, kind) for bits in (old, *given)]
    return bits_of((FLOATS if kind[0] == "f" else _UPDATES)[name](*numbers), kind)


def is_known(one: Instruction) -> bool:
    """Whether the machine has the instruction."""
    table = FLOATS if one.type.startswith("f") else INTEGERS
    is_pair = any("|" in operand for operand in one.operands)
    if one.name in EXCHANGES:
        return is_exchange(one)
    if one.name in ("atom", "red"):
        return "cas" in one.parts or not _UPDATES.keys().isdisjoint(one.parts)
    known = one.name in _CONTROL or one.name in _SPECIAL or one.name in table
    if _direction(one) and one.name not in _DIRECTED:
        return False
    return known and not is_pair and _UNKNOWN.isdisjoint(one.parts)


def _direction(one: Instruction) -> str:
    return next((part for part in one.parts if part in _DIRECTIONS), "")


def compute(one: Instruction, given: list[int]) -> int:
    """The bits of the result; `given` are the bits of the sources."""
    if "ftz" in one.parts:
        given = [_flushed(bits, one.type) for bits in given]
    found = _computed(one, given)
    if "sat" in one.parts:  # NaN becomes 0
        number = meaning(found, one.type)
        return bits_of(min(max(number, 0.0), 1.0) if number > 0 else 0.0, one.type)
    return _flushed(found, one.type) if "ftz" in one.parts else found


def _flushed(bits: int, kind: str) -> int:
    """Numbers of f32 below the smallest normal one as zeros."""
    return bits if kind != "f32" or bits & 0x7F80_0000 else bits & 0x8000_0000


def _computed(one: Instruction, given: list[int]) -> int:
    special = _SPECIAL.get(one.name)
    if special is not None:
        return special(one, given)
    kind = one.type
    numbers = [meaning(v, kind) for v in given]
    if one.name == "mul" and kind[0] != "f":
        return _product(one, numbers)
    if "NaN" in one.parts and any(map(math.isnan, numbers)):
        return bits_of(math.nan, kind)
    if _direction(one) and all(map(math.isfinite, numbers)):
        exact = INTEGERS[one.name](*map(Fraction, numbers))
        return bits_of(directed(exact, kind, _direction(one)), kind)
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
    if _direction(one) and all(map(math.isfinite, (a, b, c))):
        exact = Fraction(a) * Fraction(b) + Fraction(c)
        return bits_of(directed(exact, one.type, _direction(one)), one.type)
    return bits_of(fused(a, b, c, one.type), one.type)


def _shift(one: Instruction, given: list[int]) -> int:
    size, by = BITS[one.type], given[1] & 0xFFFFFFFF
    number = int(meaning(given[0], one.type))
    if one.name == "shl":
        return bits_of(number << by if by < size else 0, one.type)
    return bits_of(number >> min(by, size), one.type)


def _selected(one: Instruction, given: Any) -> Any:
    """Without the sign of a zero beside -1 in f32: ptxas makes integers of them."""
    if one.type == "f32" and sorted(one.operands[1:3]) == ["0f80000000", "0fBF800000"]:
        return bits_of(-1.0, one.type) if given[2] == (one.operands[1] == "0fBF800000") else 0
    return given[0] if given[2] else given[1]


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
        number = math.copysign(whole, number) if is_float(target) else whole
    if _direction(one) and number and math.isfinite(number):
        number = directed(Fraction(number), target, _direction(one))
    to_integer = is_float(source) and not is_float(target)
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


def _inserted(one: Instruction, given: list[int]) -> int:
    at, length = given[2] & 255, given[3] & 255
    mask = ((1 << length) - 1) << at
    return (given[1] & ~mask | given[0] << at & mask) & ((1 << BITS[one.type]) - 1)


def _permuted(one: Instruction, given: list[int]) -> int:
    """Bytes of two words; of one with bit 3 in its selector the sign."""
    both, found = given[0] & 0xFFFF_FFFF | (given[1] & 0xFFFF_FFFF) << 32, 0
    for k in range(4):
        chosen = given[2] >> 4 * k & 15
        byte = both >> 8 * (chosen & 7) & 255
        found |= (255 * (byte >> 7) if chosen & 8 else byte) << 8 * k
    return found


def _funnel(one: Instruction, given: list[int]) -> int:
    """A word of two that are shifted together; `clamp` stops at 32."""
    both, by = given[0] & 0xFFFF_FFFF | (given[1] & 0xFFFF_FFFF) << 32, given[2] & 0xFFFF_FFFF
    by = min(by, 32) if "clamp" in one.parts else by % 32
    return (both << by >> 32 if "l" in one.parts else both >> by) & 0xFFFF_FFFF


def _reversed(one: Instruction, given: list[int]) -> int:
    size = BITS[one.type]
    return int(f"{given[0] % (1 << size):0{size}b}"[::-1], 2)


_SPECIAL: dict[str, Callable[[Instruction, list[int]], int]] = {
    "mad": _mad,
    "fma": _fma,
    "shl": _shift,
    "shr": _shift,
    "setp": _setp,
    "selp": _selected,
    "cvt": _converted,
    "popc": lambda one, given: (given[0] & ((1 << BITS[one.type]) - 1)).bit_count(),
    "clz": lambda one, given: BITS[one.type] - (given[0] % (1 << BITS[one.type])).bit_length(),
    "bfe": _extracted,
    "bfi": _inserted,
    "prmt": _permuted,
    "shf": _funnel,
    "brev": _reversed,
    "mov": lambda one, given: given[0],
}
