"""`dataclass`, made quickly: the standard library compiles five functions for each class.

CubePy has about a hundred data classes on the way to the first launch, and making them took a
quarter of it. Here only `__init__` is compiled, once for classes of one shape; the other methods
are shared by all classes. The result is a data class for `dataclasses.replace`, `fields` and
`is_dataclass`. What is not written here (`order`, `InitVar`, ...) is left to the standard library.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from operator import attrgetter
from types import CodeType, FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any

_FIELD: Any = getattr(dataclasses, "_FIELD", None)
"""How the standard library marks fields, for those who look; without it, it makes the classes."""
_MISSING = dataclasses.MISSING
_KNOWN = {"frozen", "slots", "eq", "repr", "kw_only"}


def _dataclass(cls: Any = None, /, **options: bool) -> Any:
    """As `dataclasses.dataclass`, for the options `frozen`, `slots`, `eq`, `repr` and `kw_only`."""
    if cls is None:
        return lambda made: _dataclass(made, **options)
    own = inspect.get_annotations(cls)
    simple = all(isinstance(t, str) and not _is_special(t) for t in own.values())
    fields: dict[str, Any] = {}
    for base in cls.__mro__[-1:0:-1]:
        fields |= getattr(base, "__dataclass_fields__", {})
    simple = simple and not (options.get("kw_only", False) and fields)
    if not (simple and options.keys() <= _KNOWN and all(_is_plain(cls, name) for name in own)):
        return dataclasses.dataclass(**options)(cls)
    for name, t in own.items():
        fields[name] = _field(cls, name, t, options.get("kw_only", False))
    return _made(cls, fields, tuple(own), options)


def _is_special(annotation: str) -> bool:
    return any(word in annotation for word in ("ClassVar", "InitVar", "KW_ONLY"))


def _is_plain(cls: Any, name: str) -> bool:
    value = cls.__dict__.get(name)
    return not isinstance(value, dataclasses.Field) or (
        value.init
        and value.repr
        and value.hash is None
        and value.kw_only is not True  # it is not False, but missing, until the class is made
    )


def _field(cls: Any, name: str, t: str, kw_only: bool) -> Any:
    value = cls.__dict__.get(name, _MISSING)
    made: Any = value if isinstance(value, dataclasses.Field) else dataclasses.field(default=value)
    if type(made.default).__hash__ is None:
        raise ValueError(f"mutable default {type(made.default)} for field {name}")
    made.name, made.type, made._field_type, made.kw_only = name, t, _FIELD, kw_only
    return made


def _made(cls: Any, fields: dict[str, Any], own: tuple[str, ...], options: dict[str, bool]) -> Any:
    """The class with its methods; a new one if it has slots."""
    frozen = options.get("frozen", False)
    compared = [name for name, field in fields.items() if field.compare]
    key: Any = attrgetter(*compared) if compared else _nothing
    by_place = tuple([name for name, field in fields.items() if not field.kw_only])
    body: dict[str, Any] = {"__dataclass_fields__": fields, "__match_args__": by_place}
    body["__dataclass_params__"] = SimpleNamespace(frozen=frozen)
    through = frozen and options.get("slots", False) and len(own) == len(fields)
    body["__init__"] = _init(cls, fields, frozen, through)
    if options.get("repr", True):
        body["__repr__"] = _repr
    if options.get("eq", True):
        body["__eq__"] = _eq(key)
        body["__hash__"] = _hash(key) if frozen else None
    if frozen:
        body |= {"__setattr__": _frozen_set, "__delattr__": _frozen_delete}
    held = cls.__dict__
    for name in ("__init__", "__repr__", "__eq__", "__hash__"):
        if name in held and name in body and not _is_implied(held, name):
            del body[name]
    for name in own:
        if fields[name].default is _MISSING and name in held:
            delattr(cls, name)
        elif name in held:
            setattr(cls, name, fields[name].default)
    if options.get("slots", False):
        made = _with_slots(cls, body, own, frozen)
        if through:
            space = body["__init__"].__globals__
            space |= {f"_set{k}": getattr(made, name).__set__ for k, name in enumerate(own)}
        return made
    for name, value in body.items():
        setattr(cls, name, value)
    return cls


def _is_implied(held: Any, name: str) -> bool:
    """Whether Python itself set `__hash__` to None, because the class has an `__eq__`."""
    return name == "__hash__" and held[name] is None and "__eq__" in held


def _with_slots(cls: Any, body: dict[str, Any], own: tuple[str, ...], frozen: bool) -> Any:
    """A class of the same name with a slot for each field."""
    dropped = {"__dict__", "__weakref__", *own}
    held = {name: value for name, value in cls.__dict__.items() if name not in dropped}
    held |= body | {"__slots__": own, "__qualname__": cls.__qualname__}
    if frozen:
        held.setdefault("__getstate__", _get_state)
        held.setdefault("__setstate__", _set_state)
    return type(cls)(cls.__name__, cls.__bases__, held)


def _init(cls: Any, fields: dict[str, Any], frozen: bool, through: bool) -> Any:
    """The one method that is compiled, so that it takes its arguments as any function; once for all
    classes with as many fields whose defaults are made in the same places.

    `through`: it sets fields through their slots, in half of the time; the class gives them to it.
    """
    space: dict[str, Any] = {"_set": object.__setattr__, "_missing": _MISSING}
    defaults: dict[str, Any] = {}
    made_late: list[int] = []
    by_name = any(field.kw_only for field in fields.values())
    for number, (name, field) in enumerate(fields.items()):
        if field.default is not _MISSING:
            defaults[name] = field.default
        elif field.default_factory is not _MISSING:
            made_late.append(number)
            space[f"_make{number}"] = field.default_factory
            defaults[name] = _MISSING
        elif defaults and not by_name:
            raise TypeError(f"non-default argument {name!r} follows default argument")
    more = hasattr(cls, "__post_init__")
    shape = len(fields), by_name, tuple(made_late), frozen, more, through
    made = FunctionType(_renamed(_init_code(*shape), tuple(fields)), space, "__init__")
    if by_name:
        made.__kwdefaults__ = defaults
    else:
        made.__defaults__ = tuple(defaults.values())
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__annotations__ = {name: field.type for name, field in fields.items()} | {"return": None}
    made.__module__ = cls.__module__
    return made


_QUALIFIED = "__create_fn__.<locals>.__init__"
"""What code of Python's `dataclass` is named: kernels make objects of both alike."""


@functools.cache
def _init_code(
    count: int,
    by_name: bool,
    made_late: tuple[int, ...],
    frozen: bool,
    has_more: bool,
    through: bool,
) -> CodeType:
    """The code of an `__init__` whose fields have numbers for names."""
    lines: list[str] = []
    for number in range(count):
        name = value = f"_{number}"
        if number in made_late:
            value = f"_make{number}() if {name} is _missing else {name}"
        if through:
            lines.append(f" _set{number}(self,{value})")
        else:
            lines.append(f" _set(self,{name!r},{value})" if frozen else f" self.{name}={value}")
    if has_more:
        lines.append(" self.__post_init__()")
    star = ["*"] if by_name else []
    parameters = ",".join(["self", *star, *(f"_{number}" for number in range(count))])
    space: dict[str, Any] = {}
    exec(f"def __init__({parameters}):\n" + "\n".join(lines or [" pass"]), space)
    return space["__init__"].__code__.replace(co_qualname=_QUALIFIED)


def _renamed(code: CodeType, names: tuple[str, ...]) -> CodeType:
    """The code with these names of fields, as parameters, attributes and constants."""
    named = {f"_{number}": name for number, name in enumerate(names)}
    return code.replace(
        co_varnames=("self", *names),
        co_names=tuple([named.get(name, name) for name in code.co_names]),
        co_consts=tuple([named.get(c, c) if isinstance(c, str) else c for c in code.co_consts]),
    )


def _nothing(_: Any) -> tuple[()]:
    return ()


def _eq(key: Callable[[Any], Any]) -> Any:
    def __eq__(self: Any, other: Any) -> Any:
        if other.__class__ is self.__class__:
            return key(self) == key(other)
        return NotImplemented

    return __eq__


def _hash(key: Callable[[Any], Any]) -> Any:
    def __hash__(self: Any) -> int:
        return hash(key(self))

    return __hash__


def _repr(self: Any) -> str:
    inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
    return f"{self.__class__.__qualname__}({inside})"


def _frozen_set(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _frozen_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = dataclasses.dataclass if _FIELD is None else _dataclass
