"""What the pool's native code asks of an operating system, as LLVM IR for each.

`now`: nanoseconds of a clock that never goes back. `wait` sleeps while a word holds a value (it may
wake for nothing), `wait.shortly` for a slice of time at most; `wake` wakes so many. `core` is the
processor that this thread runs on, -1 where nobody says; `avoid` keeps a thread off one, `anywhere`
undoes it. Between `threads.begin` and `threads.end`, `thread.create` starts workers that no
asynchronous signal reaches; they use 1,024 bytes of the caller's.
"""

from __future__ import annotations

from string import Template

from cubepy.record import dataclass

STACK_BYTES = 8 << 20  # as main threads of Linux have it; wide lines may spill much
# Asynchronous signals belong to Python's threads. ILL, TRAP, BUS, FPE and SEGV are raised by the
# faulting instruction itself and stay deliverable, for faulthandler, and so does URG, by which
# workers leave a cube (`interrupts`).
_LINUX_SIGNALS = ~sum(1 << (number - 1) for number in (4, 5, 7, 8, 11, 23))
_DARWIN_SIGNALS = ~sum(1 << (number - 1) for number in (4, 5, 8, 10, 11))
_ATTRIBUTE, _BLOCKED, _BEFORE = 0, 256, 512
"""Where `threads.begin` keeps what; the attribute of a thread has up to 64 bytes."""


@dataclass(frozen=True)
class Machine:
    """What differs between machines: the number of Linux's futex call, and how spinning pauses."""

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
_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}


def machine_name(name: str) -> str:
    """The name in `MACHINES` of the machine that `platform.machine()` names, if it is there."""
    return _NAMES.get(name.lower(), name.lower())


def machine_of(name: str) -> Machine | None:
    """The machine that `platform.machine()` names; None for one without threads."""
    return MACHINES.get(machine_name(name))


def calls_of(system: str, machine: Machine, slice_ns: int, cores: tuple[int, int]) -> str | None:
    """The functions for a system, named as in `sys.platform`; None for one without threads.

    `slice_ns`: how long `wait.shortly` sleeps; `cores`: offset in the pool's state and bytes of the
    processors that its threads may run on.
    """
    found = _SYSTEMS.get(system)
    if found is None:
        return None
    return found.substitute(
        futex=machine.futex,
        SLICE=slice_ns,
        SLICE_US=slice_ns // 1000,
        SLICE_MS=max(1, slice_ns // 1_000_000),
        CORES=cores[0],
        CORES_BYTES=cores[1],
        STACK_BYTES=STACK_BYTES,
        LINUX_SIGNALS=_LINUX_SIGNALS,
        DARWIN_SIGNALS=_DARWIN_SIGNALS,
        BLOCKED=_BLOCKED,
        BEFORE=_BEFORE,
    )


def _posix(detached: int, set_mask: int, clock: int, signals: str) -> str:
    return f"""
declare i32 @clock_gettime(i32, ptr) nounwind
declare i32 @pthread_create(ptr, ptr, ptr, ptr) nounwind
declare i32 @pthread_attr_init(ptr) nounwind
declare i32 @pthread_attr_setdetachstate(ptr, i32) nounwind
declare i32 @pthread_attr_setstacksize(ptr, i64) nounwind
declare i32 @pthread_attr_destroy(ptr) nounwind
declare i32 @pthread_sigmask(i32, ptr, ptr) nounwind
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal i64 @now() nounwind {{
  %time = alloca {{ i64, i64 }}
  %r = call i32 @clock_gettime(i32 {clock}, ptr %time)
  %seconds = load i64, ptr %time
  %rest.p = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.p
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  ret i64 %now
}}

define internal void @threads.begin(ptr %state, ptr %attribute) nounwind {{
  %blocked = getelementptr i8, ptr %attribute, i64 $BLOCKED
  %before = getelementptr i8, ptr %attribute, i64 $BEFORE
  call void @llvm.memset.p0.i64(ptr %blocked, i8 -1, i64 128, i1 false)
  store {signals}, ptr %blocked
  %r0 = call i32 @pthread_attr_init(ptr %attribute)
  %r1 = call i32 @pthread_attr_setdetachstate(ptr %attribute, i32 {detached})
  %r2 = call i32 @pthread_attr_setstacksize(ptr %attribute, i64 $STACK_BYTES)
  %r3 = call i32 @pthread_sigmask(i32 {set_mask}, ptr %blocked, ptr %before)
  call void @read.cores(ptr %state)
  ret void
}}

define internal i1 @thread.create(ptr %thread.p, ptr %attribute, ptr %slot) nounwind {{
  %failed = call i32 @pthread_create(ptr %thread.p, ptr %attribute, ptr @worker, ptr %slot)
  %started = icmp eq i32 %failed, 0
  ret i1 %started
}}

define internal void @threads.end(ptr %attribute) nounwind {{
  %before = getelementptr i8, ptr %attribute, i64 $BEFORE
  %r0 = call i32 @pthread_sigmask(i32 {set_mask}, ptr %before, ptr null)
  %r1 = call i32 @pthread_attr_destroy(ptr %attribute)
  ret void
}}
"""


_FUTEX = """
declare i64 @syscall(i64, ...) nounwind

; 128 and 129 are FUTEX_WAIT and FUTEX_WAKE, private to the process.
define internal void @wait(ptr %word, i32 %value) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 128, i32 %value, ptr null)
  ret void
}

define internal void @wait.shortly(ptr %word, i32 %value) nounwind {
  %time = alloca { i64, i64 }
  store i64 0, ptr %time
  %rest.p = getelementptr i8, ptr %time, i64 8
  store i64 $SLICE, ptr %rest.p
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 128, i32 %value, ptr %time)
  ret void
}

define internal void @wake(ptr %word, i32 %number) nounwind {
  %r = call i64 (i64, ...) @syscall(i64 $futex, ptr %word, i64 129, i32 %number)
  ret void
}
"""

_AFFINITY = """
declare i64 @pthread_self() nounwind
declare i32 @pthread_setaffinity_np(i64, i64, ptr) nounwind
declare i32 @sched_getaffinity(i32, i64, ptr) nounwind
declare i32 @sched_getcpu() nounwind
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define internal i32 @core() nounwind {
  %core = call i32 @sched_getcpu()
  ret i32 %core
}

define internal i64 @self() nounwind {
  %self = call i64 @pthread_self()
  ret i64 %self
}

define internal void @read.cores(ptr %state) nounwind {
  %cores = getelementptr i8, ptr %state, i64 $CORES
  %r = call i32 @sched_getaffinity(i32 0, i64 $CORES_BYTES, ptr %cores)
  ret void
}

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

define internal void @anywhere(ptr %state, i64 %thread) nounwind {
  %cores = getelementptr i8, ptr %state, i64 $CORES
  %r = call i32 @pthread_setaffinity_np(i64 %thread, i64 $CORES_BYTES, ptr %cores)
  ret void
}
"""

_NO_AFFINITY = """
define internal i32 @core() nounwind {
  ret i32 -1
}

define internal i64 @self() nounwind {
  ret i64 0
}

define internal void @read.cores(ptr %state) nounwind {
  ret void
}

define internal void @avoid(ptr %state, i64 %thread, i32 %core) nounwind {
  ret void
}

define internal void @anywhere(ptr %state, i64 %thread) nounwind {
  ret void
}
"""

# What libc++ of macOS waits with since 10.12 (UL_COMPARE_AND_WAIT, ULF_NO_ERRNO, ULF_WAKE_ALL); a
# public form, os_sync_wait_on_address, came with macOS 14.4. Time 0: for ever.
_ULOCK = """
declare i32 @__ulock_wait(i32, ptr, i64, i32) nounwind
declare i32 @__ulock_wake(i32, ptr, i64) nounwind

define internal void @wait(ptr %word, i32 %value) nounwind {
  %wide = zext i32 %value to i64
  %r = call i32 @__ulock_wait(i32 16777217, ptr %word, i64 %wide, i32 0)
  ret void
}

define internal void @wait.shortly(ptr %word, i32 %value) nounwind {
  %wide = zext i32 %value to i64
  %r = call i32 @__ulock_wait(i32 16777217, ptr %word, i64 %wide, i32 $SLICE_US)
  ret void
}

define internal void @wake(ptr %word, i32 %number) nounwind {
  %one = icmp eq i32 %number, 1
  %how = select i1 %one, i32 16777217, i32 16777473
  %r = call i32 @__ulock_wake(i32 %how, ptr %word, i64 0)
  ret void
}
"""

# Windows 8 and newer. 65536: STACK_SIZE_PARAM_IS_A_RESERVATION. Its threads take no signals.
_WINDOWS = """
declare i32 @WaitOnAddress(ptr, ptr, i64, i32) nounwind
declare void @WakeByAddressSingle(ptr) nounwind
declare void @WakeByAddressAll(ptr) nounwind
declare i32 @QueryPerformanceCounter(ptr) nounwind
declare i32 @QueryPerformanceFrequency(ptr) nounwind
declare ptr @CreateThread(ptr, i64, ptr, ptr, i32, ptr) nounwind
declare i32 @CloseHandle(ptr) nounwind

define internal i64 @now() nounwind {
  %count.p = alloca i64
  %rate.p = alloca i64
  %r0 = call i32 @QueryPerformanceCounter(ptr %count.p)
  %r1 = call i32 @QueryPerformanceFrequency(ptr %rate.p)
  %count = load i64, ptr %count.p
  %rate = load i64, ptr %rate.p
  %seconds = udiv i64 %count, %rate
  %rest = urem i64 %count, %rate
  %whole = mul i64 %seconds, 1000000000
  %scaled = mul i64 %rest, 1000000000
  %part = udiv i64 %scaled, %rate
  %now = add i64 %whole, %part
  ret i64 %now
}

define internal void @wait(ptr %word, i32 %value) nounwind {
  %held = alloca i32
  store i32 %value, ptr %held
  %r = call i32 @WaitOnAddress(ptr %word, ptr %held, i64 4, i32 -1)
  ret void
}

define internal void @wait.shortly(ptr %word, i32 %value) nounwind {
  %held = alloca i32
  store i32 %value, ptr %held
  %r = call i32 @WaitOnAddress(ptr %word, ptr %held, i64 4, i32 $SLICE_MS)
  ret void
}

define internal void @wake(ptr %word, i32 %number) nounwind {
  %one = icmp eq i32 %number, 1
  br i1 %one, label %single, label %all
single:
  call void @WakeByAddressSingle(ptr %word)
  ret void
all:
  call void @WakeByAddressAll(ptr %word)
  ret void
}

define internal void @threads.begin(ptr %state, ptr %attribute) nounwind {
  ret void
}

define internal i1 @thread.create(ptr %thread.p, ptr %attribute, ptr %slot) nounwind {
  %thread = call ptr @CreateThread(ptr null, i64 $STACK_BYTES, ptr @worker, ptr %slot, i32 65536,
                                   ptr null)
  %started = icmp ne ptr %thread, null
  br i1 %started, label %close, label %done
close:
  %r = call i32 @CloseHandle(ptr %thread)
  br label %done
done:
  ret i1 %started
}

define internal void @threads.end(ptr %attribute) nounwind {
  ret void
}
"""

_SYSTEMS = {
    "linux": Template(_posix(1, 2, 1, "i64 $LINUX_SIGNALS") + _FUTEX + _AFFINITY),
    "darwin": Template(_posix(2, 3, 6, "i32 $DARWIN_SIGNALS") + _ULOCK + _NO_AFFINITY),
    "win32": Template(_WINDOWS + _NO_AFFINITY),
}
"""The masks of Linux have 64 bits, those of Darwin 32; 1 and 6 are their monotonic clocks."""
