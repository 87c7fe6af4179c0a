"""Reports which kernels were running when a kernel crashes the process.

A handler of the signals that faults raise prints them and gives the signal back to whom it belonged
before, Python's faulthandler or the system, as if it had never been there.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import threading
from string import Template

from cubepy.runtimes.native.linker import Library, compile_text, link, once

HELD = 63
"""The slot of whoever holds Python's global lock: the native executor's. Those before are of
threads that launch through Python; of more threads some share a slot."""
RUNNING = 64
"""Slots behind it, of native launches without the lock."""
SLOTS = HELD + 1 + RUNNING
_SLOTS, _START = "cubepy_crash_slots", "cubepy_crash_start"
_PREFIX, _SUFFIX = "cubepy: the process crashed while the kernel `", "` ran"
_HINT = "; rerun with CUBEPY_CHECKED=1\n"


class Name:
    """A kernel's name, for `slots`."""

    def __init__(self, text: str) -> None:
        self._held = ctypes.create_string_buffer(text.encode())
        self.address = ctypes.addressof(self._held)


class _Slot(threading.local):
    """The index of each thread's slot."""

    def __init__(self) -> None:
        self.index = next(_count) % HELD


_count = itertools.count()
_slot = _Slot()


def slot() -> int:
    """Where the calling thread keeps the address of the name of what it launches."""
    return _slot.index


@once
def slots() -> ctypes.Array[ctypes.c_void_p]:
    """Addresses of names, 0 where nothing runs; the handler is there from the first call on."""
    held = ctypes.c_void_p * SLOTS
    if sys.platform != "linux":  # the layout of `sigaction` is Linux's
        return held()
    library = _library()
    ctypes.CFUNCTYPE(None)(library.address[_START])()
    found = held.from_address(library.address[_SLOTS])
    os.register_at_fork(after_in_child=lambda: ctypes.memset(found, 0, ctypes.sizeof(found)))
    return found


@once
def _library() -> Library:
    return link(compile_text(text(), level=0), (_SLOTS, _START))


def text() -> str:
    """The handler as LLVM IR."""
    words = {"PREFIX": _PREFIX, "SUFFIX": _SUFFIX + _HINT}
    lengths = {f"{name}_LENGTH": len(value) for name, value in words.items()}
    quoted = {name: value.replace("\n", "\\0A") for name, value in words.items()}
    return _TEXT.substitute(SLOTS=SLOTS, **lengths, **quoted)


# In `struct sigaction` the handler is at 0, the flags are at 136; in `siginfo_t` the code is at 8,
# above 0 where the thread itself caused the signal. The flags: SA_SIGINFO, SA_ONSTACK, SA_NODEFER.
_TEXT = Template("""
@cubepy_crash_slots = global [$SLOTS x ptr] zeroinitializer
@before = internal global [4 x [256 x i8]] zeroinitializer, align 16
@signals = internal constant [4 x i32] [i32 4, i32 7, i32 8, i32 11]
@prefix = internal constant [$PREFIX_LENGTH x i8] c"$PREFIX"
@suffix = internal constant [$SUFFIX_LENGTH x i8] c"$SUFFIX"
declare i32 @sigaction(i32, ptr, ptr) nounwind
@printing = internal global i32 0
declare i32 @raise(i32) nounwind
declare i32 @usleep(i32) nounwind
declare i64 @write(i32, ptr, i64) nounwind
declare i64 @strlen(ptr) nounwind

define void @cubepy_crash_start() nounwind {
  %action = alloca [256 x i8], align 16
  call void @llvm.memset.p0.i64(ptr %action, i8 0, i64 256, i1 false)
  store ptr @crashed, ptr %action
  %flags = getelementptr i8, ptr %action, i64 136
  store i32 1207959556, ptr %flags
  br label %next
next:
  %k = phi i64 [ 0, %0 ], [ %k.1, %next ]
  %signal.p = getelementptr [4 x i32], ptr @signals, i64 0, i64 %k
  %signal = load i32, ptr %signal.p
  %before = getelementptr [4 x [256 x i8]], ptr @before, i64 0, i64 %k
  %r = call i32 @sigaction(i32 %signal, ptr %action, ptr %before)
  %k.1 = add i64 %k, 1
  %more = icmp ult i64 %k.1, 4
  br i1 %more, label %next, label %done
done:
  ret void
}
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Print the names, give the signals back. A fault is raised again by the instruction that caused it.
; Threads of one team often fault together: the first one prints, and others wait for it, a second
; at most.
define internal void @crashed(i32 %signal, ptr %info, ptr %context) nounwind {
  %pair = cmpxchg ptr @printing, i32 0, i32 1 seq_cst seq_cst
  %is.first = extractvalue { i32, i1 } %pair, 1
  br i1 %is.first, label %look, label %wait
wait:
  %turn = phi i32 [ 0, %0 ], [ %turn.1, %doze ]
  %printing = load atomic i32, ptr @printing seq_cst, align 4
  %is.over = icmp ne i32 %printing, 1
  %is.late = icmp eq i32 %turn, 1000
  %go.on = or i1 %is.over, %is.late
  br i1 %go.on, label %restore, label %doze
doze:
  %u = call i32 @usleep(i32 1000)
  %turn.1 = add i32 %turn, 1
  br label %wait
restore:
  %k = phi i64 [ 0, %wait ], [ 0, %printed ], [ %k.1, %restore ]
  %each.p = getelementptr [4 x i32], ptr @signals, i64 0, i64 %k
  %each = load i32, ptr %each.p
  %before = getelementptr [4 x [256 x i8]], ptr @before, i64 0, i64 %k
  %r = call i32 @sigaction(i32 %each, ptr %before, ptr null)
  %k.1 = add i64 %k, 1
  %more = icmp ult i64 %k.1, 4
  br i1 %more, label %restore, label %leave
look:
  %i = phi i64 [ 0, %0 ], [ %i.1, %next ]
  %name.p = getelementptr [$SLOTS x ptr], ptr @cubepy_crash_slots, i64 0, i64 %i
  %name = load ptr, ptr %name.p
  %none = icmp eq ptr %name, null
  br i1 %none, label %next, label %print
print:
  %w0 = call i64 @write(i32 2, ptr @prefix, i64 $PREFIX_LENGTH)
  %length = call i64 @strlen(ptr %name)
  %w1 = call i64 @write(i32 2, ptr %name, i64 %length)
  %w2 = call i64 @write(i32 2, ptr @suffix, i64 $SUFFIX_LENGTH)
  br label %next
next:
  %i.1 = add i64 %i, 1
  %others = icmp ult i64 %i.1, $SLOTS
  br i1 %others, label %look, label %printed
printed:
  br label %restore
leave:
  store atomic i32 2, ptr @printing seq_cst, align 4
  %code.p = getelementptr i8, ptr %info, i64 8
  %code = load i32, ptr %code.p
  %is.fault = icmp sgt i32 %code, 0
  br i1 %is.fault, label %done, label %sent
sent:
  %again = call i32 @raise(i32 %signal)
  br label %done
done:
  ret void
}
""")
