"""Each thread's scratch memory, where kernels put what is too large for a stack.

One block per thread, which grows on demand, serves all launches and is freed when the thread ends.
Compiled code calls `cubepy_scratch(bytes)` once for each run of cubes, which costs a few ns.
"""

from __future__ import annotations

import ctypes
import sys
from string import Template

from cubepy.runtimes.native import interrupts
from cubepy.runtimes.native.linker import Library, compile_text, link, once

TAKE = "cubepy_scratch"
"""`ptr cubepy_scratch(i64 bytes)`: memory of the calling thread, aligned to 64 bytes, with what the
last kernel left in it; null where the system has no more. The next call may move it."""
HEADER = 64  # in front of the memory: how many bytes follow, kept in a line of its own
SMALL = 64 << 10
LARGE = 2 << 20  # from here on blocks are made of huge pages, where the system has them
_START = "cubepy_scratch_start"


def symbols() -> dict[str, int]:
    """What compiled code may ask the linker for."""
    return {TAKE: _library().address[TAKE]}


@once
def _library() -> Library:
    """The code and the key under which each thread finds its block."""
    library = link(compile_text(text(sys.platform), level=0), (TAKE, _START))
    if ctypes.CFUNCTYPE(ctypes.c_int)(library.address[_START])():
        raise MemoryError("the system has no more keys for memory of threads")
    return library


def text(system: str) -> str:
    """The IR for an operating system, named as in `sys.platform`."""
    calls = _WINDOWS if system == "win32" else _POSIX
    pages = _HUGE_PAGES if system == "linux" else _USUAL_PAGES
    return _TEXT.substitute(
        HEADER=HEADER,
        SMALL_1=SMALL - 1,
        SMALL=SMALL,
        LARGE=LARGE,
        LARGE_1=LARGE - 1,
        HOLD=interrupts.HOLD,
        LET=interrupts.LET,
    ) + "\n".join((calls, pages, interrupts.holding(system)))


_TEXT = Template("""
@key = internal global i64 0

define ptr @cubepy_scratch(i64 %bytes) nounwind {
  %key = load i64, ptr @key
  %block = call ptr @find(i64 %key)
  %none = icmp eq ptr %block, null
  br i1 %none, label %grow, label %look
look:
  %room = load i64, ptr %block
  %fits = icmp uge i64 %room, %bytes
  br i1 %fits, label %done, label %grow
grow:
  %new = call ptr @grow(i64 %key, ptr %block, i64 %bytes)
  %lost = icmp eq ptr %new, null
  br i1 %lost, label %lack, label %done
done:
  %found = phi ptr [ %block, %look ], [ %new, %grow ]
  %memory = getelementptr i8, ptr %found, i64 $HEADER
  ret ptr %memory
lack:
  ret ptr null
}

; A larger block for this thread. The smaller one goes first: nothing in it is needed any more. The
; allocator has locks, so that nobody leaves it as they may leave cubes.
define internal ptr @grow(i64 %key, ptr %block, i64 %bytes) noinline nounwind {
  %before = alloca [128 x i8], align 16
  call void @$HOLD(ptr %before)
  call void @free.block(ptr %block)
  call void @keep(i64 %key, ptr null)
  %whole = add i64 %bytes, $HEADER
  %is.large = icmp uge i64 %whole, $LARGE
  %step = select i1 %is.large, i64 $LARGE_1, i64 $SMALL_1
  %up = add i64 %whole, %step
  %mask = xor i64 %step, -1
  %size = and i64 %up, %mask
  %align = select i1 %is.large, i64 $LARGE, i64 $HEADER
  %new = call ptr @get.block(i64 %align, i64 %size)
  %lost = icmp eq ptr %new, null
  br i1 %lost, label %done, label %note
note:
  br i1 %is.large, label %large, label %fill
large:
  call void @advise(ptr %new, i64 %size)
  br label %fill
fill:
  %room = sub i64 %size, $HEADER
  store i64 %room, ptr %new
  call void @keep(i64 %key, ptr %new)
  br label %done
done:
  call void @$LET(ptr %before)
  ret ptr %new
}
""")

_POSIX = """
declare ptr @pthread_getspecific(i64) nounwind
declare i32 @pthread_setspecific(i64, ptr) nounwind
declare i32 @pthread_key_create(ptr, ptr) nounwind
declare i32 @posix_memalign(ptr, i64, i64) nounwind
declare void @free(ptr) nounwind

; The key has 32 or 64 bits; on the little-endian machines that we run on both lie in its word.
define i32 @cubepy_scratch_start() nounwind {
  %failed = call i32 @pthread_key_create(ptr @key, ptr @free.block)
  ret i32 %failed
}

define internal ptr @find(i64 %key) alwaysinline nounwind {
  %block = call ptr @pthread_getspecific(i64 %key)
  ret ptr %block
}

define internal void @keep(i64 %key, ptr %block) nounwind {
  %failed = call i32 @pthread_setspecific(i64 %key, ptr %block)
  ret void
}

define internal ptr @get.block(i64 %align, i64 %size) nounwind {
  %place = alloca ptr
  %failed = call i32 @posix_memalign(ptr %place, i64 %align, i64 %size)
  %good = icmp eq i32 %failed, 0
  %block = load ptr, ptr %place
  %found = select i1 %good, ptr %block, ptr null
  ret ptr %found
}

define internal void @free.block(ptr %block) nounwind {
  call void @free(ptr %block)
  ret void
}
"""

_WINDOWS = """
declare ptr @FlsGetValue(i32) nounwind
declare i32 @FlsSetValue(i32, ptr) nounwind
declare i32 @FlsAlloc(ptr) nounwind
declare ptr @_aligned_malloc(i64, i64) nounwind
declare void @_aligned_free(ptr) nounwind

define i32 @cubepy_scratch_start() nounwind {
  %number = call i32 @FlsAlloc(ptr @free.block)
  %key = zext i32 %number to i64
  store i64 %key, ptr @key
  %failed = icmp eq i32 %number, -1
  %result = zext i1 %failed to i32
  ret i32 %result
}

define internal ptr @find(i64 %key) alwaysinline nounwind {
  %number = trunc i64 %key to i32
  %block = call ptr @FlsGetValue(i32 %number)
  ret ptr %block
}

define internal void @keep(i64 %key, ptr %block) nounwind {
  %number = trunc i64 %key to i32
  %done = call i32 @FlsSetValue(i32 %number, ptr %block)
  ret void
}

define internal ptr @get.block(i64 %align, i64 %size) nounwind {
  %block = call ptr @_aligned_malloc(i64 %size, i64 %align)
  ret ptr %block
}

define internal void @free.block(ptr %block) nounwind {
  call void @_aligned_free(ptr %block)
  ret void
}
"""

_HUGE_PAGES = """
declare i32 @madvise(ptr, i64, i32) nounwind
declare i32 @pthread_sigmask(i32, ptr, ptr) nounwind
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal void @advise(ptr %block, i64 %size) nounwind {
  %refused = call i32 @madvise(ptr %block, i64 %size, i32 14)
  ret void
}
"""

_USUAL_PAGES = """
define internal void @advise(ptr %block, i64 %size) nounwind {
  ret void
}
"""
