"""A file of SQLite that all processes of a user share, with a write-ahead log.

What the file does not take now, as when another process writes or the disk is full, goes to a copy
in memory, which is read from then on, and is written with what comes next. Where the file cannot
be used at all, the process remembers for itself. Both cost one warning.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import Any
from weakref import WeakSet

from cubepy.autotune.session import FILE
from cubepy.cache.folder import IS_SUPPORTED, Folder, Refused
from cubepy.forks import at_fork
from cubepy.record import dataclass

APPLICATION, VERSION = 0x63756265, 1
"""What marks a file of ours ("cube"), and the meaning of its tables."""
PATIENCE_S = 2.0
"""How long a process waits for another that writes; no time while it knows that one hangs."""
RETRY_S = 1.0
"""How long the copy is read before the file is asked again."""

_TABLES = """
create table measurements(
    id integer primary key, hardware text not null, kernel text not null, source text not null,
    problem text not null, config text not null, status text not null, detail text not null,
    seconds real, samples text not null, made real not null);
create index of_problem on measurements(hardware, kernel, source, problem);
create table picks(
    hardware text not null, kernel text not null, source text not null, problem text not null,
    candidates text not null, config text not null, origin text not null, about text not null,
    made real not null, primary key(hardware, kernel, source, problem, candidates, origin));
create table searches(
    id integer primary key, hardware text not null, kernel text not null, source text not null,
    problem text not null, search text not null, made real not null);
create table hardware(key text primary key, facts text not null);
"""

_FAULTS = (sqlite3.Error, OSError, Refused)
_PASSING = {
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_FULL),
    *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN),
    *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH),
}
"""Errors that say nothing of what a file holds."""
Work = Callable[[sqlite3.Connection], object]


class Database:
    """Tables in a file, of which there is none if `path` is None; safe for threads and forks."""

    def __init__(self, path: str | None) -> None:
        """`path`: made when the first row is."""
        self.path = path
        self.why_not = ""
        """Why the file did not take all that was written, or cannot be used; else empty."""
        self._lock = RLock()
        self._process = os.getpid()
        self._patience = PATIENCE_S
        self._file: Opened | None = None
        self._copy: sqlite3.Connection | None = None
        self._waiting: list[Work] = []
        self._tried = 0.0
        _all.add(self)

    @property
    def exists(self) -> bool:
        """Whether there is anything to look for."""
        is_open = self._file is not None or self._copy is not None
        return is_open or (self.path is not None and os.path.exists(self.path))

    def after_fork(self) -> None:
        """In a child: a thread that is lost may have held the lock."""
        self._lock = RLock()

    def _read(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        """Rows; none where the file cannot be read now."""
        if not self.exists:
            return []
        with self._lock:
            self._leave_parents()
            self._try_again()
            if self._copy is None:
                try:
                    return self._opened().execute(query, values).fetchall()
                except _FAULTS as error:
                    reason = self._note(error)
                if self._file is None:
                    self._copy = _frozen(self.path)
                if self._copy is None or self.path is None:
                    _warn(reason)
            return [] if self._copy is None else self._copy.execute(query, values).fetchall()

    def _try_again(self) -> None:
        """Go back from the copy to the file, where that takes now what waits: others write too."""
        now = time.monotonic()
        if self._copy is None or self.path is None or now - self._tried < RETRY_S:
            return
        self._tried = now
        if self._waiting:
            self._is_written([*self._waiting])
            return
        with suppress(*_FAULTS):
            self._opened()
            self._copy = None

    def _write(self, work: Work) -> None:
        """Do the work in one transaction, with what waits for that."""
        with self._lock:
            self._leave_parents()
            works = [*self._waiting, work]
            if self._is_written(works):
                return
            self._waiting = [] if self.path is None else works
            works = works if self._copy is None else [work]
            self._copy = copy = self._copy or self._copied()
            if copy is not None:
                with suppress(sqlite3.Error):  # the file gave the same error, of which is warned
                    for each in works:
                        each(copy)
            if self.why_not:
                _warn(self.why_not)

    def _is_written(self, works: list[Work]) -> bool:
        """Whether the file took what waits, and what is new."""
        if self.path is None:
            return False
        try:
            if self._file is not None and not self._file.is_in_place:
                self._leave()
            with self._opened() as db:
                db.execute("begin immediate")
                for work in works:
                    work(db)
        except _FAULTS as error:
            self.why_not = self._note(error)
            return False
        self._waiting, self._copy, self.why_not = [], None, ""
        self._wait_for_others(PATIENCE_S)
        return True

    def _opened(self) -> sqlite3.Connection:
        if self._file is None:
            assert self.path is not None
            self._file = _open(self.path, self._patience)
        return self._file.connection

    def _copied(self) -> sqlite3.Connection | None:
        """What is known, in memory; None where a file is there that cannot be read now."""
        if self._file is None:
            return _frozen(self.path)
        return _copy_of(self._file.connection)

    def _note(self, error: Exception) -> str:
        """What to say of an error. The file is left if the error is one of what it holds."""
        reason = f"{self.path}: {error}"
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            self._wait_for_others(0.0)
        if code not in _PASSING and not isinstance(error, OSError):
            if self._file is not None:
                self._file.put_aside(error)
            self._file = self.path = None
            self.why_not = reason
        return reason

    def _wait_for_others(self, seconds: float) -> None:
        if seconds != self._patience and self._file is not None:
            self._file.connection.execute(f"pragma busy_timeout={int(1000 * seconds)}")
        self._patience = seconds

    def _leave(self) -> None:
        """Leave a file that was removed. SQLite sees that too, and removes no log of another."""
        if self._file is not None:
            self._file.connection.close()
            self._file = None

    def _leave_parents(self) -> None:
        """In the child of a fork: its parent writes what waits."""
        if self._process == os.getpid():
            return
        opened = None if self._file is None else self._file.connection
        _inherited.extend(db for db in (opened, self._copy) if db is not None)
        self._file = self._copy = None
        self._waiting = []
        self._process = os.getpid()


_all: WeakSet[Database] = WeakSet()


def _after_fork() -> None:
    for made in list(_all):
        made.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)

_inherited: list[sqlite3.Connection] = []
"""Connections of the parent of a fork: SQLite forbids its child to use or to close them."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that is open; `identity`: its device and its inode."""

    path: str
    identity: tuple[int, int]
    connection: sqlite3.Connection

    @property
    def is_in_place(self) -> bool:
        """Whether its path still leads to it."""
        try:
            return _identity(self.path) == self.identity
        except OSError:
            return False

    def put_aside(self, error: Exception) -> None:
        """Make room for the next process, if the file is damaged and is still there. Its log goes
        first: a new file must not find it."""
        if type(error) is sqlite3.DatabaseError and self.is_in_place:
            for end in ("-wal", "-shm", ""):
                with suppress(OSError):
                    os.replace(f"{self.path}{end}", f"{self.path}.damaged{end}")


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path, follow_symlinks=False)
    return found.st_dev, found.st_ino


_making = RLock()
at_fork(_making)


def _open(path: str, patience: float) -> Opened:
    """Open a file of ours, made now if there is none; `Refused` for another's."""
    _check(path)
    identity = _make(path)
    opened = Opened(path, identity, _connect(f"{Path(path).as_uri()}?mode=rw", patience))
    try:
        _prepare(opened.connection)
    except BaseException as error:
        opened.connection.close()
        if isinstance(error, Exception):
            opened.put_aside(error)
        raise
    return opened


def _connect(place: str, patience: float = 0.0) -> sqlite3.Connection:
    return sqlite3.connect(
        place, timeout=patience, isolation_level=None, check_same_thread=False, uri=True
    )


def _check(path: str) -> None:
    """`Refused` unless the folder is the user's alone, and so is the file."""
    if not IS_SUPPORTED:
        raise Refused("measurements are kept on POSIX systems only")
    try:
        folder = Folder(os.path.dirname(path))
    except ValueError as error:
        raise Refused(str(error)) from None
    for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
            is_plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
            if not is_plain or found.st_uid != os.geteuid():
                raise Refused(f"{name} is no plain file of this user's")


def _make(path: str) -> tuple[int, int]:
    """Make the file for the user alone, if there is none; its logs get its mode from SQLite.

    A file that is there is not opened: closing it would drop the locks that SQLite has on it in
    this process. So no thread connects to a new one before it is closed here.
    """
    with _making:
        if not os.path.lexists(path):
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        return _identity(path)


def _prepare(db: sqlite3.Connection) -> None:
    """Make the tables of a file that is empty."""
    with db:
        db.execute("begin")  # so that what is looked at is of one moment
        if _has_tables(db):
            return
    with suppress(sqlite3.OperationalError):  # another process does it at this moment
        db.execute("pragma journal_mode=wal")
    db.execute("pragma synchronous=normal")
    with db:
        db.execute("begin immediate")
        if not _has_tables(db):
            for statement in _TABLES.split(";"):
                db.execute(statement)
            db.execute(f"pragma application_id={APPLICATION}")
            db.execute(f"pragma user_version={VERSION}")


def _has_tables(db: sqlite3.Connection) -> bool:
    """Whether a file has our tables; `Refused` where it has others."""
    mark, version = _number(db, "application_id"), _number(db, "user_version")
    if not db.execute("select count(*) from sqlite_master").fetchone()[0]:
        return False
    if mark != APPLICATION:
        raise Refused("it is no store of measurements")
    if version != VERSION:
        raise Refused(f"it has the format {version}, this version of CubePy has {VERSION}")
    return True


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"pragma {pragma}").fetchone()[0])


def _frozen(path: str | None) -> sqlite3.Connection | None:
    """A copy of a file that can only be read, where SQLite makes no log; empty where there is no
    file, None where it cannot be read, or is not whole without its log."""
    if path is None or not os.path.lexists(path):
        return _memory()
    try:
        _check(path)
        before = _whole(path)
        if before is None:
            return None
        db = _connect(f"{Path(path).as_uri()}?immutable=1")
        try:
            found = _copy_of(db) if _has_tables(db) else _memory()
        finally:
            db.close()
        return found if _whole(path) == before else None
    except _FAULTS:
        return None


def _whole(path: str) -> tuple[int, ...] | None:
    """What changes when a file does; None while a part of it is in a log."""
    for end in ("-wal", "-journal"):
        with suppress(FileNotFoundError):
            if os.stat(f"{path}{end}").st_size:
                return None
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _memory() -> sqlite3.Connection:
    db = _connect(":memory:")
    _prepare(db)
    return db


def _copy_of(db: sqlite3.Connection) -> sqlite3.Connection | None:
    found = _connect(":memory:")
    try:
        db.backup(found)
    except sqlite3.Error:
        found.close()
        return None
    return found


_warnings = [True]
"""What is left to warn of: one thread takes it."""


def _warn(reason: str) -> None:
    """Say once in a process that measurements are not kept."""
    with suppress(IndexError):
        _warnings.pop()
        text = f"measurements of the autotuner are not kept: {reason}; choose a folder of your own "
        warnings.warn(f"{text}with CUBEPY_CACHE_DIR", RuntimeWarning, stacklevel=2)
