"""The file of measurements: what it does not take now is remembered, and what it holds stays."""

from __future__ import annotations

import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cubepy.autotune import database
from cubepy.autotune.records import IMPORTED, Key, Measurement, Pick, Records
from cubepy.autotune.session import FILE, FOLDER
from cubepy.cache.folder import IS_SUPPORTED

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="the store is POSIX only")

KEY = Key("hardware", "mine.kernel", "source", "[1,2]")
OTHER = Key("hardware", "mine.kernel", "source", "[3]")
ONE = Measurement('{"n":1}', "ok", 0.5)


@pytest.fixture(autouse=True)
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_warnings", [True])
    monkeypatch.setattr(database, "PATIENCE_S", 0.01)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store with a pick that was imported; nobody has it open."""
    with closing_all() as stores:
        stores.append(Records(str(tmp_path)))
        stores[0].put_picks([Pick(KEY, ONE.config, IMPORTED)])
    return tmp_path / FOLDER / FILE


@contextmanager
def closing_all() -> Iterator[list[Records]]:
    """Stores whose files are closed behind the block, as where their processes end."""
    found: list[Records] = []
    yield found
    for store in found:
        store._leave()


def imported(store: Records) -> bool:
    pick = store.pick(KEY, "", (IMPORTED,))
    return pick is not None and pick.config == ONE.config


def keep(store: Records, key: Key = OTHER) -> None:
    store.keep(key, "{}", [ONE], None)


def keys_on_disk(folder: Path) -> list[Key]:
    with closing_all() as stores:
        stores.append(Records(str(folder)))
        return stores[0].measured_keys()


@contextmanager
def refused(code: int) -> Iterator[None]:
    """Inside the block files are not opened to be written."""
    plain = database._connect

    def connect(place: str, patience: float = 0.0) -> sqlite3.Connection:
        if "mode=rw" in place:
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = code
            raise error
        return plain(place, patience)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_connect", connect)
        yield


def test_a_writer_that_hangs_hides_nothing_and_what_waits_is_written_later(
    tmp_path: Path, file: Path
):
    store = Records(str(tmp_path))
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.warns(RuntimeWarning, match="locked") as caught:
            keep(store)
            store.clear("no such origin")
        assert len(caught) == 1 and "locked" in store.why_not
        assert imported(store) and store.measurements(OTHER) == {ONE.config: ONE}
        assert keys_on_disk(tmp_path) == []
        other.execute("rollback")
    last = Key("hardware", "mine.kernel", "source", "[4]")
    keep(store, last)
    assert store.why_not == "" and keys_on_disk(tmp_path) == [OTHER, last]
    assert store.measured_keys() == [OTHER, last] and imported(store)


def test_what_others_wrote_meanwhile_is_seen(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "RETRY_S", 0.0)
    store, last = Records(str(tmp_path)), Key("hardware", "mine.kernel", "source", "[4]")
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.warns(RuntimeWarning, match="locked"):
            keep(store)
        other.execute("rollback")
    keep(Records(str(tmp_path)), last)
    assert store.measured_keys() == [OTHER, last] and store.why_not == ""
    assert keys_on_disk(tmp_path) == [OTHER, last]


def test_what_is_no_row_does_not_wait(tmp_path: Path, file: Path):
    store = Records(str(tmp_path))
    with pytest.raises(UnicodeEncodeError):
        keep(store, Key("hardware", "\ud800", "source", "[]"))
    keep(store)
    assert keys_on_disk(tmp_path) == [OTHER]


def test_nobody_waits_again_for_a_writer_that_hangs(tmp_path: Path, file: Path):
    store, waits = Records(str(tmp_path)), "pragma busy_timeout"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        keep(store)
        assert store._file is not None
        assert store._file.connection.execute(waits).fetchone() == (10,)
        other.execute("begin immediate")
        with pytest.warns(RuntimeWarning, match="locked"):
            keep(store)
        assert store._file.connection.execute(waits).fetchone() == (0,)
        other.execute("rollback")
        keep(store)
        assert store._file.connection.execute(waits).fetchone() == (10,)


def test_a_child_does_not_write_what_waits_in_its_parent(tmp_path: Path, file: Path):
    store = Records(str(tmp_path))
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("begin immediate")
        with pytest.warns(RuntimeWarning, match="locked"):
            keep(store)
        other.execute("rollback")
    pid = os.fork()
    if pid == 0:
        keep(store, KEY)
        os._exit(0 if store.measured_keys() == [KEY] and imported(store) else 1)
    assert os.waitpid(pid, 0)[1] == 0
    keep(store, KEY)
    assert keys_on_disk(tmp_path) == [KEY, OTHER]


@pytest.mark.parametrize("code", [sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY])
def test_a_file_that_can_only_be_read_is_read(tmp_path: Path, file: Path, code: int):
    before, store = file.read_bytes(), Records(str(tmp_path))
    with refused(code), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert imported(store) and store.why_not == ""  # there is nothing to be kept
    with refused(code), pytest.warns(RuntimeWarning, match="not kept") as caught:
        for _ in range(2):
            keep(store)
        assert imported(store) and store.measurements(OTHER) == {ONE.config: ONE}
    assert len(caught) == 1 and sorted(os.listdir(file.parent)) == [FILE]
    assert file.read_bytes() == before
    keep(store, KEY)
    assert keys_on_disk(tmp_path) == [KEY, OTHER]  # it can be written again


def test_a_file_without_its_log_is_not_read(tmp_path: Path, file: Path):
    store = Records(str(tmp_path))
    keep(store)  # in the log
    with refused(sqlite3.SQLITE_CANTOPEN), pytest.warns(RuntimeWarning, match="not kept"):
        assert Records(str(tmp_path)).picks() == []
    assert keys_on_disk(tmp_path) == [OTHER]
    assert imported(store)


def test_a_folder_that_cannot_be_made_costs_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(path: str) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(database, "Folder", refuse)
    store = Records(str(tmp_path / "none"))
    with pytest.warns(RuntimeWarning, match="Read-only") as caught:
        for _ in range(2):
            keep(store)
        assert store.measurements(OTHER) == {ONE.config: ONE}
    assert len(caught) == 1


def test_a_full_disk_hides_nothing(tmp_path: Path, file: Path):
    """A limit of the size of files gives what a full disk gives."""
    text = (
        "import resource, sys\n"
        "from cubepy.autotune.records import *\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))\n"
        "store, key = Records(sys.argv[1]), Key('hardware', 'mine.kernel', 'source', '[1,2]')\n"
        "find = lambda: [p.origin for p in store.picks()]\n"
        "assert find() == ['imported']\n"
        "store.keep(key, '{}', [], Pick(key, 'mine', 'measured', '{}', 'set'))\n"
        "assert find() == ['imported', 'measured'], find()\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)\n"
        "store.put_picks([])\n"
    )
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    if hard != resource.RLIM_INFINITY:
        pytest.skip("files have a limit here")
    command = [sys.executable, "-c", text, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RuntimeWarning") == 1
    assert [p.origin for p in Records(str(tmp_path)).picks()] == ["imported", "measured"]


def damage(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(4096)
        opened.write(b"\xa5" * (file.stat().st_size - 4096))


def test_a_good_file_is_not_put_aside_for_a_damaged_one(tmp_path: Path, file: Path):
    old = Records(str(tmp_path))
    old.hardware()  # the pages of other tables are read later
    damage(file)
    with pytest.warns(RuntimeWarning, match="not kept"):
        assert Records(str(tmp_path)).picks() == []
    assert not file.exists() and file.with_name(f"{FILE}.damaged").exists()
    assert not file.with_name(f"{FILE}-wal").exists() and not file.with_name(f"{FILE}-shm").exists()
    new = Records(str(tmp_path))
    keep(new)
    assert old.picks() == [] and old.path is None  # it reads the file that it has open
    assert file.exists() and keys_on_disk(tmp_path) == [OTHER]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_records_go_to_the_file_that_is_there(tmp_path: Path, file: Path, is_replaced: bool):
    store = Records(str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        keep(store)
        shutil.rmtree(file.parent)
        if is_replaced:
            keep(Records(str(tmp_path)), KEY)
        last = Key("hardware", "mine.kernel", "source", "[4]")
        keep(store, last)
    assert keys_on_disk(tmp_path) == ([KEY, last] if is_replaced else [last])
    assert store.measured_keys() == keys_on_disk(tmp_path)


def test_files_are_the_users_alone_and_modes_of_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    before = os.umask(0)
    try:
        with monkeypatch.context() as patch:
            patch.delattr(os, "umask")  # it is that of all threads
            store = Records(str(tmp_path / "made"))
            keep(store)
    finally:
        os.umask(before)
    folder = tmp_path / "made" / FOLDER
    assert sorted(os.listdir(folder)) == [FILE, f"{FILE}-shm", f"{FILE}-wal"]
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
