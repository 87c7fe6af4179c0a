"""The store of compiled code: one file per key in a folder of the user's alone.

Whatever is doubtful is a miss. Nothing here raises: where the disk is full or nothing can be
written, the process warns once and works without.
"""

from __future__ import annotations

import errno
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from threading import RLock
from typing import Any, TypeVar

from cubepy.cache.entry import Damaged, Entry, decode, encode
from cubepy.cache.folder import IS_SUPPORTED, Folder, Found, Refused
from cubepy.config import get
from cubepy.forks import at_fork

T = TypeVar("T")

FOLDER = "code-1"
"""Below the folder of the setting; the number changes with what names and locks mean."""
STALE = 3600.0
"""Seconds after which a file that was left aside by a process that died is removed."""
FRESH = 600.0
"""Seconds until the use of an entry is noted again."""
SWEEP = 64
"""After so many entries, and after the first, a process looks at the size of the store."""
LOCKS = 256
PATIENCE = 60.0
"""Seconds that a process waits for another that compiles the same; then it compiles too."""
_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE)
"""Errors that say nothing about a file."""
_NAME = re.compile(r"[0-9a-f]{64}")
_lock = RLock()  # one for all stores, for the sake of fork
at_fork(_lock)


class Store:
    """Entries under keys, which are 64 hexadecimal digits; safe for threads and processes."""

    def __init__(self, path: str, limit: int) -> None:
        """`path`: the folder, made when the first entry is; `limit`: most bytes of all entries."""
        self.path = os.path.join(path, FOLDER)
        self._limit = limit
        self._folder: Folder | None = None
        self._is_refused = False
        self._is_read_only = False
        self._written = 0

    def get(self, key: str) -> Entry | None:
        """The entry of a key, or None. One that is damaged, or another user's, is removed."""
        return self._try(lambda folder: self._read(folder, key), makes=False)

    def put(self, entry: Entry) -> None:
        """Keep an entry, in place of what was kept under its key."""
        data = encode(entry)
        self._try(lambda folder: self._write(folder, entry.key, data), makes=True)

    def remove(self, key: str) -> None:
        """Drop the entry of a key."""
        self._try(lambda folder: folder.remove(key), makes=False)

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Held by one thread of one process at a time for this key, as long as none hangs; the
        system gives it up for a process that dies. Where nothing can be locked, nobody waits."""
        fd = self._try(lambda folder: _open_lock(folder, key), makes=True)
        try:
            if fd is not None:
                _acquire(fd)
            yield
        finally:
            if fd is not None and fd in _held:  # a child of a fork has closed it
                _held.discard(fd)
                _release(fd)

    def entries(self) -> list[tuple[Found, Entry | str]]:
        """All entries, those used last first; of one that is not whole, why."""
        return self._try(self._examine, makes=False) or []

    def clear(self) -> int:
        """Remove all entries; how many there were."""

        def work(folder: Folder) -> int:
            names = [file.name for file in folder.files()]
            found = [n for n in names if n.endswith(".tmp") or _NAME.fullmatch(n)]
            for name in found:
                folder.remove(name)
            return sum(1 for name in found if _NAME.fullmatch(name))

        return self._try(work, makes=False) or 0

    def why_not(self) -> str:
        """Why nothing is kept here; empty where it is."""
        if not IS_SUPPORTED:
            return "code is kept on POSIX systems only"
        try:
            folder = Folder(self.path)
            return "" if os.access(folder.path, os.W_OK) else f"{folder.path} is read-only"
        except (OSError, Refused, ValueError) as error:
            return str(error)

    def _try(self, work: Callable[[Folder], T], makes: bool) -> T | None:
        """What the work gives; None, and one warning of the process, where the system refuses."""
        if self._is_refused or not IS_SUPPORTED or (makes and self._is_read_only):
            return None
        for again in (True, False):
            try:
                folder = self._open(makes)
                return None if folder is None else work(folder)
            except FileNotFoundError as error:  # somebody removed the folder
                self._folder = None
                if not again:
                    _warn(str(error))
            except Refused as error:
                self._is_refused = True
                _warn(str(error))
                return None
            except (OSError, ValueError) as error:
                if getattr(error, "errno", 0) in (errno.EACCES, errno.EROFS):
                    self._is_refused = self._folder is None
                    self._is_read_only = True
                if makes:
                    _warn(str(error))
                return None
        return None

    def _open(self, makes: bool) -> Folder | None:
        found = self._folder
        if found is None:
            if not makes and not os.path.isdir(self.path):
                return None
            with _lock:
                found = self._folder = self._folder or Folder(self.path)
        return found

    @staticmethod
    def _read(folder: Folder, key: str) -> Entry | None:
        try:
            data = folder.read(key)
            if data is None:
                return None
            found = decode(key, data)
        except (Damaged, Refused):
            folder.remove(key)
            return None
        except OSError as error:
            if error.errno not in _PASSING:
                folder.remove(key)
            return None
        now = time.time()
        if not 0 <= folder.age_of(key, now) < FRESH:
            folder.touch(key)
        return found

    def _write(self, folder: Folder, key: str, data: bytes) -> None:
        folder.write(key, data)
        with _lock:
            self._written += 1
            is_due = self._written % SWEEP == 1
        if is_due:
            self._sweep(folder)

    def _sweep(self, folder: Folder) -> None:
        """Remove what is stale, and the entries used least lately while they are too many."""
        now, files = time.time(), list(folder.files())
        for file in files:
            if file.name.endswith(".tmp") and abs(now - file.used) > STALE:
                folder.remove(file.name)
        kept = [file for file in files if _NAME.fullmatch(file.name)]
        total = sum(file.nbytes for file in kept)
        if total <= self._limit:
            return
        for file in sorted(kept, key=lambda f: _known_use(f, now)):
            folder.remove(file.name)
            total -= file.nbytes
            if total <= self._limit * 3 // 4:
                return

    @staticmethod
    def _examine(folder: Folder) -> list[tuple[Found, Entry | str]]:
        found: list[tuple[Found, Entry | str]] = []
        for file in sorted(folder.files(), key=lambda f: -f.used):
            if not _NAME.fullmatch(file.name):
                continue
            try:
                data = folder.read(file.name)
                if data is not None:
                    found.append((file, decode(file.name, data)))
            except (Damaged, Refused, OSError) as error:
                found.append((file, str(error)))
        return found


def _known_use(file: Found, now: float) -> float:
    """When a file was used last; nobody knows it of a time that the clock was set back from."""
    return file.used if file.used - now <= FRESH else 0.0


_held: set[int] = set()
"""Descriptors of locks of this process."""


def _open_lock(folder: Folder, key: str) -> int:
    fd = folder.open_lock(f"lock-{int(key[:8], 16) % LOCKS:02x}")
    _held.add(fd)
    return fd


def _acquire(fd: int) -> None:
    """Wait for a lock, but not for ever."""
    import fcntl

    start, pause = time.monotonic(), 0.0005
    while time.monotonic() - start < PATIENCE:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                return  # a file system without locks
        time.sleep(pause)
        pause = min(2 * pause, 0.05)


def _release(fd: int) -> None:
    """Give up a lock, also where the child of a fork has the descriptor: one that another thread
    opened at that moment."""
    import fcntl

    with suppress(OSError):  # a file system without locks
        fcntl.flock(fd, fcntl.LOCK_UN)
    os.close(fd)


def _after_fork() -> None:
    """The child keeps no lock of a thread that it does not have."""
    for fd in list(_held):
        with suppress(OSError):
            os.close(fd)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_warnings = [True]
"""What is left to warn of: one thread takes it."""


def _warn(reason: str) -> None:
    """Say once in a process that nothing is kept."""
    with suppress(IndexError):
        _warnings.pop()
        message = f"compiled code is not kept on disk: {reason}; choose a folder of your own with "
        warnings.warn(
            f"{message}CUBEPY_CACHE_DIR, or set CUBEPY_CACHE=0", RuntimeWarning, stacklevel=2
        )


@lru_cache(maxsize=16)
def _store(path: str, limit: int) -> Store:
    return Store(path, limit)


def find_store() -> Store | None:
    """The store of the settings in force; None where it is switched off."""
    if not get("cache"):
        return None
    return _store(get("cache_dir"), get("cache_bytes"))


def named_store() -> Store:
    """The store of the settings in force, also where compilations do not use it."""
    return _store(get("cache_dir"), get("cache_bytes"))


def header_of(entry: Entry | str) -> dict[str, Any]:
    """The header of an examined entry; empty of one that is not whole."""
    return entry.header if isinstance(entry, Entry) else {}
