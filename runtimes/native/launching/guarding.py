"""Guarded calls: an object calls one of several others, by the signature of its arguments.

A guard holds for arrays of the very types, extents and strides that it was made for, and for equal
numbers and strings, as long as some words of memory and context variables are as they were. Where
none does, the object's call in Python decides.
"""

from __future__ import annotations

from cubepy.runtimes.native.launching import tensors
from cubepy.runtimes.native.launching.frame import (
    ARRAY_DTYPE,
    ARRAY_RANK,
    ARRAY_SHAPE,
    ARRAY_STRIDES,
    BYTES_ITEMS,
    GUARDED,
    OFFSET_FLAG,
    TUPLE_ITEMS,
    TYPE_OF,
    call_void,
    context,
)
from cubepy.runtimes.native.launching.tables import (
    MAX_PARAMETERS,
    MAX_RANK,
    SEEN_WORDS,
    Context,
    Guard,
    Guards,
    Seen,
)
from cubepy.runtimes.native.words import Routine


def _same_axes() -> Routine:
    """(seen, shape, strides): whether extents and strides are those that were seen."""
    f = Routine("same_axes", 3)
    seen, shape, strides = f.parameters
    axes = seen + Seen.AXES * 8
    with f.times(seen[Seen.RANK]) as k:
        f.refuse(shape[k].differs(axes[k]))
        f.refuse(strides[k].differs((axes + MAX_RANK * 8)[k]))
    f.leave(1)
    return f


def _is_seen() -> Routine:
    """(seen, object): whether an argument is like the one that was seen."""
    f = Routine("is_seen", 2)
    seen, obj = f.parameters
    cls, wanted = obj.load(TYPE_OF), seen[Seen.TYPE]
    with f.when(wanted.equals(0)):
        f.leave(f.invoke("same_value", obj, seen[Seen.WHAT]))
    f.refuse(cls.differs(wanted))
    with f.when(cls.equals(context(f, Context.NDARRAY))):
        f.refuse(obj.load(ARRAY_DTYPE).differs(seen[Seen.WHAT]))
        f.refuse(obj.load(ARRAY_RANK, "i32").differs(seen[Seen.RANK]))
        f.leave(f.invoke("same_axes", seen, obj.load(ARRAY_SHAPE), obj.load(ARRAY_STRIDES)))
    held = f.room(tensors.DLTENSOR_WORDS)
    with f.when(f.invoke("describe", obj, held).equals(0)):
        call_void(f, "PyErr_Clear")
        f.leave(0)
    f.refuse(held.load(tensors.TYPE, "i32").differs(seen[Seen.WHAT]))
    f.refuse(held.load(tensors.RANK, "i32").differs(seen[Seen.RANK]))
    f.refuse(f.invoke("device_of", held).differs(seen[Seen.DEVICE]))
    f.leave(f.invoke("same_axes", seen, held.load(tensors.SHAPE), held.load(tensors.STRIDES)))
    return f


def _holds() -> Routine:
    """(guard, args, number): whether a guard holds for these arguments now."""
    f = Routine("guard_holds", 3)
    guard, args, count = f.parameters
    f.refuse(count.differs(guard[Guard.ARGUMENTS]))
    words = guard + guard[Guard.WORDS_AT]
    with f.times(guard[Guard.WORDS]) as k:
        row = words + k * 16
        f.refuse(row[0].load().differs(row[1]))
    seen = guard + guard[Guard.SEEN_AT]
    with f.times(count) as k:
        f.refuse(f.invoke("is_seen", seen + k * (SEEN_WORDS * 8), args[k]).equals(0))
    variables, held = guard + guard[Guard.VARIABLES_AT], f.room(1)
    with f.times(guard[Guard.VARIABLES]) as k:
        row = variables + k * 16
        held.store(0)
        f.value("i32", f"call i32 @PyContextVar_Get(i64 {row[0].text}, i64 0, i64 {held.text})")
        chosen = held[0]
        f.refuse(chosen.equals(0))
        call_void(f, "Py_DecRef", chosen)  # the context keeps it
        f.refuse(chosen.differs(row[1]))
    f.leave(1)
    return f


def _forward() -> Routine:
    """(guard, args, number): call the target with the arguments and the keywords of a guard."""
    f = Routine("forward", 3)
    guard, args, count = f.parameters
    target, names = guard[Guard.TARGET], guard[Guard.NAMES]
    held = f.room(2 * MAX_PARAMETERS + 1) + 8
    with f.times(count) as k:
        held.store(args[k], k * 8)
    added = guard + guard[Guard.ADDED_AT]
    with f.times(guard[Guard.ADDED]) as k:
        held.store(added[k], (count + k) * 8)
    f.leave(f.invoke("PyObject_Vectorcall", target, held, count | OFFSET_FLAG, names))
    return f


def _guarded() -> Routine:
    """A guarded object's vectorcall: (object, args, number and flag, names of keywords)."""
    f = Routine(GUARDED, 4, is_exported=True)
    obj, args, flagged, keywords = f.parameters
    count = flagged & ~OFFSET_FLAG
    data = obj.load(context(f, Context.GUARDS))
    words = data.load(TUPLE_ITEMS) + BYTES_ITEMS
    general = words[Guards.GENERAL]
    with f.when(keywords.equals(0)):
        call_void(f, "Py_IncRef", data)
        guard = f.local(words + Guards.SIZE * 8)
        with f.times(words[Guards.COUNT]):
            this = guard.get()
            with f.when(f.invoke("guard_holds", this, args, count).differs(0)):
                found = f.invoke("forward", this, args, count)
                call_void(f, "Py_DecRef", data)
                f.leave(found)
            guard.set(this + this[Guard.BYTES])
        call_void(f, "Py_DecRef", data)
    f.leave(f.invoke("general", general, obj, args, count, keywords))
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return _same_axes(), _is_seen(), _holds(), _forward(), _guarded()
