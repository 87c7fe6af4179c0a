"""How Ctrl-C ends a cube that takes long: the native code that leaves it, as LLVM IR text.

Cubes are pure computation: they hold no lock and own nothing, so that a thread may leave one at
any instruction. What runs cubes keeps a jump buffer (`setjmp`) where a handler of signals finds it.
That costs a few ns for each run of cubes and nothing inside them. Where a cube calls what has locks
of its own, as `printf` does, it holds the signals meanwhile (`HOLD`, `LET`).

A handler of SIGINT first does what the one before it does, which is Python's: it notes the signal.
If it interrupted a cube in Python's main thread, it lets Python handle the signal then and there.
Where that raises, as KeyboardInterrupt does, it keeps the exception and jumps out of the cube; else
the cube goes on. So it does where SIGINT interrupted the handler of another signal, which may hold
anything. Threads that are to look are sent SIGURG, unless the program has a handler of it. A signal
that comes when Python has looked and the cube has not begun is handled before it begins.

The stub does none of this; there cubes run to their end. It serves systems but Linux, whose layout
of `struct sigaction` this takes: the handler is at 0, the flags are at 136.
"""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Mapping
from string import Template

START, LISTEN, RAISED = "cubepy_pool_start", "cubepy_pool_listen", "cubepy_pool_raised"
HOLD, LET = "cubepy_hold", "cubepy_let"
"""`void cubepy_hold(ptr before)`: nobody makes this thread leave its cube until `cubepy_let` of the
same 128 bytes."""
LEFT = -1
"""What a run of cubes gives that was left."""
SIGNALS = (2, 23)
"""SIGINT and SIGURG."""
_RestoreType = ctypes.PYFUNCTYPE(None, *[ctypes.c_void_p] * 3)
_RESTORE = {
    "x86_64": """
  %registers.p = getelementptr i8, ptr %context, i64 224  ; of `ucontext_t`: where SSE's are
  %registers = load ptr, ptr %registers.p
  %mxcsr.p = getelementptr i8, ptr %registers, i64 24
  call void @llvm.x86.sse.ldmxcsr(ptr %mxcsr.p)"""
}
"""How floats were rounded before the signal, for machines whose handlers begin with the default."""
_RESTORE_DECLARED = {"x86_64": "declare void @llvm.x86.sse.ldmxcsr(ptr)"}
_BLOCKED = {"x86_64": 296}
"""Of `ucontext_t`: where the signals are that were blocked before this one; 40 on others."""


class Interrupts:
    """Ctrl-C in cubes that the main thread runs; `address` has the pool's symbols."""

    def __init__(self, address: Mapping[str, int]) -> None:
        self._start = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(address[START])
        self._pythons = 0
        self.listen = ctypes.CFUNCTYPE(None)(address[LISTEN])
        """Takes SIGINT, if a handler of others has it now; only the main thread does."""
        self._raised = (ctypes.c_void_p * 3).from_address(address[RAISED])
        self.begin()

    def begin(self) -> None:
        """Know the main thread, also in the child of a fork."""
        self._pythons = self._pythons or pythons_handler()
        self._start(threading.main_thread().ident or 0, self._pythons)

    def raise_again(self) -> None:
        """Raise the exception that made the main thread leave a cube. KeyboardInterrupt where it is
        gone: a handler has run cubes meanwhile, and left one of its own."""
        kept = [*self._raised]
        self._raised[:] = [None] * 3
        if kept[0] is not None:
            _RestoreType(("PyErr_Restore", ctypes.pythonapi))(*kept)
        raise KeyboardInterrupt


def pythons_handler() -> int:
    """The address of the function with which Python notes signals; 0 where it is not found, as in
    threads but the main one.

    Python is made to handle a signal that nobody uses, and what it handled it with is read.
    """
    if sys.platform != "linux" or threading.current_thread() is not threading.main_thread():
        return 0
    sigaction = ctypes.CDLL(None).sigaction
    before, now = (ctypes.c_int64 * 32)(), (ctypes.c_int64 * 32)()
    for number in range(signal.SIGRTMAX, signal.SIGRTMIN, -1):
        sigaction(number, None, before)
        if before[0] == 0 and signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
            sigaction(number, None, now)
            signal.signal(number, signal.SIG_DFL)
            return now[0]
    return 0


def text(system: str, machine: str, layout: Mapping[str, int]) -> str:
    """The IR for an operating system and a machine of `systems.MACHINES`. `layout`: of the pool's
    state, see `pool_ir`."""
    if system != "linux":
        return _STUB + holding(system)
    words = {"restore": _RESTORE, "restore_declared": _RESTORE_DECLARED}
    parts = {name: by.get(machine, "") for name, by in words.items()}
    blocked = _BLOCKED.get(machine, 40)
    return _LINUX.substitute(layout, **parts, blocked=blocked) + holding(system)


def holding(system: str) -> str:
    """The IR of `HOLD` and `LET`; it takes `pthread_sigmask` and `llvm.memset` as declared."""
    return _HOLDING if system == "linux" else _NO_HOLDING


_HOLDING = f"""
define void @{HOLD}(ptr %before) nounwind {{
  %held = alloca [128 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %held, i8 0, i64 128, i1 false)
  store i64 {sum(1 << (number - 1) for number in SIGNALS)}, ptr %held
  %r = call i32 @pthread_sigmask(i32 0, ptr %held, ptr %before)
  ret void
}}

define void @{LET}(ptr %before) nounwind {{
  %r = call i32 @pthread_sigmask(i32 2, ptr %before, ptr null)
  ret void
}}
"""

_NO_HOLDING = f"""
define void @{HOLD}(ptr %before) nounwind {{
  ret void
}}

define void @{LET}(ptr %before) nounwind {{
  ret void
}}
"""

_STUB = """
@cubepy_pool_raised = global [3 x ptr] zeroinitializer
@main = internal global i64 0
@main.jump = internal global ptr null

define void @cubepy_pool_start(i64 %main, ptr %python) nounwind {
  ret void
}

define i64 @cubepy_pool_listen() nounwind {
  ret i64 1
}

define internal i64 @guarded(ptr %place, ptr %entry, ptr %args, i64 %begin, i64 %end,
                             i64 %budget) nounwind {
  %reached = call i64 @timed(ptr %entry, ptr %args, i64 %begin, i64 %end, i64 %budget)
  ret i64 %reached
}

define internal void @kick(ptr %state) nounwind {
  ret void
}

define internal void @worker.begins(ptr %slot) nounwind {
  ret void
}
"""

_LINUX = Template("""
@cubepy_pool_raised = global [3 x ptr] zeroinitializer
@main = internal global i64 0
@python = internal global ptr null
@main.jump = internal global ptr null
@missed = internal global i32 0
@key = internal global i64 -1
@before = internal global [256 x i8] zeroinitializer, align 16
@blocked = internal global [128 x i8] zeroinitializer, align 16
declare i32 @_setjmp(ptr) returns_twice nounwind
declare void @longjmp(ptr, i32) noreturn nounwind
declare i32 @sigaction(i32, ptr, ptr) nounwind
declare i32 @pthread_kill(i64, i32) nounwind
declare i32 @pthread_key_create(ptr, ptr) nounwind
declare i32 @pthread_setspecific(i64, ptr) nounwind
declare ptr @pthread_getspecific(i64) nounwind
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @Py_DecRef(ptr)
$restore_declared

; Know the main thread. The key has 32 bits, in the low half of its word.
define void @cubepy_pool_start(i64 %main, ptr %python) nounwind {
  store i64 %main, ptr @main
  store ptr %python, ptr @python
  store ptr null, ptr @main.jump
  store i32 0, ptr @missed
  %key = load i64, ptr @key
  %fresh = icmp eq i64 %key, -1
  br i1 %fresh, label %make, label %done
make:
  store i64 0, ptr @key
  %failed = call i32 @pthread_key_create(ptr @key, ptr null)
  %no.key = icmp ne i32 %failed, 0
  br i1 %no.key, label %lack, label %done
lack:
  store i64 4294967295, ptr @key  ; which never has a value
  br label %done
done:
  ret void
}

; Run cubes as `timed` does, to be left by a jump to what `place` holds meanwhile; -1 then. A
; handler that finds no buffer in the main thread's place leaves word in @missed, read here.
define internal i64 @guarded(ptr %place, ptr %entry, ptr %args, i64 %begin, i64 %end,
                             i64 %budget) noinline nounwind {
  %buffer = alloca [1024 x i8], align 16
  %before = load ptr, ptr %place
  %jumped = call i32 @_setjmp(ptr %buffer) returns_twice
  %is.first = icmp eq i32 %jumped, 0
  br i1 %is.first, label %run, label %left
run:
  store volatile ptr %buffer, ptr %place
  %missed = load volatile i32, ptr @missed
  %none = icmp eq i32 %missed, 0
  br i1 %none, label %cubes, label %compare
compare:
  %mine = icmp eq ptr %place, @main.jump
  br i1 %mine, label %ask, label %cubes
ask:
  %stay = call i1 @stays(ptr %buffer)
  br i1 %stay, label %cubes, label %left
cubes:
  %reached = call i64 @timed(ptr %entry, ptr %args, i64 %begin, i64 %end, i64 %budget)
  store volatile ptr %before, ptr %place
  ret i64 %reached
left:
  store volatile ptr %before, ptr %place
  ret i64 -1
}

; Handle SIGINT from now on, unless it ends the process or is ignored. Whoever put a handler in
; place of this one may call this one from there, so that it is taken only from whom it was at
; first, and from Python, which calls nobody: libraries may have come before Python's, or leave the
; signal to it later, as LLVM's handler does. The flags: SA_SIGINFO and SA_NODEFER, because a jump
; leaves the handler, and not SA_ONSTACK, because Python runs in it. Gives 1 to the main thread,
; which alone takes it.
define i64 @cubepy_pool_listen() nounwind {
  %self = call i64 @self()
  %main = load i64, ptr @main
  %mine = icmp eq i64 %self, %main
  br i1 %mine, label %look, label %done
look:
  %now = alloca [256 x i8], align 16
  %r = call i32 @sigaction(i32 2, ptr null, ptr %now)
  %m = call i32 @pthread_sigmask(i32 0, ptr null, ptr @blocked)
  %handler = load ptr, ptr %now
  %number = ptrtoint ptr %handler to i64
  %real = icmp ugt i64 %number, 1
  %other = icmp ne ptr %handler, @interrupted
  %before = load ptr, ptr @before
  %fresh = icmp eq ptr %before, null
  %same = icmp eq ptr %handler, %before
  %python = load ptr, ptr @python
  %pythons = icmp eq ptr %handler, %python
  %same.or.pythons = or i1 %same, %pythons
  %known = or i1 %fresh, %same.or.pythons
  %real.other = and i1 %real, %other
  %take = and i1 %real.other, %known
  br i1 %take, label %replace, label %done
replace:
  call void @llvm.memcpy.p0.p0.i64(ptr @before, ptr %now, i64 256, i1 false)
  call void @handle(i32 2, ptr @interrupted, i32 1073741828)
  br label %done
done:
  %result = zext i1 %mine to i64
  ret i64 %result
}

define internal void @handle(i32 %signal, ptr %handler, i32 %flags) nounwind {
  %action = alloca [256 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %action, i8 0, i64 256, i1 false)
  store ptr %handler, ptr %action
  %flags.p = getelementptr i8, ptr %action, i64 136
  store i32 %flags, ptr %flags.p
  %r = call i32 @sigaction(i32 %signal, ptr %action, ptr null)
  ret void
}

; The system may give the signal to any thread that does not hold it. The main one is notified then.
define internal void @interrupted(i32 %signal, ptr %info, ptr %context) nounwind {
  %handler = load ptr, ptr @before
  call void %handler(i32 %signal, ptr %info, ptr %context)
  %self = call i64 @self()
  %main = load i64, ptr @main
  %mine = icmp eq i64 %self, %main
  br i1 %mine, label %look, label %ask
look:
  call void @look(ptr %context)
  ret void
ask:
  store atomic i32 1, ptr @missed seq_cst, align 4
  %jump = load atomic ptr, ptr @main.jump seq_cst, align 8
  %outside = icmp eq ptr %jump, null
  br i1 %outside, label %done, label %notify
notify:
  %ours = call i1 @has.urgent()
  br i1 %ours, label %send, label %done
send:
  %r = call i32 @pthread_kill(i64 %main, i32 23)
  br label %done
done:
  ret void
}

; In the main thread: let Python handle signals, and leave the cube where that raises.
define internal void @look(ptr %context) nounwind {
  %jump = load volatile ptr, ptr @main.jump
  %outside = icmp eq ptr %jump, null
  br i1 %outside, label %later, label %compare
compare:  ; a handler of another signal blocks that one
  %now.p = getelementptr i8, ptr %context, i64 $blocked
  %now = load i64, ptr %now.p
  %usual = load i64, ptr @blocked
  %others = xor i64 %usual, -1
  %more = and i64 %now, %others
  %deeper = icmp ne i64 %more, 0
  br i1 %deeper, label %later, label %ask
ask:
  %stay = call i1 @stays(ptr %jump)
  br i1 %stay, label %done, label %leave
leave:
  $restore
  call void @longjmp(ptr %jump, i32 1)
  unreachable
later:
  store volatile i32 1, ptr @missed
  br label %done
done:
  ret void
}

; Whether Python's handlers let the cube go on that a jump to `jump` leaves; what they raise is
; kept. They may run cubes, which keep buffers of their own. A signal that comes when they are done
; and the buffer is not back is handled, too.
define internal i1 @stays(ptr %jump) nounwind {
  br label %ask
ask:
  store volatile ptr null, ptr @main.jump
  store volatile i32 0, ptr @missed
  %gil = call i32 @PyGILState_Ensure()
  %raised = call i32 @PyErr_CheckSignals()
  %stay = icmp eq i32 %raised, 0
  br i1 %stay, label %return, label %leave
return:
  call void @PyGILState_Release(i32 %gil)
  store volatile ptr %jump, ptr @main.jump
  %missed = load volatile i32, ptr @missed
  %none = icmp eq i32 %missed, 0
  br i1 %none, label %go.on, label %ask
go.on:
  ret i1 true
leave:
  %value.p = getelementptr i8, ptr @cubepy_pool_raised, i64 8
  %trace.p = getelementptr i8, ptr @cubepy_pool_raised, i64 16
  call void @forget(ptr @cubepy_pool_raised)
  call void @forget(ptr %value.p)
  call void @forget(ptr %trace.p)
  call void @PyErr_Fetch(ptr @cubepy_pool_raised, ptr %value.p, ptr %trace.p)
  call void @PyGILState_Release(i32 %gil)
  ret i1 false
}

; What was kept before and nobody raised, because the next signal came between.
define internal void @forget(ptr %place) nounwind {
  %held = load ptr, ptr %place
  call void @Py_DecRef(ptr %held)
  ret void
}

; Handle SIGURG, unless another does; whether that is so. The flags: as above, SA_RESTART, and
; SA_ONSTACK, because threads of others may have small stacks.
define internal i1 @has.urgent() nounwind {
  %now = alloca [256 x i8], align 16
  %r = call i32 @sigaction(i32 23, ptr null, ptr %now)
  %handler = load ptr, ptr %now
  %ours = icmp eq ptr %handler, @kicked
  br i1 %ours, label %yes, label %ask
ask:
  %number = ptrtoint ptr %handler to i64
  %others = icmp ugt i64 %number, 1
  br i1 %others, label %no, label %take
take:
  call void @handle(i32 23, ptr @kicked, i32 1476395012)
  br label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; Let workers leave their cubes. Who is between two leaves soon anyway, or at the next kick.
define internal void @kick(ptr %state) nounwind {
  %ours = call i1 @has.urgent()
  br i1 %ours, label %begin, label %done
begin:
  %alive.p = getelementptr i8, ptr %state, i64 $ALIVE
  %alive.32 = load atomic i32, ptr %alive.p monotonic, align 4
  %alive = zext i32 %alive.32 to i64
  %slots = getelementptr i8, ptr %state, i64 $SLOTS
  br label %test
test:
  %i = phi i64 [ 1, %begin ], [ %i.1, %next ]
  %more = icmp ule i64 %i, %alive
  br i1 %more, label %look, label %done
look:
  %offset = mul i64 %i, $LINE
  %slot = getelementptr i8, ptr %slots, i64 %offset
  %jump.p = getelementptr i8, ptr %slot, i64 $JUMP
  %jump = load atomic ptr, ptr %jump.p monotonic, align 8
  %idle = icmp eq ptr %jump, null
  br i1 %idle, label %next, label %send
send:
  %thread.p = getelementptr i8, ptr %slot, i64 $THREAD
  %thread = load i64, ptr %thread.p
  %s = call i32 @pthread_kill(i64 %thread, i32 23)
  br label %next
next:
  %i.1 = add i64 %i, 1
  br label %test
done:
  ret void
}

; In a worker whose launch is cancelled: leave the cube.
define internal void @kicked(i32 %signal, ptr %info, ptr %context) nounwind {
  %self = call i64 @self()
  %main = load i64, ptr @main
  %is.main = icmp eq i64 %self, %main
  br i1 %is.main, label %python, label %worker
python:
  call void @look(ptr %context)
  ret void
worker:
  %key = load i64, ptr @key
  %slot = call ptr @pthread_getspecific(i64 %key)
  %stranger = icmp eq ptr %slot, null
  br i1 %stranger, label %done, label %look
look:
  %jump.p = getelementptr i8, ptr %slot, i64 $JUMP
  %jump = load volatile ptr, ptr %jump.p
  %outside = icmp eq ptr %jump, null
  br i1 %outside, label %done, label %ask
ask:
  %index.p = getelementptr i8, ptr %slot, i64 $INDEX
  %index = load i64, ptr %index.p
  %index.line = mul i64 %index, -$LINE
  %slot.0 = getelementptr i8, ptr %slot, i64 %index.line
  %cancel.p = getelementptr i8, ptr %slot.0, i64 $CANCEL_BEFORE_SLOTS
  %cancelled = load atomic i64, ptr %cancel.p monotonic, align 8
  %stay = icmp eq i64 %cancelled, 0
  br i1 %stay, label %done, label %leave
leave:
  $restore
  call void @longjmp(ptr %jump, i32 1)
  unreachable
done:
  ret void
}

define internal void @worker.begins(ptr %slot) nounwind {
  %key = load i64, ptr @key
  %r = call i32 @pthread_setspecific(i64 %key, ptr %slot)
  ret void
}
""")
