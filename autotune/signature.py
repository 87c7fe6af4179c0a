"""The metadata of a call: what decides which problem it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.array.interop import read_memory
from cubepy.array.memory import HOST, Memory
from cubepy.autotune.description import PLAIN, Description, Undescribed, plain
from cubepy.autotune.space import anchor
from cubepy.lang.containers import listed


def signature(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Everything about the arguments that a key may read, hashable; not what arrays hold. None
    where one of them cannot be described: what is found for such a call is not remembered."""
    try:
        found = [
            (x.dtype, x.shape, x.strides) if type(x) is np.ndarray else described(x) for x in args
        ]
        if kwargs:
            found += [(name, described(x)) for name, x in kwargs.items()]
    except Undescribed:
        return None
    return tuple(found)


def described(x: Any) -> Any:
    """One argument, hashable; `Undescribed` where it cannot be."""
    kind = type(x)
    if kind is np.ndarray:
        return x.dtype, x.shape, x.strides
    if kind in PLAIN:
        return plain(kind, x)
    return Description().of(x)


def arrays_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Memory]:
    """The arrays among the arguments, in tuples, dictionaries and dataclasses too."""
    found: list[Memory] = []

    def visit(x: Any) -> None:
        if isinstance(x, tuple | list | dict):
            for item in listed(x.values() if isinstance(x, dict) else x):
                visit(item)
            return
        memory = None if isinstance(x, type) else read_memory(x)
        if memory is not None:
            found.append(memory)
            return
        for name in getattr(x, "__dataclass_fields__", ()):
            visit(getattr(x, name))

    for value in (*args, *kwargs.values()):
        visit(value)
    return found


def device_of(arrays: list[Memory]) -> str:
    """Where a call runs, by its arrays."""
    return next((m.device for m in arrays if m.device != HOST), HOST)


def layout(memory: Memory) -> str:
    """The class of an array's layout: "C", "F", or which axis is dense."""
    axes = [(n, s) for n, s in zip(memory.shape, memory.strides, strict=True) if n != 1]
    size = memory.dtype.itemsize
    if memory.is_contiguous:
        return "C"
    expected = size
    for n, stride in axes:
        if stride != expected:
            break
        expected *= n
    else:
        return "F"
    dense = [k for k, s in enumerate(memory.strides) if s == size and memory.shape[k] > 1]
    gap = "broadcast" if any(s == 0 for _, s in axes) else "strided"
    return f"{gap} {dense[-1]}" if dense else gap


def layouts(arrays: list[Memory]) -> list[str]:
    """What a problem holds of each array beside the key."""
    return [f"{m.dtype.name} {len(m.shape)} {layout(m)}" for m in arrays]


def default_key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The problem where no key is given: extents rounded up to powers of two, and numbers."""
    extents = [tuple(anchor(n) for n in m.shape) for m in arrays_of(args, kwargs)]
    values = [
        anchor(v) if type(v) is int else v
        for v in (*args, *kwargs.values())
        if isinstance(v, bool | int | str)
    ]
    return (extents, values)
