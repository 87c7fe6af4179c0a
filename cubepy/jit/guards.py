"""Objects whose calls native code passes on, by guards on the arguments; see
`runtimes.native.launching.guarding`."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from cubepy.record import dataclass
from cubepy.runtimes.native.launching.callables import Base
from cubepy.runtimes.native.launching.process import existing_executor

if TYPE_CHECKING:
    from cubepy.jit.encoding import Words
    from cubepy.runtimes.native.launching.executor import Executor

_VALUES = (int, float, bool, str, type(None))


class Guarded(Base):
    """What may be called by guards. `_guards`: a tuple of their words as bytes, and of what they
    refer to."""

    __slots__ = ("_guards",)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a guard remembers of an argument: its words, and what they refer to. Not the argument:
    nobody's arrays live longer for it."""

    words: tuple[int, ...]
    kept: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Guard:
    """A call with arguments like those `seen` is one of `target` with them and the keywords
    `added`, while `words`, by their addresses, and context variables are as they are here."""

    target: Any
    added: Mapping[str, Any]
    seen: tuple[Seen, ...]
    words: tuple[tuple[int, int], ...] = ()
    variables: tuple[tuple[ContextVar[Any], Any], ...] = ()


def see(arguments: Sequence[Any]) -> tuple[Seen, ...] | None:
    """What guards remember of arguments; None where there is no native code yet, or it does not
    know one of them."""
    known = existing_executor()
    if known is None:
        return None
    from cubepy.runtimes.native.launching.tables import MAX_PARAMETERS

    found = [_seen(known, x) for x in arguments]
    if len(found) > MAX_PARAMETERS:
        return None
    rows = tuple([row for row in found if row])
    return rows if len(rows) == len(found) else None


def guard_calls(obj: Guarded, guards: Sequence[Guard]) -> bool:
    """Let native code pass on the calls of an object for which a guard holds; its class's
    `__call__` takes the others. False where that is not possible."""
    known = existing_executor()
    native = None if known is None else known.guarded(type(obj))
    if known is None or native is None:
        return False
    from cubepy.jit.encoding import Words
    from cubepy.runtimes.native.launching import tables

    words = Words()
    words.add((words.object(native.__base__.__call__), len(guards)), tables.Guards.SIZE)
    for guard in guards:
        if len(guard.added) > tables.MAX_PARAMETERS:
            return False
        _add(words, guard)
    data = (ctypes.c_int64 * len(words.values))(*words.values)
    obj._guards = (bytes(data), words.kept)
    obj._entry = known.guarded_entry
    obj.__class__ = native
    return True


def _add(words: Words, guard: Guard) -> None:
    from cubepy.runtimes.native.launching import tables

    at = tables.Guard
    begin, head = words.add((), at.SIZE), [0] * at.SIZE
    head[at.TARGET], head[at.ARGUMENTS] = words.object(guard.target), len(guard.seen)
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
    for row in guard.seen:
        words.kept += row.kept
        words.add(row.words, tables.SEEN_WORDS)
    head[at.BYTES] = len(words.values) * 8 - begin
    words.values[begin // 8 : begin // 8 + at.SIZE] = head


def _seen(known: Executor, x: Any) -> Seen | None:
    """What is remembered of an argument."""
    from cubepy.runtimes.native.launching import tables, tensors

    kind = type(x)
    if kind in _VALUES:
        return Seen((0, id(x)), (x,))
    if kind is np.ndarray:
        what, device, strides = id(x.dtype), 0, x.strides
        kept: tuple[Any, ...] = kind, x.dtype
    elif _is_tensor(known, kind) and _name(x.dtype) in tensors.TYPES and _number(x) >= 0:
        what, device, strides = tensors.type_word(_name(x.dtype)), _number(x), x.stride()
        kept = (kind,)
    else:
        return None
    if len(x.shape) > tables.MAX_RANK:
        return None
    rest = [0] * (tables.MAX_RANK - len(x.shape))
    head = id(kind), what, len(x.shape), device
    return Seen((*head, *x.shape, *rest, *strides, *rest), kept)


def _is_tensor(known: Executor, kind: type) -> bool:
    return kind.__module__.startswith("torch") and known.reads_tensors(kind)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _number(x: Any) -> int:
    """Of a tensor's device: 0 for the CPU, else one more than the number of the GPU; -1 for
    others."""
    if x.device.type not in ("cpu", "cuda"):
        return -1
    return 0 if x.device.type == "cpu" else x.device.index + 1
