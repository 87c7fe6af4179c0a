"""What a tuned function is made of, as a hash: an edited kernel is measured anew, no other one."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from cubepy.cache import closure
from cubepy.cache.closure import Unknown, closure_of
from cubepy.lang.function import CubeFunction

DEPTH = 8
"""Calls from a launcher that are followed where it has no closure."""


def source_of(function: Any) -> str:
    """The hash of a launcher or kernel with all that it calls.

    It is that of the disk cache; a launcher that does more than kernels may (it allocates, or reads
    a file) counts by its code and that of the functions and kernels that it names.
    """
    try:
        return closure_of(function, (), False).key[:32]
    except Unknown:
        digest = hashlib.sha256()
        for text in _parts(function, set(), 0):
            digest.update(text)
        return digest.hexdigest()[:32]


def _parts(function: Any, seen: set[int], depth: int) -> Iterator[bytes]:
    if id(function) in seen or depth > DEPTH:
        return
    seen.add(id(function))
    yield from _code(function.__code__)
    yield repr(function.__defaults__).encode()
    for name, value in sorted(_named(function).items()):
        yield name.encode()
        if isinstance(value, CubeFunction):
            yield source_of(value.function).encode()
        elif isinstance(value, FunctionType):
            yield from _parts(value, seen, depth + 1)
        elif isinstance(value, bool | int | float | str | tuple | None):
            yield repr(value).encode()


def _named(function: Any) -> dict[str, Any]:
    """Globals and captured values that a function mentions."""
    code, space = function.__code__, function.__globals__
    found = {name: space[name] for name in code.co_names if name in space}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _code(code: CodeType) -> Iterator[bytes]:
    yield code.co_code
    yield repr((code.co_names, code.co_varnames)).encode()
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _code(const)
        else:
            yield repr(const).encode()


@lru_cache(maxsize=64)
def source_of_package(name: str) -> str:
    """The hash of the modules in a folder of CubePy, such as "kernels/matmul", and of its
    version: equal wherever the same version is installed."""
    folder = Path(closure.__file__).resolve().parents[1] / name
    digest = hashlib.sha256(str(sys.modules["cubepy"].__version__).encode())
    for path in sorted(folder.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]
