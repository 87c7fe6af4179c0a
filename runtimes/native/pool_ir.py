"""The thread pool's native code as LLVM IR text, and the layout of its state.

It does not compile, link or call anything; `pool` does.

One 64-bit word, the gate, carries the protocol:

    epoch (32 bits) | open | waiting | stop | number of workers inside (29 bits)

A launch writes the job and the ranges, then stores the gate with the next epoch and the open bit.
A worker that sees a new epoch enters by compare-and-swap, only while the gate is open, and
subtracts itself when it finds no cubes left. The caller closes the gate when it finds no cubes left
itself and waits for the number to reach zero. So nobody waits for a worker that never came, and a
worker that comes late can't touch the next launch's job. Idle workers sleep on the epoch half, the
caller on the other half; how, says `systems`.

Sleeping workers may wake on any core but the caller's. Otherwise Linux often wakes them just there:
in a virtual machine a halted core doesn't count as idle (`available_idle_cpu` asks the hypervisor),
so that the woken worker stays queued behind the caller until the next load balancing, milliseconds
later. A worker that runs may move anywhere again.
"""

from __future__ import annotations

from string import Template

from cubepy.runtimes.native import interrupts
from cubepy.runtimes.native.systems import calls_of, machine_name, machine_of

LINE = 128  # two cache lines: adjacent-line prefetchers make pairs of 64 bytes share
GATE, EPOCH = 0, 4  # EPOCH is the upper half of the gate on a little-endian machine
SLEEPERS, ALIVE = LINE, LINE + 4
BUSY, THREADS, SPIN, CANCEL, KEPT = (2 * LINE + 8 * i for i in range(5))
KEPT_END = KEPT + 8  # the rest of the caller's chunk when its time was up
OTHER = KEPT_END + 8  # the state of the next team of the pool, which runs what this one cannot
ENDED, DECLINED, FAILED = (OTHER + 8 * i for i in range(1, 4))  # of native launches, see `sharing`
ENTRY, ARGS, GRAIN, RANGES, CORE, CALLER = (3 * LINE + 8 * i for i in range(6))
CORES, CORES_BYTES = 4 * LINE, 128  # the affinity mask, all zero where there are more than 1024
SLOTS = 5 * LINE
NEXT, END, INDEX, SEEN, THREAD, JUMP = range(
    0, 48, 8
)  # in a slot of LINE bytes; each thread has one
BEGAN, UNTIL, DONE = 48, 56, 64  # in the caller's: from when until when it ran how many cubes

OPEN, WAITING, STOP = 1 << 31, 1 << 30, 1 << 29
SLICE = 10_000_000  # ns; the longest that cubes run, if each is shorter, until somebody looks up


def text(system: str, machine: str) -> str:
    """The IR for an operating system and machine, named as in `sys.platform` and `os.uname`.

    Where no threads are known nothing is shared, and every launch runs in its caller.
    """
    row = machine_of(machine)
    calls = None if row is None else calls_of(system, row, SLICE, (CORES, CORES_BYTES))
    if row is None or calls is None:
        return _INLINE_ONLY
    layout = {name: value for name, value in globals().items() if isinstance(value, int)}
    threaded = _THREADED.substitute(
        layout,
        pause=row.pause,
        declaration=row.declaration,
        INSIDE=STOP - 1,
        NOT_OPEN=~OPEN,
        LAST=WAITING | 1,
        CALLER_BEGAN=SLOTS + BEGAN,
        CALLER_UNTIL=SLOTS + UNTIL,
        CALLER_DONE=SLOTS + DONE,
    )
    layout["CANCEL_BEFORE_SLOTS"] = CANCEL - SLOTS
    return threaded + calls + interrupts.text(system, machine_name(machine), layout)


def is_threaded(system: str, machine: str) -> bool:
    """Whether `text` makes threads there."""
    return text(system, machine) is not _INLINE_ONLY


_INLINE_ONLY = (
    interrupts.holding("")
    + """
define i32 @cubepy_pool_resize(ptr %state, i64 %threads) nounwind {
  ret i32 1
}

define i64 @cubepy_pool_inline(ptr %entry, ptr %args, i64 %begin, i64 %end, i64 %budget) nounwind {
  call void %entry(ptr %args, i64 %begin, i64 %end)
  ret i64 %end
}

define void @cubepy_pool_share(ptr %state, ptr %entry, ptr %args, i64 %begin, i64 %end,
                               i64 %grain, ptr %status) nounwind {
  ret void
}

define void @cubepy_pool_resume(ptr %state, ptr %status) nounwind {
  ret void
}

define void @cubepy_pool_cancel(ptr %state) nounwind {
  ret void
}

@cubepy_pool_raised = global [3 x ptr] zeroinitializer

define void @cubepy_pool_start(i64 %main, ptr %python) nounwind {
  ret void
}

define void @cubepy_pool_listen() nounwind {
  ret void
}
"""
)

_THREADED = Template("""
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.fptoui.sat.i64.f64(double)
$declaration

; Run cubes of [begin, end) until they are done or the time is up; gives the first that is left, or
; -1 where Ctrl-C ended one.
define i64 @cubepy_pool_inline(ptr %entry, ptr %args, i64 %begin, i64 %end, i64 %budget) nounwind {
  %self = call i64 @self()
  %main = load i64, ptr @main
  %mine = icmp eq i64 %self, %main
  br i1 %mine, label %guard, label %run
guard:
  %left = call i64 @guarded(ptr @main.jump, ptr %entry, ptr %args, i64 %begin, i64 %end,
                            i64 %budget)
  ret i64 %left
run:
  %reached = call i64 @timed(ptr %entry, ptr %args, i64 %begin, i64 %end, i64 %budget)
  ret i64 %reached
}

; As that, unguarded. One cube is timed, then as many run as should fit, so that the clock costs
; little; there is none where there is one cube.
define internal i64 @timed(ptr %entry, ptr %args, i64 %begin, i64 %end, i64 %budget) nounwind {
  %count = sub i64 %end, %begin
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %test, label %none
test:
  %single = icmp eq i64 %count, 1
  br i1 %single, label %once, label %start
once:
  call void %entry(ptr %args, i64 %begin, i64 %end)
  ret i64 %end
start:
  %began = call i64 @now()
  br label %run
run:
  %i = phi i64 [ %begin, %start ], [ %stop, %more ]
  %step = phi i64 [ 1, %start ], [ %step.1, %more ]
  %rest = sub i64 %end, %i
  %length = call i64 @llvm.umin.i64(i64 %step, i64 %rest)
  %stop = add i64 %i, %length
  call void %entry(ptr %args, i64 %i, i64 %stop)
  %all = icmp eq i64 %stop, %end
  br i1 %all, label %done, label %look
look:
  %time = call i64 @now()
  %spent.0 = sub i64 %time, %began
  %spent = call i64 @llvm.smax.i64(i64 %spent.0, i64 1)
  %left = sub i64 %budget, %spent
  %late = icmp sle i64 %left, 0
  br i1 %late, label %done, label %more
more:
  %ran = sub i64 %stop, %begin
  %ran.f = uitofp i64 %ran to double
  %left.f = uitofp i64 %left to double
  %spent.f = uitofp i64 %spent to double
  %rate = fdiv double %ran.f, %spent.f
  %fit.f = fmul double %rate, %left.f
  %fit = call i64 @llvm.fptoui.sat.i64.f64(double %fit.f)
  %none.fits = icmp eq i64 %fit, 0
  %step.1 = select i1 %none.fits, i64 1, i64 %fit
  br label %run
done:
  ret i64 %stop
none:
  ret i64 %begin
}

; Share cubes [begin, end) out and work until the time is up. `status` becomes 1 when all are done,
; 3 when they would be but for a cancellation, 2 when the rest is left to cubepy_pool_resume, and
; stays 0 when the pool does something else. Two words behind it say at the end how many cubes the
; caller ran in whole chunks, and in how many ns.
define void @cubepy_pool_share(ptr %state, ptr %entry, ptr %args, i64 %begin, i64 %end,
                               i64 %asked, ptr %status) nounwind {
  %grain = call i64 @llvm.smax.i64(i64 %asked, i64 1)
  %threads.p = getelementptr i8, ptr %state, i64 $THREADS
  %threads = load i64, ptr %threads.p
  %alone = icmp slt i64 %threads, 2
  br i1 %alone, label %refuse, label %lock
lock:
  %busy = getelementptr i8, ptr %state, i64 $BUSY
  %pair = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %start, label %refuse
start:
  %team = call i64 @start.missing(ptr %state)
  %nobody = icmp ult i64 %team, 2
  br i1 %nobody, label %give.up, label %open
give.up:
  store atomic i32 0, ptr %busy release, align 4
  br label %refuse
open:
  %self = call i64 @self()
  %caller.p = getelementptr i8, ptr %state, i64 $CALLER
  store i64 %self, ptr %caller.p
  %count = sub i64 %end, %begin
  call void @open(ptr %state, ptr %entry, ptr %args, i64 %begin, i64 %count, i64 %grain, i64 %team)
  %now = call i64 @now()
  %began.p = getelementptr i8, ptr %state, i64 $CALLER_BEGAN
  store i64 %now, ptr %began.p
  %until.p = getelementptr i8, ptr %state, i64 $CALLER_UNTIL
  store i64 %now, ptr %until.p
  %ran.p = getelementptr i8, ptr %state, i64 $CALLER_DONE
  store i64 0, ptr %ran.p
  store i64 2, ptr %status
  call void @cubepy_pool_resume(ptr %state, ptr %status)
  ret void
refuse:
  ret void
}

define internal i64 @start.missing(ptr %state) nounwind {
  %threads.p = getelementptr i8, ptr %state, i64 $THREADS
  %threads = load i64, ptr %threads.p
  %alive.p = getelementptr i8, ptr %state, i64 $ALIVE
  %alive.32 = load atomic i32, ptr %alive.p monotonic, align 4
  %alive = zext i32 %alive.32 to i64
  %team.now = add i64 %alive, 1
  %complete = icmp uge i64 %team.now, %threads
  br i1 %complete, label %done, label %start
start:
  %started = call i64 @start(ptr %state)
  br label %done
done:
  %team = phi i64 [ %team.now, %0 ], [ %started, %start ]
  ret i64 %team
}

; Go on with the launch that this thread shared out.
define void @cubepy_pool_resume(ptr %state, ptr %status) nounwind {
  %now = call i64 @now()
  %deadline = add i64 %now, $SLICE
  %worked = call i1 @work.on(ptr %state, i64 %deadline)
  %cancel.p = getelementptr i8, ptr %state, i64 $CANCEL
  %cancelled.64 = load atomic i64, ptr %cancel.p monotonic, align 8
  %cancelled = icmp ne i64 %cancelled.64, 0
  br i1 %cancelled, label %again, label %go.on
again:
  call void @kick(ptr %state)
  br label %go.on
go.on:
  br i1 %worked, label %close, label %later
close:
  %old = atomicrmw and ptr %state, i64 $NOT_OPEN seq_cst
  %inside = and i64 %old, $INSIDE
  %last = icmp eq i64 %inside, 0
  br i1 %last, label %unlock, label %wait
wait:
  %joined = call i1 @join.until(ptr %state, i64 %deadline)
  br i1 %joined, label %unlock, label %later
unlock:
  %reason = select i1 %cancelled, i64 3, i64 1
  store i64 %reason, ptr %status
  %ran.p = getelementptr i8, ptr %state, i64 $CALLER_DONE
  %ran = load i64, ptr %ran.p
  %cubes.p = getelementptr i8, ptr %status, i64 8
  store i64 %ran, ptr %cubes.p
  %until.p = getelementptr i8, ptr %state, i64 $CALLER_UNTIL
  %until = load i64, ptr %until.p
  %began.p = getelementptr i8, ptr %state, i64 $CALLER_BEGAN
  %began = load i64, ptr %began.p
  %took = sub i64 %until, %began
  %took.p = getelementptr i8, ptr %status, i64 16
  store i64 %took, ptr %took.p
  %busy = getelementptr i8, ptr %state, i64 $BUSY
  store atomic i32 0, ptr %busy release, align 4
  br label %later
later:
  ret void
}

; Leave the cubes that nobody took yet, and those that workers are in.
define void @cubepy_pool_cancel(ptr %state) nounwind {
  %cancel.p = getelementptr i8, ptr %state, i64 $CANCEL
  store atomic i64 1, ptr %cancel.p seq_cst, align 8
  %kept.p = getelementptr i8, ptr %state, i64 $KEPT
  %kept.end.p = getelementptr i8, ptr %state, i64 $KEPT_END
  store i64 0, ptr %kept.p
  store i64 0, ptr %kept.end.p
  %ranges.p = getelementptr i8, ptr %state, i64 $RANGES
  %ranges = load i64, ptr %ranges.p
  %slots = getelementptr i8, ptr %state, i64 $SLOTS
  br label %test
test:
  %i = phi i64 [ 0, %0 ], [ %i.1, %clear ]
  %more = icmp ult i64 %i, %ranges
  br i1 %more, label %clear, label %done
clear:
  %offset = mul i64 %i, $LINE
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %end.p = getelementptr i8, ptr %slot, i64 $END
  %end = load i64, ptr %end.p
  store atomic i64 %end, ptr %slot monotonic, align 8
  %i.1 = add i64 %i, 1
  br label %test
done:
  call void @kick(ptr %state)
  ret void
}

; The caller's work: first what it kept when its time was up.
define internal i1 @work.on(ptr %state, i64 %deadline) nounwind {
  %kept.p = getelementptr i8, ptr %state, i64 $KEPT
  %kept.end.p = getelementptr i8, ptr %state, i64 $KEPT_END
  %kept = load i64, ptr %kept.p
  %end = load i64, ptr %kept.end.p
  %some = icmp slt i64 %kept, %end
  br i1 %some, label %rest, label %work
rest:
  %reached = call i64 @chunk(ptr %state, i64 0, i64 %kept, i64 %end, i64 %deadline)
  store i64 %reached, ptr %kept.p
  %left = icmp slt i64 %reached, %end
  br i1 %left, label %late, label %work
work:
  %all = call i1 @work(ptr %state, i64 0, i64 %deadline)
  ret i1 %all
late:
  ret i1 false
}

; Run a chunk that was taken; gives the first cube that is left at the deadline (0: there is none).
; A launch that is cancelled leaves nothing. The main thread's buffer is where Ctrl-C finds it.
define internal i64 @chunk(ptr %state, i64 %index, i64 %begin, i64 %end, i64 %deadline) nounwind {
  %offset = mul i64 %index, $LINE
  %slots = getelementptr i8, ptr %state, i64 $SLOTS
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %own = getelementptr i8, ptr %slot, i64 $JUMP
  %self = call i64 @self()
  %main = load i64, ptr @main
  %is.main = icmp eq i64 %self, %main
  %place = select i1 %is.main, ptr @main.jump, ptr %own
  %entry.p = getelementptr i8, ptr %state, i64 $ENTRY
  %entry = load ptr, ptr %entry.p
  %args.p = getelementptr i8, ptr %state, i64 $ARGS
  %args = load ptr, ptr %args.p
  %cancel.p = getelementptr i8, ptr %state, i64 $CANCEL
  %timed = icmp ne i64 %deadline, 0
  br label %run
run:
  %i = phi i64 [ %begin, %0 ], [ %reached, %look ], [ %reached, %clock ]
  %reached = call i64 @guarded(ptr %place, ptr %entry, ptr %args, i64 %i, i64 %end, i64 $SLICE)
  %whole = icmp sge i64 %reached, %end
  br i1 %whole, label %done, label %part
part:
  %jumped = icmp slt i64 %reached, 0
  br i1 %jumped, label %stop, label %ask
stop:
  br i1 %is.main, label %cancel, label %done
cancel:
  call void @cubepy_pool_cancel(ptr %state)
  br label %done
ask:
  %cancelled = load atomic i64, ptr %cancel.p monotonic, align 8
  %leave = icmp ne i64 %cancelled, 0
  br i1 %leave, label %done, label %look
look:
  br i1 %timed, label %clock, label %run
clock:
  %now = call i64 @now()
  %late = icmp sge i64 %now, %deadline
  br i1 %late, label %keep, label %run
keep:
  ret i64 %reached
done:
  ret i64 %end
}

; Share the cubes out, open the gate, wake as many sleepers as the ranges need.
define internal void @open(ptr %state, ptr %entry, ptr %args, i64 %first, i64 %count, i64 %grain,
                           i64 %team) nounwind {
  %cancel.p = getelementptr i8, ptr %state, i64 $CANCEL
  store atomic i64 0, ptr %cancel.p monotonic, align 8
  %kept.p = getelementptr i8, ptr %state, i64 $KEPT
  store i64 0, ptr %kept.p
  %kept.end.p = getelementptr i8, ptr %state, i64 $KEPT_END
  store i64 0, ptr %kept.end.p
  %count.1 = sub i64 %count, 1
  %chunks.1 = udiv i64 %count.1, %grain
  %chunks = add i64 %chunks.1, 1
  %ranges = call i64 @llvm.umin.i64(i64 %team, i64 %chunks)
  %share = udiv i64 %count, %ranges
  %extra = urem i64 %count, %ranges
  %share.1 = add i64 %share, 1
  %step = call i64 @llvm.umin.i64(i64 %grain, i64 %share.1)
  %entry.p = getelementptr i8, ptr %state, i64 $ENTRY
  store ptr %entry, ptr %entry.p
  %args.p = getelementptr i8, ptr %state, i64 $ARGS
  store ptr %args, ptr %args.p
  %grain.p = getelementptr i8, ptr %state, i64 $GRAIN
  store i64 %step, ptr %grain.p
  %ranges.p = getelementptr i8, ptr %state, i64 $RANGES
  store i64 %ranges, ptr %ranges.p
  %core.p = getelementptr i8, ptr %state, i64 $CORE
  %core.before = load i32, ptr %core.p
  %core = call i32 @core()
  store atomic i32 %core, ptr %core.p monotonic, align 4
  %slots = getelementptr i8, ptr %state, i64 $SLOTS
  br label %range
range:
  %i = phi i64 [ 0, %0 ], [ %i.1, %range ]
  %begin = phi i64 [ %first, %0 ], [ %end, %range ]
  %longer = icmp ult i64 %i, %extra
  %length = select i1 %longer, i64 %share.1, i64 %share
  %end = add i64 %begin, %length
  %offset = mul i64 %i, $LINE
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %end.p = getelementptr i8, ptr %slot, i64 $END
  store i64 %end, ptr %end.p
  store atomic i64 %begin, ptr %slot monotonic, align 8
  %i.1 = add i64 %i, 1
  %more = icmp ult i64 %i.1, %ranges
  br i1 %more, label %range, label %publish
publish:
  %gate = load atomic i64, ptr %state monotonic, align 8
  %epoch = lshr i64 %gate, 32
  %epoch.1 = add i64 %epoch, 1
  %high = shl i64 %epoch.1, 32
  %opened = or i64 %high, $OPEN
  store atomic i64 %opened, ptr %state seq_cst, align 8
  %sleepers.p = getelementptr i8, ptr %state, i64 $SLEEPERS
  %sleepers = load atomic i32, ptr %sleepers.p seq_cst, align 4
  %awake.all = icmp eq i32 %sleepers, 0
  br i1 %awake.all, label %done, label %count.needed
count.needed:
  %team.32 = trunc i64 %team to i32
  %awake = sub i32 %team.32, %sleepers
  %ranges.32 = trunc i64 %ranges to i32
  %needed = sub i32 %ranges.32, %awake
  %wake.some = icmp sgt i32 %needed, 0
  br i1 %wake.some, label %look, label %done
look:
  %stayed = icmp eq i32 %core, %core.before
  br i1 %stayed, label %wake, label %moved
moved:  ; the sleepers avoid the wrong core
  %w = phi i64 [ 1, %look ], [ %w.1, %moved ]
  %w.offset = mul i64 %w, $LINE
  %w.slot = getelementptr i8, ptr %slots, i64 %w.offset
  %thread.p = getelementptr i8, ptr %w.slot, i64 $THREAD
  %thread = load i64, ptr %thread.p
  call void @avoid(ptr %state, i64 %thread, i32 %core)
  %w.1 = add i64 %w, 1
  %w.more = icmp ult i64 %w.1, %team
  br i1 %w.more, label %moved, label %wake
wake:
  %epoch.p = getelementptr i8, ptr %state, i64 $EPOCH
  call void @wake(ptr %epoch.p, i32 %needed)
  br label %done
done:
  ret void
}

; Take cubes from the own range until it is empty, then from everybody else's; false if the time is
; up before (deadline 0: it never is).
define internal i1 @work(ptr %state, i64 %index, i64 %deadline) nounwind {
  %timed = icmp ne i64 %deadline, 0
  %grain.p = getelementptr i8, ptr %state, i64 $GRAIN
  %grain = load i64, ptr %grain.p
  %ranges.p = getelementptr i8, ptr %state, i64 $RANGES
  %ranges = load i64, ptr %ranges.p
  %first = urem i64 %index, %ranges
  %slots = getelementptr i8, ptr %state, i64 $SLOTS
  br label %victim
victim:
  %v = phi i64 [ %first, %0 ], [ %v.wrapped, %empty ]
  %left = phi i64 [ %ranges, %0 ], [ %left.1, %empty ]
  %offset = mul i64 %v, $LINE
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %end.p = getelementptr i8, ptr %slot, i64 $END
  %end = load i64, ptr %end.p
  br label %peek
peek:  ; an empty range is only read, so that idle threads leave its cache line alone
  %next = load atomic i64, ptr %slot monotonic, align 8
  %maybe = icmp ult i64 %next, %end
  br i1 %maybe, label %take, label %empty
take:
  %begin = atomicrmw add ptr %slot, i64 %grain monotonic
  %mine = icmp ult i64 %begin, %end
  br i1 %mine, label %run, label %empty
run:
  %rest = sub i64 %end, %begin
  %length = call i64 @llvm.umin.i64(i64 %grain, i64 %rest)
  %stop = add i64 %begin, %length
  %reached = call i64 @chunk(ptr %state, i64 %index, i64 %begin, i64 %stop, i64 %deadline)
  br i1 %timed, label %clock, label %peek
clock:
  %left.cubes = icmp slt i64 %reached, %stop
  br i1 %left.cubes, label %keep, label %look
look:
  %now = call i64 @now()
  %ran.p = getelementptr i8, ptr %state, i64 $CALLER_DONE
  %ran = load i64, ptr %ran.p
  %ran.1 = add i64 %ran, %length
  store i64 %ran.1, ptr %ran.p
  %until.p = getelementptr i8, ptr %state, i64 $CALLER_UNTIL
  store i64 %now, ptr %until.p
  %is.late = icmp sge i64 %now, %deadline
  br i1 %is.late, label %late, label %peek
keep:
  %kept.p = getelementptr i8, ptr %state, i64 $KEPT
  store i64 %reached, ptr %kept.p
  %kept.end.p = getelementptr i8, ptr %state, i64 $KEPT_END
  store i64 %stop, ptr %kept.end.p
  br label %late
late:
  ret i1 false
empty:
  %v.1 = add i64 %v, 1
  %wrap = icmp eq i64 %v.1, %ranges
  %v.wrapped = select i1 %wrap, i64 0, i64 %v.1
  %left.1 = sub i64 %left, 1
  %over = icmp eq i64 %left.1, 0
  br i1 %over, label %done, label %victim
done:
  ret i1 true
}

; Wait until nobody is inside the closed gate; false if somebody still is at a time.
define internal i1 @join.until(ptr %state, i64 %limit) nounwind {
  br label %poll
poll:
  %tick = phi i32 [ 0, %0 ], [ %tick.1, %idle ], [ %tick.1, %clock ]
  %deadline = phi i64 [ 0, %0 ], [ %deadline, %idle ], [ %deadline.1, %clock ]
  %gate = load atomic i64, ptr %state acquire, align 8
  %inside = and i64 %gate, $INSIDE
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %done, label %idle
idle:
  $pause
  %tick.1 = add i32 %tick, 1
  %low = and i32 %tick.1, 63
  %look = icmp eq i32 %low, 0
  br i1 %look, label %clock, label %poll
clock:
  %deadline.1 = call i64 @deadline(ptr %state, i64 %deadline)
  %early = icmp ne i64 %deadline.1, 0
  br i1 %early, label %poll, label %sleep
sleep:
  %old = atomicrmw or ptr %state, i64 $WAITING seq_cst
  %inside.now = and i64 %old, $INSIDE
  %empty.now = icmp eq i64 %inside.now, 0
  br i1 %empty.now, label %done, label %doze
doze:
  %old.low = trunc i64 %old to i32
  %seen = or i32 %old.low, $WAITING
  call void @wait.shortly(ptr %state, i32 %seen)
  %now = call i64 @now()
  %late = icmp sge i64 %now, %limit
  br i1 %late, label %leave, label %sleep
leave:
  ret i1 false
done:
  ret i1 true
}

; A worker's life: spin for a new epoch, sleep when none comes, enter open gates, leave on stop.
define internal ptr @worker(ptr %slot) nounwind {
  %index.p = getelementptr i8, ptr %slot, i64 $INDEX
  %index = load i64, ptr %index.p
  %seen.p = getelementptr i8, ptr %slot, i64 $SEEN
  %seen.0 = load i32, ptr %seen.p
  %index.line = mul i64 %index, -$LINE
  %slot.0 = getelementptr i8, ptr %slot, i64 %index.line
  %state = getelementptr i8, ptr %slot.0, i64 -$SLOTS
  %epoch.p = getelementptr i8, ptr %state, i64 $EPOCH
  %sleepers.p = getelementptr i8, ptr %state, i64 $SLEEPERS
  %core.p = getelementptr i8, ptr %state, i64 $CORE
  %self = call i64 @self()
  call void @worker.begins(ptr %slot)
  br label %rest
rest:
  %seen = phi i32 [ %seen.0, %0 ], [ %epoch, %late ], [ %epoch, %leave ], [ %epoch, %release ]
  br label %poll
poll:
  %tick = phi i32 [ 0, %rest ], [ %tick.1, %idle ], [ %tick.1, %clock ], [ 0, %sleep ],
                  [ %tick, %enter ]
  %deadline = phi i64 [ 0, %rest ], [ %deadline, %idle ], [ %deadline.1, %clock ],
                      [ 0, %sleep ], [ %deadline, %enter ]
  %gate = load atomic i64, ptr %state acquire, align 8
  %gate.high = lshr i64 %gate, 32
  %epoch = trunc i64 %gate.high to i32
  %same = icmp eq i32 %epoch, %seen
  br i1 %same, label %idle, label %fresh
idle:
  $pause
  %tick.1 = add i32 %tick, 1
  %low = and i32 %tick.1, 63
  %look = icmp eq i32 %low, 0
  br i1 %look, label %clock, label %poll
clock:
  %deadline.1 = call i64 @deadline(ptr %state, i64 %deadline)
  %early = icmp ne i64 %deadline.1, 0
  br i1 %early, label %poll, label %sleep
sleep:
  %core = load atomic i32, ptr %core.p monotonic, align 4
  call void @avoid(ptr %state, i64 %self, i32 %core)
  %up = atomicrmw add ptr %sleepers.p, i32 1 seq_cst
  call void @wait(ptr %epoch.p, i32 %seen)
  %down = atomicrmw sub ptr %sleepers.p, i32 1 seq_cst
  call void @anywhere(ptr %state, i64 %self)
  br label %poll
fresh:
  %open.bit = and i64 %gate, $OPEN
  %closed = icmp eq i64 %open.bit, 0
  br i1 %closed, label %late, label %enter
late:
  %stop.bit = and i64 %gate, $STOP
  %live = icmp eq i64 %stop.bit, 0
  br i1 %live, label %rest, label %exit
enter:
  %gate.1 = add i64 %gate, 1
  %pair = cmpxchg ptr %state, i64 %gate, i64 %gate.1 seq_cst monotonic
  %entered = extractvalue { i64, i1 } %pair, 1
  br i1 %entered, label %leave, label %poll
leave:
  %all = call i1 @work(ptr %state, i64 %index, i64 0)
  %old = atomicrmw sub ptr %state, i64 1 seq_cst
  %old.low = trunc i64 %old to i32
  %awaited = icmp eq i32 %old.low, $LAST
  br i1 %awaited, label %release, label %rest
release:
  call void @wake(ptr %state, i32 1)
  br label %rest
exit:
  %alive.p = getelementptr i8, ptr %state, i64 $ALIVE
  %alive = atomicrmw sub ptr %alive.p, i32 1 seq_cst
  %final = icmp eq i32 %alive, 1
  br i1 %final, label %farewell, label %gone
farewell:
  call void @wake(ptr %alive.p, i32 1)
  br label %gone
gone:
  ret ptr null
}

; Create the missing workers with the lock held; returns how many threads there are, the caller
; among them. What can't be created lowers the thread count, so that not every launch tries again.
define internal i64 @start(ptr %state) nounwind {
  %attribute = alloca [1024 x i8], align 16
  call void @threads.begin(ptr %state, ptr %attribute)
  %threads.p = getelementptr i8, ptr %state, i64 $THREADS
  %threads = load i64, ptr %threads.p
  %epoch.p = getelementptr i8, ptr %state, i64 $EPOCH
  %epoch = load i32, ptr %epoch.p
  %alive.p = getelementptr i8, ptr %state, i64 $ALIVE
  %alive.32 = load i32, ptr %alive.p
  %alive = zext i32 %alive.32 to i64
  %first = add i64 %alive, 1
  br label %test
test:
  %i = phi i64 [ %first, %0 ], [ %i.1, %next ]
  %more = icmp ult i64 %i, %threads
  br i1 %more, label %create, label %done
create:
  %offset = mul i64 %i, $LINE
  %slots = getelementptr i8, ptr %state, i64 $SLOTS
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %index.p = getelementptr i8, ptr %slot, i64 $INDEX
  store i64 %i, ptr %index.p
  %seen.p = getelementptr i8, ptr %slot, i64 $SEEN
  store i32 %epoch, ptr %seen.p
  %jump.p = getelementptr i8, ptr %slot, i64 $JUMP
  store ptr null, ptr %jump.p
  %thread.p = getelementptr i8, ptr %slot, i64 $THREAD
  %started = call i1 @thread.create(ptr %thread.p, ptr %attribute, ptr %slot)
  br i1 %started, label %next, label %done
next:
  %up = atomicrmw add ptr %alive.p, i32 1 seq_cst
  %i.1 = add i64 %i, 1
  br label %test
done:
  store i64 %i, ptr %threads.p
  call void @threads.end(ptr %attribute)
  ret i64 %i
}

; Stop all workers and set the thread count; 0 if a launch is running, and nothing happened.
define i32 @cubepy_pool_resize(ptr %state, i64 %threads) nounwind {
  %busy = getelementptr i8, ptr %state, i64 $BUSY
  %pair = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %stop, label %refuse
stop:
  %gate = load atomic i64, ptr %state monotonic, align 8
  %epoch = lshr i64 %gate, 32
  %epoch.1 = add i64 %epoch, 1
  %high = shl i64 %epoch.1, 32
  %stopped = or i64 %high, $STOP
  store atomic i64 %stopped, ptr %state seq_cst, align 8
  %epoch.p = getelementptr i8, ptr %state, i64 $EPOCH
  call void @wake(ptr %epoch.p, i32 2147483647)
  %alive.p = getelementptr i8, ptr %state, i64 $ALIVE
  br label %test
test:
  %alive = load atomic i32, ptr %alive.p acquire, align 4
  %some = icmp ne i32 %alive, 0
  br i1 %some, label %linger, label %finish
linger:
  call void @wait(ptr %alive.p, i32 %alive)
  br label %test
finish:
  %threads.p = getelementptr i8, ptr %state, i64 $THREADS
  store i64 %threads, ptr %threads.p
  store atomic i32 0, ptr %busy release, align 4
  ret i32 1
refuse:
  ret i32 0
}

; The time when spinning ends, 0 when it is over. The first call, with 0, sets it, so that the clock
; costs nothing to those who find work at once.
define internal i64 @deadline(ptr %state, i64 %deadline) nounwind {
  %now = call i64 @now()
  %spin.p = getelementptr i8, ptr %state, i64 $SPIN
  %spin = load i64, ptr %spin.p
  %later = add i64 %now, %spin
  %fresh = icmp eq i64 %deadline, 0
  %end = select i1 %fresh, i64 %later, i64 %deadline
  %early = icmp slt i64 %now, %end
  %left = select i1 %early, i64 %end, i64 0
  ret i64 %left
}
""")
