"""From the objects of a call to leaves: numbers, arrays, tuples, dataclasses."""

from __future__ import annotations

from enum import IntEnum

from cubepy.ir.core import FIRST_ADDRESS
from cubepy.runtimes.native.launching import tensors
from cubepy.runtimes.native.launching.frame import (
    ARRAY_DATA,
    ARRAY_DTYPE,
    ARRAY_FLAGS,
    ARRAY_RANK,
    ARRAY_SHAPE,
    ARRAY_STRIDES,
    AXES_BYTES,
    COUNT,
    NUMBER_VALUE,
    NUMPY_WRITEABLE,
    OFFSET_FLAG,
    OWNED,
    OWNED_AT,
    STRIDES_AT,
    TABLE,
    TUPLE_FLAGS,
    TUPLE_ITEMS,
    TUPLE_SIZE,
    TUPLE_SUBCLASS,
    TYPE_OF,
    call_void,
    context,
    is_tensor,
    leaf_at,
)
from cubepy.runtimes.native.launching.tables import (
    ALIGNED,
    CUPY_PLACE,
    DTYPE_ROW_WORDS,
    HUGE,
    LINEAR,
    MAX_LEAVES,
    MAX_RANK,
    MAX_SPAN,
    NUMBER_ROW_WORDS,
    OPENCL_PLACE,
    OWN_PLACE,
    PARAMETER_WORDS,
    PLACE_SHIFT,
    RECORD_WORDS,
    WRITEABLE,
    Context,
    Head,
    Kind,
    Leaf,
)
from cubepy.runtimes.native.words import Routine, Value


class Reading(IntEnum):
    """How NumPy keeps a scalar."""

    F32 = 0
    F64 = 1
    I8 = 2
    I16 = 3
    I32 = 4
    I64 = 5
    U8 = 6
    U16 = 7
    U32 = 8
    U64 = 9
    BOOL = 10


def _read_number() -> Routine:
    """(leaf, object, type): a number's kind and value; 0 for what is none, 2 to give up."""
    f = Routine("read_number", 3)
    leaf, obj, cls = f.parameters
    with f.when(cls.equals(context(f, Context.FLOAT))):
        leaf.store(obj.load(NUMBER_VALUE), Leaf.VALUE * 8)
        leaf.store(Kind.FLOAT, Leaf.KIND * 8)
        f.leave(1)
    with f.when(cls.equals(context(f, Context.INT))):
        overflow = f.room(1)
        overflow.store(0)
        found = f.value(
            "i64",
            f"call i64 @PyLong_AsLongLongAndOverflow(i64 {obj.text}, ptr {f.pointer(overflow)})",
        )
        f.refuse(overflow.load(0, "i32").differs(0), 2)
        leaf.store(found, Leaf.VALUE * 8)
        leaf.store(Kind.INT, Leaf.KIND * 8)
        f.leave(1)
    with f.when(cls.equals(context(f, Context.BOOL))):
        leaf.store(f.truth(obj.equals(context(f, Context.TRUE))), Leaf.VALUE * 8)
        leaf.store(Kind.BOOL, Leaf.KIND * 8)
        f.leave(1)
    rows = context(f, Context.NUMBERS_AT)
    with f.times(context(f, Context.NUMBERS)) as k:
        row = rows + k * (NUMBER_ROW_WORDS * 8)
        with f.when(cls.equals(row[0])):
            leaf.store(row[1], Leaf.KIND * 8)
            for reading in Reading:
                with f.when(row[2].equals(reading)):
                    leaf.store(_scalar(f, obj, reading), Leaf.VALUE * 8)
            with f.when(row[2].equals(Reading.U64)):
                f.refuse(leaf[Leaf.VALUE] < 0, 2)
            f.leave(1)
    return f


_WIDTHS = {
    Reading.I8: "i8",
    Reading.I16: "i16",
    Reading.I32: "i32",
    Reading.U8: "i8",
    Reading.U16: "i16",
    Reading.U32: "i32",
    Reading.BOOL: "i8",
}


_UNSIGNED = (Reading.U8, Reading.U16, Reading.U32, Reading.BOOL)


def _scalar(f: Routine, obj: Value, reading: Reading) -> Value:
    """The value of a NumPy scalar as a word."""
    if reading is Reading.F32:
        low = obj.load(NUMBER_VALUE, "i32")
        narrow = f.value("i32", f"trunc i64 {low.text} to i32")
        number = f.value("float", f"bitcast i32 {narrow.text} to float")
        wide = f.value("double", f"fpext float {number.text} to double")
        return f.value("i64", f"bitcast double {wide.text} to i64")
    kind = _WIDTHS.get(reading)
    if kind is None:
        return obj.load(NUMBER_VALUE)
    found = obj.load(NUMBER_VALUE, kind)
    return found & ((1 << int(kind[1:])) - 1) if reading in _UNSIGNED else found


def _read_elements() -> Routine:
    """(leaf, scale): what follows from an array's address, rank, shape and strides in bytes;
    `scale` is the logarithm of the elements' size. 0 to give up."""
    f = Routine("read_elements", 2)
    leaf, scale = f.parameters
    address, shape, strides = (leaf[k] for k in (Leaf.VALUE, Leaf.SHAPE_AT, Leaf.BYTE_STRIDES_AT))
    rank, counted = leaf[Leaf.RANK], leaf[Leaf.STRIDES_AT]
    size = f.word(1) << scale
    elements, expected = f.local(1), f.local(1)
    unit, linear, low_bits = f.local(0), f.local(LINEAR), f.local(address)
    low, high, span, largest = f.local(address), f.local(address), f.local(), f.local()
    with f.times(rank, backwards=True) as k:
        n, stride = shape[k], strides[k]
        f.refuse(n > HUGE)
        own = f.local(expected.get())
        with f.when(n > 1):
            f.refuse((stride & (size - 1)).differs(0))
            f.refuse(stride > HUGE)
            f.refuse(stride < -HUGE)
            own.set(stride >> scale)
            reach = stride * (n - 1)
            f.refuse(reach > MAX_SPAN)
            f.refuse(reach < -MAX_SPAN)
            low.set(low.get() + reach.least(0))
            high.set(high.get() + reach.most(0))
        step = own.get()
        distance = step.most(f.word(0) - step)
        span.set(span.get() + distance * (n - 1).most(0))
        largest.set(largest.get().most(distance))
        linear.set(f.choose(step.equals(expected.get()), linear.get(), 0))
        is_unit = f.truth(step.equals(1)) & f.truth(unit.get().equals(0))
        unit.set(f.choose(is_unit.differs(0), k + 1, unit.get()))
        low_bits.set(f.choose(is_unit.differs(0), low_bits.get(), low_bits.get() | step << scale))
        counted.store(step, k * 8)
        counted.store(stride, k * 8 + MAX_RANK * 8)
        counted.store(n, k * 8 + MAX_RANK * 16)
        elements.set(elements.get() * n)
        expected.set(expected.get() * n.most(1))
    count = elements.get()
    with f.when(count.differs(0)):
        f.refuse((address & -FIRST_ADDRESS).equals(0))
        f.refuse((address & (size - 1)).differs(0))
        high.set(high.get() + size)
    with f.when(count.equals(0)):
        low.set(address)
        high.set(address)
    found = leaf[Leaf.CLASS] | rank << 8 | unit.get() << 16 | linear.get()
    for nbytes, flag in ALIGNED.items():
        found = found | f.choose((low_bits.get() & (nbytes - 1)).equals(0), flag, 0)
    leaf.store(found, Leaf.CLASS * 8)
    leaf.store(counted + MAX_RANK * 8, Leaf.BYTE_STRIDES_AT * 8)
    leaf.store(counted + MAX_RANK * 16, Leaf.SHAPE_AT * 8)
    leaf.store(low.get(), Leaf.LOW * 8)
    leaf.store(high.get(), Leaf.HIGH * 8)
    leaf.store(count, Leaf.ELEMENTS * 8)
    leaf.store(largest.get().most(span.get()).most(expected.get()), Leaf.LARGEST * 8)
    leaf.store(Kind.ARRAY, Leaf.KIND * 8)
    f.leave(1)
    return f


def _read_array() -> Routine:
    """(leaf, ndarray): everything about an array of NumPy's; 0 to give up."""
    f = Routine("read_array", 2)
    leaf, array = f.parameters
    rank = array.load(ARRAY_RANK, "i32")
    f.refuse(rank > MAX_RANK)
    leaf.store(rank, Leaf.RANK * 8)
    leaf.store(array.load(ARRAY_DATA), Leaf.VALUE * 8)
    leaf.store(array.load(ARRAY_SHAPE), Leaf.SHAPE_AT * 8)
    leaf.store(array.load(ARRAY_STRIDES), Leaf.BYTE_STRIDES_AT * 8)
    can_write = (array.load(ARRAY_FLAGS, "i32") & NUMPY_WRITEABLE).differs(0)
    flags = f.choose(can_write, WRITEABLE, 0)
    rows, dtype = context(f, Context.DTYPES_AT), array.load(ARRAY_DTYPE)
    with f.times(context(f, Context.DTYPES)) as k:
        row = rows + k * (DTYPE_ROW_WORDS * 8)
        with f.when(row[0].equals(dtype)):
            leaf.store(flags | k, Leaf.CLASS * 8)
            f.leave(f.invoke("read_elements", leaf, row[1]))
    return f


def _is_negated() -> Routine:
    """(tensor): whether it is negated lazily; -1 for an exception."""
    f = Routine("is_negated", 1)
    (obj,) = f.parameters
    place = context(f, Context.IMPL_AT)
    with f.when(place.differs(0)):
        keys = obj.load(place).load(context(f, Context.KEYS_AT))
        f.leave(f.truth((keys & context(f, Context.NEGATIVE)).differs(0)))
    args = f.room(2)
    args.store(obj, 8)
    name = context(f, Context.IS_NEG)
    negated = f.invoke("PyObject_VectorcallMethod", name, args + 8, f.word(1) | OFFSET_FLAG, 0)
    f.refuse(negated.equals(0), -1)
    call_void(f, "Py_DecRef", negated)
    f.leave(f.truth(negated.differs(context(f, Context.FALSE))))
    return f


def _records() -> Routine:
    """(tensor): whether it requires gradients that are recorded now; -1 for an exception, and where
    it may carry a tangent."""
    f = Routine("records", 1)
    (obj,) = f.parameters
    place = context(f, Context.GRAD_AT)
    with f.when(place.differs(0)):
        known = obj.load(context(f, Context.IMPL_AT)).load(place)
        f.refuse(known.equals(0))
    module = context(f, Context.FORWARD_MODE)
    with f.when(module.differs(0)):
        level = f.invoke("PyObject_GetAttr", module, context(f, Context.DUAL_LEVEL))
        f.refuse(level.equals(0), -1)
        call_void(f, "Py_DecRef", level)
        f.refuse(level.differs(context(f, Context.NO_LEVEL)), -1)
    found = f.invoke("PyObject_GetAttr", obj, context(f, Context.REQUIRES_GRAD))
    f.refuse(found.equals(0), -1)
    call_void(f, "Py_DecRef", found)
    f.refuse(found.equals(context(f, Context.FALSE)))
    mode = f.invoke("PyObject_Vectorcall", context(f, Context.GRAD_MODE), 0, 0, 0)
    f.refuse(mode.equals(0), -1)
    call_void(f, "Py_DecRef", mode)
    f.leave(f.truth(mode.differs(context(f, Context.FALSE))))
    return f


def _describe() -> Routine:
    """(tensor, place): write the tensor's description; 0 for an exception."""
    f = Routine("describe", 2)
    obj, held = f.parameters
    text = f"call i32 {f.pointer(context(f, Context.FILL))}({f.arguments((obj, held))})"
    f.leave(f.truth(f.value("i1", f"icmp eq i32 {f.value('i32', text).text}, 0")))
    return f


def _device_of() -> Routine:
    """(description): 0 for the CPU, one more than its number for a GPU of NVIDIA, -1 for others."""
    f = Routine("device_of", 1)
    (held,) = f.parameters
    device = held.load(tensors.DEVICE, "i32")
    f.refuse(device.equals(tensors.CPU))
    f.refuse(device.differs(tensors.GPU), -1)
    f.leave(held.load(tensors.DEVICE + 4, "i32") + 1)
    return f


def _read_tensor() -> Routine:
    """(frame, leaf, tensor): everything about a tensor of torch's on a CPU or a GPU of NVIDIA; 0 to
    give up."""
    f = Routine("read_tensor", 3)
    frame, leaf, obj = f.parameters
    held = f.room(tensors.DLTENSOR_WORDS + 2)
    negated = f.invoke("is_negated", obj)
    with f.when(negated < 0):
        f.leave(f.invoke("forget_error", frame))
    f.refuse(negated.differs(0))
    records = f.invoke("records", obj)
    with f.when(records < 0):
        f.leave(f.invoke("forget_error", frame))
    flags = f.choose(records.equals(0), WRITEABLE, 0)
    with f.when(f.invoke("describe", obj, held).equals(0)):
        f.leave(f.invoke("forget_error", frame))
    device = f.invoke("device_of", held)
    f.refuse(device < 0)
    place = device << PLACE_SHIFT
    rank = held.load(tensors.RANK, "i32")
    f.refuse(rank > MAX_RANK)
    address = held.load(tensors.DATA) + held.load(tensors.OFFSET)
    rows, types = context(f, Context.DTYPES_AT), context(f, Context.DLTYPES_AT)
    wanted = held.load(tensors.TYPE, "i32")
    with f.times(context(f, Context.DTYPES)) as k, f.when(types[k].equals(wanted)):
        scale = (rows + k * (DTYPE_ROW_WORDS * 8))[1]
        strides, steps = leaf[Leaf.STRIDES_AT] + MAX_RANK * 8, held.load(tensors.STRIDES)
        with f.times(rank) as axis:
            strides.store(steps[axis] << scale, axis * 8)
        leaf.store(rank, Leaf.RANK * 8)
        leaf.store(address, Leaf.VALUE * 8)
        leaf.store(held.load(tensors.SHAPE), Leaf.SHAPE_AT * 8)
        leaf.store(strides, Leaf.BYTE_STRIDES_AT * 8)
        leaf.store(place | k | flags, Leaf.CLASS * 8)
        f.leave(f.invoke("read_elements", leaf, scale))
    return f


def _whole() -> Routine:
    """(object, place): write a Python int; 0 where it is none or does not fit."""
    f = Routine("whole", 2)
    obj, place = f.parameters
    f.refuse(obj.load(TYPE_OF).differs(context(f, Context.INT)))
    overflow = f.room(1)
    overflow.store(0)
    text = f"call i64 @PyLong_AsLongLongAndOverflow(i64 {obj.text}, ptr {f.pointer(overflow)})"
    place.store(f.value("i64", text))
    f.leave(f.truth(overflow.load(0, "i32").equals(0)))
    return f


def _read_own() -> Routine:
    """(leaf, memory, owner, place): everything about memory of CubePy's own on a device; 0 to give
    up."""
    f = Routine("read_own", 4)
    leaf, memory, owner, place = f.parameters
    shape, strides = (memory.load(context(f, k)) for k in (Context.SHAPE_OF, Context.STRIDES_OF))
    for items in (shape, strides):
        f.refuse(items.load(TYPE_OF).differs(context(f, Context.TUPLE)))
    rank, steps = shape.load(TUPLE_SIZE), leaf[Leaf.STRIDES_AT] + MAX_RANK * 8
    f.refuse(rank > MAX_RANK)
    extents = steps + MAX_RANK * 8
    with f.times(rank) as k:
        for items, held in ((shape, extents), (strides, steps)):
            f.refuse(f.invoke("whole", (items + TUPLE_ITEMS)[k], held + k * 8).equals(0))
    address = memory.load(context(f, Context.ADDRESS_OF))
    f.refuse(f.invoke("whole", address, leaf + Leaf.VALUE * 8).equals(0))
    leaf.store(owner, Leaf.OWNER * 8)
    leaf.store(rank, Leaf.RANK * 8)
    leaf.store(extents, Leaf.SHAPE_AT * 8)
    leaf.store(steps, Leaf.BYTE_STRIDES_AT * 8)
    can_write = memory.load(context(f, Context.WRITEABLE_OF)).equals(context(f, Context.TRUE))
    flags = f.choose(can_write, WRITEABLE, 0) | place << PLACE_SHIFT
    rows, types = context(f, Context.DTYPES_AT), context(f, Context.OWN_DTYPES_AT)
    wanted = memory.load(context(f, Context.DTYPE_OF))
    with f.times(context(f, Context.DTYPES)) as k, f.when(types[k].equals(wanted)):
        leaf.store(flags | k, Leaf.CLASS * 8)
        f.leave(f.invoke("read_elements", leaf, (rows + k * (DTYPE_ROW_WORDS * 8))[1]))
    return f


def _cupys_device() -> Routine:
    """(pointer): the number of its GPU."""
    f = Routine("cupys_device", 1)
    (data,) = f.parameters
    place = context(f, Context.CUPY_DEVICE)
    f.refuse(place.equals(0))
    f.leave(data.load(place, "i32"))
    return f


def _read_cupy() -> Routine:
    """(leaf, array): everything about an array of CuPy's; 0 to give up."""
    f = Routine("read_cupy", 2)
    leaf, array = f.parameters
    shape_at, strides_at = context(f, Context.CUPY_SHAPE), context(f, Context.CUPY_STRIDES)
    shape = array.load(shape_at)
    rank = (array.load(shape_at + 8) - shape) >> 3
    f.refuse(rank > MAX_RANK)
    data = array.load(context(f, Context.CUPY_DATA))
    leaf.store(data.load(context(f, Context.CUPY_ADDRESS)), Leaf.VALUE * 8)
    device = f.invoke("cupys_device", data) << PLACE_SHIFT
    leaf.store(rank, Leaf.RANK * 8)
    leaf.store(shape, Leaf.SHAPE_AT * 8)
    leaf.store(array.load(strides_at), Leaf.BYTE_STRIDES_AT * 8)
    rows, dtype = context(f, Context.DTYPES_AT), array.load(context(f, Context.CUPY_DTYPE))
    with f.times(context(f, Context.DTYPES)) as k:
        row = rows + k * (DTYPE_ROW_WORDS * 8)
        with f.when(row[0].equals(dtype)):
            leaf.store(device | k | (WRITEABLE | CUPY_PLACE << PLACE_SHIFT), Leaf.CLASS * 8)
            f.leave(f.invoke("read_elements", leaf, row[1]))
    return f


def _read_ours() -> Routine:
    """(leaf, array): an array of CubePy's; 0 to give up."""
    f = Routine("read_ours", 2)
    leaf, obj = f.parameters
    memory = obj.load(context(f, Context.MEMORY_OF))
    owner = memory.load(context(f, Context.OWNER_OF))
    f.refuse(owner.equals(0))
    for cls, place in (
        (Context.ALLOCATION, OWN_PLACE),
        (Context.SHARED_MEMORY, OPENCL_PLACE),
    ):
        with f.when(owner.load(TYPE_OF).equals(context(f, cls))):
            f.leave(f.invoke("read_own", leaf, memory, owner, place))
    f.refuse((owner.load(TYPE_OF).load(TUPLE_FLAGS) & TUPLE_SUBCLASS).equals(0))
    array = owner.load(TUPLE_ITEMS)
    f.refuse(array.load(TYPE_OF).differs(context(f, Context.NDARRAY)))
    f.leave(f.invoke("read_array", leaf, array))
    return f


def _read_items() -> Routine:
    """(frame, tuple): read its items; 0 to give up."""
    f = Routine("read_items", 2)
    frame, items = f.parameters
    with f.times(items.load(TUPLE_SIZE)) as k:
        f.refuse(f.invoke("read", frame, (items + TUPLE_ITEMS)[k], 0).equals(0))
    f.leave(1)
    return f


def _read_struct() -> Routine:
    """(frame, object, type): read the fields of a dataclass that a plan knows; 0 to give up."""
    f = Routine("read_struct", 3)
    frame, obj, cls = f.parameters
    table = frame[TABLE]
    rows = table + table[Head.RECORDS_AT]
    with f.times(table[Head.RECORDS]) as k:
        row = rows + k * (RECORD_WORDS * 8)
        with f.when(row[0].equals(cls)):
            names = table + row[2]
            with f.times(row[1]) as j:
                found = f.invoke("PyObject_GetAttr", obj, names[j])
                with f.when(found.equals(0)):
                    f.leave(f.invoke("forget_error", frame))
                owned = frame[OWNED]
                frame.store(found, owned * 8 + OWNED_AT)
                frame.store(owned + 1, OWNED * 8)
                f.refuse(f.invoke("read", frame, found, 0).equals(0))
            f.leave(row[1] + 1)
    return f


def _read() -> Routine:
    """(frame, object, whether it is comptime): the next leaf, and those inside it; 0 to give up."""
    f = Routine("read", 3)
    frame, obj, is_comptime = f.parameters
    k = frame[COUNT]
    f.refuse(k >= MAX_LEAVES)
    frame.store(k + 1, COUNT * 8)
    leaf = leaf_at(frame, k)
    cls = obj.load(TYPE_OF)
    leaf.store(obj, Leaf.OBJECT * 8)
    leaf.store(cls, Leaf.TYPE * 8)
    leaf.store(Kind.OTHER, Leaf.KIND * 8)
    leaf.store(frame + (k * AXES_BYTES + STRIDES_AT), Leaf.STRIDES_AT * 8)
    with f.when(cls.equals(context(f, Context.NDARRAY))):
        f.leave(f.invoke("read_array", leaf, obj))
    with f.when(cls.equals(context(f, Context.ARRAY))):
        f.leave(f.invoke("read_ours", leaf, obj))
    with f.when(is_tensor(f, cls).differs(0)):
        f.leave(f.invoke("read_tensor", frame, leaf, obj))
    with f.when(cls.equals(context(f, Context.CUPY))):
        f.leave(f.invoke("read_cupy", leaf, obj))
    with f.when(cls.equals(context(f, Context.TENSOR_MAP))):
        array = obj.load(context(f, Context.MAP_ARRAY))
        found, described = f.local(), array.load(TYPE_OF)
        with f.when(described.equals(context(f, Context.ARRAY))):
            found.set(f.invoke("read_ours", leaf, array))
        with f.when(is_tensor(f, described).differs(0)):
            found.set(f.invoke("read_tensor", frame, leaf, array))
        f.refuse(found.get().equals(0))
        leaf.store(Kind.MAP, Leaf.KIND * 8)
        f.leave(1)
    number = f.invoke("read_number", leaf, obj, cls)
    f.refuse(number.equals(2))
    f.refuse(f.truth(number.equals(1)).differs(0), 1)
    f.refuse(is_comptime.differs(0), 1)
    with f.when((cls.load(TUPLE_FLAGS) & TUPLE_SUBCLASS).differs(0)):
        leaf.store(Kind.STRUCT, Leaf.KIND * 8)
        leaf.store(obj.load(TUPLE_SIZE), Leaf.VALUE * 8)
        f.leave(f.invoke("read_items", frame, obj))
    with f.when(frame[TABLE][Head.RECORDS].differs(0)):
        before = frame[OWNED]
        found = f.invoke("read_struct", frame, obj, cls)
        with f.when(found.differs(0)):
            leaf.store(Kind.STRUCT, Leaf.KIND * 8)
            leaf.store(found - 1, Leaf.VALUE * 8)
            f.leave(1)
        f.refuse(frame[OWNED].differs(before))
    f.leave(1)
    return f


def _bind() -> Routine:
    """(table, values, args, number of positional ones, names of the others): a value for each
    parameter; 0 to give up."""
    f = Routine("bind", 5)
    table, values, args, count, keywords = f.parameters
    total = table[Head.PARAMETERS]
    rows = table + table[Head.NAMES_AT]
    f.refuse(count > table[Head.POSITIONAL])
    with f.times(count) as k:
        values.store(args[k], k * 8)
    with f.when((total - count).equals(0)):
        f.refuse(keywords.equals(0), 1)
    rest = total - count
    with f.times(rest) as j:
        k = count + j
        values.store((rows + k * (PARAMETER_WORDS * 8))[1], k * 8)
    with f.when(keywords.differs(0)), f.times(keywords.load(TUPLE_SIZE)) as j:
        name = (keywords + TUPLE_ITEMS)[j]
        place = f.local(-1)
        with f.times(rest) as i:
            k = count + i
            same = (rows + k * (PARAMETER_WORDS * 8))[0].equals(name)
            place.set(f.choose(same, k, place.get()))
        f.refuse(place.get() < 0)
        values.store((args + count * 8)[j], place.get() * 8)
    with f.times(rest) as j:
        f.refuse(values[count + j].equals(0))
    f.leave(1)
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return (
        _read_number(),
        _read_elements(),
        _read_array(),
        _is_negated(),
        _records(),
        _describe(),
        _device_of(),
        _read_tensor(),
        _whole(),
        _read_own(),
        _cupys_device(),
        _read_cupy(),
        _read_ours(),
        _read_items(),
        _read_struct(),
        _read(),
        _bind(),
    )
