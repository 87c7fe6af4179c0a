"""The native thread pool that runs the cubes of a launch on all cores.

It is not a scheduler of Python work: no Python runs in a worker, and launches are not queued. The
caller returns to Python every few milliseconds, so that handlers of signals run between two cubes;
Ctrl-C also ends cubes (`interrupts`).
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path

from cubepy.forks import at_fork
from cubepy.runtimes.native import interrupts, pool_ir
from cubepy.runtimes.native.linker import Library, compile_text, link, once

MAX_THREADS = 1024
MAX_COUNT = 1 << 62  # keeps the native 64-bit counters from wrapping while threads steal
JOBS = 4
"""Launches of a pool that share the cores; further ones run in their callers alone."""
PATIENCE = 15_000
"""ns that a small launch runs in its caller before others help: waking them takes as long."""
CHUNKS = 8
"""Chunks for each thread of what is left then, so that uneven cubes balance."""
REFRESH = 1.0
"""Seconds until the cores that the process may use are looked up again."""
INLINE, SHARE = "cubepy_pool_inline", "cubepy_pool_share"
RESUME, CANCEL = "cubepy_pool_resume", "cubepy_pool_cancel"
_RESIZE = "cubepy_pool_resize"
UNFINISHED, CUT = 2, 3
"""How a team is doing, see `pool_ir`; 0 where it has another launch."""
SYMBOLS = (
    *(_RESIZE, INLINE, SHARE, RESUME, CANCEL),
    *(interrupts.START, interrupts.LISTEN, interrupts.RAISED, interrupts.HOLD, interrupts.LET),
)
_ResizeType = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64)
_InlineType = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3)


class _Status(ctypes.Structure):
    """What a team reports to its caller, see `pool_ir`."""

    _fields_ = (
        ("value", ctypes.c_int64),
        ("cubes", ctypes.c_int64),
        ("took", ctypes.c_int64),
    )


_ShareType = ctypes.CFUNCTYPE(
    None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 3, ctypes.POINTER(_Status)
)
_ResumeType = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(_Status))
_CancelType = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def usable_cores() -> int:
    """How many cores this process may use: by its affinity mask, and by the quota of its container
    (cgroup version 1 or 2), where there are such."""
    quota = cpu_quota()
    cores = len(_affinity()) or os.cpu_count() or 1
    return cores if quota is None else max(1, min(cores, math.ceil(quota)))


def _affinity() -> frozenset[int]:
    """The cores that the process's first thread may run on; none where the system reports none."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(os.getpid()))
    return frozenset()


def cpu_quota(root: str = "/") -> float | None:
    """Cores' worth of time that the container grants; None where it grants all."""
    found: list[float] = []
    mount = Path(root, "sys/fs/cgroup")
    for line in _read(Path(root, "proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        folder = mount / "cpu" if controllers else mount
        inside = folder / path.lstrip("/")
        for place in (inside, *inside.parents):  # each level may limit those below
            if place == folder or folder in place.parents:
                found += _quota_of(place)
    return min(found, default=None)


def _quota_of(place: Path) -> list[float]:
    text = _read(place / "cpu.max") or " ".join(
        _read(place / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")
    )
    with suppress(ValueError, ZeroDivisionError):  # "max" is not a number
        quota, period = map(int, text.split())
        return [quota / period] if quota > 0 else []
    return []


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


class Pool:
    """Threads that share the cubes of a launch; the caller is one of them.

    Launches at the same time, from several threads, have teams of their own, up to `JOBS`.

    An entry is native code of type `void (ptr args, i64 begin, i64 end)` that runs the cubes
    [begin, end). Threads start at the first launch that needs them, sleep when idle, hold no lock
    of Python, and end with the process. A pool's state is never freed, because they may read it
    until then. Compiled launchers call the native code with `state_address`.
    """

    def __init__(self, threads: int | None = None, spin: float = 75e-6) -> None:
        """`threads` counts the caller, default `usable_cores()`; `spin` is in seconds."""
        self._spin = round(spin * 1e9)
        library = _library()
        self._interrupts = interrupts_of_main()
        self.state_address: int = _new_state()
        self._resize = _ResizeType(library.address[_RESIZE])
        self._inline = _InlineType(library.address[INLINE])
        self._share = _ShareType(library.address[SHARE])
        self._resume = _ResumeType(library.address[RESUME])
        self._cancel = _CancelType(library.address[CANCEL])
        self._others: list[Pool] = []
        self._threads = self._word(pool_ir.THREADS)
        self._reset(_checked(usable_cores() if threads is None else threads))
        _pools.add(self)

    @property
    def threads(self) -> int:
        """How many threads a launch may use, the caller among them."""
        return self._threads.value

    def run(self, entry: int, args: int, count: int, grain: int) -> None:
        """Run the cubes [0, count) of the code at address `entry`; returns when all are done.

        Each thread owns a contiguous share, takes `grain` cubes at a time and steals when its own
        are gone. At most `grain` cubes run in the caller, unless they turn out to take long. With
        one thread, or when `JOBS` launches are under way, the caller runs all cubes itself.

        An exception that a signal raises leaves the cubes that did not begin, and is raised when
        workers are out of theirs; a KeyboardInterrupt also ends the caller's cube.
        """
        if count > MAX_COUNT:
            raise ValueError(f"a launch has at most 2**62 cubes, not {count}")
        first = 0
        self._interrupts.listen()
        if count <= grain:
            first = self._run_inline(entry, args, 0, count, PATIENCE)
        self.finish(entry, args, first, count, grain)

    def finish(self, entry: int, args: int, first: int, count: int, grain: int) -> None:
        """Run the cubes from `first` on, as `run` does when some are done."""
        if count <= grain:
            grain = (count - first) // (CHUNKS * self.threads)
        if count - first > 1 and self._is_shared(entry, args, first, count, grain):
            return
        while first < count:
            first = self._run_inline(entry, args, first, count, pool_ir.SLICE)

    def _run_inline(self, entry: int, args: int, first: int, count: int, budget: int) -> int:
        """Run cubes in the caller until the time is up; gives the first that is left."""
        reached = self._inline(entry, args, first, count, budget)
        if reached == interrupts.LEFT:
            self._interrupts.raise_again()
        return reached

    def _is_shared(self, entry: int, args: int, first: int, count: int, grain: int) -> bool:
        """Run cubes with the first team that has nothing to do; False if there is none."""
        if self._is_run(entry, args, first, count, grain):
            return True
        if self.threads == 1:
            return False
        if len(self._others) < JOBS - 1:
            with _lock:
                if len(self._others) < JOBS - 1:
                    other = Pool(self.threads, self._spin / 1e9)
                    last = self._others[-1] if self._others else self
                    self._others.append(other)
                    last._word(pool_ir.OTHER).value = other.state_address
        return any(other._is_run(entry, args, first, count, grain) for other in self._others)

    def _is_run(self, entry: int, args: int, first: int, count: int, grain: int) -> bool:
        """Run cubes with this team; False if it has another launch, or one thread."""
        status = _Status()  # native code writes it: a signal may come before a result does
        try:
            self._share(self.state_address, entry, args, first, count, grain, status)
            while status.value == UNFINISHED:
                self._resume(self.state_address, status)
        except BaseException:
            if status.value == UNFINISHED:
                self._cancel(self.state_address)
            while status.value == UNFINISHED:
                with suppress(BaseException):  # another signal: workers still use the arguments
                    self._resume(self.state_address, status)
            raise
        if status.value == CUT:
            self._interrupts.raise_again()
        return status.value != 0

    def set_threads(self, threads: int) -> None:
        """Use `threads` threads from now on; waits for the launch in progress.

        Must not be called from inside an entry, which would wait for itself.
        """
        for other in self._others:
            other.set_threads(threads)
        threads = _checked(threads)
        while not self._resize(self.state_address, threads):
            time.sleep(0.0002)

    def close(self) -> None:
        """End the workers; the next launch starts new ones."""
        self.set_threads(self.threads)

    def _reset(self, threads: int) -> None:
        """Put the state back to no workers and no launch, without waking any worker."""
        other = self._word(pool_ir.OTHER).value
        ctypes.memset(self.state_address, 0, pool_ir.SLOTS)
        self._word(pool_ir.OTHER).value = other
        self._word(pool_ir.THREADS).value = threads
        self._word(pool_ir.SPIN).value = self._spin

    def _lose_workers(self) -> None:
        """Begin anew in the child of a fork, which has none of the workers.

        A handler may have forked on top of a launch of this thread. Cubes that workers were in are
        lost, so that the launch is cut in the child: it ends with the handler's exception, or with
        KeyboardInterrupt.
        """
        is_launching = self._word(pool_ir.BUSY).value & 0xFFFFFFFF
        if not is_launching or self._word(pool_ir.CALLER).value != threading.get_ident():
            self._reset(self.threads)
            return
        self._word(pool_ir.GATE).value = 0
        self._word(pool_ir.SLEEPERS).value = 0  # and nobody is alive, in the same word
        self._cancel(self.state_address)

    def _word(self, offset: int) -> ctypes.c_int64:
        return ctypes.c_int64.from_address(self.state_address + offset)


_lock = threading.RLock()
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_shared: dict[tuple[int, frozenset[int]], Pool] = {}
_cores: tuple[float, int, frozenset[int]] = (-math.inf, 1, frozenset())
"""When the usable cores were looked up, how many there were, and the affinity mask."""


def get_pool(threads: int | None = None) -> Pool:
    """The process's pool of so many threads; default: as many as the cores that it may use now."""
    return find_pool(threads)[0]


def find_pool(threads: int | None = None) -> tuple[Pool, float]:
    """As `get_pool`; and when the cores are looked up again, in seconds of `time.monotonic`."""
    global _cores
    cores, now = _cores, time.monotonic()
    if now - cores[0] > REFRESH:
        cores = _cores = now, usable_cores(), _affinity()
    key = threads or cores[1], cores[2]
    found = _shared.get(key)
    if found is None:
        with _lock:
            found = _shared.get(key)
            if found is None:
                found = _shared[key] = Pool(key[0])
    return found, cores[0] + REFRESH


def _checked(threads: int) -> int:
    if not 1 <= threads <= MAX_THREADS:
        raise ValueError(f"a pool has 1 to {MAX_THREADS} threads, not {threads}")
    return threads if _threaded() else 1


def _threaded() -> bool:
    return pool_ir.is_threaded(sys.platform, platform.machine())


def address_of(symbol: str) -> int:
    """Of the native code or memory of a name, see `pool_ir` and `interrupts`."""
    return _library().address[symbol]


def symbols() -> dict[str, int]:
    """What compiled code may ask the linker for; see `interrupts.HOLD`."""
    return {name: _library().address[name] for name in (interrupts.HOLD, interrupts.LET)}


@once
def interrupts_of_main() -> interrupts.Interrupts:
    """What Ctrl-C does in cubes of the main thread."""
    return interrupts.Interrupts(_library().address)


@once
def _library() -> Library:
    """The pool's code, which outlives the threads: llvmlite unloads nothing at exit."""
    ir = pool_ir.text(sys.platform, platform.machine())
    return link(compile_text(ir, level=0), SYMBOLS)


def _new_state() -> int:
    """Zeroed memory for the header and all slots; pages of unused slots are never touched."""
    calloc = ctypes.pythonapi.PyMem_RawCalloc
    calloc.restype, calloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
    address = calloc(1, pool_ir.SLOTS + (MAX_THREADS + 1) * pool_ir.LINE)
    if not address:
        raise MemoryError("no memory for the state of a thread pool")
    return -(-address // pool_ir.LINE) * pool_ir.LINE


def _after_fork() -> None:
    """The child has none of the workers, and maybe launches in progress that lost their callers."""
    for pool in list(_pools):
        pool._lose_workers()
        pool._interrupts.begin()


at_fork(_lock, in_child=_after_fork)
