"""Ordinary Python that a trace runs on comptime values, and all that its results may depend on.

What Python reads while it runs is unknown. So all is noted that it could read: what the functions
that can be reached refer to by name, of objects that can be reached the attributes of these names,
and what Python calls of their classes unasked, such as `__index__` and `__str__`.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import inspect
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from functools import cached_property, partial, partialmethod
from operator import attrgetter, methodcaller
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, cast

from cubepy.errors import Error
from cubepy.frontend.captured import (
    holds_changing,
    holds_itself,
    is_users_method,
    may_change,
    note_code,
    note_method,
)
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import FlatRef, Formatted, TensorRef, type_of
from cubepy.frontend.wording import OF_TEXT
from cubepy.ir.core import Value
from cubepy.ir.types import DType, Line
from cubepy.lang.arrays import is_numpy
from cubepy.lang.containers import is_mapping, is_ordered, may_change_inside
from cubepy.lang.function import (
    ABSENT,
    Attributes,
    BoundFunction,
    Captures,
    CubeFunction,
    read_source,
)
from cubepy.lang.objects import is_fixed, is_fixed_class, is_fixed_function, is_generated


def comptime_result(frame: Frame, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of ordinary Python on comptime values; its exceptions become E113."""
    note_reads(frame, function, *args, *kwargs.values())
    if any(type(value) is DType for value in (*args, *kwargs.values())):
        args, kwargs = _for_numpy(function, args, kwargs)
    try:
        return function(*args, **kwargs)
    except Error:
        raise
    except Exception as error:
        raise failed(frame, error, (*args, *kwargs.values()), _place(error)) from None


_OF_DTYPES = frozenset(("can_cast", "dtype", "finfo", "iinfo", "issubdtype", "promote_types"))
"""NumPy's functions of dtypes; others take one as `dtype=`."""


def _for_numpy(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Arguments with dtypes as NumPy names them, where it takes dtypes."""
    if (getattr(function, "__module__", None) or "").partition(".")[0] != "numpy":
        return args, kwargs
    takes_dtypes = getattr(function, "__name__", None) in _OF_DTYPES
    named = {n: _name_of(x) if takes_dtypes or n == "dtype" else x for n, x in kwargs.items()}
    return tuple(map(_name_of, args)) if takes_dtypes else args, named


def _name_of(value: Any) -> Any:
    return value.numpy_name or value if type(value) is DType else value


def failed(frame: Frame, error: Exception, given: Iterable[Any], place: str = "") -> Error:
    """E113 for what Python raised about values."""
    text, hint = str(error), None
    if any(isinstance(value, Formatted) for value in given):
        text, hint = text.replace("Formatted", "formatted string"), OF_TEXT
    if isinstance(error, ZeroDivisionError):
        hint = "test the divisor first, as in `a // n if n else 0`; infinity is written math.inf"
    if text.startswith("range() arg 3"):
        hint = "the third number of range() is its step: 1, or any other but 0"
    return frame.tracer.error("E113", error=f"{type(error).__name__}: {text}{place}", hint=hint)


_PACKAGE = Path(__file__).parents[1]


_LONGEST_CHAIN = 4
"""Calls of ordinary Python that an error shows."""


def _place(error: Exception) -> str:
    """Where a function that Python ran raised, if that is another one than the kernel calls, and
    the calls that led there from the kernel's, the last first."""
    from traceback import extract_tb  # not on the way of most programs

    frames = extract_tb(error.__traceback__)
    calls = frames[1:]  # without `comptime_result`
    if len(calls) < 2 or Path(calls[-1].filename).is_relative_to(_PACKAGE):
        return ""  # an error of the library says enough
    return _calls([(c.name, c.filename, c.lineno or 0) for c in calls])


def _calls(frames: list[tuple[str, str, int]]) -> str:
    shown = [f"`{name}` ({Path(file).name}:{line})" for name, file, line in reversed(frames)]
    more = ["..."] if len(shown) > _LONGEST_CHAIN else []
    return ", in " + ", called by ".join([*shown[:_LONGEST_CHAIN], *more])


def place_of_user(error: Exception) -> str:
    """Where code of the user raised that Python runs for CubePy, as a property or a `__bool__`;
    empty where it was none."""
    from traceback import walk_tb

    frames = list(walk_tb(error.__traceback__))
    modules = [str(frame.f_globals.get("__name__")) for frame, _ in frames]
    own = max(
        (k for k, name in enumerate(modules) if name.partition(".")[0] == "cubepy"), default=0
    )
    calls = [
        (frame.f_code.co_name, frame.f_code.co_filename, line)
        for (frame, line), module in zip(frames[own:], modules[own:], strict=True)
        if not is_fixed(module)
    ]
    return _calls(calls) if calls else ""


def note_reads(frame: Frame, *values: Any) -> None:
    """Note all that Python may read when it calls and combines `values`."""
    for value in values:
        if not _leads_nowhere(value):
            _Reads(frame).follow(values)
            return


def _leads_nowhere(value: Any) -> bool:
    """Whether a value is plain, a tuple of plain ones, or a function of a built-in module."""
    if type(value) is tuple:
        return all(type(x) in _PLAIN for x in cast("tuple[Any, ...]", value))
    if type(value) is BuiltinFunctionType:
        return type(value.__self__) is ModuleType
    return type(value) in _PLAIN


_PLAIN = frozenset(
    {
        *(int, float, bool, str, bytes, complex, type(None), slice, range),
        *(Value, TensorRef, FlatRef, DType, Line),
    }
)
"""Most of what Python and handlers work on: these lead nowhere."""
_MATCH = dis.opmap["MATCH_CLASS"]
_DICT: type[Any] = dict
"""Without parameters, which a test of a type cannot tell."""
_UNASKED = ("_missing_",)
"""What enumerations call, beside special methods."""
_MAKING = ("__init__", "__new__", "__post_init__")
"""What Python calls to make an object, and no more when it is made."""
_BY_TEXT = frozenset({"getattr", "hasattr", "attrgetter", "methodcaller"})
"""Functions that are given the names of attributes as text."""
_BOUND = (BuiltinFunctionType, MethodWrapperType)
"""Functions of built-in modules, and methods of built-in classes with their object."""


class _Reads:
    """All that can be reached from values; what is found late is looked up in what came before."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._facts = frame.tracer.facts
        self._seen: dict[int, Any] = {}
        self._owners: list[Any] = []
        self._names: set[str] = set()
        self._looked: set[tuple[int, str]] = set()
        self._absent: set[str] = set()  # names of attributes that code does without
        self._matches = False  # whether code has patterns with classes

    def follow(self, values: Iterable[Any]) -> None:
        """Note what is read of all that `values` lead to."""
        self._add_all(values)
        before = -1
        while before != len(self._looked):
            before = len(self._looked)
            for owner in list(self._owners):
                for name in sorted(self._names):
                    self._attribute(owner, name)
                if self._matches and isinstance(owner, type):
                    self._names.update(getattr(owner, "__match_args__", ()))

    def _add_all(self, values: Iterable[Any]) -> None:
        for value in list(values):  # another thread may change a container
            if type(value) not in _PLAIN and id(value) not in self._seen:
                self._seen[id(value)] = value  # which keeps it alive, so that the identity is its
                self._add(value)

    def _add(self, value: Any) -> None:
        inner = _inside(value)
        if isinstance(value, FunctionType):
            self._function(value)
        elif inner is not None:
            self._add_all(inner)
        elif isinstance(value, (attrgetter, methodcaller)):
            self._getter(value)
        if isinstance(value, _BOUND):
            self._owner(value)
        if isinstance(value, (FunctionType, ModuleType, SimpleNamespace)):
            if may_change(value):
                self._owners.append(value)
            return
        cls = value if isinstance(value, type) else type_of(cast("Any", value))
        if not is_fixed_class(cls):
            self._class(cls, is_making=cls is value)
            self._owners += [value, *_bases(cls)]

    def _function(self, function: FunctionType) -> None:
        if is_fixed_function(function) or is_generated(function):
            return
        captures = Captures(function)
        if is_fixed(function.__globals__.get("__name__") or ""):  # a library's, around a user's
            self._around(function, captures)
            return
        code = function.__code__
        note_code(self._frame, function, code)
        names = _names_in(code)
        if names & _BY_TEXT:
            self._absent |= _texts_in(code)
        if "AttributeError" in names:
            self._absent |= names
        if names & {"vars", "dir"} or (names & _BY_TEXT and _computes_names(function)):
            names |= {"__dict__"}
        for name in names:
            try:
                value = captures.lookup(name)
            except KeyError:
                continue
            self._facts.capture(function, name, captures, value)
            self._add_all((value,))
        self._add_all((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))
        self._names |= {n for n in names | self._absent if n == "__dict__" or n[:2] != "__"}
        if matched := _matched_in(code):
            self._matches = True
            self._names |= matched - {""}

    def _around(self, function: FunctionType, captures: Captures) -> None:
        """What a library's function was made with, as the functions that `singledispatch` knows."""
        if (id(function), "") in self._looked:
            return
        self._looked.add((id(function), ""))
        for name in function.__code__.co_freevars:
            with contextlib.suppress(KeyError):  # not assigned yet
                value = captures.lookup(name)
                if isinstance(value, FunctionType) and is_fixed_function(value):
                    self._around(value, Captures(value))
                elif _DICT is type(value):  # other containers are what it works with
                    self._facts.capture(function, name, captures, value)
                self._add_all((value,))

    def _owner(self, method: BuiltinFunctionType | MethodWrapperType) -> None:
        """A method of a container, whose items it reads."""
        owner = method.__self__
        if may_change_inside(owner) or is_numpy(owner):
            self._facts.capture(method, "__self__", Attributes(method), owner)

    def _getter(self, value: Any) -> None:
        """`operator.attrgetter` and `methodcaller`: the names that they were made with."""
        names = value.__reduce__()[1]
        names = names[:1] if isinstance(value, methodcaller) else names
        self._names |= {part for name in names if isinstance(name, str) for part in name.split(".")}

    def _class(self, cls: type[Any], is_making: bool) -> None:
        """What Python calls of a class of the user without naming it."""
        for holder in cls.__mro__:
            if is_fixed_class(holder):
                continue
            for name, held in vars(holder).copy().items():  # other threads may change it
                is_special = (name.startswith("__") and name.endswith("__")) or name in _UNASKED
                function = getattr(held, "__func__", held)
                if not is_special or not (callable(function) or isinstance(held, partialmethod)):
                    continue
                if name not in _MAKING or is_making:
                    note_method(self._frame, cls, name)
                    self._add_all(() if is_generated(function) else (function,))
            if is_making and is_dataclass(holder):
                factories = (f.default_factory for f in fields(holder))
                self._add_all(f for f in factories if f is not MISSING)

    def _attribute(self, owner: Any, name: str) -> None:
        key = id(owner), name
        if key in self._looked:
            return
        self._looked.add(key)
        held = inspect.getattr_static(owner, name, ABSENT)
        changes = may_change(owner) or (
            not is_fixed_class(type_of(owner)) and not holds_itself(owner, name)
        )
        if isinstance(held, property | cached_property):  # which need not run
            note_method(self._frame, type_of(owner), name)
            is_property = isinstance(held, property)
            run = (held.fget, held.fset, held.fdel) if is_property else (held.func,)
            self._add_all(function for function in run if function is not None)
            return
        try:
            found: Any = getattr(owner, name, ABSENT)
        except Exception:  # of the user's `__getattr__`, whose reads are noted
            return
        if found is ABSENT and name not in self._absent:
            return
        if changes or is_users_method(found) or holds_changing(found):
            self._facts.capture(owner, name, Attributes(owner), found)
        self._add_all((found,))


def _bases(cls: type[Any]) -> list[type[Any]]:
    """The user's classes behind a class, whose members `super()` finds."""
    return [base for base in cls.__mro__[1:] if not is_fixed_class(base)]


def _inside(value: Any) -> Iterable[Any] | None:
    """What a container holds and what a callable object calls; None for anything else."""
    if is_mapping(value):
        return (*value, *value.values())
    if is_ordered(value) or isinstance(value, (set, frozenset)):
        return cast("Iterable[Any]", value)
    if isinstance(value, partial | partialmethod):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, MethodType):
        return value.__func__, value.__self__
    if isinstance(value, _BOUND):
        return (value.__self__,)
    if isinstance(value, BoundFunction):
        return value.function, value.owner
    if isinstance(value, CubeFunction):
        return (value.function,)
    if isinstance(value, (staticmethod, classmethod)):
        return (cast("Any", value).__func__,)
    is_cached = type(value).__name__ == "_lru_cache_wrapper"
    return (value.__wrapped__,) if is_cached else None


def _names_in(code: CodeType) -> frozenset[str]:
    """The names that code refers to, also inside functions that it defines."""
    inner = [_names_in(c) for c in code.co_consts if isinstance(c, CodeType)]
    return frozenset((*code.co_names, *code.co_freevars)).union(*inner)


def _matched_in(code: CodeType) -> frozenset[str]:
    """The attributes that patterns with classes name, with those of calls; the empty text where
    there is a pattern."""
    found = frozenset[str]().union(*(_matched_in(c) for c in code.co_consts if type(c) is CodeType))
    if _MATCH not in code.co_code[::2]:
        return found
    tuples = [cast("tuple[Any, ...]", c) for c in code.co_consts if type(c) is tuple]
    return found.union({""}, (n for names in tuples for n in names if isinstance(n, str)))


def _texts_in(code: CodeType) -> frozenset[str]:
    """The texts in code that could be names."""
    inner = [_texts_in(c) for c in code.co_consts if isinstance(c, CodeType)]
    texts = (part for c in code.co_consts if isinstance(c, str) for part in c.split("."))
    return frozenset(t for t in texts if t.isidentifier()).union(*inner)


def _computes_names(function: FunctionType) -> bool:
    """Whether a function computes names of attributes, as in `getattr(x, f"scale_{k}")`."""
    try:
        tree = read_source(function.__code__).node
    except Error:
        return False
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args[1:])
    names = (c.args[1] for c in calls if isinstance(c.func, ast.Name) and c.func.id in _BY_TEXT)
    return not all(isinstance(name, ast.Constant) for name in names)
