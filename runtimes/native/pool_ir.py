"""The thread pool's native code as LLVM IR text, and the layout of its state.

It does not compile, link or call anything; `pool` does.

One 64-bit word, the gate, carries the protocol:

    epoch (32 bits) | open | waiting | stop | number of workers inside (29 bits)

A launch writes the job and the ranges, then stores the gate with the next epoch and the open bit.
A worker that sees a new epoch enters by compare-and-swap, only while the gate is open, and
subtracts itself when it finds no cubes left. The caller closes the gate when it finds no cubes left
itself and waits for the number to reach zero. So nobody waits for a worker that never came, and a
worker that comes late can't touch the next launch's job. The epoch half is the futex on which idle
workers sleep; the other half is the futex on which the caller sleeps.

Sleeping workers may wake on any core but the caller's. Otherwise Linux often wakes them just there:
in a virtual machine a halted core doesn't count as idle (`available_idle_cpu` asks the hypervisor),
so that the woken worker stays queued behind the caller until the next load balancing, milliseconds
later. A worker that runs may move anywhere again.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import Template

LINE = 128  # two cache lines: adjacent-line prefetchers make pairs of 64 bytes share
GATE, EPOCH = 0, 4  # EPOCH is the upper half of the gate on a little-endian machine
SLEEPERS, ALIVE = LINE, LINE + 4
BUSY, THREADS, SPIN = 2 * LINE, 2 * LINE + 8, 2 * LINE + 16
ENTRY, ARGS, GRAIN, RANGES, CORE = (3 * LINE + 8 * i for i in range(5))
CORES, CORES_BYTES = 4 * LINE, 128  # the affinity mask, all zero where there are more than 1024
SLOTS = 5 * LINE
NEXT, END, INDEX, SEEN, THREAD = 0, 8, 16, 24, 32  # in a slot of LINE bytes; each thread has one

OPEN, WAITING, STOP = 1 << 31, 1 << 30, 1 << 29
STACK_BYTES = 8 << 20  # kernels may hold arrays of a cube on the stack
# Asynchronous signals belong to Python's threads. ILL, TRAP, BUS, FPE and SEGV are raised by the
# faulting instruction itself and stay deliverable, for faulthandler.
BLOCKED_SIGNALS = ~sum(1 << (number - 1) for number in (4, 5, 7, 8, 11))


@dataclass(frozen=True)
class Machine:
    """What differs between machines: the futex system call's number and how a spin loop pauses."""

    futex: int
    pause: str = ""
    declaration: str = ""


MACHINES = {
    "x86_64": Machine(
        202, "call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"
    ),
    "aarch64": Machine(
        98, "call void @llvm.aarch64.isb(i32 15)", "declare void @llvm.aarch64.isb(i32)"
    ),
    "riscv64": Machine(98),
    "ppc64le": Machine(221),
    "loongarch64": Machine(98),
}


def text(system: str, machine: str) -> str:
    """The IR for an operating system and machine, named as in `sys.platform` and `os.uname`.

    Where there are no futexes `cubepy_pool_run` runs every launch inline in its caller.
    """
    if system != "linux" or machine not in MACHINES:
        return _INLINE_ONLY
    row = MACHINES[machine]
    return _THREADED.substitute(
        {name: value for name, value in globals().items() if isinstance(value, int)},
        futex=row.futex,
        pause=row.pause,
        declaration=row.declaration,
        INSIDE=STOP - 1,
        NOT_OPEN=~OPEN,
        LAST=WAITING | 1,
    )


_INLINE_ONLY = """
define void @cubepy_pool_run(ptr %state, ptr %entry, ptr %args, i64 %count, i64 %grain) nounwind {
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %inline, label %done
inline:
  call void %entry(ptr %args, i64 0, i64 %count)
  br label %done
done:
  ret void
}

define i32 @cubepy_pool_resize(ptr %state, i64 %threads) nounwind {
  ret i32 1
}
"""

_THREADED = Template("""
declare i64 @syscall(i64, ...) nounwind
declare i32 @clock_gettime(i32, ptr) nounwind
declare i32 @pthread_create(ptr, ptr, ptr, ptr) nounwind
declare i32 @pthread_attr_init(ptr) nounwind
declare i32 @pthread_attr_setdetachstate(ptr, i32) nounwind
declare i32 @pthread_attr_setstacksize(ptr, i64) nounwind
declare i32 @pthread_attr_destroy(ptr) nounwind
declare i32 @pthread_sigmask(i32, ptr, ptr) nounwind
declare i64 @pthread_self() nounwind
declare i32 @pthread_setaffinity_np(i64, i64, ptr) nounwind
declare i32 @sched_getaffinity(i32, i64, ptr) nounwind
declare i32 @sched_getcpu() nounwind
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
$declaration

define void @cubepy_pool_run(ptr %state, ptr %entry, ptr %args, i64 %count, i64 %asked) nounwind {
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %look, label %done
look:
  %grain = call i64 @llvm.smax.i64(i64 %asked, i64 1)
  %threads.p = getelementptr i8, ptr %state, i64 $THREADS
  %threads = load i64, ptr %threads.p
  %small = icmp sle i64 %count, %grain
  %alone = icmp slt i64 %threads, 2
  %inline.now = or i1 %small, %alone
  br i1 %inline.now, label %inline, label %lock
lock:
  %busy = getelementptr i8, ptr %state, i64 $BUSY
  %pair = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %pair, 1
  br i1 %mine, label %locked, label %inline
locked:
  %alive.p = getelementptr i8, ptr %state, i64 $ALIVE
  %alive.32 = load atomic i32, ptr %alive.p monotonic, align 4
  %alive = zext i32 %alive.32 to i64
  %team.now = add i64 %alive, 1
  %complete = icmp uge i64 %team.now, %threads
  br i1 %complete, label %open, label %start
start:
  %started = call i64 @start(ptr %state)
  %nobody = icmp ult i64 %started, 2
  br i1 %nobody, label %give.up, label %open
give.up:
  store atomic i32 0, ptr %busy release, align 4
  br label %inline
open:
  %team = phi i64 [ %team.now, %locked ], [ %started, %start ]
  call void @open(ptr %state, ptr %entry, ptr %args, i64 %count, i64 %grain, i64 %team)
  call void @work(ptr %state, i64 0)
  %old = atomicrmw and ptr %state, i64 $NOT_OPEN seq_cst
  %inside = and i64 %old, $INSIDE
  %last = icmp eq i64 %inside, 0
  br i1 %last, label %unlock, label %wait
wait:
  call void @join(ptr %state)
  br label %unlock
unlock:
  store atomic i32 0, ptr %busy release, align 4
  br label %done
inline:
  call void %entry(ptr %args, i64 0, i64 %count)
  br label %done
done:
  ret void
}

; Share the cubes out, open the gate, wake as many sleepers as the ranges need.
define internal void @open(ptr %state, ptr %entry, ptr %args, i64 %count, i64 %grain, i64 %team)
    nounwind {
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
  %core = call i32 @sched_getcpu()
  store atomic i32 %core, ptr %core.p monotonic, align 4
  %slots = getelementptr i8, ptr %state, i64 $SLOTS
  br label %range
range:
  %i = phi i64 [ 0, %0 ], [ %i.1, %range ]
  %begin = phi i64 [ 0, %0 ], [ %end, %range ]
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

; Take cubes from the own range until it is empty, then from everybody else's.
define internal void @work(ptr %state, i64 %index) nounwind {
  %entry.p = getelementptr i8, ptr %state, i64 $ENTRY
  %entry = load ptr, ptr %entry.p
  %args.p = getelementptr i8, ptr %state, i64 $ARGS
  %args = load ptr, ptr %args.p
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
  call void %entry(ptr %args, i64 %begin, i64 %stop)
  br label %peek
empty:
  %v.1 = add i64 %v, 1
  %wrap = icmp eq i64 %v.1, %ranges
  %v.wrapped = select i1 %wrap, i64 0, i64 %v.1
  %left.1 = sub i64 %left, 1
  %over = icmp eq i64 %left.1, 0
  br i1 %over, label %done, label %victim
done:
  ret void
}

; Keep a thread off one core.
define internal void @avoid(ptr %state, i64 %thread, i32 %core) nounwind {
  %known = icmp ult i32 %core, 1024
  br i1 %known, label %set, label %done
set:
  %mask = alloca [16 x i64]
  %cores = getelementptr i8, ptr %state, i64 $CORES
  call void @llvm.memcpy.p0.p0.i64(ptr %mask, ptr %cores, i64 $CORES_BYTES, i1 false)
  %wide = zext i32 %core to i64
  %index = lshr i64 %wide, 6
  %word.p = getelementptr i64, ptr %mask, i64 %index
  %word = load i64, ptr %word.p
  %low = and i64 %wide, 63
  %bit = shl i64 1, %low
  %others = xor i64 %bit, -1
  %less = and i64 %word, %others
  store i64 %less, ptr %word.p
  %r = call i32 @pthread_setaffinity_np(i64 %thread, i64 $CORES_BYTES, ptr %mask)
  br label %done
done:
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; Wait until nobody is inside the closed gate.
define internal void @join(ptr %state) nounwind {
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
  call void @wait(ptr %state, i32 %seen)
  br label %sleep
done:
  ret void
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
  %cores = getelementptr i8, ptr %state, i64 $CORES
  %self = call i64 @pthread_self()
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
  %r = call i32 @pthread_setaffinity_np(i64 %self, i64 $CORES_BYTES, ptr %cores)
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
  call void @work(ptr %state, i64 %index)
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
  %attribute = alloca [256 x i8], align 16
  %blocked = alloca [16 x i64], align 16
  %before = alloca [16 x i64], align 16
  call void @llvm.memset.p0.i64(ptr %blocked, i8 -1, i64 128, i1 false)
  store i64 $BLOCKED_SIGNALS, ptr %blocked
  %r0 = call i32 @pthread_attr_init(ptr %attribute)
  %r1 = call i32 @pthread_attr_setdetachstate(ptr %attribute, i32 1)
  %r2 = call i32 @pthread_attr_setstacksize(ptr %attribute, i64 $STACK_BYTES)
  %r3 = call i32 @pthread_sigmask(i32 2, ptr %blocked, ptr %before)
  %cores = getelementptr i8, ptr %state, i64 $CORES
  %r4 = call i32 @sched_getaffinity(i32 0, i64 $CORES_BYTES, ptr %cores)
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
  %thread.p = getelementptr i8, ptr %slot, i64 $THREAD
  %failed.32 = call i32 @pthread_create(ptr %thread.p, ptr %attribute, ptr @worker, ptr %slot)
  %failed = icmp ne i32 %failed.32, 0
  br i1 %failed, label %done, label %next
next:
  %up = atomicrmw add ptr %alive.p, i32 1 seq_cst
  %i.1 = add i64 %i, 1
  br label %test
done:
  store i64 %i, ptr %threads.p
  %r5 = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  %r6 = call i32 @pthread_attr_destroy(ptr %attribute)
  ret i64 %i
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

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

; 128 and 129 are FUTEX_WAIT and FUTEX_WAKE, private to the process.
define internal void @wait(ptr %word, i32 %value) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 128, i32 %value, ptr null)
  ret void
}

define internal void @wake(ptr %word, i32 %number) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 129, i32 %number)
  ret void
}

; The time when spinning ends, 0 when it is over. The first call, with 0, sets it, so that the clock
; costs nothing to those who find work at once.
define internal i64 @deadline(ptr %state, i64 %deadline) nounwind {
  %time = alloca { i64, i64 }
  %r = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %rest.p = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.p
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
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
