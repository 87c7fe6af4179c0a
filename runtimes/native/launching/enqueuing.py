"""Launches on GPUs by the driver's own function: on the arrays of torch and CuPy into the stream
in which these work now, on CubePy's own into the device's own queue."""

from __future__ import annotations

from cubepy.runtimes.native.launching import tensors
from cubepy.runtimes.native.launching.frame import (
    COUNT,
    OFFSET_FLAG,
    call_void,
    context,
    leaf_at,
    rule_at,
)
from cubepy.runtimes.native.launching.state import IS_USED
from cubepy.runtimes.native.launching.tables import (
    IS_WRITTEN,
    LOGGED,
    MAP_ALIGNMENT,
    MAP_WORDS,
    MAX_MAPS,
    MAX_SLOTS,
    Context,
    Gpu,
    Kind,
    Leaf,
    Order,
    Plan,
    Queue,
)
from cubepy.runtimes.native.words import Operand, Routine, Value

STREAM, PREVIOUS = 0, 1
"""Words that `enter` writes: the stream, and the context of the thread, which it gets back."""
ENTERED_WORDS = 2
CONFIG_WORDS = 7
"""Of a `CUlaunchConfig`: extents of the grid and of a cube and bytes of shared memory, of 32 bits,
then the stream, where its attributes are, and how many."""
_UNCHANGED = -1


def status_of(f: Routine, function: Value, *args: tuple[str, Operand]) -> Value:
    """What a function of the driver's or torch's gives; arguments with their LLVM types."""
    given: list[str] = []
    for kind, value in args:
        held = f.word(value)
        if kind != "i64":
            held = f.value(kind, f"trunc i64 {held.text} to {kind}")
        given.append(f"{kind} {held.text}")
    called = f.value("i32", f"call i32 {f.pointer(function)}({', '.join(given)})")
    return f.value("i64", f"sext i32 {called.text} to i64")


def _enter() -> Routine:
    """(gpu, entered, queue): find the stream of torch or CuPy, and make the device's primary
    context that of the thread if it has none or another device's; 0 where it works in another one
    of this device."""
    f = Routine("enter", 3)
    gpu, entered, queue = f.parameters
    entered.store(0, STREAM * 8)
    with f.when(queue.equals(Queue.CUPY)):
        current = context(f, Context.CUPY_STREAM).call()
        with f.when(current < 0):
            call_void(f, "PyErr_Clear")
            f.leave(0)
        entered.store(current, STREAM * 8)
    with f.when(queue.equals(Queue.TORCH)):
        stream = context(f, Context.STREAM)
        f.refuse(stream.equals(0))
        asked = ("i32", tensors.GPU), ("i32", gpu[Gpu.ORDINAL]), ("i64", entered + STREAM * 8)
        with f.when(status_of(f, stream, *asked).differs(0)):
            call_void(f, "PyErr_Clear")
            f.leave(0)
    current = f.room(1)
    f.refuse(status_of(f, gpu[Gpu.GET_CONTEXT], ("i64", current)).differs(0))
    entered.store(_UNCHANGED, PREVIOUS * 8)
    previous, device = current[0], f.room(1)
    f.refuse(previous.equals(gpu[Gpu.CONTEXT]), 1)
    is_cupys = f.truth(queue.equals(Queue.CUPY))
    has_several = f.truth(context(f, Context.CUPY_DEVICE).differs(0))
    f.refuse((is_cupys & has_several).differs(0))  # the stream is another GPU's
    with f.when(previous.differs(0)):
        f.refuse(status_of(f, gpu[Gpu.GET_DEVICE], ("i64", device)).differs(0))
        f.refuse(device.load(0, "i32").equals(gpu[Gpu.DEVICE]))
    f.refuse(status_of(f, gpu[Gpu.SET_CONTEXT], ("i64", gpu[Gpu.CONTEXT])).differs(0))
    entered.store(previous, PREVIOUS * 8)
    f.leave(1)
    return f


def _leave() -> Routine:
    """(gpu, entered): give the thread its context back."""
    f = Routine("leave", 2)
    gpu, entered = f.parameters
    previous = entered[PREVIOUS]
    with f.when(previous.differs(_UNCHANGED)):
        status_of(f, gpu[Gpu.SET_CONTEXT], ("i64", previous))
    f.leave(1)
    return f


def _enqueue() -> Routine:
    """(plan, block, count, entered): put a launch into the stream; the driver's status.

    Without the GIL: the driver waits where a stream is full, perhaps for work that needs the GIL.
    """
    f = Routine("enqueue", 4)
    plan, block, count, entered = f.parameters
    plan[Plan.STATE].store(1, IS_USED * 8)
    f.refuse(count.equals(0))
    gpu, slots = plan[Plan.GPU], plan[Plan.SLOTS]
    places, stream = f.room(MAX_SLOTS), entered[STREAM]
    with f.times(slots) as k:
        places.store(block + k * 8, k * 8)
    with f.when(plan[Plan.MAPS].differs(0)):
        room = f.room(MAX_MAPS * MAP_WORDS + MAP_ALIGNMENT // 8)
        failed = f.invoke("place_maps", plan, block, places, room)
        f.refuse(failed.differs(0), failed)
    _note(gpu[Gpu.LOG], stream, plan[Plan.NAME])
    counts, config = block + slots * 8, f.room(CONFIG_WORDS)
    dims = [counts[k] for k in range(3)]
    dims += [plan[k] for k in (Plan.DIM_X, Plan.DIM_Y, Plan.DIM_Z, Plan.SHARED)]
    for k, n in enumerate(dims):
        config.store(n, 4 * k, "i32")
    for k, n in enumerate((stream, gpu[Gpu.ATTRIBUTES], gpu[Gpu.ATTRIBUTE_COUNT]), 4):
        config.store(n, 8 * k)
    state = f.invoke("PyEval_SaveThread")
    given = config, plan[Plan.ENTRY], places, 0
    status = status_of(f, gpu[Gpu.LAUNCH], *(("i64", n) for n in given))
    call_void(f, "PyEval_RestoreThread", state)
    f.leave(status)
    return f


def _place_maps() -> Routine:
    """(plan, block, places, room): the tensor maps of the arrays whose addresses are in the block;
    the driver's status."""
    f = Routine("place_maps", 4)
    plan, block, places, room = f.parameters
    first = (room + MAP_ALIGNMENT - 1) & -MAP_ALIGNMENT
    rows, replace = plan + plan[Plan.MAPS_AT], plan[Plan.GPU][Gpu.REPLACE_ADDRESS]
    with f.times(plan[Plan.MAPS]) as k:
        row, made = rows + k * (MAP_WORDS + 1) * 8, first + k * MAP_WORDS * 8
        for j in range(MAP_WORDS):
            made.store(row[j + 1], j * 8)
        status = status_of(f, replace, ("i64", made), ("i64", block[row[0]]))
        f.refuse(status.differs(0), status)
        places.store(made, row[0] * 8)
    f.leave(0)
    return f


def _note(log: Value, stream: Value, kernel: Value) -> None:
    """Remember a launch for the message of a device that is lost."""
    number = log[0]
    row = log + ((number & (LOGGED - 1)) * 16 + 8)
    row.store(stream)
    row.store(kernel, 8)
    log.store(number + 1)


def _refused() -> Routine:
    """(function, status): let Python raise what a status means; -1."""
    f = Routine("refused", 2)
    function, status = f.parameters
    number = f.invoke("PyLong_FromLongLong", status)
    f.refuse(number.equals(0), -1)
    args = f.room(2)
    args.store(number, 8)
    f.invoke("PyObject_Vectorcall", function, args + 8, f.word(1) | OFFSET_FLAG, 0)
    call_void(f, "Py_DecRef", number)
    f.leave(-1)
    return f


def _is_in_order() -> Routine:
    """(gpu, owner, whether it is written): whether work in the device's own queue on this memory
    needs neither a wait nor a new mark; see `runtimes.cuda.queues`."""
    f = Routine("is_in_order", 3)
    gpu, owner, is_written = f.parameters
    f.refuse(owner.load(context(f, Context.QUEUES_OF)).differs(gpu[Gpu.QUEUES]))
    f.refuse(owner.load(context(f, Context.SHARED_OF)).differs(context(f, Context.FALSE)))
    mark = gpu[Gpu.ORDER][Order.MARK]
    f.refuse(owner.load(context(f, Context.WRITE_OF)).equals(mark), 1)
    f.refuse(is_written.differs(0))
    f.leave(f.truth(owner.load(context(f, Context.READ_OF)).equals(mark)))
    return f


def _enter_own() -> Routine:
    """(gpu, entered): as `enter`, for the device's own queue; from here on it waits for launches
    that are under way before it gives its mark an event."""
    f = Routine("enter_own", 2)
    gpu, entered = f.parameters
    current = f.room(1)
    f.refuse(status_of(f, gpu[Gpu.GET_CONTEXT], ("i64", current)).differs(0))
    entered.store(gpu[Gpu.STREAM], STREAM * 8)
    entered.store(_UNCHANGED, PREVIOUS * 8)
    with f.when(current[0].differs(gpu[Gpu.CONTEXT])):
        f.refuse(status_of(f, gpu[Gpu.SET_CONTEXT], ("i64", gpu[Gpu.CONTEXT])).differs(0))
        entered.store(current[0], PREVIOUS * 8)
    under_way = gpu[Gpu.ORDER] + Order.UNDER_WAY * 8
    under_way.store(under_way.load() + 1)
    f.leave(1)
    return f


def _leave_own() -> Routine:
    """(gpu, entered): the launches are in the queue."""
    f = Routine("leave_own", 2)
    gpu, entered = f.parameters
    under_way = gpu[Gpu.ORDER] + Order.UNDER_WAY * 8
    under_way.store(under_way.load() - 1)
    f.invoke("leave", gpu, entered)
    f.leave(1)
    return f


def _run_in_own() -> Routine:
    """(frame, plan, block, count): put a launch into the device's own queue; 1, 0 where Python is
    to launch, -1 for an exception."""
    f = Routine("run_in_own", 4)
    frame, plan, block, count = f.parameters
    gpu = plan[Plan.GPU]
    with f.times(frame[COUNT]) as k:
        leaf, rule = leaf_at(frame, k), rule_at(plan, k)
        kind = leaf[Leaf.KIND]
        is_array = f.truth(kind.equals(Kind.ARRAY)) | f.truth(kind.equals(Kind.MAP))
        with f.when(is_array.differs(0)):
            held = f.invoke("is_in_order", gpu, leaf[Leaf.OWNER], rule[IS_WRITTEN])
            f.refuse(held.equals(0))
    f.leave(f.invoke("put_in_own", plan, block, count))
    return f


def _put_in_own() -> Routine:
    """(plan, block, count): put a launch on memory that is in order into the device's own queue."""
    f = Routine("put_in_own", 3)
    plan, block, count = f.parameters
    gpu, entered = plan[Plan.GPU], f.room(ENTERED_WORDS)
    f.refuse(f.invoke("enter_own", gpu, entered).equals(0))
    status = f.invoke("enqueue", plan, block, count, entered)
    f.invoke("leave_own", gpu, entered)
    f.refuse(status.equals(0), 1)
    f.leave(f.invoke("refused", plan[Plan.LOADED], status))
    return f


def _run_on_gpu() -> Routine:
    """(frame, plan, block, count): put a launch into the stream of torch or CuPy or the device's
    own queue; 1, 0 where Python is to launch, -1 for an exception."""
    f = Routine("run_on_gpu", 4)
    frame, plan, block, count = f.parameters
    with f.when(plan[Plan.QUEUE].equals(Queue.OWN)):
        f.leave(f.invoke("run_in_own", frame, plan, block, count))
    f.leave(f.invoke("put", plan, block, count))
    return f


def _put() -> Routine:
    """(plan, block, count): as `run_on_gpu`, of memory that is in order."""
    f = Routine("put", 3)
    plan, block, count = f.parameters
    gpu, entered = plan[Plan.GPU], f.room(ENTERED_WORDS)
    with f.when(plan[Plan.QUEUE].equals(Queue.OWN)):
        f.leave(f.invoke("put_in_own", plan, block, count))
    f.refuse(f.invoke("enter", gpu, entered, plan[Plan.QUEUE]).equals(0))
    status = f.invoke("enqueue", plan, block, count, entered)
    f.invoke("leave", gpu, entered)
    f.refuse(status.equals(0), 1)
    f.leave(f.invoke("refused", plan[Plan.LOADED], status))
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return (
        _enter(),
        _leave(),
        _is_in_order(),
        _enter_own(),
        _leave_own(),
        _refused(),
        _place_maps(),
        _enqueue(),
        _put_in_own(),
        _put(),
        _run_in_own(),
        _run_on_gpu(),
    )
