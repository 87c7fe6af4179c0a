"""The cubes of a launch on the CPU: in this thread where they take short, else shared by a team.

How long they take is what they took the last time: each compiled form has a rate, the time of a
cube in one thread. A launch that one thread ends before others would be awake runs in its caller.
"""

from __future__ import annotations

from cubepy.runtimes.native import pool_ir
from cubepy.runtimes.native.crash import RUNNING
from cubepy.runtimes.native.launching.frame import CONTEXT, OFFSET_FLAG, call_void, context
from cubepy.runtimes.native.launching.state import (
    HAS_COUNTER,
    IS_USED,
    LONG_NS,
    MAX_RATE,
    RATE,
    RATE_BITS,
    TICKS,
)
from cubepy.runtimes.native.launching.tables import HUGE, Chosen, Context, Plan
from cubepy.runtimes.native.pool import CHUNKS, CUT, JOBS, PATIENCE, UNFINISHED
from cubepy.runtimes.native.words import Routine, Value

TINY = 1_000 * TICKS
"""Launches below this have no rate: noting it would cost as much as some."""
AWAKE, ASLEEP = 4_000 * TICKS, 40_000 * TICKS
"""What a launch must take in one thread to be shared with workers that spin, or that sleep."""
ALWAYS = 1_000_000 * TICKS
"""What is shared in any case."""
MANY, MOST_FAILED = 8, 4
"""Launches that follow each other closely, after which sleeping workers are woken for less than
`ASLEEP`; and how often that, and how often it takes to wake them for more, doubles while they come
too late."""
CHUNK = 1_500 * TICKS
"""What a chunk of cubes should take at least, so that taking it costs little beside."""
FEW_CHUNKS = 2
"""Chunks for each thread at least."""
HEARD = 100_000 * TICKS
"""For how long launches that should take short take it that nobody else took SIGINT: looking costs
as much as some."""
MAX_TICKS = 1 << 40
_NO_TEAM = 2


def _now() -> Routine:
    """The time, in ticks of the processor or in ns."""
    f = Routine("now", 0, is_inlined=True)
    if HAS_COUNTER:
        f.leave(f.value("i64", "call i64 @llvm.readcyclecounter()"))
        return f
    f.leave(f.invoke("clock"))
    return f


def _clock() -> Routine:
    """The time in ns, as `time.monotonic` counts it."""
    f = Routine("clock", 0, is_inlined=True)
    time = f.room(2)
    f.line(f"call i32 @clock_gettime(i32 1, ptr {f.pointer(time)})")
    f.leave(time[0] * 1_000_000_000 + time[1])
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


def _raise_again() -> Routine:
    """Raise the exception that made the main thread leave a cube; KeyboardInterrupt where it is
    gone, see `Interrupts.raise_again`."""
    f = Routine("raise_again", 0)
    raised = context(f, Context.INTERRUPTED)
    kept = tuple(raised[k] for k in range(3))
    with f.when(kept[0].equals(0)):
        call_void(f, "PyErr_SetNone", context(f, Context.KEYBOARD_INTERRUPT))
        f.leave(-1)
    for k in range(3):
        raised.store(0, k * 8)
    f.line(f"call void @PyErr_Restore({f.arguments(kept)})")
    f.leave(-1)
    return f


def _look() -> Routine:
    """Let Python handle signals and let others have the GIL; -1 where that raises."""
    f = Routine("look", 0)
    done = f.invoke("PyObject_Vectorcall", context(f, Context.LOOK), 0, 0, 0)
    f.refuse(done.equals(0), -1)
    call_void(f, "Py_DecRef", done)
    f.leave(1)
    return f


def _inline() -> Routine:
    """(plan, block, first, count, budget): run cubes in this thread for a time in ns and note
    their rate; the first that is left, or -1 where Ctrl-C ended one."""
    f = Routine("inline", 5, is_inlined=True)
    plan, *args = f.parameters
    began = f.invoke("now")
    with f.when(began - context(f, Context.HEARD) > HEARD):
        f.invoke("listen", began)
    inline = f.pointer(context(f, Context.INLINE))
    reached = f.value("i64", f"call i64 {inline}({f.arguments((plan[Plan.ENTRY], *args))})")
    took = f.invoke("now") - began
    f.refuse(reached < 0, -1)
    f.invoke("note", plan, (reached - args[1]).most(1), took)
    f.leave(reached)
    return f


def _listen() -> Routine:
    """(now): take SIGINT from whoever has it; the main thread does, and notes the time."""
    f = Routine("listen", 1)
    (now,) = f.parameters
    is_main = f.value("i64", f"call i64 {f.pointer(context(f, Context.LISTEN))}()")
    with f.when(is_main.differs(0)):
        f.address(CONTEXT).store(now, Context.HEARD * 8)
    f.leave(1)
    return f


# How long


def _expected() -> Routine:
    """(plan, cubes): the ticks that so many cubes should take in one thread; 0 where nobody
    knows, or where they take short."""
    f = Routine("expected", 2, is_inlined=True)
    plan, cubes = f.parameters
    f.leave((plan[Plan.STATE][RATE] * cubes.least(HUGE)) >> RATE_BITS)
    return f


def _rate(took: Value, cubes: Value) -> Value:
    """The rate of cubes that took so many ticks."""
    return ((took.least(MAX_TICKS) << RATE_BITS).over(cubes) + 1).least(MAX_RATE)


def _note() -> Routine:
    """(plan, cubes, ticks): note what cubes took in one thread."""
    f = Routine("note", 3, is_inlined=True)
    plan, cubes, took = f.parameters
    state = plan[Plan.STATE]
    with f.when(took < TINY):
        state.store(0, RATE * 8)
        f.leave(1)
    state.store(_rate(took, cubes), RATE * 8)
    f.leave(1)
    return f


# Which pool, and what is said of a crash


def _pool() -> Routine:
    """The state of the pool that settings choose; 0 where Python is to look it up."""
    f = Routine("pool", 0)
    words = context(f, Context.CHOSEN)
    f.refuse(context(f, Context.GENERATION).load().differs(words[Chosen.GENERATION]))
    state, setting, until = words[Chosen.STATE], words[Chosen.SETTING], words[Chosen.UNTIL]
    held, found = f.room(1), f.local()
    held.store(0)
    variable = context(f, Context.OVERRIDES)
    f.value("i32", f"call i32 @PyContextVar_Get(i64 {variable.text}, i64 0, i64 {held.text})")
    chosen = held[0]
    f.refuse(chosen.equals(0))
    with f.when(chosen.differs(context(f, Context.NONE))):
        name = context(f, Context.NUM_THREADS)
        found.set(f.invoke("PyDict_GetItemWithError", chosen, name))
    call_void(f, "Py_DecRef", chosen)
    f.refuse(found.get().differs(setting))
    f.refuse(f.invoke("clock") >= until)
    f.leave(state)
    return f


def _crash_slot() -> Routine:
    """Where the name of a kernel stands that runs without the GIL. Many threads share the last."""
    f = Routine("crash_slot", 0)
    slots = context(f, Context.CRASH_SLOTS)
    with f.times(RUNNING - 1) as k:
        place = slots + k * 8
        with f.when(place[0].equals(0)):
            f.leave(place)
    f.leave(slots + (RUNNING - 1) * 8)
    return f


# Without the GIL


def _alone() -> Routine:
    """(plan, block, first, count, budget): run cubes in this thread for a time in ns; the first
    that is left, or -1 for an exception."""
    f = Routine("alone", 5)
    plan, block, first, count, budget = f.parameters
    saved = f.invoke("PyEval_SaveThread")
    f.address(CONTEXT).store(0, Context.HEARD * 8)
    reached = f.invoke("inline", plan, block, first, count, budget)
    call_void(f, "PyEval_RestoreThread", saved)
    with f.when(reached < 0):
        f.leave(f.invoke("raise_again"))
    f.leave(reached)
    return f


def _to_the_end() -> Routine:
    """(plan, block, first, count): run all cubes in this thread; 1, or -1 for an exception."""
    f = Routine("to_the_end", 4)
    plan, block, first, count = f.parameters
    reached = f.local(first)
    with f.loop(lambda: reached.get() < count):
        reached.set(f.invoke("alone", plan, block, reached.get(), count, pool_ir.SLICE))
        f.refuse(reached.get() < 0, -1)
        with f.when(reached.get() < count):
            f.refuse(f.invoke("look") < 0, -1)
    f.leave(1)
    return f


def _finish() -> Routine:
    """(team, status): go on with what a team has not done in its first slice of time, and let
    Python handle signals between slices; 1, or -1 for an exception.

    Where one raises, workers leave their cubes, and are waited for, because they use the
    arguments."""
    f = Routine("finish", 2)
    team, status = f.parameters
    resume, raised = f.pointer(context(f, Context.RESUME)), f.local(1)
    with f.loop(lambda: status.load().equals(UNFINISHED)):
        with f.when(raised.get() > 0), f.when(f.invoke("look") < 0):
            raised.set(-1)
            cancel = f.pointer(context(f, Context.CANCEL))
            f.line(f"call void {cancel}({f.arguments((team,))})")
        saved = f.invoke("PyEval_SaveThread")
        f.line(f"call void {resume}({f.arguments((team, status))})")
        call_void(f, "PyEval_RestoreThread", saved)
    f.leave(raised.get())
    return f


def _grain(plan: Value, cubes: Value, threads: Value) -> Value:
    """The cubes of a chunk: so many chunks for each thread that uneven ones balance, but fewer
    where they would be too short. A launch may be unlike the last one, so that all threads get
    some."""
    f, rate = plan.routine, plan[Plan.STATE][RATE]
    fine, coarse = cubes.over(threads * CHUNKS), cubes.over(threads * FEW_CHUNKS)
    long_enough = (f.word(CHUNK) << RATE_BITS).over(rate.most(1))
    return f.choose(rate.equals(0), fine, long_enough.most(fine).least(coarse))


def _share() -> Routine:
    """(team, plan, block, first, count, status): run cubes with a team, for a slice of time at
    most. The status is 0 where the team does something else."""
    f = Routine("share", 6)
    team, plan, block, first, count, status = f.parameters
    grain = _grain(plan, count - first, team.load(pool_ir.THREADS).most(1))
    saved = f.invoke("PyEval_SaveThread")
    f.invoke("listen", f.invoke("now"))
    share = f.pointer(context(f, Context.SHARE))
    args = team, plan[Plan.ENTRY], block, first, count, grain, status
    f.line(f"call void {share}({f.arguments(args)})")
    call_void(f, "PyEval_RestoreThread", saved)
    f.leave(1)
    return f


def _together() -> Routine:
    """(state, plan, block, first, count): run cubes with the first team of a pool that has nothing
    to do; 1, -1 for an exception, 0 where all are busy, 2 where Python is to make another."""
    f = Routine("together", 5)
    state, plan, block, first, count = f.parameters
    team, status = f.local(state), f.room(3)
    f.refuse(state.load(pool_ir.THREADS) < 2)
    with f.times(JOBS):
        this = team.get()
        f.refuse(this.equals(0), _NO_TEAM)
        status.store(0)
        f.invoke("share", this, plan, block, first, count, status)
        with f.when(status[0].differs(0)):
            f.refuse(f.invoke("finish", this, status) < 0, -1)
            with f.when(status[0].equals(CUT)):
                f.leave(f.invoke("raise_again"))
            with f.when(status[1] > 0):
                rate = _rate(status[2].least(MAX_TICKS) * TICKS, status[1])
                plan[Plan.STATE].store(rate, RATE * 8)
            _note_help(state, status[1] < count - first)
            f.leave(1)
        team.set(this.load(pool_ir.OTHER))
    f.leave(0)
    return f


def _is_shared() -> Routine:
    """(state, expected): whether a launch that should take so long is shared.

    Waking a worker takes as long as most launches, but it stays awake if others follow closely.
    Where the machine is busy it comes too late to help, and is woken less and less often."""
    f = Routine("is_shared", 2)
    state, expected = f.parameters
    f.refuse(expected < AWAKE)
    is_asleep = state.load(pool_ir.SLEEPERS, "i32") >= state.load(pool_ir.ALIVE, "i32")
    f.refuse(f.truth(is_asleep).equals(0), 1)
    f.refuse(expected >= ALWAYS, 1)
    spin, ended = state.load(pool_ir.SPIN) * TICKS, state.load(pool_ir.ENDED)
    is_long, is_close = f.truth(expected >= ASLEEP), f.truth(f.invoke("now") - ended < spin)
    counts = (is_long | is_close).differs(0)
    declined = f.choose(counts, state.load(pool_ir.DECLINED) + 1, 0)
    enough = f.choose(is_long.differs(0), 1, MANY) << state.load(pool_ir.FAILED)
    is_shared = declined >= enough
    state.store(f.choose(is_shared, 0, declined), pool_ir.DECLINED)
    f.leave(f.truth(is_shared))
    return f


def _note_help(state: Value, was_helped: Value) -> None:
    """Note whether workers took a part in a launch that was shared."""
    f = state.routine
    failed = (state.load(pool_ir.FAILED) + 1).least(MOST_FAILED)
    state.store(f.choose(was_helped, 0, failed), pool_ir.FAILED)


def _spread() -> Routine:
    """(state, plan, block, first, count, left): run cubes without the GIL, alone if they should
    take short; 1, -1 for an exception, 2 where Python is to make a team, and to begin at `left`."""
    f = Routine("spread", 6)
    state, plan, block, begin, count, left = f.parameters
    first, expected = f.local(begin), f.invoke("expected", plan, count - begin)
    is_alone = f.local()
    with f.when(begin.equals(0)):
        is_alone.set(f.invoke("is_shared", state, expected) ^ 1)
    with f.when(is_alone.get().differs(0)):
        budget = f.choose(expected < PATIENCE * TICKS, PATIENCE, 2 * ALWAYS // TICKS)
        first.set(f.invoke("alone", plan, block, begin, count, budget))
        f.refuse(first.get() < 0, -1)
        f.refuse(first.get() >= count, 1)
    left.store(first.get())
    with f.when(count - first.get() > 1):
        done = f.invoke("together", state, plan, block, first.get(), count)
        f.refuse(done.differs(0), done)
    f.leave(f.invoke("to_the_end", plan, block, first.get(), count))
    return f


def _longer() -> Routine:
    """(plan, block, first, count, work): run the cubes from the first on without the GIL, by Python
    where it must look up the pool or make a team; 1, or -1 for an exception."""
    f = Routine("longer", 5)
    plan, block, first, count, work = f.parameters
    left, done = f.room(1), f.local(_NO_TEAM)
    left.store(first)
    state = f.invoke("pool")
    with f.when((f.truth(state.differs(0)) & f.truth(first < count)).differs(0)):
        slot = f.invoke("crash_slot")
        slot.store(plan[Plan.NAME])
        done.set(f.invoke("spread", state, plan, block, first, count, left))
        slot.store(0)
        state.store(f.invoke("now"), pool_ir.ENDED)
    f.refuse(done.get() < 0, -1)
    with f.when(done.get().equals(1)):
        f.refuse(f.invoke("is_lacking", plan, block).equals(0), 1)
        left.store(count)
    f.leave(f.invoke("rest", plan[Plan.LOADED], block, left[0], count, work))
    return f


def _is_lacking() -> Routine:
    """(plan, block): whether the kernel got no scratch memory, so that Python is to raise that."""
    f = Routine("is_lacking", 2, is_inlined=True)
    plan, block = f.parameters
    place = plan[Plan.LACKING_AT]
    f.refuse(place.equals(0))
    f.leave(f.truth((block + place)[0].differs(0)))
    return f


def _run() -> Routine:
    """(plan, block, count, work): run the cubes on the CPU; 1 when they are done, -1 for an
    exception."""
    f = Routine("run", 4, is_inlined=True)
    plan, block, count, work = f.parameters
    first, lacking_at = f.local(), plan[Plan.LACKING_AT]
    plan[Plan.STATE].store(1, IS_USED * 8)
    with f.when(lacking_at.differs(0)):
        (block + lacking_at).store(0)
    is_small = f.truth(work < plan[Plan.INLINE_WORK])
    enough = f.choose(count.equals(1), LONG_NS * TICKS, AWAKE)  # nobody helps with one
    is_short = is_small & f.truth(f.invoke("expected", plan, count) < enough)
    with f.when(is_short.differs(0)):
        slot = context(f, Context.CRASH_SLOT)
        before = slot[0]
        slot.store(plan[Plan.NAME])
        first.set(f.invoke("inline", plan, block, 0, count, PATIENCE))
        slot.store(before)
        with f.when(first.get() < 0):
            f.leave(f.invoke("raise_again"))
        is_done = f.truth(first.get() >= count)
        f.refuse((is_done & (f.invoke("is_lacking", plan, block) ^ 1)).differs(0), 1)
    f.leave(f.invoke("longer", plan, block, first.get(), count, work))
    return f


def routines() -> tuple[Routine, ...]:
    """The routines of this module."""
    return (
        _now(),
        _clock(),
        _rest(),
        _raise_again(),
        _look(),
        _inline(),
        _listen(),
        _expected(),
        _note(),
        _pool(),
        _crash_slot(),
        _alone(),
        _to_the_end(),
        _finish(),
        _share(),
        _together(),
        _is_shared(),
        _spread(),
        _is_lacking(),
        _longer(),
        _run(),
    )
