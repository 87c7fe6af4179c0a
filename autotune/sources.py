"""What a tuned function is made of, as a hash: an edited kernel is measured anew, no other one."""

from __future__ import annotations

import dis
import sys
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import (
    cached_property,
    lru_cache,
    partial,
    partialmethod,
    singledispatchmethod,
)
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MethodType,
    ModuleType,
    SimpleNamespace,
    UnionType,
)
from typing import Any

import numpy as np

from cubepy.array.array import Array
from cubepy.autotune.autotuned import Autotuned, TunedLauncher
from cubepy.autotune.space import Config
from cubepy.cache import closure
from cubepy.cache.closure import Unknown, closure_of
from cubepy.cache.plain import code_text, dtype_text, plain_bytes, plain_tokens
from cubepy.errors import Error
from cubepy.hashing import sha256
from cubepy.jit.kernel import CubeKernel, Launcher
from cubepy.jit.method import MethodLauncher
from cubepy.lang.containers import listed
from cubepy.lang.function import BoundFunction, CubeFunction
from cubepy.lang.objects import (
    held_by,
    is_computed,
    is_installed,
    is_made_without_module,
    lies_with_packages,
)

LARGEST = 1 << 20
"""Bytes of arrays whose elements count."""
_NESTED = 32
"""Tuples that lie so deep in others are hashed for themselves."""
_CACHED: Any = type(lru_cache(len))
_PARTS: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (Autotuned, ("function", "configs", "_key", "_valid", "_priority")),
    (TunedLauncher, ("_tuned", "_grid", "_launch")),
    (Config, ("text",)),
    (Launcher, ("kernel", "grid")),
    (MethodLauncher, ("_launcher", "_owner")),
    (BoundFunction, ("function", "owner")),
    (MethodType, ("__func__", "__self__")),
    (partial, ("func", "args", "keywords")),
    (partialmethod, ("func", "args", "keywords")),
    (cached_property, ("func",)),
    (singledispatchmethod, ("dispatcher", "func")),
    (_CACHED, ("__wrapped__",)),
    (staticmethod | classmethod, ("__func__",)),
    (property, ("fget", "fset", "fdel")),
    (SimpleNamespace, ("__dict__",)),
    (np.vectorize, ("pyfunc",)),
)
"""What objects that are not a user's are made of."""
_BY_VALUE = frozenset(
    ("array", "builtins", "collections", "datetime", "decimal", "fractions", "pathlib", "re")
)
"""Modules of Python whose objects are what is pickled of them."""
_NUMBERS, _TEXTS = (int, float, complex), (str, bytes, bytearray)
_BASES: tuple[Any, ...] = (*_NUMBERS, *_TEXTS, tuple, list, dict, set, frozenset, deque)
"""What a user's class may derive from and hold beside attributes."""


def source_of(function: Any) -> str:
    """The hash of a launcher or kernel with all that it calls.

    It is that of the disk cache; a launcher that does more than kernels may (it allocates, or reads
    a file) counts by its code and by what it names: functions, kernels and classes with what they
    name, wherever they are kept, and data. What Python and installed packages have counts by name,
    large arrays, those of GPUs and tensors that learn by their dtypes and shapes. Attributes of
    modules and classes count where any code that was met names them, also as a text.
    """
    try:
        return closure_of(function, (), False).key[:32]
    except Unknown:
        return _Walk().hash_of(function)


class _Walk:
    """Adds to a hash all objects that a function leads to, each once, in the order in which they
    are met; what holds one adds its number. So circles end, and it counts who holds what."""

    def __init__(self) -> None:
        self._hash = sha256()
        self._numbers: dict[int, int] = {}
        self._met: list[Any] = []  # kept, so that no other object gets the identity of one
        self._names: set[str] = set()
        self._owners: list[tuple[Any, set[str]]] = []

    def hash_of(self, function: Any) -> str:
        """The hash of a function; 32 hexadecimal digits."""
        self.value(function)
        done = 0
        while done < len(self._met):
            while done < len(self._met):
                self._add(self._met[done])
                done += 1
            for owner, known in self._owners:  # of which what was added now may name more
                self._members(owner, known)
        return self._hash.hexdigest()[:32]

    def put(self, *tokens: str | bytes) -> None:
        """Add tokens; their lengths keep them apart."""
        for token in tokens:
            data = token if isinstance(token, bytes) else token.encode(errors="surrogatepass")
            self._hash.update(b"%d:%b" % (len(data), data))

    def value(self, value: Any, depth: int = 0) -> None:
        """What something holds: itself where it cannot change, else its number."""
        tokens = plain_tokens(value)
        if tokens is not None:
            self.put(*tokens)
        elif type(value) is tuple and depth < _NESTED:
            self._items("tuple", value, depth + 1)
        else:
            number = self._numbers.setdefault(id(value), len(self._met))
            if number == len(self._met):
                self._met.append(value)
            self.put("object", str(number))

    def _items(self, word: str, items: Iterable[Any], depth: int = 0) -> None:
        found = list(items)  # another thread may change them
        self.put(word, str(len(found)))
        for item in found:
            self.value(item, depth)

    def _add(self, value: Any) -> None:
        if self._is_code(value) or self._is_data(value):
            return
        names = next((parts for kind, parts in _PARTS if isinstance(value, kind)), None)
        if names is not None:
            self._items(_name_of(type(value)), [getattr(value, name) for name in names])
        if _is_users(type(value)):
            self._users_object(value)
        elif names is None:
            self._installed_object(value)

    # Code

    def _is_code(self, value: Any) -> bool:
        """Functions, kernels, modules and classes."""
        if isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, CubeFunction):
            self._kernel(value)
        elif isinstance(value, BuiltinFunctionType | np.ufunc):
            self.put("built-in", str(getattr(value, "__module__", "")), _qualname(value))
            owner = getattr(value, "__self__", None)
            if not isinstance(owner, ModuleType):
                self.value(owner)
        elif isinstance(value, ModuleType):
            self.put("module", value.__name__)
            if not is_installed(value.__name__):
                self._owners.append((value, set()))
        elif isinstance(value, GenericAlias | UnionType) or type(value).__module__ == "typing":
            self.put("alias", repr(value))
        elif isinstance(value, type):
            self._class(value)
        else:
            return False
        return True

    def _function(self, function: FunctionType) -> None:
        module, space = function.__module__ or "", function.__globals__
        is_own = is_installed(str(space.get("__name__")))
        self.put("function", module, function.__qualname__)
        registry = vars(function).get("registry")
        if is_own and isinstance(registry, MappingProxyType):  # of `functools.singledispatch`
            return self.value(registry)
        if is_own and is_installed(module) and "<" not in function.__qualname__:
            return None
        self.put(code_text(function.__code__))
        self._items("defaults", (function.__defaults__, function.__kwdefaults__))
        self._items("captured", [_content(cell) for cell in function.__closure__ or ()])
        if is_own:
            return None
        self._owners.append((function, set()))
        self._names |= _attributes(function.__code__)
        for name in sorted(_names(function.__code__)):
            if name in space:
                self.put(name)
                self.value(space[name])
        for name in _imported(function.__code__, str(space.get("__package__") or "")):
            self.put("import", name)
            self.value(_users_module(name))
        return None

    def _kernel(self, kernel: CubeFunction) -> None:
        try:
            self.put("kernel", closure_of(kernel.function, (), False).key)
        except Unknown:
            self.value(kernel.function)
        if isinstance(kernel, CubeKernel):
            try:
                self.value(kernel.annotations)
            except Error:  # a launch says which
                self.put("unknown")
            self._items("settings", (kernel.settings.device, kernel.options))

    def _class(self, cls: type) -> None:
        self.put("class", _name_of(cls))
        if _is_users(cls):
            self._items("bases", (type(cls), *cls.__bases__))
            self._owners.append((cls, set()))

    def _members(self, owner: Any, known: set[str]) -> None:
        """What a module, class or function has by names that were met, and methods."""
        held = dict(vars(owner))
        wanted = self._names & held.keys()
        if isinstance(owner, type):
            wanted |= {name for name, value in held.items() if callable(value)}
        for name in sorted(wanted - known):
            known.add(name)
            self.put("member", str(self._numbers[id(owner)]), name)
            self.value(held[name])

    # Data

    def _is_data(self, value: Any) -> bool:
        """Containers and arrays."""
        cls = type(value)
        data = plain_bytes(value)
        torch = sys.modules.get("torch")
        if data is not None:
            self.put("plain", data)
        elif cls in (list, tuple):
            self._items(cls.__name__, value)
        elif cls in (dict, MappingProxyType):
            self._items("dict", [part for item in listed(value.items()) for part in item])
        elif cls in (set, frozenset):
            self._items("set", sorted(value, key=_order))
        elif isinstance(value, np.ndarray):
            self._array(value, _name_of(cls), dtype_text(value.dtype))
        elif isinstance(value, Array):
            self._array(value, value.device, value.dtype.name, value.device == "cpu")
        elif torch is not None and isinstance(value, torch.Tensor):
            self._tensor(value)
        else:
            return False
        return True

    def _array(self, array: Any, kind: str, dtype: str, is_read: bool = True) -> None:
        self.put("array", kind, dtype, repr(tuple(array.shape)))
        if is_read and array.nbytes <= LARGEST and not getattr(array.dtype, "hasobject", False):
            self.put(np.asarray(array).tobytes())

    def _tensor(self, tensor: Any) -> None:
        """A tensor of torch; one that records gradients has other elements all the time."""
        self.put("tensor", f"{tensor.dtype} {tuple(tensor.shape)} {tensor.device} {tensor.layout}")
        is_read = tensor.device.type == "cpu" and not tensor.requires_grad
        if is_read and tensor.nbytes <= LARGEST:
            uint8 = sys.modules["torch"].uint8
            try:
                self.put(tensor.resolve_conj().flatten().view(uint8).numpy().tobytes())
            except (RuntimeError, TypeError, NotImplementedError):  # sparse, or without elements
                self.put("unknown")

    # Objects

    def _users_object(self, value: Any) -> None:
        """An object by its class and what it holds."""
        cls = type(value)
        self.put("of")
        self.value(cls)
        if isinstance(value, Enum):
            return self._items(value.name, (value.value,))
        for base in _BASES:
            if isinstance(value, base):
                self.value(base(value))
        held = {n: v for n, v in held_by(value).items() if not is_computed(cls, n)}
        return self._items("held", [part for name in sorted(held) for part in (name, held[name])])

    def _installed_object(self, value: Any) -> None:
        """An object of a package: data as it is pickled, others by their class."""
        cls = type(value)
        self.put("of", _name_of(cls))
        if isinstance(value, Enum):
            self.put(value.name)
        elif is_dataclass(value):
            self._items("fields", [getattr(value, f.name, None) for f in fields(value)])
        elif cls.__module__ == "torch":
            self.put(str(value))  # a device, a memory format
        elif cls.__module__.partition(".")[0] in _BY_VALUE:
            try:
                found = value.__reduce_ex__(2)
            except Exception:  # what cannot be pickled
                return
            parts = found if isinstance(found, tuple) else (found,)
            self._items("reduced", [*parts[:3], *(list(items or ()) for items in parts[3:5])])


def _is_users(cls: type) -> bool:
    return not is_installed(cls.__module__) or is_made_without_module(cls)


def _name_of(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _qualname(value: Any) -> str:
    return str(getattr(value, "__qualname__", value.__name__))


def _order(item: Any) -> str:
    """Where an item of a set is hashed: sets have no order that another process would have."""
    tokens = plain_tokens(item)
    if tokens is None and type(item) is not tuple:
        return str(getattr(item, "__qualname__", _name_of(type(item))))
    return repr(tokens or item)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _inner(code: CodeType) -> list[CodeType]:
    return [const for const in code.co_consts if isinstance(const, CodeType)]


def _names(code: CodeType) -> set[str]:
    """The names in code and in the functions inside it."""
    return set(code.co_names).union(*map(_names, _inner(code)))


def _imported(code: CodeType, package: str) -> list[str]:
    """The modules that code imports while it runs, and those that may be such."""
    found: list[str] = []
    consts: list[Any] = []
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            level, names = consts[-2:]
            base = f"{'.' * level}{step.argval}"
            inner = [f"{base}{'' if base.endswith('.') else '.'}{name}" for name in names or ()]
            found += [resolve_name(n, package) for n in (base, *inner) if package or not level]
        consts.append(step.argval)
    return found + [name for inner in _inner(code) for name in _imported(inner, package)]


def _users_module(name: str) -> Any:
    """A module of the user; its text where nothing has imported it yet, as running it may have
    effects; None for others."""
    if is_installed(name):
        return None
    if name in sys.modules:
        return sys.modules[name]
    with suppress(Exception):  # as whoever imports it will see
        parent = name.rpartition(".")[0]
        spec = find_spec(name) if not parent or parent in sys.modules else None
        if spec is not None and spec.origin and not lies_with_packages(spec.origin):
            return Path(spec.origin).read_bytes()
    return None


def _attributes(code: CodeType) -> set[str]:
    """Names that may be those of attributes: also texts, for `getattr`."""
    texts = {const for const in code.co_consts if isinstance(const, str) and const.isidentifier()}
    return texts.union(code.co_names, *map(_attributes, _inner(code)))


@lru_cache(maxsize=64)
def source_of_package(name: str) -> str:
    """The hash of the modules in a folder of CubePy, such as "kernels/matmul", and of its
    version: equal wherever the same version is installed."""
    folder = Path(closure.__file__).resolve().parents[1] / name
    digest = sha256(str(sys.modules["cubepy"].__version__).encode())
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]
