"""Values of a trace in words, for error messages."""

from __future__ import annotations

from types import ModuleType
from typing import Any, cast

from cubepy.frontend.values import (
    ComptimeSlot,
    FlatRef,
    Formatted,
    Generated,
    Iterated,
    LocalFunction,
    Method,
    NumberSlot,
    Range,
    Record,
    RecordSlot,
    Table,
    TensorMapRef,
    TensorRef,
    TupleSlot,
    Unset,
    ViewSlot,
    is_comptime,
    is_sequence,
    type_of,
)
from cubepy.ir.core import Value
from cubepy.ir.types import DType, Kind, Line
from cubepy.lang.arrays import is_numpy
from cubepy.lang.builtins import Position

_LONGEST = 40
_LONGEST_INT = 128


INTEGER_HINTS = {
    Kind.FLOAT: "divide with //, or convert with cp.i64(value)",
    Kind.BOOL: "a condition selects nothing here: write `if`, or cp.where(mask, a, b)",
}
OF_TEXT = "its text is known when the kernel runs: pass it to print or cp.print"
"""What errors about formatted strings add."""
NO_INTEGER = "no type of integers holds it; write it as a float, as in 1e30"


def describe(x: Any) -> str:
    """A value in words: what it is, and which one where that is short."""
    if isinstance(x, Value):
        return f"a value of type {spell(x.type)}"
    if isinstance(x, TensorRef):
        return f"the tensor `{x.name}` (rank {x.rank})"
    if isinstance(x, Table):
        return f"the table `{x.name}`"
    if isinstance(x, FlatRef):
        return f"`{x.tensor.name}.flat`"
    if isinstance(x, TensorMapRef):
        return f"the tensor map `{x.name}`"
    if isinstance(x, Record):
        return f"a `{x.cls.__name__}`"
    if isinstance(x, Iterated):
        return f"{x.function}(...)"
    if isinstance(x, Generated):
        return "a generator expression"
    if isinstance(x, Range):
        return "range(...)"
    if isinstance(x, Method):
        return f"the method `{x.name}`, which is not called"
    if isinstance(x, LocalFunction):
        return f"the function `{x.source.name}`"
    if isinstance(x, Formatted):
        return "a formatted string"
    if is_sequence(x) and not is_comptime(x) and hasattr(type_of(x), "_fields"):
        return f"a `{type_of(x).__name__}`"
    if is_sequence(x) and not is_comptime(x):
        return f"a {type_of(x).__name__} of {len(x)}"
    if isinstance(x, dict) and not is_comptime(x):
        return f"a dict with {', '.join(map(repr, cast('dict[Any, Any]', x)))}"
    return _describe_python(x)


def spell(t: object) -> str:
    """A type as users write it, without the `cp.`."""
    return f"Line[{t.element.name}, {t.width}]" if isinstance(t, Line) else repr(t)


def _describe_python(x: Any) -> str:
    """A comptime value in words."""
    if is_numpy(x):
        return f"an array of {x.dtype}"
    if isinstance(x, ModuleType):
        return f"the module `{x.__name__}`"
    if isinstance(x, DType | Line):
        return f"the dtype {x!r}"
    if isinstance(x, Position):
        return f"{x!r}"
    name = getattr(x, "__name__", None)
    if isinstance(name, str) and callable(x):
        return f"the {'class' if isinstance(x, type) else 'function'} `{name}`"
    if isinstance(x, int) and x.bit_length() > _LONGEST_INT:
        return f"an integer of {x.bit_length()} bits"
    text = repr(x)
    short = len(text) < _LONGEST and not text.startswith("<")
    return text if short else f"{_article(type_of(x).__name__)} {type_of(x).__name__}"


def _article(noun: str) -> str:
    return "an" if noun[:1].lower() in "aeiou" else "a"


def describe_slot(slot: Any) -> str:
    """What a mutable local holds, in words."""
    if isinstance(slot, NumberSlot):
        return spell(slot.local.type)
    if isinstance(slot, ViewSlot):
        return f"a view of `{slot.like.name}`"
    if isinstance(slot, TupleSlot):
        return f"a tuple of {len(slot.items)}"
    if isinstance(slot, RecordSlot):
        return f"a `{slot.cls.__name__}`"
    if isinstance(slot, Unset):
        return "not set"
    return describe(slot.value if isinstance(slot, ComptimeSlot) else slot)
