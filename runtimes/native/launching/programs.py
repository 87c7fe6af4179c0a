"""Programs: launches in order on operands whose layout is known, as prebuilt functions make them.

A program is called with its operands: NumPy arrays, of which the address is read, or addresses.
Nothing is checked but their number, for whoever made the program has looked at them.
"""

from __future__ import annotations

from cubepy.runtimes.native.launching.frame import (
    ARRAY_DATA,
    BYTES_ITEMS,
    OFFSET_FLAG,
    PROGRAM,
    TUPLE_ITEMS,
    TYPE_OF,
    call_void,
    context,
)
from cubepy.runtimes.native.launching.tables import (
    HOLE_WORDS,
    MAX_OPERANDS,
    MAX_SLOTS,
    Context,
    Plan,
    Program,
    Step,
)
from cubepy.runtimes.native.words import Routine


def _base() -> Routine:
    """(operand, place): write the address of an operand; 0 where it is none."""
    f = Routine("base", 2)
    obj, place = f.parameters
    cls = obj.load(TYPE_OF)
    with f.when(cls.equals(context(f, Context.NDARRAY))):
        place.store(obj.load(ARRAY_DATA))
        f.leave(1)
    f.refuse(cls.differs(context(f, Context.INT)))
    overflow = f.room(1)
    found = f.value(
        "i64",
        f"call i64 @PyLong_AsLongLongAndOverflow(i64 {obj.text}, ptr {f.pointer(overflow)})",
    )
    f.refuse(overflow.load(0, "i32").differs(0))
    place.store(found)
    f.leave(1)
    return f


def _step() -> Routine:
    """(step, bases): fill the block of a launch and run its cubes; 1, or -1 for an exception."""
    f = Routine("step", 2)
    step, bases = f.parameters
    block = f.room(MAX_SLOTS)
    template = step + step[Step.BLOCK_AT]
    with f.times(step[Step.BLOCK]) as k:
        block.store(template[k], k * 8)
    holes = step + step[Step.HOLES_AT]
    with f.times(step[Step.HOLES]) as k:
        hole = holes + k * (HOLE_WORDS * 8)
        block.store(bases[hole[1]] + hole[2], hole[0] * 8)
    f.leave(f.invoke("run", step, block, step[Step.COUNT], step[Step.WORK]))
    return f


def _attempt() -> Routine:
    """(words, args, number): 1 when all was launched, 0 when nothing was, -1 for an exception."""
    f = Routine("attempt_program", 3)
    words, args, count = f.parameters
    f.refuse(count.differs(words[Program.OPERANDS]))
    bases = f.room(MAX_OPERANDS)
    with f.times(count) as k:
        f.refuse(f.invoke("base", args[k], bases + k * 8).equals(0))
    step = f.local(words + Program.SIZE * 8)
    with f.times(words[Program.STEPS]):
        this = step.get()
        f.refuse(f.invoke("step", this, bases) < 0, -1)
        step.set(this + this[Plan.BYTES])
    f.leave(1)
    return f


def _program() -> Routine:
    """A program's vectorcall: (program, args, number and flag, names of keywords)."""
    f = Routine(PROGRAM, 4, is_exported=True)
    program, args, flagged, keywords = f.parameters
    count, none = flagged & ~OFFSET_FLAG, context(f, Context.NONE)
    with f.when(keywords.equals(0)):
        words = program.load(context(f, Context.PROGRAM_DATA)).load(TUPLE_ITEMS) + BYTES_ITEMS
        done = f.invoke("attempt_program", words, args, count)
        with f.when(done.equals(1)):
            call_void(f, "Py_IncRef", none)
            f.leave(none)
        f.refuse(done < 0)
    f.leave(f.invoke("general", context(f, Context.PROGRAM), program, args, count, keywords))
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return _base(), _step(), _attempt(), _program()
