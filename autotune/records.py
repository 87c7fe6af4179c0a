"""The store of measurements: every one is kept, for all processes of a user on this machine.

SQLite with a write-ahead log, in a folder that only the user can write. What is kept is data:
nothing that is read here is run. Where the store cannot be used the process warns once, and
remembers for itself only.
"""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from math import inf
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakSet

from cubepy.autotune import session
from cubepy.autotune.session import FILE, FOLDER
from cubepy.cache.folder import IS_SUPPORTED, Folder, Refused
from cubepy.config import get
from cubepy.record import dataclass

T = TypeVar("T")

APPLICATION, VERSION = 0x63756265, 1
"""What marks a file of ours ("cube"), and the meaning of its tables."""
PATIENCE_S = 2.0
"""How long a process waits for another that writes."""
MEASURED, IMPORTED = "measured", "imported"
ANYWHERE = "*"
"""The hardware of picks that hold on all machines."""

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

_COLUMNS = {
    "hardware": "key,facts",
    "measurements": "hardware,kernel,source,problem,config,status,detail,seconds,samples,made",
    "picks": "hardware,kernel,source,problem,candidates,config,origin,about,made",
    "searches": "hardware,kernel,source,problem,search,made",
}
"""What is given to other stores of each table."""
Rows = dict[str, list[list[Any]]]


@dataclass(frozen=True, slots=True)
class Key:
    """What a pick is for: texts. `hardware`: the key of a fingerprint; `source`: the hash of the
    kernel's source closure; `problem`: canonical JSON."""

    hardware: str
    kernel: str
    source: str
    problem: str

    @property
    def parts(self) -> tuple[str, str, str, str]:
        """The key as columns."""
        return self.hardware, self.kernel, self.source, self.problem


@dataclass(frozen=True, slots=True)
class Measurement:
    """What is known of one configuration: `status` as in `trials`; `seconds`: the median of
    `samples`, None where it was not timed."""

    config: str
    status: str
    seconds: float | None
    detail: str = ""
    samples: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Pick:
    """A configuration that was chosen, among candidates with the hash `candidates`."""

    key: Key
    config: str
    origin: str
    about: str = "{}"
    candidates: str = ""


class Records:
    """Measurements, picks and searches; a store of its own where the file cannot be used."""

    def __init__(self, folder: str | None) -> None:
        """`folder`: made when the first record is; None: nothing is kept on disk."""
        self.path = None if folder is None else os.path.join(folder, FOLDER, FILE)
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        self._has_file = False
        self._lock = RLock()
        _all.add(self)

    @property
    def exists(self) -> bool:
        """Whether there is anything to look for."""
        return self._connection is not None or (self.path is not None and os.path.exists(self.path))

    def measurements(self, key: Key) -> dict[str, Measurement]:
        """The latest measurement of each configuration."""
        query = (
            "select config, status, seconds, detail, samples from measurements where hardware=? "
            "and kernel=? and source=? and problem=? order by id"
        )
        rows = self._read(query, key.parts)
        found = {}
        for config, status, seconds, detail, samples in rows:
            with suppress(ValueError, TypeError):
                times = tuple(float(s) for s in json.loads(samples))
                taken = None if seconds is None else float(seconds)
                if taken is None or 0 < taken < inf:
                    found[config] = Measurement(config, status, taken, detail, times)
        return found

    def pick(self, key: Key, candidates: str, origins: Sequence[str]) -> Pick | None:
        """The pick for a key: what was imported goes first, on this hardware or on any; what was
        measured holds for the same candidates."""
        query = (
            "select hardware, kernel, source, problem, config, origin, about, candidates "
            "from picks where hardware in (?, '*') and kernel=? and source=? and problem=? "
            "and (origin='imported' or candidates=?) order by origin, hardware desc"
        )
        rows = self._read(query, (*key.parts, candidates))
        for *parts, config, origin, about, of in rows:
            if origin in origins:
                return Pick(Key(*parts), config, origin, about, of)
        return None

    def picks(self) -> list[Pick]:
        """All picks, by kernel and problem."""
        query = (
            "select hardware, kernel, source, problem, config, origin, about, candidates "
            "from picks order by kernel, problem, hardware, source, origin, candidates"
        )
        return [Pick(Key(*row[:4]), *row[4:]) for row in self._read(query, ())]

    def measured_keys(self) -> list[Key]:
        """What was measured."""
        query = (
            "select distinct hardware, kernel, source, problem from measurements "
            "order by kernel, problem, hardware, source"
        )
        return [Key(*row) for row in self._read(query, ())]

    def keep(
        self,
        key: Key,
        facts: str,
        measured: Sequence[Measurement],
        pick: Pick | None,
        search: dict[str, Any] | None = None,
    ) -> Pick | None:
        """Add what a search found. Gives the pick that stands: the one of the process that was
        first, unless it is of no use, which the caller sees to."""

        def work(db: sqlite3.Connection) -> None:
            now = time.time()
            db.execute("insert or ignore into hardware values(?,?)", (key.hardware, facts))
            for m in measured:
                row = (*key.parts, m.config, m.status, m.detail, m.seconds)
                samples = json.dumps([float(f"{s:.4g}") for s in m.samples])
                columns = "hardware,kernel,source,problem,config,status,detail,seconds,samples,made"
                db.execute(
                    f"insert into measurements({columns}) values(?,?,?,?,?,?,?,?,?,?)",
                    (*row, samples, now),
                )
            if search is not None:
                columns = "hardware,kernel,source,problem,search,made"
                db.execute(
                    f"insert into searches({columns}) values(?,?,?,?,?,?)",
                    (*key.parts, json.dumps(search), now),
                )
            if pick is not None:
                _insert(db, "insert or ignore", pick, now)

        self._write(work)
        if pick is None:
            return None
        return self.pick(key, pick.candidates, (pick.origin,)) or pick

    def put_picks(self, picks: Sequence[Pick], facts: Mapping[str, str] | None = None) -> None:
        """Keep picks in place of others of their origin. `facts`: of hardware, by fingerprint."""
        session.note_change()

        def work(db: sqlite3.Connection) -> None:
            db.executemany("insert or ignore into hardware values(?,?)", (facts or {}).items())
            for pick in picks:
                _insert(db, "insert or replace", pick, time.time())

        self._write(work)

    def searches(self, key: Key) -> list[dict[str, Any]]:
        """The searches for a key, the oldest first."""
        query = (
            "select search from searches where hardware=? and kernel=? and source=? and problem=? "
            "order by id"
        )
        return [json.loads(row[0]) for row in self._read(query, key.parts)]

    def hardware(self) -> dict[str, str]:
        """The facts of each fingerprint that was measured on."""
        return dict(self._read("select key, facts from hardware", ()))

    def rows(self) -> Rows:
        """All that is held, as rows of plain data by table."""
        return {
            table: [list(row) for row in self._read(f"select {columns} from {table}", ())]
            for table, columns in _COLUMNS.items()
        }

    def add(self, rows: Rows) -> None:
        """Add what another store held; of picks, those that are here stay."""

        def work(db: sqlite3.Connection) -> None:
            for table, columns in _COLUMNS.items():
                places = ",".join("?" * (columns.count(",") + 1))
                query = f"insert or ignore into {table}({columns}) values({places})"
                db.executemany(query, rows.get(table, []))

        session.note_change()
        if any(rows.values()):
            self._write(work)

    def clear(self, origin: str | None = None) -> None:
        """Forget everything, or the picks of one origin."""
        session.note_change()

        def work(db: sqlite3.Connection) -> None:
            if origin is not None:
                db.execute("delete from picks where origin=?", (origin,))
                return
            for table in ("measurements", "picks", "searches", "hardware"):
                db.execute(f"delete from {table}")

        self._write(work)

    def after_fork(self) -> None:
        """In a child: a thread that is lost may have held the lock."""
        self._lock = RLock()

    # The file

    def _read(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        if not self.exists:
            return []
        return self._try(lambda db: db.execute(query, values).fetchall()) or []

    def _write(self, work: Callable[[sqlite3.Connection], None]) -> None:
        def whole(db: sqlite3.Connection) -> None:
            with db:
                db.execute("begin immediate")
                work(db)

        self._try(whole)

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        """What the work gives; where the file fails, it is done in memory."""
        with self._lock:
            for _ in range(2):
                db = self._open()
                try:
                    return work(db)
                except sqlite3.Error as error:
                    if not self._has_file:
                        return None
                    self._give_up(error)
            return None

    def _open(self) -> sqlite3.Connection:
        """The connection of this process; a forked child makes its own."""
        if self._connection is not None and self._process == os.getpid():
            return self._connection
        if self._connection is not None:
            _inherited.append(self._connection)
        self._process, found = os.getpid(), None
        if self.path is not None:
            try:
                found = _connect(_checked(self.path))
            except (OSError, Refused, sqlite3.Error, ValueError) as error:
                _warn(f"{self.path}: {error}")
                _put_aside(self.path, error)
                self.path = None
        self._has_file = found is not None
        self._connection = found or _connect(":memory:")
        return self._connection

    def _give_up(self, error: sqlite3.Error) -> None:
        """Go on in memory."""
        path, self.path, self._connection = self.path, None, None
        _warn(f"{path}: {error}")
        if path is not None:
            _put_aside(path, error)


_all: WeakSet[Records] = WeakSet()


def _after_fork() -> None:
    for made in list(_all):
        made.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _put_aside(path: str, error: Exception) -> None:
    """Make room for the next process, where a file is damaged."""
    if type(error) is sqlite3.DatabaseError:
        with suppress(OSError):
            os.replace(path, f"{path}.damaged")


def _insert(db: sqlite3.Connection, how: str, pick: Pick, now: float) -> None:
    row = (*pick.key.parts, pick.candidates, pick.config, pick.origin, pick.about, now)
    db.execute(f"{how} into picks values(?,?,?,?,?,?,?,?,?)", row)


def _checked(path: str) -> str:
    """The file's path, once the folder is the user's alone, and so is the file."""
    if not IS_SUPPORTED:
        raise Refused("measurements are kept on POSIX systems only")
    folder = Folder(os.path.dirname(path))
    for name in (FILE, f"{FILE}-wal", f"{FILE}-shm"):
        with suppress(FileNotFoundError):
            found = os.stat(name, dir_fd=folder.fd, follow_symlinks=False)
            is_plain = stat.S_ISREG(found.st_mode) and found.st_nlink == 1
            if not is_plain or found.st_uid != os.geteuid():
                raise Refused(f"{name} is no plain file of this user's")
    return path


def _connect(path: str) -> sqlite3.Connection:
    """A connection to a file of ours, made if it is empty; `ValueError` for another's."""
    old = os.umask(0o077)
    try:
        db = sqlite3.connect(
            path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False
        )
        _prepare(db)
        return db
    finally:
        os.umask(old)


def _prepare(db: sqlite3.Connection) -> None:
    db.execute("begin")  # so that all three are of one moment
    mark, version = _number(db, "application_id"), _number(db, "user_version")
    tables = db.execute("select count(*) from sqlite_master").fetchone()[0]
    db.execute("commit")
    if tables and mark != APPLICATION:
        raise ValueError("it is no store of measurements")
    if tables and version != VERSION:
        raise ValueError(f"it has the format {version}, this version of CubePy has {VERSION}")
    if tables:
        return
    with suppress(sqlite3.OperationalError):  # another process does it at this moment
        db.execute("pragma journal_mode=wal")
    db.execute("pragma synchronous=normal")
    with suppress(sqlite3.OperationalError):  # another process made the tables meanwhile
        script = f"pragma application_id={APPLICATION}; pragma user_version={VERSION};"
        db.executescript(f"begin immediate; {_TABLES} {script} commit;")
    if db.in_transaction:
        db.rollback()
    if _number(db, "application_id") != APPLICATION:
        raise ValueError("its tables cannot be made")


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"pragma {pragma}").fetchone()[0])


_inherited: list[sqlite3.Connection] = []
"""Connections of the parent of a fork: SQLite forbids its child to use or to close them."""
_warnings = [True]
"""What is left to warn of: one thread takes it."""


def _warn(reason: str) -> None:
    """Say once in a process that measurements are not kept."""
    with suppress(IndexError):
        _warnings.pop()
        text = f"measurements of the autotuner are not kept: {reason}; choose a folder of your own "
        warnings.warn(f"{text}with CUBEPY_CACHE_DIR", RuntimeWarning, stacklevel=2)


@lru_cache(maxsize=16)
def _records(folder: str | None) -> Records:
    return Records(folder)


def find_records() -> Records:
    """The store of the settings in force; one of this process alone where the cache is off."""
    return _records(get("cache_dir") if get("cache") else None)


def named_records() -> Records:
    """The store on disk of the settings in force, also where the cache is off."""
    return _records(get("cache_dir"))


@contextmanager
def forgotten() -> Iterator[None]:
    """For tests: stores that this process holds are left, inside the block and behind it."""
    _records.cache_clear()
    try:
        yield
    finally:
        _records.cache_clear()
