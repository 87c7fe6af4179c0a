"""The store of measurements: every one is kept, for all processes of a user on this machine.

It lies in a folder that only the user can write. What is kept is data: nothing that is read here
is run.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from math import inf
from typing import Any

from cubepy.autotune import session
from cubepy.autotune.database import Database
from cubepy.autotune.session import FILE, FOLDER
from cubepy.config import get
from cubepy.record import dataclass

MEASURED, IMPORTED = "measured", "imported"
ANYWHERE = "*"
"""The hardware of picks that hold on all machines."""

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


class Records(Database):
    """Measurements, picks and searches."""

    def __init__(self, folder: str | None) -> None:
        """`folder`: made when the first record is; None: nothing is kept on disk."""
        super().__init__(None if folder is None else os.path.join(folder, FOLDER, FILE))

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


def _insert(db: sqlite3.Connection, how: str, pick: Pick, now: float) -> None:
    row = (*pick.key.parts, pick.candidates, pick.config, pick.origin, pick.about, now)
    db.execute(f"{how} into picks values(?,?,?,?,?,?,?,?,?)", row)


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
