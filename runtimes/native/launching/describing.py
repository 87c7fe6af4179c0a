"""What plans of prebuilt functions depend on of torch's tensors, as bytes that are looked up."""

from __future__ import annotations

from cubepy.ir.core import ALIGNMENT
from cubepy.runtimes.native.launching import tensors
from cubepy.runtimes.native.launching.frame import TYPE_OF, call_void, context, is_tensor
from cubepy.runtimes.native.launching.tables import MAX_RANK, Context
from cubepy.runtimes.native.words import Routine

DESCRIBE = "cubepy_describe"
MAX_TENSORS = 8
_NOTHING = -1


def _written() -> Routine:
    """(tensor, place): write its type, rank, device and the place of its address, extents and
    strides; gives the number of words, 0 for what has no description."""
    f = Routine("written", 2)
    obj, place = f.parameters
    f.refuse(is_tensor(f, obj.load(TYPE_OF)).equals(0))
    f.refuse(f.invoke("is_negated", obj).differs(0))
    records = f.invoke("PyObject_GetAttr", obj, context(f, Context.REQUIRES_GRAD))
    f.refuse(records.equals(0))
    call_void(f, "Py_DecRef", records)
    f.refuse(records.differs(context(f, Context.FALSE)))
    held = f.room(tensors.DLTENSOR_WORDS)
    f.refuse(f.invoke("describe", obj, held).equals(0))
    device, rank = f.invoke("device_of", held), held.load(tensors.RANK, "i32")
    f.refuse(device < 0)
    f.refuse(rank > MAX_RANK)
    address = held.load(tensors.DATA) + held.load(tensors.OFFSET)
    kind = held.load(tensors.TYPE, "i32") & 0xFFFFFFFF
    place.store(kind | rank << 32 | (address & (ALIGNMENT - 1)) << 40 | device << 48)
    shape, strides = held.load(tensors.SHAPE), held.load(tensors.STRIDES)
    with f.times(rank) as k:
        place.store(shape[k], k * 8 + 8)
        place.store(strides[k], (rank + k) * 8 + 8)
    f.leave(rank * 2 + 1)
    return f


def _describe() -> Routine:
    """A function: (nothing, arguments, number), tensors or None; gives bytes, or None."""
    f = Routine(DESCRIBE, 3, is_exported=True)
    _, args, count = f.parameters
    none = context(f, Context.NONE)
    held = f.room(MAX_TENSORS * (2 * MAX_RANK + 1))
    size, fails = f.local(), f.local(f.truth(count > MAX_TENSORS))
    with f.when(fails.get().equals(0)), f.times(count) as k, f.when(fails.get().equals(0)):
        place = held + size.get() * 8
        words = f.local(1)
        place.store(_NOTHING)
        with f.when(args[k].differs(none)):
            words.set(f.invoke("written", args[k], place))
        fails.set(f.truth(words.get().equals(0)))
        size.set(size.get() + words.get())
    with f.when(fails.get().differs(0)):
        call_void(f, "PyErr_Clear")
        call_void(f, "Py_IncRef", none)
        f.leave(none)
    f.leave(f.invoke("PyBytes_FromStringAndSize", held, size.get() * 8))
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return _written(), _describe()
