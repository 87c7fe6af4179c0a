"""The argument block, and the calls of launchers and bound launches."""

from __future__ import annotations

from cubepy.runtimes.native.launching.frame import (
    BOUND,
    BYTES_ITEMS,
    COUNT,
    DATA,
    FRAME_WORDS,
    LAUNCH,
    MEMO,
    OFFSET_FLAG,
    OWNED,
    OWNED_AT,
    RAISED,
    TABLE,
    TUPLE_ITEMS,
    TUPLE_SIZE,
    call_void,
    context,
    leaf_at,
)
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
            f.invoke("remember", frame, this, block, counts)
            with f.when(this[Plan.GPU].differs(0)):
                f.leave(f.invoke("run_on_gpu", frame, this, block, counts[3]))
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
        _number(),
        _fill(),
        _try(),
        _general(),
        _attempt(),
        _launch(),
        _afresh(),
        _bound(),
    )
