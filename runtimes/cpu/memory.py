"""Host memory for arrays that the library returns, kept for reuse when an array dies.

It is not a general allocator: blocks come in size classes and are made for large, short-lived
arrays, whose page faults would otherwise cost more than the kernel that fills them.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import math
import mmap
import os
import sys
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import field
from operator import index
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from cubepy.config import get
from cubepy.forks import at_fork
from cubepy.record import dataclass

ALIGNMENT = 64  # a cache line, and the widest vector there is
HUGE_PAGE = 2 << 20
MAPPED_BYTES = 64 << 10  # smaller blocks come from malloc, smaller arrays from NumPy
MAX_BYTES = sys.maxsize - 2 * HUGE_PAGE
DEFAULT_LIMIT = 1 << 30  # where the machine's memory is not known


@dataclass(frozen=True)
class Statistics:
    """Bytes of live blocks, of blocks kept for reuse, and the most that were ever live."""

    in_use: int
    cached: int
    peak: int


class Block:
    """Memory that goes back to its pool when nothing refers to it any more.

    It exports a writable buffer, so that an array over it holds it as `base`, and all views of
    that array do too.
    """

    _pool: ClassVar[MemoryPool]
    _kind: ClassVar[_Kind]

    @property
    def address(self) -> int:
        """Where the block begins; at least 64-byte aligned, from 2 MiB on 2 MiB aligned."""
        return ctypes.addressof(self)  # type: ignore[arg-type]

    @property
    def nbytes(self) -> int:
        """The block's size, at least what was asked for."""
        return self._kind.size

    def __del__(self, _addressof: Any = ctypes.addressof) -> None:
        pool = self._pool
        pool._returned.append((self._kind, _addressof(self)))
        pool._settle()


@dataclass(eq=False)
class _Kind:
    """A size class: the type of its blocks and the addresses that are free."""

    size: int
    block: Any = None  # its instances are Blocks
    free: dict[int, None] = field(default_factory=dict)


class MemoryPool:
    """Blocks in size classes, eight to a doubling; at most `limit` free bytes are kept.

    Any thread may allocate, and arrays may die anywhere, also inside the garbage collector while
    the lock is held: so the lock is reentrant, and whoever takes an address out of `_Kind.free`
    owns it, whatever the other tables say.
    """

    _lock: ClassVar[threading.RLock] = threading.RLock()  # one for all, for the sake of fork
    _exiting: ClassVar[bool] = False

    def __init__(self, limit: int | None = None) -> None:
        """`limit` in bytes, default an eighth of the machine's (or the container's) memory."""
        self.limit = self.default_limit = _machine_bytes() // 8 if limit is None else limit
        self._kinds: dict[int, _Kind] = {}
        self._idle: dict[int, _Kind] = {}  # free addresses, the longest unused first
        self._backing: dict[int, mmap.mmap | int] = {}
        self._returned: deque[tuple[_Kind, int]] = deque()
        self._in_use = self._cached = self._peak = 0

    def empty(self, nbytes: int) -> Block:
        """A block of at least `nbytes` uninitialised bytes.

        Raises MemoryError when the machine has no such memory, ValueError for a negative size.
        """
        kind = self._kinds.get(class_size(nbytes)) or self._new_kind(nbytes)
        with self._lock:
            if self._returned:
                self._collect()
            address = self._take(kind)
            self._in_use = in_use = self._in_use + kind.size
            if in_use > self._peak:
                self._peak = in_use
        if self._returned:
            self._settle()
        return kind.block.from_address(address)

    def allocate_array(self, shape: int | Sequence[int], dtype: Any) -> np.ndarray:
        """An uninitialised C-contiguous array; its memory comes back when it and its views die.

        Arrays below 64 KiB are plain NumPy arrays, aligned as NumPy likes: there the pool's
        microseconds would cost more than it saves. Raises as `empty` does, and TypeError for types
        that hold Python objects.
        """
        # Sizes as Python's integers: the product of NumPy's would wrap.
        shape = tuple(map(index, shape)) if isinstance(shape, Sequence) else (index(shape),)
        dtype = np.dtype(dtype)
        nbytes = math.prod(shape) * dtype.itemsize
        if dtype.hasobject:
            raise TypeError(f"{dtype} holds Python objects, which can't lie in pooled memory")
        if nbytes < MAPPED_BYTES or min(shape, default=0) < 0:
            return np.empty(shape, dtype)  # which also refuses negative dimensions
        return np.ndarray(shape, dtype, self.empty(nbytes))  # type: ignore[call-overload]

    def release(self) -> None:
        """Give all free memory back to the operating system."""
        with self._lock:
            self._collect()
            self._trim(0)
        self._settle()

    def statistics(self) -> Statistics:
        """The pool's bytes now, counted in whole blocks."""
        with self._lock:
            self._collect()
            return Statistics(self._in_use, self._cached, self._peak)

    def _new_kind(self, nbytes: int) -> _Kind:
        if nbytes > MAX_BYTES:
            raise MemoryError(f"{nbytes} bytes are more than this machine can address")
        size = class_size(nbytes)
        array = ctypes.c_char * size
        kind = _Kind(size)
        members = {"_pool": self, "_kind": kind}
        kind_of_array: Any = type(array)
        kind.block = kind_of_array("Block", (Block, array), members)
        return self._kinds.setdefault(size, kind)

    def _take(self, kind: _Kind) -> int:
        if not kind.free:
            return self._map(kind.size)
        address = kind.free.popitem()[0]
        self._idle.pop(address, None)
        self._cached -= kind.size
        return address

    def _map(self, size: int) -> int:
        try:
            address, backing = _map(size)
        except MemoryError:
            self._trim(0)
            address, backing = _map(size)
        self._backing[address] = backing
        return address

    def _settle(self) -> None:
        """Collect what came back, unless another thread holds the lock: it does so afterwards.

        The garbage collector calls this, so it never waits.
        """
        while self._returned and not self._exiting and self._lock.acquire(False):
            try:
                self._collect()
            finally:
                self._lock.release()

    def _collect(self) -> None:
        while self._returned:
            kind, address = self._returned.popleft()
            self._in_use -= kind.size
            self._cached += kind.size
            kind.free[address] = None
            self._idle[address] = kind
        if self._cached > self.limit:
            self._trim(self.limit)

    def _trim(self, limit: int) -> None:
        """Unmap the longest unused blocks until at most `limit` bytes are kept."""
        while self._cached > limit and self._idle:
            address = next(iter(self._idle))
            kind = self._idle.pop(address)
            if kind.free.pop(address, self) is not self:
                self._cached -= kind.size
                _unmap(self._backing.pop(address))


def class_size(nbytes: int) -> int:
    """The size of the block that serves `nbytes`: at most an eighth more, but whole lines and,
    from 2 MiB on, whole huge pages."""
    if nbytes < 0:
        raise ValueError(f"negative size: {nbytes} bytes")
    if nbytes <= 8 * ALIGNMENT:
        return max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
    step = 1 << (nbytes - 1).bit_length() - 4
    if HUGE_PAGE <= nbytes < 8 * HUGE_PAGE:
        step = HUGE_PAGE
    return -(-nbytes // step) * step


def _map(size: int) -> tuple[int, mmap.mmap | int]:
    """New memory: its address, and what `_unmap` needs to free it."""
    try:
        return _map_pages(size) if size >= MAPPED_BYTES else _malloc(size)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"no {size} bytes of host memory for an array: {error}") from None


def _map_pages(size: int) -> tuple[int, mmap.mmap]:
    huge = size >= HUGE_PAGE
    extent = size + HUGE_PAGE if huge else size  # what is never touched costs address space only
    pages = _anonymous(extent)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    offset = -start % HUGE_PAGE if huge else 0
    if huge and hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE, offset, size)
    return start + offset, pages


def advise_huge_pages(address: int, nbytes: int) -> None:
    """Let the system back the memory of another allocator by huge pages, where it is large.

    Memory that is new costs a page fault for each page at its first write: 16,384 of them for
    64 MiB, which take longer than most kernels; huge pages cost a 500th of these. Nothing happens
    on a system without them.
    """
    first = -(-address // HUGE_PAGE) * HUGE_PAGE
    size = (address + nbytes) // HUGE_PAGE * HUGE_PAGE - first
    if size > 0 and _madvise is not None:
        _madvise(first, size, mmap.MADV_HUGEPAGE)


def _find_madvise() -> Any:
    """The C library's function, which reports failures by its result; None where there is none."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    found = getattr(ctypes.CDLL(None), "madvise", None)
    if found is not None:
        found.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return found


_madvise = _find_madvise()


def _anonymous(extent: int) -> mmap.mmap:
    if sys.platform == "win32":
        return mmap.mmap(-1, extent)
    # Python's default is a shared mapping, which gets no huge pages and outlives copy-on-write.
    return mmap.mmap(-1, extent, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _malloc(size: int) -> tuple[int, int]:
    pointer = _raw_malloc(size + ALIGNMENT)
    if not pointer:
        raise OSError("malloc failed")
    return -(-pointer // ALIGNMENT) * ALIGNMENT, pointer


def _unmap(backing: mmap.mmap | int) -> None:
    if isinstance(backing, int):
        _raw_free(backing)
    else:
        backing.close()


_raw_malloc = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t)(
    ("PyMem_RawMalloc", ctypes.pythonapi)
)
_raw_free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyMem_RawFree", ctypes.pythonapi))


def _machine_bytes() -> int:
    """The memory that this process may use, as far as the system reports it."""
    known = [8 * DEFAULT_LIMIT]
    with contextlib.suppress(AttributeError, OSError, ValueError):
        known = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    with contextlib.suppress(OSError, ValueError):  # "max" is not a number
        known.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(known)


_shared: MemoryPool | None = None


def get_memory() -> MemoryPool:
    """The process's pool; the setting `pool_bytes` is the most that it keeps from now on."""
    global _shared
    if _shared is None:
        with MemoryPool._lock:
            if _shared is None:
                _shared = MemoryPool()
    chosen = get("pool_bytes")
    _shared.limit = _shared.default_limit if chosen is None else chosen
    return _shared


def release_memory() -> None:
    """Give the memory that is kept for reuse back to the system; arrays in use keep theirs."""
    get_memory().release()


@atexit.register
def _exit() -> None:
    """Arrays that die with the interpreter leave their memory to the operating system."""
    MemoryPool._exiting = True


at_fork(MemoryPool._lock)  # a child must not inherit a lock held by a lost thread
