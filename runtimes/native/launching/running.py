"""The argument block, and the way to the kernel."""

from __future__ import annotations

from cubepy.runtimes.native.launching.frame import (
    BOUND,
    BYTES_ITEMS,
    COUNT,
    DATA,
    FRAME_WORDS,
    HAS_COUNTER,
    LAUNCH,
    LONG_TICKS,
    MEMO,
    OFFSET_FLAG,
    OWNED,
    OWNED_AT,
    PATIENCE,
    RAISED,
    TABLE,
    TUPLE_ITEMS,
    TUPLE_SIZE,
    call_void,
    context,
    leaf_at,
)
from cubepy.runtimes.native.launching.state import IS_LONG, IS_USED, LONG_LAUNCHES, LONG_NS
from cubepy.runtimes.native.launching.tables import (
    MAX_PARAMETERS,
    MAX_SLOTS,
    PARAMETER_WORDS,
    SLOT_WORDS,
    Context,
    Head,
    Kind,
    Leaf,
    Packed,
    Plan,
    Queue,
    Slot,
)
from cubepy.runtimes.native.words import Routine


def _now() -> Routine:
    """The time, in ticks of the processor or in ns."""
    f = Routine("now", 0, is_inlined=True)
    if HAS_COUNTER:
        f.leave(f.value("i64", "call i64 @llvm.readcyclecounter()"))
        return f
    time = f.room(2)
    f.line(f"call i32 @clock_gettime(i32 1, ptr {f.pointer(time)})")
    f.leave(time[0] * 1_000_000_000 + time[1])
    return f


def _number() -> Routine:
    """(slot, leaf, place): write a number; 0 where it does not fit."""
    f = Routine("number", 3, is_inlined=True)
    slot, leaf, place = f.parameters
    value, kind, packed = leaf[Leaf.VALUE], leaf[Leaf.KIND], slot[2]
    with f.when(packed.equals(Packed.INTEGER)):
        f.refuse(kind.differs(Kind.INT))
        f.refuse(value < slot[3])
        f.refuse(value > slot[4])
        place.store(value & slot[5])
        f.leave(1)
    with f.when(packed.equals(Packed.BOOL)):
        f.refuse(kind.differs(Kind.BOOL))
        place.store(value)
        f.leave(1)
    f.refuse(kind.equals(Kind.BOOL))
    bits = f.local(value)
    with f.when(kind.equals(Kind.INT)):
        f.refuse(value > 1 << 24)
        f.refuse(value < -(1 << 24))
        exact = f.value("double", f"sitofp i64 {value.text} to double")
        bits.set(f.value("i64", f"bitcast double {exact.text} to i64"))
    with f.when(packed.equals(Packed.F64)):
        place.store(bits.get())
        f.leave(1)
    wide = f.value("double", f"bitcast i64 {bits.get().text} to double")
    size = f.value("double", f"call double @llvm.fabs.f64(double {wide.text})")
    fits = f.value("i1", f"fcmp olt double {size.text}, 0x47D2CED32A16A1B1")  # 1e38
    f.refuse(f.truth(fits).equals(0))
    narrow = f.value("float", f"fptrunc double {wide.text} to float")
    low = f.value("i32", f"bitcast float {narrow.text} to i32")
    place.store(f.value("i64", f"zext i32 {low.text} to i64"))
    f.leave(1)
    return f


def _fill() -> Routine:
    """(frame, plan, block): write the argument block; 0 where a number does not fit."""
    f = Routine("fill", 3, is_inlined=True)
    frame, plan, block = f.parameters
    slots = plan + plan[Plan.SLOTS_AT]
    with f.times(plan[Plan.SLOTS]) as k:
        slot = slots + k * (SLOT_WORDS * 8)
        leaf, place, which = leaf_at(frame, slot[1]), block + k * 8, slot[0]
        with f.when(which.equals(Slot.ADDRESS)):
            place.store(leaf[Leaf.VALUE])
        with f.when(which.equals(Slot.EXTENT)):
            place.store(leaf[Leaf.SHAPE_AT][slot[2]])
        with f.when(which.equals(Slot.STRIDE)):
            place.store(leaf[Leaf.STRIDES_AT][slot[2]])
        with f.when(which.equals(Slot.SIZE_OF)):
            place.store(leaf[Leaf.ELEMENTS])
        with f.when(which.equals(Slot.NUMBER)):
            f.refuse(f.invoke("number", slot, leaf, place).equals(0))
    f.leave(1)
    return f


def _rest() -> Routine:
    """(loaded, block, first, count, work): Python's half of a launch; 1 or -1."""
    f = Routine("rest", 5)
    loaded, *numbers = f.parameters
    args = f.room(6)
    args.store(loaded, 8)
    made = f.local(1)
    for k, number in enumerate(numbers, 2):
        found = f.invoke("PyLong_FromLongLong", number)
        args.store(found, k * 8)
        made.set(f.choose(found.equals(0), 0, made.get()))
    done = f.local()
    with f.when(made.get().differs(0)):
        rest = context(f, Context.REST)
        done.set(f.invoke("PyObject_Vectorcall", rest, args + 8, f.word(5) | OFFSET_FLAG, 0))
    for k in range(2, 6):
        with f.when(args[k].differs(0)):
            call_void(f, "Py_DecRef", args[k])
    with f.when(done.get().equals(0)):
        f.leave(-1)
    call_void(f, "Py_DecRef", done.get())
    f.leave(1)
    return f


def _run() -> Routine:
    """(plan, block, count, work): run the cubes on the CPU; 1 when they are done, -1 for an
    exception."""
    f = Routine("run", 4, is_inlined=True)
    plan, block, count, work = f.parameters
    state, first = plan[Plan.STATE], f.local()
    state.store(1, IS_USED * 8)
    wait = state[IS_LONG]
    is_short = f.truth(work < plan[Plan.INLINE_WORK]) & f.truth(wait.equals(0))
    with f.when(is_short.equals(0)):
        state.store((wait - 1).most(0), IS_LONG * 8)
    with f.when(is_short.differs(0)):
        slot = context(f, Context.CRASH_SLOT)
        before = slot[0]
        slot.store(plan[Plan.NAME])
        began = f.invoke("now")
        args = plan[Plan.ENTRY], block, 0, count, PATIENCE
        inline = f.pointer(context(f, Context.INLINE))
        first.set(f.value("i64", f"call i64 {inline}({f.arguments(args)})"))
        took = f.invoke("now") - began
        slot.store(before)
        with f.when(took > (LONG_TICKS if HAS_COUNTER else LONG_NS)):
            state.store(LONG_LAUNCHES, IS_LONG * 8)
        with f.when(first.get() < 0):
            raised = context(f, Context.INTERRUPTED)
            f.line(f"call void @PyErr_Restore({f.arguments(tuple(raised[k] for k in range(3)))})")
            for k in range(3):
                raised.store(0, k * 8)
            f.leave(-1)
        lacks = f.local()
        with f.when(plan[Plan.LACKING].differs(0)):
            lacks.set(plan[Plan.LACKING].load())
        is_done = f.truth(first.get() >= count) & f.truth(lacks.get().equals(0))
        f.refuse(is_done.differs(0), 1)
    f.leave(f.invoke("rest", plan[Plan.LOADED], block, first.get(), count, work))
    return f


def _try() -> Routine:
    """(frame, launcher, table, args, positional, keywords): 1 when launched, 0 when nothing was
    done, -1 for an exception."""
    f = Routine("try", 6)
    frame, launcher, table, args, count, keywords = f.parameters
    values, counts = f.room(MAX_PARAMETERS), f.room(5)
    block = f.room(MAX_SLOTS + 4)
    f.refuse(f.invoke("is_as_before", table).equals(0))
    f.refuse(f.invoke("bind", table, values, args, count, keywords).equals(0))
    rows = table + table[Head.NAMES_AT]
    frame.store(table, TABLE * 8)
    with f.times(table[Head.PARAMETERS]) as k:
        is_comptime = (rows + k * (PARAMETER_WORDS * 8))[2]
        f.refuse(f.invoke("read", frame, values[k], is_comptime).equals(0))
    plan = f.local(table + table[Head.PLANS_AT])
    with f.times(table[Head.PLANS]):
        this = plan.get()
        f.refuse(frame[RAISED].differs(0))
        with f.when(f.invoke("matches", frame, this, launcher, counts, block).differs(0)):
            with f.when(this[Plan.QUEUE].equals(Queue.OPENCL)):
                f.leave(f.invoke("run_on_opencl", frame, this, block, counts[3]))
            with f.when(this[Plan.GPU].differs(0)):
                f.leave(f.invoke("run_on_gpu", frame, this, block, counts[3]))
            f.invoke("remember", frame, this, block, counts)
            f.leave(f.invoke("run", this, block, counts[3], counts[4]))
        plan.set(this + this[Plan.BYTES])
    f.leave(0)
    return f


def _general() -> Routine:
    """(function, object, args, number, keywords): call a method in Python."""
    f = Routine("general", 5)
    function, obj, args, count, keywords = f.parameters
    total = f.local(count)
    with f.when(keywords.differs(0)):
        total.set(count + keywords.load(TUPLE_SIZE))
    held = f.invoke("PyMem_Malloc", (total.get() + 2) * 8)
    with f.when(held.equals(0)):
        f.leave(f.invoke("PyErr_NoMemory"))
    held.store(obj, 8)
    with f.times(total.get()) as k:
        held.store(args[k], k * 8 + 16)
    found = f.invoke("PyObject_Vectorcall", function, held + 8, (count + 1) | OFFSET_FLAG, keywords)
    call_void(f, "PyMem_Free", held)
    f.leave(found)
    return f


def _attempt() -> Routine:
    """(launcher, args, number, keywords, the bound launch whose arguments they are, or 0): 1 when
    launched, 0 when nothing was done, -1 for an exception."""
    f = Routine("attempt", 5)
    launcher, args, count, keywords, bound = f.parameters
    table, none = launcher.load(context(f, Context.TABLE)), context(f, Context.NONE)
    f.refuse(table.equals(0))
    f.refuse(table.equals(none))
    frame = f.room(FRAME_WORDS)
    for word in (COUNT, OWNED, RAISED):
        frame.store(0, word * 8)
    data = table.load(context(f, Context.DATA))
    frame.store(data, DATA * 8)
    frame.store(bound, MEMO * 8)
    call_void(f, "Py_IncRef", data)
    words = data.load(TUPLE_ITEMS) + BYTES_ITEMS
    done = f.invoke("try", frame, launcher, words, args, count, keywords)
    owned = frame + OWNED_AT
    with f.times(frame[OWNED]) as k:
        call_void(f, "Py_DecRef", owned[k])
    call_void(f, "Py_DecRef", data)
    f.refuse(frame[RAISED].differs(0), -1)
    f.leave(done)
    return f


def _launch() -> Routine:
    """A launcher's vectorcall: (launcher, args, number and flag, names of keywords)."""
    f = Routine(LAUNCH, 4, is_exported=True)
    launcher, args, flagged, keywords = f.parameters
    count, none = flagged & ~OFFSET_FLAG, context(f, Context.NONE)
    done = f.invoke("attempt", launcher, args, count, keywords, 0)
    with f.when(done.equals(1)):
        call_void(f, "Py_IncRef", none)
        f.leave(none)
    f.refuse(done < 0)
    f.leave(f.invoke("general", context(f, Context.GENERAL), launcher, args, count, keywords))
    return f


def _bound() -> Routine:
    """A bound launch's vectorcall: (bound, args, number and flag, names of keywords)."""
    f = Routine(BOUND, 4, is_exported=True)
    bound, args, flagged, keywords = f.parameters
    count, none = flagged & ~OFFSET_FLAG, context(f, Context.NONE)
    with f.when((f.truth(count.equals(0)) & f.truth(keywords.equals(0))).differs(0)):
        call_void(f, "Py_IncRef", bound)
        launcher = bound.load(context(f, Context.BOUND_LAUNCHER))
        done = f.local(f.invoke("again", bound, launcher))
        with f.when(done.get().equals(0)):
            done.set(f.invoke("afresh", bound, launcher))
        call_void(f, "Py_DecRef", bound)
        with f.when(done.get().equals(1)):
            call_void(f, "Py_IncRef", none)
            f.leave(none)
        f.refuse(done.get() < 0)
    f.leave(f.invoke("general", context(f, Context.BOUND), bound, args, count, keywords))
    return f


def _afresh() -> Routine:
    """(bound, launcher): launch with the arguments that were bound; as `attempt`."""
    f = Routine("afresh", 2)
    bound, launcher = f.parameters
    held, names = (bound.load(context(f, k)) for k in (Context.BOUND_ARGS, Context.BOUND_NAMES))
    given = f.local(held.load(TUPLE_SIZE))
    wanted = f.local()
    with f.when(names.differs(context(f, Context.NONE))):
        wanted.set(names)
        given.set(given.get() - names.load(TUPLE_SIZE))
    f.leave(f.invoke("attempt", launcher, held + TUPLE_ITEMS, given.get(), wanted.get(), bound))
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return (
        _now(),
        _number(),
        _fill(),
        _rest(),
        _run(),
        _try(),
        _general(),
        _attempt(),
        _launch(),
        _afresh(),
        _bound(),
    )
