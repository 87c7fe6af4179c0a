"""The native thread pool that runs the cubes of a launch on all cores.

It is not a scheduler of Python work: no Python runs in a worker, and launches are not queued.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
import threading
import time
import weakref

from cubepy.runtimes.native import pool_ir
from cubepy.runtimes.native.linker import Library, compile_text, link

MAX_THREADS = 1024
MAX_COUNT = 1 << 62  # keeps the native 64-bit counters from wrapping while threads steal
_RUN, _RESIZE = "cubepy_pool_run", "cubepy_pool_resize"
_RunType = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
)
_ResizeType = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)


def usable_cores() -> int:
    """How many cores this process may run on, by its affinity mask where there is one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Pool:
    """Threads that share the cubes of one launch at a time; the caller is one of them.

    An entry is native code of type `void (ptr args, i64 begin, i64 end)` that runs the cubes
    [begin, end). Threads start at the first launch that needs them, sleep when idle, hold no lock
    of Python, and end with the process. A pool's state is never freed, because they may read it
    until then.

    `run_address` is the native `void run(ptr state, ptr entry, ptr args, i64 count, i64 grain)`,
    for compiled launchers; its first argument is `state_address`.
    """

    def __init__(self, threads: int | None = None, spin: float = 75e-6) -> None:
        """`threads` counts the caller, default `usable_cores()`; `spin` is in seconds."""
        self._spin = round(spin * 1e9)
        with _lock:  # a second copy of the code would be unloaded under its threads
            library = _library()
        self.run_address: int = library.address[_RUN]
        self.state_address: int = _new_state()
        self._run = _RunType(self.run_address)
        self._resize = _ResizeType(library.address[_RESIZE])
        self._reset(_checked(usable_cores() if threads is None else threads))
        _pools.add(self)

    @property
    def threads(self) -> int:
        """How many threads a launch may use, the caller among them."""
        return self._word(pool_ir.THREADS).value

    def run(self, entry: int, args: int, count: int, grain: int) -> None:
        """Run the cubes [0, count) of the code at address `entry`; returns when all are done.

        Each thread owns a contiguous share, takes `grain` cubes at a time and steals when its own
        are gone. At most `grain` cubes, one thread, or a pool that is busy with another launch,
        maybe the one this call comes from: then the caller runs all cubes itself, in one call.
        """
        if count > MAX_COUNT:
            raise ValueError(f"a launch has at most 2**62 cubes, not {count}")
        self._run(self.state_address, entry, args, count, grain)

    def set_threads(self, threads: int) -> None:
        """Use `threads` threads from now on; waits for the launch in progress.

        Must not be called from inside an entry, which would wait for itself.
        """
        threads = _checked(threads)
        while not self._resize(self.state_address, threads):
            time.sleep(0.0002)

    def close(self) -> None:
        """End the workers; the next launch starts new ones."""
        self.set_threads(self.threads)

    def _reset(self, threads: int) -> None:
        """Put the state back to no workers and no launch, without telling anybody."""
        ctypes.memset(self.state_address, 0, pool_ir.SLOTS)
        self._word(pool_ir.THREADS).value = threads
        self._word(pool_ir.SPIN).value = self._spin

    def _word(self, offset: int) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self.state_address + offset)


_lock = threading.RLock()
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_shared: Pool | None = None


def get_pool(threads: int | None = None) -> Pool:
    """The process's pool; `threads` has effect only in the call that makes it."""
    global _shared
    if _shared is None:
        with _lock:
            if _shared is None:
                _shared = Pool(threads)
    return _shared


def _checked(threads: int) -> int:
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"a pool has 1 to {MAX_THREADS} threads, not {threads}")
    return threads if _threaded() else 1


def _threaded() -> bool:
    return sys.platform == "linux" and platform.machine() in pool_ir.MACHINES


@functools.cache
def _library() -> Library:
    """The pool's code, which outlives the threads: llvmlite unloads nothing at exit."""
    ir = pool_ir.text(sys.platform, platform.machine())
    return link(compile_text(ir, level=0), (_RUN, _RESIZE))


def _new_state() -> int:
    """Zeroed memory for the header and all slots; pages of unused slots are never touched."""
    calloc = ctypes.pythonapi.PyMem_RawCalloc
    calloc.restype, calloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
    address = calloc(1, pool_ir.SLOTS + (MAX_THREADS + 1) * pool_ir.LINE)
    if not address:
        raise MemoryError("no memory for the state of a thread pool")
    return -(-address // pool_ir.LINE) * pool_ir.LINE


def _after_fork() -> None:
    """The child has none of the workers, and maybe a launch in progress that lost its caller."""
    for pool in list(_pools):
        pool._reset(pool.threads)
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork
    )
