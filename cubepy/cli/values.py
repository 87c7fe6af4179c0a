"""The values of `--arg`, `--comptime`, `--out`, `--over` and `--cube-dim`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from math import prod
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cubepy.cli.failures import closest, misuse
from cubepy.cli.loading import load

if TYPE_CHECKING:
    import numpy as np


NO_LITERAL = ValueError, SyntaxError, TypeError, MemoryError, RecursionError
"""What `ast.literal_eval` raises: TypeError as of {[]: 1}, the last two of deep brackets."""


def split_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """`NAME=VALUE` texts as a dictionary; usage errors name the option."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier() or not value.strip():
            raise misuse(f"{option} {text}: expected NAME=VALUE")
        if name in found:
            raise misuse(f"{option} gives `{name}` twice")
        found[name] = value.strip()
    return found


def read_comptime(texts: Iterable[str], module: ModuleType) -> dict[str, Any]:
    """Comptime arguments: Python literals, dtypes, names of the module, else plain text."""
    pairs = split_pairs("--comptime", texts)
    return {name: _comptime_value(value, module) for name, value in pairs.items()}


def _comptime_value(text: str, module: ModuleType) -> Any:
    from cubepy.ir.types import find_dtype

    try:
        return ast.literal_eval(text)
    except NO_LITERAL:
        pass
    head, *rest = text.split(".")
    if hasattr(module, head) and all(part.isidentifier() for part in rest):
        return _named(module, text)
    if re.fullmatch(r"[\w./-]+:[\w.]+", text):
        return load(text)[2]
    return find_dtype(text) or text


def _named(module: ModuleType, text: str) -> Any:
    """What a name of the module means, and its attributes, as `Mode.FAST`."""
    found: Any = module
    for part in text.split("."):
        if not hasattr(found, part):
            known = [name for name in dir(found) if not name.startswith("_")]
            hint = closest(part, known) or f"for text write {text!r} with its quotes"
            raise misuse(f"--comptime {text}: there is no `{part}`", hint)
        found = getattr(found, part)
    return found


def is_literal(text: str) -> bool:
    """Whether a text is a Python literal, such as a number."""
    try:
        ast.literal_eval(text)
    except NO_LITERAL:
        return False
    return True


def read_array(name: str, path: str) -> np.ndarray:
    """The array of a .npy file."""
    import numpy as np

    option = f"--arg {name}=@{path}"
    try:
        with open(path, "rb") as file:
            head = file.read(len(_MAGIC))
            file.seek(0)
            if head.startswith(_ZIP):
                raise misuse(f"{option}: an .npz holds several arrays", "save one with np.save")
            if head != _MAGIC:
                raise misuse(f"{option}: this is no .npy file", "write one with np.save")
            return np.load(file, allow_pickle=False)
    except FileNotFoundError:
        raise misuse(f"{option}: there is no such file") from None
    except OSError as error:
        raise misuse(f"{option}: {error.strerror or error}") from None
    except ValueError as error:
        raise misuse(f"{option}: {_fault_of_file(error)}") from None


_MAGIC = b"\x93NUMPY"
"""How a .npy file begins."""
_ZIP = b"PK"


def _fault_of_file(error: ValueError) -> str:
    """What NumPy says of a .npy file, without advice to load code from it."""
    text = str(error).partition("\n")[0]
    if "allow_pickle" in text:
        return "it holds Python objects, which are not loaded; kernels take numbers"
    return f"the file is damaged: {text}"


def read_argument(name: str, text: str) -> Any:
    """An argument for `cubepy run`: `@FILE.npy`, a specification (zeros), or a number."""
    if text.startswith("@"):
        return read_array(name, text[1:])
    try:
        value = ast.literal_eval(text)
    except NO_LITERAL:
        return _zeros(name, text)
    if not isinstance(value, bool | int | float):
        raise misuse(f"--arg {name}={text}: a {type(value).__name__} is not a number")
    return value


def _zeros(name: str, text: str) -> np.ndarray:
    import numpy as np

    from cubepy.array.memory import numpy_dtype
    from cubepy.cli.output import bytes_text
    from cubepy.lang.annotations import spec
    from cubepy.runtimes.registry import find_device

    found = spec(text)
    if found.shape is None:
        raise misuse(f"--arg {name}={text}: a scalar needs a value", f"write --arg {name}=1.5")
    if None in found.shape:
        raise misuse(f"--arg {name}={text}: `?` has no size", "write numbers for all extents")
    shape, dtype = [n or 0 for n in found.shape], numpy_dtype(found.dtype)
    size, limit = prod(shape) * dtype.itemsize, find_device("cpu").properties.memory_bytes
    if limit and size > limit:
        sizes = f"{bytes_text(size)} are more than the {bytes_text(limit)} of memory here"
        raise misuse(f"--arg {name}={text}: {sizes}", "write smaller extents")
    try:
        return np.zeros(shape, dtype)
    except ValueError as error:
        raise misuse(f"--arg {name}={text}: {error}") from None


def read_extents(option: str, text: str) -> tuple[int, ...]:
    """`4096` or `64,64` as a tuple of integers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise misuse(f"{option} {text}: expected integers such as 256 or 16,16") from None
