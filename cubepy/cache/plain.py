"""What counts by its value alone, as bytes: numbers, texts, types of elements, and code."""

from __future__ import annotations

import marshal
import struct
from types import CodeType, NoneType
from typing import Any

import numpy as np

from cubepy.ir.types import DType
from cubepy.lang.builtins import Position

_LEAVES = frozenset((NoneType, bool, int, float, complex, str, bytes))
_HOLDERS = frozenset((list, tuple, dict))
_LEVELS = 32
"""How deep containers may lie in each other; those in a circle do so without end."""
_MOST = 1 << 22
"""Items of containers that are looked at: those that hold each other twice are many more."""


def plain_tokens(value: Any) -> tuple[str | bytes, ...] | None:
    """Numbers, texts and types of elements; None for anything else."""
    cls = type(value)
    if value is None or value is Ellipsis or cls in (bool, str):
        return cls.__name__, str(value)
    if cls is int:
        return "int", f"{value:x}"  # Python writes no decimals of very large ones
    if cls is float:
        return "float", struct.pack("<d", value)
    if cls is complex:
        return "complex", struct.pack("<dd", value.real, value.imag)
    if cls is bytes:
        return "bytes", value
    if isinstance(value, DType):
        return "dtype", value.name
    if isinstance(value, Position):
        return "position", value.name
    if isinstance(value, np.generic) and cls.__module__ in ("numpy", "ml_dtypes"):
        return "number", dtype_text(value.dtype), value.tobytes()
    if isinstance(value, np.dtype):
        return "numpy dtype", dtype_text(value)
    if cls.__module__ == "torch" and cls.__name__ == "dtype":
        return "torch", str(value)
    return None


def plain_bytes(value: Any) -> bytes | None:
    """Lists, tuples and dictionaries of numbers and texts, and of each other; None for what holds
    anything else. Nothing runs for each item but C: a list may be long."""
    level, count = [value], 0
    for _ in range(_LEVELS):
        kinds = set(map(type, level))
        if not kinds <= _LEAVES | _HOLDERS:
            return None
        if kinds.isdisjoint(_HOLDERS):
            return _marshalled(value)
        level = _inside(level)
        count += len(level)
        if count > _MOST:
            return None
    return None


def _inside(level: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in [x for x in level if type(x) in _HOLDERS]:
        if type(item) is dict:
            found += item.keys()
            found += item.values()
        else:
            found += item
    return found


def _marshalled(value: Any) -> bytes | None:
    """Version 2 of the format: later ones give an object that is held twice other bytes than two
    equal ones."""
    try:
        return marshal.dumps(value, 2)
    except (ValueError, RuntimeError):  # another thread changed it
        return None


def dtype_text(dtype: Any) -> str:
    """A NumPy dtype: those of other packages have no letters of their own."""
    return repr((dtype.str, dtype.name, dtype.descr, repr(dtype)))


def code_text(code: CodeType) -> bytes:
    """What code does, without where it stands."""
    consts = [code_text(c) if isinstance(c, CodeType) else _const_text(c) for c in code.co_consts]
    names = repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    counts = repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount))
    what = code.co_code, names.encode(), counts.encode(), code.co_exceptiontable
    return b"\0".join([*what, *consts])


def _const_text(value: Any) -> bytes:
    """A constant of code; sets have no order of their own."""
    if isinstance(value, frozenset):
        return b"set" + b"\0".join(sorted(_const_text(v) for v in value))
    text = f"{value:x}" if type(value) is int else repr(value)
    return f"{type(value).__name__} {text}".encode(errors="surrogatepass")
