"""Bound launches on arrays that are as they were at the last launch.

What a launch depends on of its arguments follows from the objects and, for arrays, from what stands
in them: address, type, rank, whether they may be written, extents, strides. A bound launch keeps
its objects, so its last launch leaves what stood in its arrays and the argument block that it made
of it. While that stands there, only settings and captured names are looked at again, and on a GPU
the stream or the order of what works on its arrays.
"""

from __future__ import annotations

from cubepy.runtimes.native.launching import tensors
from cubepy.runtimes.native.launching.callables import WORDS_AT
from cubepy.runtimes.native.launching.frame import (
    ARRAY_DATA,
    ARRAY_DTYPE,
    ARRAY_FLAGS,
    ARRAY_RANK,
    ARRAY_SHAPE,
    ARRAY_STRIDES,
    BYTES_ITEMS,
    COUNT,
    DATA,
    FRAME_HEAD,
    MEMO,
    NUMPY_WRITEABLE,
    OWNED,
    OWNED_AT,
    RAISED,
    TUPLE_ITEMS,
    TYPE_OF,
    call_void,
    context,
    is_tensor,
    leaf_at,
    rule_at,
)
from cubepy.runtimes.native.launching.tables import (
    CAPTURE_WORDS,
    DTYPE_ROW_WORDS,
    IS_WRITTEN,
    MAX_RANK,
    MAX_REMEMBERED,
    MAX_SLOTS,
    OWN_PLACE,
    PLACE_SHIFT,
    REMEMBERED_WORDS,
    WRITEABLE,
    Context,
    Grid,
    Kind,
    Leaf,
    Memo,
    Plan,
    Queue,
    Remembered,
    Rule,
)
from cubepy.runtimes.native.words import Routine

_CHANGEABLE = Rule.FUNCTION, Rule.MAP
"""Rules of objects that may become others in place."""


def _remember_array() -> Routine:
    """(leaf, rule, row): note what stands in an array; 0 where that is not looked at."""
    f = Routine("remember_array", 3)
    leaf, rule, row = f.parameters
    kind, rank, cls, obj = (leaf[k] for k in (Leaf.CLASS, Leaf.RANK, Leaf.TYPE, Leaf.OBJECT))
    place = kind >> PLACE_SHIFT
    row.store(obj, Remembered.OBJECT * 8)
    with f.when(cls.equals(context(f, Context.ARRAY))):
        f.refuse(place.differs(OWN_PLACE))
        row.store(obj.load(context(f, Context.MEMORY_OF)), Remembered.ADDRESS * 8)
        row.store(rule[IS_WRITTEN], Remembered.FLAGS * 8)
        f.leave(1)
    is_numpys = cls.equals(context(f, Context.NDARRAY))
    f.refuse((f.truth(is_numpys) | is_tensor(f, cls)).equals(0))
    number = kind & 0xFF
    dtype = (context(f, Context.DTYPES_AT) + number * (DTYPE_ROW_WORDS * 8))[0]
    writeable = f.choose((kind & WRITEABLE).differs(0), NUMPY_WRITEABLE, 0)
    for which, value in (
        (Remembered.ADDRESS, leaf[Leaf.VALUE]),
        (Remembered.RANK, rank),
        (Remembered.DTYPE, f.choose(is_numpys, dtype, number)),
        (Remembered.FLAGS, f.choose(is_numpys, writeable, place)),
    ):
        row.store(value, which * 8)
    axes = row + Remembered.AXES * 8
    with f.times(rank) as k:
        axes.store(leaf[Leaf.SHAPE_AT][k], k * 8)
        (axes + MAX_RANK * 8).store(leaf[Leaf.BYTE_STRIDES_AT][k], k * 8)
    f.leave(1)
    return f


def _remember() -> Routine:
    """(frame, plan, block, counts): leave a launch to the next one of the same bound launch, unless
    it read what may change unseen."""
    f = Routine("remember", 4)
    frame, plan, block, counts = f.parameters
    bound = frame[MEMO]
    f.refuse(bound.equals(0))
    memo = bound.load(WORDS_AT)
    f.refuse(memo.equals(0))
    place = context(f, Context.BOUND_DATA)
    before = bound.load(place)
    memo.store(0, Memo.PLAN * 8)
    f.refuse(frame[OWNED].differs(0))
    with f.when(plan[Plan.GPU].differs(0)):
        f.refuse(plan[Plan.QUEUE] > Queue.OWN)
    f.refuse(plan[Plan.GRID].equals(Grid.ARRAY))
    arrays = f.local()
    with f.times(frame[COUNT]) as k:
        leaf, rule = leaf_at(frame, k), rule_at(plan, k)
        for which in _CHANGEABLE:
            f.refuse(rule[0].equals(which))
        with f.when(leaf[Leaf.KIND].equals(Kind.ARRAY)):
            number = arrays.get()
            f.refuse(number >= MAX_REMEMBERED)
            row = memo + Memo.ROWS * 8 + number * (REMEMBERED_WORDS * 8)
            f.refuse(f.invoke("remember_array", leaf, rule, row).equals(0))
            arrays.set(number + 1)
    with f.times(plan[Plan.SLOTS] + 3) as k:
        memo.store(block[k], k * 8 + Memo.BLOCK * 8)
    memo.store(arrays.get(), Memo.ARRAYS * 8)
    memo.store(counts[3], Memo.CUBES * 8)
    memo.store(counts[4], Memo.WORK * 8)
    memo.store(plan, Memo.PLAN * 8)
    with f.when(before.differs(frame[DATA])):
        call_void(f, "Py_IncRef", frame[DATA])
        bound.store(frame[DATA], place)
        with f.when(before.differs(0)):
            frame.store(before, OWNED_AT)
            frame.store(1, OWNED * 8)
    f.leave(1)
    return f


def _is_remembered() -> Routine:
    """(frame, gpu, row): whether the same stands in an array; of CubePy's own whether it is the
    same memory, which never changes, and the order of its queue needs nothing."""
    f = Routine("is_remembered", 3)
    frame, gpu, row = f.parameters
    array = row[Remembered.OBJECT]
    cls = array.load(TYPE_OF)
    with f.when(cls.equals(context(f, Context.NDARRAY))):
        f.leave(f.invoke("is_numpys_remembered", row))
    with f.when(cls.equals(context(f, Context.ARRAY))):
        memory = array.load(context(f, Context.MEMORY_OF))
        f.refuse(memory.differs(row[Remembered.ADDRESS]))
        owner = memory.load(context(f, Context.OWNER_OF))
        f.leave(f.invoke("is_in_order", gpu, owner, row[Remembered.FLAGS]))
    f.refuse(is_tensor(f, cls).equals(0))
    f.leave(f.invoke("is_tensor_remembered", frame, row))
    return f


def _is_tensor_remembered() -> Routine:
    """(frame, row): whether the same stands in a tensor of torch's."""
    f = Routine("is_tensor_remembered", 2)
    frame, row = f.parameters
    obj, held = row[Remembered.OBJECT], f.room(tensors.DLTENSOR_WORDS + 2)
    negated = f.invoke("is_negated", obj)
    with f.when(negated < 0):
        f.leave(f.invoke("forget_error", frame))
    f.refuse(negated.differs(0))
    records = f.invoke("records", obj)
    with f.when(records < 0):
        f.leave(f.invoke("forget_error", frame))
    f.refuse(records.differs(0))
    with f.when(f.invoke("describe", obj, held).equals(0)):
        f.leave(f.invoke("forget_error", frame))
    rank, number, axes = row[Remembered.RANK], row[Remembered.DTYPE], row + Remembered.AXES * 8
    address = held.load(tensors.DATA) + held.load(tensors.OFFSET)
    unlike = address ^ row[Remembered.ADDRESS]
    unlike = unlike | held.load(tensors.RANK, "i32") ^ rank
    unlike = unlike | held.load(tensors.TYPE, "i32") ^ context(f, Context.DLTYPES_AT)[number]
    unlike = unlike | f.invoke("device_of", held) ^ row[Remembered.FLAGS]
    f.refuse(unlike.differs(0))
    scale = (context(f, Context.DTYPES_AT) + number * (DTYPE_ROW_WORDS * 8))[1]
    shape, steps = held.load(tensors.SHAPE), held.load(tensors.STRIDES)
    with f.times(rank) as k:
        strides = (steps[k] << scale) ^ (axes + MAX_RANK * 8)[k]
        f.refuse((shape[k] ^ axes[k] | strides).differs(0))
    f.leave(1)
    return f


def _is_numpys_remembered() -> Routine:
    """(row): whether the same stands in an array of NumPy's."""
    f = Routine("is_numpys_remembered", 1)
    (row,) = f.parameters
    array = row[Remembered.OBJECT]
    rank, axes = row[Remembered.RANK], row + Remembered.AXES * 8
    flags = array.load(ARRAY_FLAGS, "i32") & NUMPY_WRITEABLE
    unlike = array.load(ARRAY_DATA) ^ row[Remembered.ADDRESS]
    unlike = unlike | array.load(ARRAY_RANK, "i32") ^ rank
    unlike = unlike | array.load(ARRAY_DTYPE) ^ row[Remembered.DTYPE]
    f.refuse((unlike | flags ^ row[Remembered.FLAGS]).differs(0))
    shape, strides = array.load(ARRAY_SHAPE), array.load(ARRAY_STRIDES)
    with f.times(rank) as k:
        unlike = shape[k] ^ axes[k] | strides[k] ^ (axes + MAX_RANK * 8)[k]
        f.refuse(unlike.differs(0))
    f.leave(1)
    return f


def _relaunch() -> Routine:
    """(frame, bound, data, plan, block): launch as the last time; 0 where something is different.

    Reading a captured name may run any code, so arrays are looked at behind it.
    """
    f = Routine("relaunch", 5)
    frame, bound, data, plan, block = f.parameters
    memo = bound.load(WORDS_AT)
    table = data.load(TUPLE_ITEMS) + BYTES_ITEMS
    f.refuse(f.invoke("is_as_before", table).equals(0))
    captures = plan + plan[Plan.CAPTURES_AT]
    with f.times(plan[Plan.CAPTURES]) as k:
        f.refuse(f.invoke("capture_holds", frame, captures + k * (CAPTURE_WORDS * 8)).equals(0))
    f.refuse(memo[Memo.PLAN].differs(plan))
    f.refuse(bound.load(context(f, Context.BOUND_DATA)).differs(data))
    with f.times(memo[Memo.ARRAYS]) as k:
        row = memo + Memo.ROWS * 8 + k * (REMEMBERED_WORDS * 8)
        f.refuse(f.invoke("is_remembered", frame, plan[Plan.GPU], row).equals(0))
    with f.times(plan[Plan.SLOTS] + 3) as k:
        block.store((memo + Memo.BLOCK * 8)[k], k * 8)
    with f.when(plan[Plan.GPU].differs(0)):
        f.leave(f.invoke("put", plan, block, memo[Memo.CUBES]))
    f.leave(f.invoke("run", plan, block, memo[Memo.CUBES], memo[Memo.WORK]))
    return f


def _again() -> Routine:
    """(bound, launcher): 1 when launched as the last time, 0 when nothing was done, -1 for an
    exception."""
    f = Routine("again", 2)
    bound, launcher = f.parameters
    frame, block = f.room(FRAME_HEAD), f.room(MAX_SLOTS + 4)
    memo = bound.load(WORDS_AT)
    f.refuse(memo.equals(0))
    data, plan = bound.load(context(f, Context.BOUND_DATA)), memo[Memo.PLAN]
    f.refuse(plan.equals(0))
    table = launcher.load(context(f, Context.TABLE))
    f.refuse(table.load(context(f, Context.DATA)).differs(data))
    frame.store(0, RAISED * 8)
    call_void(f, "Py_IncRef", data)
    done = f.invoke("relaunch", frame, bound, data, plan, block)
    call_void(f, "Py_DecRef", data)
    f.refuse(frame[RAISED].differs(0), -1)
    f.leave(done)
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return (
        _remember_array(),
        _remember(),
        _is_numpys_remembered(),
        _is_tensor_remembered(),
        _is_remembered(),
        _relaunch(),
        _again(),
    )
