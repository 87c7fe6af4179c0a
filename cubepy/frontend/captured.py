"""What a kernel captures from around it: constants that are compared again at each launch."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from pathlib import Path
from traceback import FrameSummary
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from cubepy.errors import Error
from cubepy.frontend.positions import position
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import type_of
from cubepy.lang.arrays import frozen, is_numpy
from cubepy.lang.builtins import Position
from cubepy.lang.function import Attributes, Captures


def capture(frame: Frame, name: str, value: Any) -> Any:
    """A global or closure value as it is used: positions become values, arrays of NumPy constants.

    E110 for arrays of other libraries.
    """
    if isinstance(value, Position):
        return position(frame.tracer, value)
    return refuse_array(frame, name, value)


def comptime_result(frame: Frame, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of ordinary Python on comptime values; its exceptions become E113."""
    try:
        return function(*args, **kwargs)
    except Error:
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}{_place(error)}"
        raise frame.tracer.error("E113", error=text) from None


_PACKAGE = Path(__file__).parents[1]


_LONGEST_CHAIN = 4
"""Calls of ordinary Python that an error shows."""


def _place(error: Exception) -> str:
    """Where a function that Python ran raised, if that is another one than the kernel calls, and
    the calls that led there from the kernel's, the last first."""
    frames: list[FrameSummary] = traceback.extract_tb(error.__traceback__)
    calls = frames[1:]  # without `comptime_result`
    if len(calls) < 2 or Path(calls[-1].filename).is_relative_to(_PACKAGE):
        return ""  # an error of the library says enough
    shown = [f"`{c.name}` ({Path(c.filename).name}:{c.lineno})" for c in reversed(calls)]
    more = ["..."] if len(shown) > _LONGEST_CHAIN else []
    return ", in " + ", called by ".join([*shown[:_LONGEST_CHAIN], *more])


def note(frame: Frame, owner: Any, reader: Any, name: str, value: Any) -> Any:
    """Note a captured name, which each launch reads again; gives what the trace may use.

    Of an array that is a copy, so that all of a trace and the comparison see the same numbers.
    """
    captures, key = frame.tracer.facts.captures, (id(owner), name)
    if is_numpy(value):
        known = captures.get(key)
        value = known[2] if known is not None and is_numpy(known[2]) else frozen(value)
    captures[key] = (reader, name, value)
    return value


_FIXED = ("cubepy", "ml_dtypes", "numpy", "torch")
"""Modules whose attributes are taken not to change, besides those of the standard library."""


def may_change(owner: Any) -> bool:
    """Whether the attributes of a comptime object may be assigned between launches."""
    if isinstance(owner, ModuleType):
        return not is_fixed(owner.__name__)
    if isinstance(owner, SimpleNamespace):
        return True
    cls = owner if isinstance(owner, type) else type(owner)
    params = getattr(cls, "__dataclass_params__", None)
    if cls is not owner and (issubclass(cls, tuple) or (params is not None and params.frozen)):
        return False
    return not is_fixed(cls.__module__)


def is_users_method(found: Any) -> bool:
    """Whether an attribute is a method that another may be assigned to, in its class."""
    return isinstance(found, MethodType) and not is_fixed(
        getattr(found.__func__, "__module__", None) or ""
    )


def note_code(frame: Frame, function: FunctionType) -> None:
    """Note what a traced function does: reloaders put other code and defaults into it."""
    if is_fixed(function.__module__ or ""):
        return
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        found = getattr(function, name)
        if found is not None:
            frame.tracer.facts.captures[(id(function), name)] = (Attributes(function), name, found)


def note_method(frame: Frame, cls: type[Any], name: str) -> None:
    """Note a member of a class: another may be assigned to it."""
    held = Attributes(cls)
    frame.tracer.facts.captures[(id(cls), name)] = (held, name, held.lookup(name))


def note_captures(frame: Frame, function: FunctionType | None, args: Sequence[Any] = ()) -> None:
    """Note all that a function which Python runs at comptime may read: from outside, and of `args`
    the attributes."""
    todo: list[FunctionType] = [function] if function is not None else []
    seen: set[int] = set()
    while todo:
        current = todo.pop()
        if id(current) in seen or is_fixed(current.__module__ or ""):
            continue
        seen.add(id(current))
        note_code(frame, current)
        captures, names = Captures(current), _names_in(current.__code__)
        for name in names:
            try:
                value = captures.lookup(name)
            except KeyError:
                continue
            frame.tracer.facts.captures[(id(current), name)] = (captures, name, value)
            todo += [value] if isinstance(value, FunctionType) else []
            _note_attributes(frame, value, names)
        for arg in args:
            _note_attributes(frame, arg, names)


def _note_attributes(frame: Frame, owner: Any, names: frozenset[str]) -> None:
    """Note attributes that may be assigned, or hold what may change; of methods what they read."""
    if not may_change(owner) and (not is_dataclass(owner) or is_fixed(type_of(owner).__module__)):
        return
    for name in names:
        found = getattr(owner, name, _MISSING)
        key = (id(owner), name)
        if found is _MISSING or key in frame.tracer.facts.captures:
            continue
        if may_change(owner) or is_users_method(found) or isinstance(found, CONTAINERS):
            frame.tracer.facts.captures[key] = (Attributes(owner), name, found)
        _note_attributes(frame, found, names)
        if isinstance(found, MethodType) and isinstance(found.__func__, FunctionType):
            note_captures(frame, found.__func__, (owner,))


_MISSING = object()
CONTAINERS = (dict, list, set)
"""What changes in place, also where a frozen object holds it."""


def _names_in(code: CodeType) -> frozenset[str]:
    """The names that code refers to, also inside functions that it defines."""
    inner = [_names_in(c) for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset((*code.co_names, *code.co_freevars)).union(*inner)


def is_fixed(module: str) -> bool:
    """Whether a module is one whose attributes are taken not to change."""
    top = module.partition(".")[0]
    return top in _FIXED or top in sys.stdlib_module_names


_NO_ARRAYS = (int, float, str, type, FunctionType, ModuleType)
"""Most of what kernels capture."""


def refuse_array(frame: Frame, name: str, value: Any) -> Any:
    """E110 if a captured value is an array of another library than NumPy: it is no constant."""
    if isinstance(value, _NO_ARRAYS) or is_numpy(value):
        return value
    is_array = hasattr(value, "__array_interface__") or hasattr(value, "__dlpack__")
    if is_array and (hasattr(value, "__setitem__") or getattr(value, "ndim", 0)):
        raise frame.tracer.error("E110", name=name)
    return value
