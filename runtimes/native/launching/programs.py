"""Programs: launches in order on operands whose layout is known, as prebuilt functions make them.

A program is called with its operands: NumPy arrays, torch's tensors, CubePy's and CuPy's arrays,
of which the address is read, or addresses on the CPU. Nothing is checked but their number, their
device and the order of work on them, for whoever made the program has looked at them.
"""

from __future__ import annotations

from cubepy.ir.core import FIRST_ADDRESS
from cubepy.runtimes.native.launching import tensors
from cubepy.runtimes.native.launching.enqueuing import ENTERED_WORDS
from cubepy.runtimes.native.launching.frame import (
    ARRAY_DATA,
    BYTES_ITEMS,
    OFFSET_FLAG,
    PROGRAM,
    TUPLE_ITEMS,
    TYPE_OF,
    call_void,
    context,
    is_tensor,
)
from cubepy.runtimes.native.launching.tables import (
    HOLE_WORDS,
    MAX_OPERANDS,
    MAX_SLOTS,
    Cl,
    Context,
    Plan,
    Program,
    Queue,
    Step,
)
from cubepy.runtimes.native.words import Routine


def _base() -> Routine:
    """(operand, place, device): write the address of an operand; 0 where it is none, or a tensor
    that is not on the device: 0 the CPU, or one more than the number of a GPU."""
    f = Routine("base", 3)
    obj, place, device = f.parameters
    cls = obj.load(TYPE_OF)
    with f.when(cls.equals(context(f, Context.NDARRAY))):
        place.store(obj.load(ARRAY_DATA))
        f.leave(f.truth(device.equals(0)))
    with f.when(is_tensor(f, cls).differs(0)):
        held = f.room(tensors.DLTENSOR_WORDS)
        with f.when(f.invoke("describe", obj, held).equals(0)):
            call_void(f, "PyErr_Clear")
            f.leave(0)
        f.refuse(f.invoke("device_of", held).differs(device))
        address = held.load(tensors.DATA) + held.load(tensors.OFFSET)
        place.store(address)
        f.leave(f.truth((address & -FIRST_ADDRESS).differs(0)))  # Python says what is wrong
    f.refuse(cls.differs(context(f, Context.INT)))
    f.refuse(device.differs(0))
    overflow = f.room(1)
    found = f.value(
        "i64",
        f"call i64 @PyLong_AsLongLongAndOverflow(i64 {obj.text}, ptr {f.pointer(overflow)})",
    )
    f.refuse(overflow.load(0, "i32").differs(0))
    place.store(found)
    f.leave(1)
    return f


def _base_on_device() -> Routine:
    """(words, number, operand, place): write the address of CubePy's own array or CuPy's; 0 where
    it is none, or Python is to keep its order."""
    f = Routine("base_on_device", 4)
    words, number, obj, place = f.parameters
    cls, queue = obj.load(TYPE_OF), words[Program.QUEUE]
    device = (words + Program.SIZE * 8)[Plan.GPU]
    with f.when(queue.equals(Queue.CUPY)):
        f.refuse(cls.differs(context(f, Context.CUPY)))
        data = obj.load(context(f, Context.CUPY_DATA))
        place.store(data.load(context(f, Context.CUPY_ADDRESS)))
        f.leave(f.truth((f.invoke("cupys_device", data) + 1).equals(words[Program.DEVICE])))
    f.refuse(cls.differs(context(f, Context.ARRAY)))
    memory = obj.load(context(f, Context.MEMORY_OF))
    owner = memory.load(context(f, Context.OWNER_OF))
    f.refuse(owner.equals(0))
    kind = owner.load(TYPE_OF)
    with f.when(queue.equals(Queue.OWN)):
        f.refuse(kind.differs(context(f, Context.ALLOCATION)))
        is_written = (words[Program.WRITTEN] >> number) & 1
        f.refuse(f.invoke("is_in_order", device, owner, is_written).equals(0))
    with f.when(queue.equals(Queue.OPENCL)):
        f.refuse(kind.differs(context(f, Context.SHARED_MEMORY)))
        f.refuse(owner.load(context(f, Context.DYING_OF)).differs(device[Cl.OWNER]))
    f.refuse(f.invoke("whole", memory.load(context(f, Context.ADDRESS_OF)), place).equals(0))
    f.leave(f.truth(place.load().differs(0)))
    return f


def _filled() -> Routine:
    """(step, bases, block): fill the block of a launch."""
    f = Routine("filled", 3)
    step, bases, block = f.parameters
    template = step + step[Step.BLOCK_AT]
    with f.times(step[Step.BLOCK]) as k:
        block.store(template[k], k * 8)
    holes = step + step[Step.HOLES_AT]
    with f.times(step[Step.HOLES]) as k:
        hole = holes + k * (HOLE_WORDS * 8)
        block.store(bases[hole[1]] + hole[2], hole[0] * 8)
    f.leave(1)
    return f


def _steps() -> Routine:
    """(words, bases): run all cubes on the CPU; 1, or -1 for an exception."""
    f = Routine("steps", 2)
    words, bases = f.parameters
    block = f.room(MAX_SLOTS)
    step = f.local(words + Program.SIZE * 8)
    with f.times(words[Program.STEPS]):
        this = step.get()
        f.invoke("filled", this, bases, block)
        f.refuse(f.invoke("run", this, block, this[Step.COUNT], this[Step.WORK]) < 0, -1)
        step.set(this + this[Plan.BYTES])
    f.leave(1)
    return f


def _steps_on_gpu() -> Routine:
    """(words, bases): put all launches into the stream of torch or CuPy or the device's own queue;
    1, 0 where Python is to launch, -1 for an exception."""
    f = Routine("steps_on_gpu", 2)
    words, bases = f.parameters
    block, entered = f.room(MAX_SLOTS), f.room(ENTERED_WORDS)
    step = f.local(words + Program.SIZE * 8)
    gpu, queue, is_entered = step.get()[Plan.GPU], words[Program.QUEUE], f.local()
    with f.when(queue.equals(Queue.OWN)):
        is_entered.set(f.invoke("enter_own", gpu, entered))
    with f.when(queue.differs(Queue.OWN)):
        is_entered.set(f.invoke("enter", gpu, entered, queue))
    f.refuse(is_entered.get().equals(0))
    status, failed = f.local(), f.local()
    with f.times(words[Program.STEPS]), f.when(status.get().equals(0)):
        this = step.get()
        f.invoke("filled", this, bases, block)
        status.set(f.invoke("enqueue", this, block, this[Step.COUNT], entered))
        failed.set(this)
        step.set(this + this[Plan.BYTES])
    with f.when(queue.equals(Queue.OWN)):
        f.invoke("leave_own", gpu, entered)
    with f.when(queue.differs(Queue.OWN)):
        f.invoke("leave", gpu, entered)
    f.refuse(status.get().equals(0), 1)
    f.leave(f.invoke("refused", failed.get()[Plan.LOADED], status.get()))
    return f


def _steps_on_opencl() -> Routine:
    """(words, bases): put all launches into an OpenCL device's queue; 1, or -1 for an exception."""
    f = Routine("steps_on_opencl", 2)
    words, bases = f.parameters
    block, step = f.room(MAX_SLOTS), f.local(words + Program.SIZE * 8)
    with f.times(words[Program.STEPS]):
        this = step.get()
        f.invoke("filled", this, bases, block)
        status = f.invoke("enqueue_on_opencl", this, block, this[Step.COUNT])
        with f.when(status.differs(0)):
            f.leave(f.invoke("refused", this[Plan.LOADED], status))
        step.set(this + this[Plan.BYTES])
    f.leave(1)
    return f


def _attempt() -> Routine:
    """(words, args, number): 1 when all was launched, 0 when nothing was, -1 for an exception."""
    f = Routine("attempt_program", 3)
    words, args, count = f.parameters
    f.refuse(count.differs(words[Program.OPERANDS]))
    bases, device, queue = f.room(MAX_OPERANDS), words[Program.DEVICE], words[Program.QUEUE]
    with f.times(count) as k:
        found, place = f.local(), bases + k * 8
        with f.when(queue.equals(Queue.TORCH)):
            found.set(f.invoke("base", args[k], place, device))
        with f.when(queue.differs(Queue.TORCH)):
            found.set(f.invoke("base_on_device", words, k, args[k], place))
        f.refuse(found.get().equals(0))
    with f.when(device.differs(0)):
        f.refuse(words[Program.STEPS].equals(0), 1)
        with f.when(queue.equals(Queue.OPENCL)):
            f.leave(f.invoke("steps_on_opencl", words, bases))
        f.leave(f.invoke("steps_on_gpu", words, bases))
    f.leave(f.invoke("steps", words, bases))
    return f


def _program() -> Routine:
    """A program's vectorcall: (program, args, number and flag, names of keywords)."""
    f = Routine(PROGRAM, 4, is_exported=True)
    program, args, flagged, keywords = f.parameters
    count, none = flagged & ~OFFSET_FLAG, context(f, Context.NONE)
    with f.when(keywords.equals(0)):
        data = program.load(context(f, Context.PROGRAM_DATA))
        call_void(f, "Py_IncRef", data)
        words = data.load(TUPLE_ITEMS) + BYTES_ITEMS
        done = f.invoke("attempt_program", words, args, count)
        call_void(f, "Py_DecRef", data)
        with f.when(done.equals(1)):
            call_void(f, "Py_IncRef", none)
            f.leave(none)
        f.refuse(done < 0)
    f.leave(f.invoke("general", context(f, Context.PROGRAM), program, args, count, keywords))
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return (
        _base(),
        _base_on_device(),
        _filled(),
        _steps(),
        _steps_on_gpu(),
        _steps_on_opencl(),
        _attempt(),
        _program(),
    )
