"""What plans of prebuilt functions depend on of arrays, as bytes that are looked up: of torch's
tensors, of CubePy's and CuPy's arrays on GPUs and OpenCL devices, and of NumPy's arrays, for which
the place of an address does not matter."""

from __future__ import annotations

from cubepy.ir.core import ALIGNMENT, FIRST_ADDRESS
from cubepy.runtimes.native.launching import tensors
from cubepy.runtimes.native.launching.frame import (
    ARRAY_DATA,
    ARRAY_DTYPE,
    ARRAY_FLAGS,
    ARRAY_RANK,
    ARRAY_SHAPE,
    ARRAY_STRIDES,
    TYPE_OF,
    call_void,
    context,
    is_tensor,
)
from cubepy.runtimes.native.launching.tables import (
    DTYPE_ROW_WORDS,
    MAX_RANK,
    OPENCL_PLACE,
    OWN_PLACE,
    PLACE_SHIFT,
    Context,
    Leaf,
)
from cubepy.runtimes.native.words import Routine

DESCRIBE = "cubepy_describe"
DESCRIBE_APART = "cubepy_describe_apart"
MAX_TENSORS = 8
_NOTHING = -1
_OF_NUMPY = 0x7FFF
"""What stands for the device of a tensor in descriptions of NumPy's arrays."""


def _written_array() -> Routine:
    """(ndarray, place, reach): as `written`, of an array of NumPy's: its flags in front."""
    f = Routine("written_array", 3)
    obj, place, reach = f.parameters
    rank, flags = obj.load(ARRAY_RANK, "i32"), obj.load(ARRAY_FLAGS, "i32")
    f.refuse(rank > MAX_RANK)
    address, shape, strides = (obj.load(k) for k in (ARRAY_DATA, ARRAY_SHAPE, ARRAY_STRIDES))
    low, high = f.local(address), f.local(address)
    with f.times(rank) as k:
        place.store(shape[k], k * 8 + 8)
        place.store(strides[k], (rank + k) * 8 + 8)
        steps = strides[k] * (shape[k] - 1)  # of none there is no byte to share
        low.set(low.get() + steps.least(0))
        high.set(high.get() + steps.most(0))
    rows, dtype = context(f, Context.DTYPES_AT), obj.load(ARRAY_DTYPE)
    with f.times(context(f, Context.DTYPES)) as k:
        row = rows + k * (DTYPE_ROW_WORDS * 8)
        with f.when(row[0].equals(dtype)):
            place.store(k | rank << 8 | (flags & 0xFFFF) << 16 | _OF_NUMPY << 48)
            reach.store(low.get())
            reach.store(high.get() + (f.word(1) << row[1]), 8)
            f.leave(rank * 2 + 1)
    return f


def _written_on_device() -> Routine:
    """(array, place, reach): as `written`, of CubePy's own array on a device or one of CuPy's: the
    class of arrays that plans of launches have, what identifies the device, and the place."""
    f = Routine("written_on_device", 3)
    obj, place, reach = f.parameters
    leaf, axes, is_read = f.room(Leaf.SIZE), f.room(3 * MAX_RANK), f.local()
    leaf.store(axes, Leaf.STRIDES_AT * 8)
    leaf.store(0, Leaf.OWNER * 8)
    cls = obj.load(TYPE_OF)
    with f.when(cls.equals(context(f, Context.ARRAY))):
        is_read.set(f.invoke("read_ours", leaf, obj))
    with f.when(cls.equals(context(f, Context.CUPY))):
        is_read.set(f.invoke("read_cupy", leaf, obj))
    f.refuse(is_read.get().equals(0))
    kind, rank, owner = leaf[Leaf.CLASS], leaf[Leaf.RANK], leaf[Leaf.OWNER]
    where = kind >> PLACE_SHIFT
    f.refuse(where.equals(0))
    device = f.local()
    for which, known in (
        (OWN_PLACE, Context.QUEUES_OF),
        (OPENCL_PLACE, Context.DYING_OF),
    ):
        with f.when(where.equals(which)):
            device.set(owner.load(context(f, known)))
    place.store(kind)
    place.store(device.get(), 8)
    place.store(leaf[Leaf.VALUE] & (ALIGNMENT - 1), 16)
    with f.times(rank) as k:
        place.store(leaf[Leaf.SHAPE_AT][k], k * 8 + 24)
        place.store(leaf[Leaf.BYTE_STRIDES_AT][k], (rank + k) * 8 + 24)
    reach.store(leaf[Leaf.LOW])
    reach.store(leaf[Leaf.HIGH], 8)
    f.leave(rank * 2 + 3)
    return f


def _written() -> Routine:
    """(array, place, reach): write its type, rank, device and the place of its address, extents
    and strides, and its first byte and the one behind its last; gives the number of words, 0 for
    what has no description."""
    f = Routine("written", 3)
    obj, place, reach = f.parameters
    with f.when(obj.load(TYPE_OF).equals(context(f, Context.NDARRAY))):
        f.leave(f.invoke("written_array", obj, place, reach))
    with f.when(is_tensor(f, obj.load(TYPE_OF)).equals(0)):
        f.leave(f.invoke("written_on_device", obj, place, reach))
    f.refuse(f.invoke("is_negated", obj).differs(0))
    f.refuse(f.invoke("records", obj).differs(0))
    held = f.room(tensors.DLTENSOR_WORDS)
    f.refuse(f.invoke("describe", obj, held).equals(0))
    device, rank = f.invoke("device_of", held), held.load(tensors.RANK, "i32")
    f.refuse(device < 0)
    f.refuse(rank > MAX_RANK)
    address = held.load(tensors.DATA) + held.load(tensors.OFFSET)
    kind = held.load(tensors.TYPE, "i32") & 0xFFFFFFFF
    place.store(kind | rank << 32 | (address & (ALIGNMENT - 1)) << 40 | device << 48)
    shape, strides = held.load(tensors.SHAPE), held.load(tensors.STRIDES)
    low, high, size = f.local(), f.local(), ((kind >> 8 & 0xFF) + 7) >> 3
    fewest = f.local(1)
    with f.times(rank) as k:
        fewest.set(fewest.get().least(shape[k]))
        place.store(shape[k], k * 8 + 8)
        place.store(strides[k], (rank + k) * 8 + 8)
        steps = strides[k] * (shape[k] - 1)  # of none there is no byte to share
        low.set(low.get() + steps.least(0))
        high.set(high.get() + steps.most(0))
    is_absent = f.truth(fewest.get().differs(0)) & f.truth((address & -FIRST_ADDRESS).equals(0))
    f.refuse(is_absent.differs(0))
    reach.store(address + low.get() * size)
    reach.store(address + (high.get() + 1) * size, 8)
    f.leave(rank * 2 + 1)
    return f


def _describe(name: str, has_result: bool) -> Routine:
    """A function: (nothing, arguments, number), arrays or None; gives bytes, or None. With a
    result that is the last of them and shares no byte with another."""
    f = Routine(name, 3, is_exported=True)
    _, args, count = f.parameters
    none = context(f, Context.NONE)
    held, reaches = f.room(MAX_TENSORS * (2 * MAX_RANK + 3)), f.room(2 * MAX_TENSORS)
    size, fails = f.local(), f.local(f.truth(count > MAX_TENSORS))
    with f.when(fails.get().equals(0)), f.times(count) as k, f.when(fails.get().equals(0)):
        place, reach = held + size.get() * 8, reaches + k * 16
        words = f.local(1)
        place.store(_NOTHING)
        reach.store(0)
        reach.store(0, 8)
        with f.when(args[k].differs(none)):
            words.set(f.invoke("written", args[k], place, reach))
        fails.set(f.truth(words.get().equals(0)))
        size.set(size.get() + words.get())
    if has_result:
        with f.when(fails.get().equals(0)):
            result = reaches + (count - 1) * 16
            with f.times(count - 1) as k:
                other = reaches + k * 16
                meets = f.truth(other[0] < result[1]) & f.truth(result[0] < other[1])
                fails.set(fails.get() | meets)
    with f.when(fails.get().differs(0)):
        call_void(f, "PyErr_Clear")
        call_void(f, "Py_IncRef", none)
        f.leave(none)
    f.leave(f.invoke("PyBytes_FromStringAndSize", held, size.get() * 8))
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return (
        _written_array(),
        _written_on_device(),
        _written(),
        _describe(DESCRIBE, False),
        _describe(DESCRIBE_APART, True),
    )
