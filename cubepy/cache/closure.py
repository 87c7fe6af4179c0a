"""All that a kernel's meaning is made of, as one hash: its closure.

The walk begins at a function and at what it is specialised on, and goes through everything that
can be reached from there by name: inlined functions and those that Python runs at comptime, what
they capture, defaults and annotations, classes and values. Equal closures give equal kernels. What
has no meaning that a later process could compare, such as a function that reads a file, raises
`Unknown`; its kernel is not kept.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from copy import copy
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import (
    BuiltinFunctionType,
    FunctionType,
    GenericAlias,
    MethodType,
    ModuleType,
    SimpleNamespace,
    UnionType,
)
from typing import Any, TypeVar

import numpy as np

from cubepy.cache.library import (
    is_library,
    is_library_class,
    is_library_function,
    is_pure,
    is_python_builtin,
)
from cubepy.cache.members import (
    defaults_of,
    is_generated,
    is_harmless,
    is_special,
    is_users,
    names_of_class,
    names_of_protocol,
    parts_of_alias,
    registered_with,
)
from cubepy.cache.names import Chain, Names, names_of
from cubepy.cache.plain import code_text, dtype_text, plain_bytes, plain_tokens
from cubepy.errors import Error
from cubepy.frontend.signature import FunctionValue, PartialValue
from cubepy.hashing import sha256
from cubepy.ir.types import DType
from cubepy.lang.annotations import resolve_annotations
from cubepy.lang.arrays import frozen, is_numpy
from cubepy.lang.containers import listed
from cubepy.lang.function import (
    ABSENT,
    Attributes,
    BoundFunction,
    Captures,
    CubeFunction,
    read_source,
    unwrap,
)
from cubepy.lang.objects import held_by
from cubepy.record import dataclass

MAX_ARRAY = 1 << 20
"""Bytes of the largest array that is hashed."""
MAX_OBJECTS = 2000
"""Functions, classes and objects that a walk goes through."""
MAX_PARTS = 200
"""Parts of a key with a name, so that `cubepy cache why` can say which one changed."""
_ALONE = frozenset({()})


class Unknown(Exception):
    """Something has no meaning that another process could compare; the text says what."""


@dataclass(frozen=True, slots=True)
class Read:
    """A name that the walk read: `reader` reads it again, as in `Facts.captures`."""

    reader: Any
    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Closure:
    """`key`: 64 hexadecimal digits; `reads`: every name that was read, in an order that equal
    closures share; `parts`: short hashes of its functions and constants by name."""

    key: str
    reads: dict[tuple[int, str], Read]
    parts: dict[str, str]


def closure_of(function: FunctionType, arguments: Any, has_places: bool) -> Closure:
    """The closure of a kernel and of what it is specialised on; `Unknown` where it has none.

    `has_places`: where the functions stand matters too, because faults name files and lines.
    """
    walk = _Walk(has_places)
    try:
        walk.function(function, is_root=True)
        walk.value(arguments)
        walk.classes()
    except RecursionError:
        raise Unknown("what it captures is nested too deep") from None
    except Error as error:  # no source
        raise Unknown(str(error).partition("\n")[0]) from None
    except ValueError as error:  # numbers in a source that are too long for Python to write
        raise Unknown(str(error)) from None
    return Closure(walk.digest(0), walk.reads, walk.parts)


def _undecorated(node: Any) -> Any:
    """A function's tree without its own decorators: they are run, and change nothing inside. So a
    longer space of a tuned function is no edit of it."""
    if not getattr(node, "decorator_list", ()):
        return node
    plain = copy(node)
    plain.decorator_list = []
    return plain


class _Walk:
    """Feeds tokens to the hash; an object that it has seen counts by its number, so cycles end."""

    def __init__(self, has_places: bool) -> None:
        self._has_places = has_places
        self._tokens: list[bytes] = []
        self._seen: dict[int, int] = {}
        self._alive: list[Any] = []
        self._classes: dict[type, set[str]] = {}
        self._objects: list[Any] = []
        self._callables: list[Any] = []
        self._types: list[type] = []
        self._attributes: set[str] = set()
        self.reads: dict[tuple[int, str], Read] = {}
        self.parts: dict[str, str] = {}

    def put(self, *tokens: str | bytes) -> None:
        """Add tokens; their lengths keep them apart."""
        for token in tokens:
            data = token if isinstance(token, bytes) else token.encode(errors="surrogatepass")
            self._tokens.append(b"%d:%b" % (len(data), data))

    def digest(self, start: int) -> str:
        """The hash of the tokens from a position on."""
        return sha256(b"".join(self._tokens[start:])).hexdigest()

    def _is_again(self, value: Any) -> bool:
        """Whether a value was seen before; it is put as its number then."""
        number = self._seen.get(id(value))
        if number is not None:
            self.put("again", str(number))
            return True
        self._seen[id(value)] = len(self._seen)
        if len(self._seen) > MAX_OBJECTS:
            raise Unknown(f"it leads to more than {MAX_OBJECTS} functions and classes")
        self._alive.append(value)  # so that no other gets its identity
        return False

    def _note(self, label: str, start: int) -> None:
        if len(self.parts) < MAX_PARTS:
            self.parts[label] = self.digest(start)[:12]

    # Values

    def value(self, value: Any, chains: frozenset[Chain] = _ALONE) -> None:
        """Any value; of a module, what the `chains` of attributes lead to."""
        if isinstance(value, ModuleType):
            return self.module(value, chains)
        if isinstance(value, FunctionType | CubeFunction):
            for chain in chains - _ALONE:
                if chain[0] in vars(value):
                    raise Unknown(f"the attribute {chain[0]} of a function")
        if self._is_plain(value):
            pass
        elif isinstance(value, FunctionType):
            self.function(value)
        elif isinstance(value, type):
            self._class(value)
        elif not self._is_callable(value) and not self._is_container(value):
            self._instance(value)
        return None

    def _is_plain(self, value: Any) -> bool:
        """Numbers, texts and types of elements."""
        tokens = plain_tokens(value)
        if tokens is not None:
            self.put(*tokens)
        return tokens is not None

    def _is_callable(self, value: Any) -> bool:
        if isinstance(value, CubeFunction):
            self.put("cube")
            self.function(value.function)
        elif isinstance(value, PartialValue):
            self.value(value.function)
        elif isinstance(value, FunctionValue):
            self.put("cube" if isinstance(value.function, CubeFunction) else "plain")
            self.value(value.function)
        elif isinstance(value, BoundFunction):
            self._items("bound", (value.function, value.owner))
        elif isinstance(value, partial):
            self._items("partial", (value.func, value.args, value.keywords))
            self._callables.append(value)
        elif isinstance(value, MethodType):
            self._items("method", (value.__func__, value.__self__))
        elif isinstance(value, property):
            self._items("property", (value.fget, value.fset, value.fdel))
        elif isinstance(value, staticmethod | classmethod):
            self._items(type(value).__name__, (value.__func__,))
        elif isinstance(value, BuiltinFunctionType | np.ufunc) or _is_slot(value):
            self._of_library(value)
        elif type(value).__name__ == "_lru_cache_wrapper":
            self._items("cached", (value.__wrapped__, value.cache_parameters()))
            self._callables.append(value)
        else:
            return False
        return True

    def _is_container(self, value: Any) -> bool:
        cls = type(value)
        data = plain_bytes(value) if cls in (tuple, list, dict) else None
        if data is not None:
            self.put("plain", data)
        elif cls in (tuple, list):
            self._items(cls.__name__, value)
        elif cls is dict:
            self._items("dict", [item for pair in listed(value.items()) for item in pair])
        elif cls in (set, frozenset):
            self._set(value)
        elif cls in (range, slice):
            self._items(cls.__name__, (value.start, value.stop, value.step))
        elif cls is np.ndarray:
            self._array(value)
        else:
            return False
        return True

    def _items(self, word: str, items: Iterable[Any]) -> None:
        found = list(items)
        self.put(word, str(len(found)))
        for item in found:
            self.value(item)

    def _set(self, items: Iterable[Any]) -> None:
        """Items in the order of their hashes; each must be plain, so that it has one of its own."""
        digests: list[str] = []
        for item in list(items):  # another thread may change them
            start = len(self._tokens)
            if not self._is_plain(item):
                raise Unknown(f"a set holds {_shown(item)}")
            digests.append(self.digest(start))
            del self._tokens[start:]
        self.put("set", *sorted(digests))

    def _array(self, value: Any) -> None:
        if value.nbytes > MAX_ARRAY or value.dtype.hasobject:
            raise Unknown(f"an array of {value.nbytes} bytes")
        self.put("array", dtype_text(value.dtype), repr(value.shape), value.tobytes())

    def _of_library(self, value: Any) -> None:
        owner = getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, ModuleType):  # a method of a built-in type
            self.put("method", value.__name__)
            return self.value(owner)
        if not is_pure(value):
            raise Unknown(f"{_shown(value)} may read state")
        name = getattr(value, "__qualname__", value.__name__)
        return self.put("library", str(getattr(value, "__module__", "")), name)

    def _instance(self, value: Any) -> None:
        """An object by its class and what it holds."""
        cls = type(value)
        if isinstance(value, Enum):
            self.put("member", value.name)
            if not self._is_again(value):
                self._class(cls)
                self._objects.append(value)
                for name in ("name", "value"):
                    self._read(Attributes(value), value, name, getattr(value, name))
            return None
        if isinstance(value, TypeVar):
            self.put("type variable", value.__name__)
            return self._items("of", (value.__bound__, *value.__constraints__))
        if isinstance(value, GenericAlias | UnionType) or cls.__module__ == "typing":
            self.put("alias", repr(value))
            return self._items("of", parts_of_alias(value))
        if self._is_again(value):
            return None
        self._base_value(value)
        if is_dataclass(value):
            self._class(cls)
            held = {f.name: getattr(value, f.name, None) for f in fields(value)}
            held |= getattr(value, "__dict__", {})
        elif isinstance(value, SimpleNamespace) or is_users(cls):
            self._class(cls)
            held = held_by(value)
        else:
            raise Unknown(f"{_shown(value)} is a {cls.__module__}.{cls.__qualname__}")
        self.put("object", str(len(held)))
        if is_users(cls):
            self._objects.append(value)
        for name in sorted(held):
            self._read(Attributes(value), value, name, held[name])
        return None

    def _base_value(self, value: Any) -> None:
        """What an object is besides its attributes: a number, a text, items; `Unknown` for
        objects of other types that are not written in Python."""
        handled = False
        bases: tuple[Any, ...] = (int, float, complex, str, bytes)
        for base in (*bases, tuple, list, dict, set, frozenset):
            if isinstance(value, base):
                self.value(base(value))
                handled = True
        foreign = [c for c in type(value).__mro__ if not is_users(c) and not is_harmless(c)]
        if isinstance(value, np.ndarray):
            self._array(value)
        elif foreign and not handled and not foreign[0].__module__.startswith("cubepy."):
            raise Unknown(f"{_shown(type(value))} is a {foreign[0].__qualname__}")

    # Modules and classes

    def module(self, module: ModuleType, chains: frozenset[Chain]) -> None:
        """What chains of attributes of a module lead to."""
        name, is_own = module.__name__, is_library(module.__name__)
        if () in chains:
            raise Unknown(f"the module {name} is passed as a value")
        if is_own and not is_pure(module):
            raise Unknown(f"the module {name} may read state")
        self.put("module", f"{name} {getattr(module, '__version__', '')}" if is_own else "")
        if not is_own:
            self._is_again(module)
        held = vars(module)
        for attribute in sorted({chain[0] for chain in chains}):
            rest = frozenset(c[1:] for c in chains if c[0] == attribute)
            if is_own:
                getattr(module, attribute, None)  # some names are there once they were asked for
            if attribute not in held:
                self.put("absent", attribute)
                if not is_own:
                    raise Unknown(f"{name}.{attribute} is made when it is asked for")
            elif is_own:
                self.put(attribute)
                self._known(held[attribute], rest)
            else:
                self._read(Attributes(module), module, attribute, held[attribute], rest)

    def _known(self, value: Any, chains: frozenset[Chain]) -> None:
        """What a library's module holds."""
        if isinstance(value, ModuleType):
            self.value(value, chains)
        elif _is_librarys(value):
            if not is_pure(value):
                raise Unknown(f"{_shown(value)} may read state")
            name = getattr(value, "__qualname__", getattr(value, "__name__", ""))
            self.put("library", _module(value), name)
            if isinstance(value, type):
                self._types.append(value)
        else:
            self.value(value)

    def _read(
        self, reader: Any, owner: Any, name: str, value: Any, chains: frozenset[Chain] = _ALONE
    ) -> None:
        value = frozen(value) if is_numpy(value) else value  # as the trace has it
        self.reads[(id(owner), name)] = Read(reader, name, value)
        self._alive.append(owner)
        self.put(name)
        self.value(value, chains)

    def _class(self, cls: type) -> None:
        """A class by its name; a user's also by its bases, special methods and fields, and later by
        the attributes that functions mention."""
        self.put("class", cls.__qualname__)
        self._types.append(cls)
        if not is_users(cls):
            is_own = cls.__module__.startswith("cubepy.")
            if not (is_own or is_pure(cls)):
                raise Unknown(f"the class {cls.__module__}.{cls.__qualname__}")
            return self.put(cls.__module__)
        if self._is_again(cls):
            return None
        if type(cls) is not type and not is_library(type(cls).__module__):
            raise Unknown(f"the metaclass of {cls.__qualname__}")
        self._classes[cls] = set()
        for base in cls.__bases__:
            self._class(base)
        if is_dataclass(cls):
            params = getattr(cls, "__dataclass_params__", None)
            self.put(repr([getattr(params, n, None) for n in ("frozen", "eq", "order", "init")]))
            for field in cls.__dataclass_fields__.values():  # those for `__init__` alone too
                self.put(field.name, str(field.type), str(field.init), str(field.compare))
                self._items("default", [*defaults_of(field)])
                self.put(repr((field.repr, field.hash, field.kw_only)))
                self._items("metadata", [x for pair in field.metadata.items() for x in pair])
        if issubclass(cls, Enum):
            for name, member in cls.__members__.items():
                self._read(Attributes(cls), cls, name, member)
        named = [getattr(cls, name, None) for name in ("_fields", "_field_defaults")]
        self._items("named", named)
        asked = names_of_protocol(cls)
        self._attributes.update(asked)
        self.put("asked", repr(asked))
        users = filter(is_users, cls.__mro__)  # inherited ones are read of each class
        members = [member for c in users for member in vars(c).copy().items()]
        return self._members(cls, {name for name, held in members if is_special(name, held)})

    def _members(self, cls: type, names: set[str]) -> None:
        for name in sorted(names - self._classes[cls]):
            self._classes[cls].add(name)
            found = [vars(c).get(name, ABSENT) for c in cls.__mro__]
            held = next((h for h in found if h is not ABSENT), ABSENT)
            if held is ABSENT:  # another thread deleted it
                raise Unknown(f"{cls.__qualname__} has no `{name}` any more")
            if is_generated(held):
                self.put("generated", name)  # by dataclass or NamedTuple, from the fields
                self.reads[(id(cls), name)] = Read(Attributes(cls), name, getattr(cls, name))
                continue
            try:
                found = getattr(cls, name, None)
            except Exception as error:  # of a descriptor that expects an object
                raise Unknown(f"{name} of {_shown(cls)} raises {error}") from None
            self._read(Attributes(cls), cls, name, found)
            self.value(held)

    def classes(self) -> None:
        """Members of classes that any function mentions by name; these may mention more."""
        done = -1
        while done != len(self._tokens):
            done = len(self._tokens)
            if "__match_args__" in self._attributes:
                matched = [getattr(cls, "__match_args__", ()) for cls in self._classes]
                self._attributes.update(*matched)
            for cls in list(self._classes):
                members = getattr(cls, "__members__", {})
                wanted = self._attributes & names_of_class(cls)
                self._members(cls, {name for name in wanted if name not in members})
            for value in list(self._objects):
                self._of_class(value)
        for cls in self._types:
            found = registered_with(cls)
            known = [str(self._seen[id(c)]) for c in found if id(c) in self._seen]
            known += [f"{c.__module__}.{c.__qualname__}" for c in found if not is_users(c)]
            self.put("registered", repr(sorted(known)))
        for value in self._callables:
            if read := sorted(self._attributes & vars(value).keys()):
                raise Unknown(f"the attribute {read[0]} of a function")

    def _of_class(self, value: Any) -> None:
        """What an object has of its class: methods, properties and constants."""
        for name in sorted(self._attributes & names_of_class(type(value))):
            if (id(value), name) in self.reads:
                continue
            try:
                found = getattr(value, name)
            except Exception as error:
                raise Unknown(f"{name} of {_shown(type(value))} raises {error}") from None
            self._read(Attributes(value), value, name, found)

    # Functions

    def function(self, function: FunctionType, is_root: bool = False) -> None:
        """A function: of a library by name, of the user by its source and all that it reads."""
        if hasattr(function, "__cubepy_builtin__") and is_library_function(function):
            return self.put("word", function.__module__, function.__qualname__)
        if self._is_again(function):
            return None
        start, name = len(self._tokens), function.__qualname__
        if is_library_function(function):
            if not is_root and not is_pure(function):
                raise Unknown(f"{_shown(function)} may read state")
            self.put("library", function.__module__, name)
            if "<" in name:  # made by a function, or a lambda
                self.put(code_text(function.__code__))
            return self._captured(function)
        self._callables.append(function)
        source = read_source(function.__code__)
        names = names_of(source, function.__code__)
        if names.stateful:
            raise Unknown(f"`{name}` has `{names.stateful}`")
        self._attributes |= names.attributes
        self.put("def", ast.dump(_undecorated(source.node)), code_text(function.__code__))
        if self._has_places:
            self.put(source.file, str(source.node.lineno), str(source.column_offset))
        self._note(name, start)
        for kept in ("__code__", "__defaults__", "__kwdefaults__"):
            held = getattr(function, kept)
            if held is not None:
                self.reads[(id(function), kept)] = Read(Attributes(function), kept, held)
        self._items("defaults", (function.__defaults__, function.__kwdefaults__))
        if not is_root:  # a kernel's are in its signature
            self._items("annotations", resolve_annotations(function).items())
        return self._names(function, names)

    def _captured(self, function: FunctionType) -> None:
        """What a library's function was made with."""
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            self.put(name)
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            self.value(value)
        self._items("defaults", (function.__defaults__, function.__kwdefaults__))

    def _names(self, function: FunctionType, names: Names) -> None:
        captures = Captures(function)
        for name in sorted(names.free):
            self.put(name)
            try:
                value = captures.lookup(name)
            except KeyError:
                self.put("unbound")
                continue
            value = frozen(value) if is_numpy(value) else value  # as the trace has it
            self.reads[(id(function), name)] = Read(captures, name, value)
            start = len(self._tokens)
            if is_python_builtin(name, value) and _module(value) == "builtins" and callable(value):
                if not is_pure(value):
                    raise Unknown(f"`{function.__qualname__}` calls `{name}`")
                self.put("built-in")
                continue
            try:
                self.value(value, names.free[name])
            except Unknown as unknown:
                raise Unknown(f"{unknown}, which `{function.__qualname__}` reads") from None
            if not isinstance(value, ModuleType | FunctionType | CubeFunction):
                self._note(f"{function.__qualname__}: {name}", start)


def _is_librarys(value: Any) -> bool:
    """Whether what a library's module holds is a function or class of a library."""
    function = unwrap(value)
    if function is not None:
        return is_library_function(function)
    if isinstance(value, type):
        return is_library_class(value)
    return callable(value) and not isinstance(value, DType) and is_library(_module(value))


def _module(value: Any) -> str:
    found = getattr(value, "__module__", None)
    return found if isinstance(found, str) else type(value).__module__


def _is_slot(value: Any) -> bool:
    """Whether a value is a method of a type that is not written in Python."""
    return type(value).__name__ in ("method_descriptor", "wrapper_descriptor", "method-wrapper")


def _shown(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    return f"`{_module(value)}.{name}`" if name else repr(value)[:60]
