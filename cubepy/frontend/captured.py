"""What a kernel captures from around it: constants that are compared again at each launch."""

from __future__ import annotations

import ast
import inspect
from functools import partial
from types import (
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, NamedTuple, cast

from cubepy.frontend.positions import position
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import Record, type_of
from cubepy.lang.arrays import frozen, is_numpy
from cubepy.lang.builtins import Position
from cubepy.lang.containers import may_change_inside
from cubepy.lang.function import ABSENT, Attributes, CubeFunction, unwrap
from cubepy.lang.objects import is_fixed, is_fixed_class, is_fixed_function


def capture(frame: Frame, name: str, value: Any) -> Any:
    """A global or closure value as it is used: positions become values, arrays of NumPy constants.

    E110 for arrays of other libraries.
    """
    if isinstance(value, Position):
        return position(frame.tracer, value)
    return refuse_array(frame, name, value)


def note(frame: Frame, owner: Any, reader: Any, name: str, value: Any) -> Any:
    """Note a captured name, which each launch reads again; gives what the trace may use.

    Of an array that is a copy, so that all of a trace and the comparison see the same numbers.
    """
    facts = frame.tracer.facts
    if is_numpy(value):
        known = facts.captures.get((id(owner), name))
        value = known[2] if known is not None and is_numpy(known[2]) else frozen(value)
    facts.capture(owner, name, reader, value)
    return value


class _Pair(NamedTuple):
    first: int


def may_change(owner: Any) -> bool:
    """Whether the attributes of a comptime object may be assigned between launches."""
    if isinstance(owner, ModuleType):
        return not is_fixed(owner.__name__)
    if isinstance(owner, (FunctionType, CubeFunction)):
        return not is_fixed_function(unwrap(owner))
    if isinstance(owner, SimpleNamespace):
        return True
    cls: type[Any] = owner if isinstance(owner, type) else type(owner)
    params = getattr(cls, "__dataclass_params__", None)
    is_fixed_tuple = not cls.__dictoffset__ and tuple in cls.__mro__
    if cls is not owner and (is_fixed_tuple or (params is not None and params.frozen)):
        return False
    return not is_fixed_class(cls)


def holds_changing(value: Any) -> bool:
    """Whether a value is an array or a container that changes in place, or a tuple that holds one:
    frozen objects have those as well."""
    if isinstance(value, tuple):
        return any(map(holds_changing, cast("tuple[Any, ...]", value)))
    return may_change_inside(value) or is_numpy(value)


def holds_itself(owner: Any, name: str) -> bool:
    """Whether an object has an attribute in itself, and not from its class, which may change."""
    held = inspect.getattr_static(owner, name, ABSENT)
    if held is inspect.getattr_static(type_of(owner), name, ABSENT):
        return isinstance(held, _SLOTS)
    return True


_SLOTS = (MemberDescriptorType, cast("type[Any]", type(vars(_Pair)["first"])))
"""What classes have for what their objects hold: of slots, and of fields of a `NamedTuple`."""


def is_users_method(found: Any) -> bool:
    """Whether an attribute is a method that another may be assigned to, in its class."""
    return isinstance(found, MethodType) and not is_fixed_function(
        unwrap(found.__func__) or found.__func__
    )


def note_code(frame: Frame, function: FunctionType, code: CodeType) -> None:
    """Note that `code` is traced as a function's: reloaders put other code and defaults into it."""
    if is_fixed_function(function):
        return
    held = (code, function.__defaults__, function.__kwdefaults__)
    for name, found in zip(("__code__", "__defaults__", "__kwdefaults__"), held, strict=True):
        if found is not None:
            frame.tracer.facts.capture(function, name, Attributes(function), found)


def note_partial(frame: Frame, function: partial[Any]) -> None:
    """Note what a function is called with besides: lists among it change in place."""
    for name in ("args", "keywords"):
        held = getattr(function, name)
        if held:
            frame.tracer.facts.capture(function, name, Attributes(function), held)


def note_method(frame: Frame, cls: type[Any], name: str) -> None:
    """Note a member of a class: another may be assigned to it."""
    held = Attributes(cls)
    frame.tracer.facts.capture(cls, name, held, held.lookup(name))


def note_absent(frame: Frame, owner: Any, name: str) -> None:
    """Note that an object, or the class of a record, has no attribute of that name."""
    owner = owner.cls if isinstance(owner, Record) else owner
    cls = owner if isinstance(owner, type) else type_of(owner)
    if may_change(owner) or not is_fixed_class(cls):
        frame.tracer.facts.capture(owner, name, Attributes(owner), ABSENT)


_NO_ARRAYS = (int, float, str, type, FunctionType, ModuleType)
"""Most of what kernels capture."""


def refuse_array(frame: Frame, name: str | ast.expr, value: Any) -> Any:
    """E110 if a captured value is an array of another library than NumPy: it is no constant."""
    if isinstance(value, _NO_ARRAYS) or is_numpy(value):
        return value
    cls = type_of(value)  # objects may have a `__getattr__` that finds anything
    is_array = hasattr(cls, "__array_interface__") or hasattr(cls, "__dlpack__")
    if is_array and (hasattr(cls, "__setitem__") or getattr(value, "ndim", 0)):
        text = ast.unparse(name) if isinstance(name, ast.expr) else name
        raise frame.tracer.error("E110", name=text)
    return value
