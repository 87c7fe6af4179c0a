"""Objects whose calls native code passes on, by guards on the arguments; see
`runtimes.native.launching.guarding`."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from cubepy.jit.encoding import Words
from cubepy.record import dataclass
from cubepy.runtimes.native.launching import tables, tensors
from cubepy.runtimes.native.launching.callables import Base
from cubepy.runtimes.native.launching.executor import Executor, existing_executor

_VALUES = (int, float, bool, str, type(None))


class Guarded(Base):
    """What may be called by guards. `_guards`: a tuple of their words as bytes, and of what they
    refer to."""

    __slots__ = ("_guards",)


@dataclass(frozen=True, slots=True)
class Guard:
    """A call like that of `arguments` is one of `target` with them and the keywords `added`, while
    `words`, by their addresses, and context variables are as they are here."""

    target: Any
    added: Mapping[str, Any]
    arguments: tuple[Any, ...]
    words: tuple[tuple[int, int], ...]
    variables: tuple[tuple[ContextVar[Any], Any], ...]


class _Unknown(Exception):
    """Native code does not know an argument."""


def guard_calls(obj: Guarded, guards: Sequence[Guard]) -> bool:
    """Let native code pass on the calls of an object for which a guard holds; its class's
    `__call__` takes the others. False where there is no native code yet, or it does not know an
    argument."""
    known = existing_executor()
    native = None if known is None else known.guarded(type(obj))
    if known is None or native is None:
        return False
    words = Words()
    words.add((words.object(native.__base__.__call__), len(guards)), tables.Guards.SIZE)
    try:
        for guard in guards:
            _add(words, known, guard)
    except _Unknown:
        return False
    data = (ctypes.c_int64 * len(words.values))(*words.values)
    obj._guards = (bytes(data), words.kept)
    obj._entry = known.guarded_entry
    obj.__class__ = native
    return True


def _add(words: Words, known: Executor, guard: Guard) -> None:
    at = tables.Guard
    if max(len(guard.arguments), len(guard.added)) > tables.MAX_PARAMETERS:
        raise _Unknown
    begin, head = words.add((), at.SIZE), [0] * at.SIZE
    head[at.TARGET], head[at.ARGUMENTS] = words.object(guard.target), len(guard.arguments)
    head[at.ADDED] = len(guard.added)
    if guard.added:
        head[at.NAMES] = words.object(tuple(map(sys.intern, guard.added)))
    added = [words.object(value) for value in guard.added.values()]
    head[at.ADDED_AT] = words.add(added, len(added)) - begin
    head[at.WORDS] = len(guard.words)
    held = [word for row in guard.words for word in row]
    head[at.WORDS_AT] = words.add(held, len(held)) - begin
    head[at.VARIABLES] = len(guard.variables)
    rows = [words.object(one) for row in guard.variables for one in row]
    head[at.VARIABLES_AT] = words.add(rows, len(rows)) - begin
    head[at.SEEN_AT] = len(words.values) * 8 - begin
    for argument in guard.arguments:
        words.add(_seen(words, known, argument), tables.SEEN_WORDS)
    head[at.BYTES] = len(words.values) * 8 - begin
    words.values[begin // 8 : begin // 8 + at.SIZE] = head


def _seen(words: Words, known: Executor, x: Any) -> list[int]:
    """The words of an argument."""
    kind = type(x)
    if kind in _VALUES:
        return [0, words.object(x)]
    if kind is np.ndarray:
        what, device, strides = words.object(x.dtype), 0, x.strides
    elif _is_tensor(known, kind) and _name(x.dtype) in tensors.TYPES:
        what, strides = tensors.type_word(_name(x.dtype)), x.stride()
        device = _device_number(x)
    else:
        raise _Unknown
    if len(x.shape) > tables.MAX_RANK:
        raise _Unknown
    rest = [0] * (tables.MAX_RANK - len(x.shape))
    return [words.object(kind), what, len(x.shape), device, *x.shape, *rest, *strides, *rest]


def _is_tensor(known: Executor, kind: type) -> bool:
    return kind.__module__.startswith("torch") and known.reads_tensors(kind)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _device_number(x: Any) -> int:
    """0 for the CPU, else one more than the number of the GPU."""
    if x.device.type not in ("cpu", "cuda"):
        raise _Unknown
    return 0 if x.device.type == "cpu" else x.device.index + 1
