"""The store: whatever is wrong with it costs one warning, and never a result."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from cubepy.autotune import database
from cubepy.autotune.records import (
    ANYWHERE,
    IMPORTED,
    MEASURED,
    Key,
    Measurement,
    Pick,
    Records,
)
from cubepy.autotune.session import FILE, FOLDER

KEY = Key("hardware", "mine.kernel", "source", "[1,2]")
OTHER = Key("hardware", "mine.kernel", "edited", "[1,2]")
ONE = Measurement('{"n":1}', "ok", 0.5, "", (0.4, 0.5, 0.6))
TWO = Measurement('{"n":2}', "wrong", None, "all of it")
BOTH = ("imported", "measured")


@pytest.fixture(autouse=True)
def unwarned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_warnings", [True])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / FOLDER / FILE


def filled(folder: Path) -> Records:
    found = Records(str(folder))
    found.keep(KEY, "{}", [ONE, TWO], Pick(KEY, ONE.config, MEASURED, "{}", "set"), {"log": []})
    return found


def test_what_is_kept_is_found_by_another_process_and_not_under_another_key(tmp_path: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filled(tmp_path)
        again = Records(str(tmp_path))
        assert again.exists
        assert again.measurements(KEY) == {ONE.config: ONE, TWO.config: TWO}
        assert again.measurements(OTHER) == {}
        pick = again.pick(KEY, "set", BOTH)
        assert pick is not None and (pick.config, pick.origin) == (ONE.config, MEASURED)
        assert again.pick(KEY, "another set", BOTH) is None
        assert again.pick(OTHER, "set", BOTH) is None
        assert again.searches(KEY) == [{"log": []}] and again.hardware() == {"hardware": "{}"}
        assert again.measured_keys() == [KEY]


def test_the_last_measurement_counts_and_the_first_pick_stands(tmp_path: Path):
    store = filled(tmp_path)
    better = Measurement(ONE.config, "ok", 0.1)
    found = store.keep(KEY, "{}", [better], Pick(KEY, TWO.config, MEASURED, "{}", "set"))
    assert found is not None and found.config == ONE.config
    assert store.measurements(KEY)[ONE.config].seconds == 0.1
    store.put_picks([Pick(KEY, TWO.config, MEASURED, "{}", "set")])
    pick = store.pick(KEY, "set", BOTH)
    assert pick is not None and pick.config == TWO.config


def test_imported_picks_go_first_and_those_of_this_hardware_before_any(tmp_path: Path):
    store = filled(tmp_path)
    anywhere = Key(ANYWHERE, *KEY.parts[1:])
    store.put_picks([Pick(anywhere, "any", IMPORTED)])
    pick = store.pick(KEY, "whatever", BOTH)
    assert pick is not None and pick.config == "any"
    store.put_picks([Pick(KEY, "here", IMPORTED)])
    pick = store.pick(KEY, "set", (IMPORTED,))
    assert pick is not None and pick.config == "here"
    store.clear(IMPORTED)
    pick = store.pick(KEY, "set", BOTH)
    assert pick is not None and pick.config == ONE.config
    store.clear()
    assert store.picks() == [] and store.measurements(KEY) == {}


def test_nothing_is_made_where_nothing_is_kept(tmp_path: Path):
    store = Records(str(tmp_path))
    assert not store.exists and store.measurements(KEY) == {} and store.picks() == []
    assert os.listdir(tmp_path) == []


def test_the_file_and_its_folder_are_the_users_alone(tmp_path: Path, file: Path):
    filled(tmp_path)
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert all(f.stat().st_mode & 0o077 == 0 for f in file.parent.iterdir())


def corrupt_header(file: Path) -> None:
    file.write_bytes(b"no database, " * 1000)


def corrupt_pages(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    file.write_bytes(data)


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:5000])


def of_another_program(file: Path) -> None:
    file.unlink()
    with sqlite3.connect(file) as db:
        db.execute("create table picks(a)")


def of_another_version(file: Path) -> None:
    with sqlite3.connect(file) as db:
        db.execute("pragma user_version=99")


def open_to_others(file: Path) -> None:
    file.parent.chmod(0o777)


def behind_a_link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def a_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def checkpoint(file: Path) -> None:
    """All that is in the log goes to the file, which stands alone then."""
    with sqlite3.connect(file) as db:
        db.execute("pragma wal_checkpoint(truncate)")
    for name in (f"{FILE}-wal", f"{FILE}-shm"):
        file.with_name(name).unlink(missing_ok=True)


WRONGS = [corrupt_header, corrupt_pages, truncate, of_another_program, of_another_version]
WRONGS += [open_to_others, behind_a_link, a_folder]


@pytest.mark.parametrize("spoil", WRONGS)
def test_a_bad_store_costs_one_warning_and_the_process_remembers_for_itself(
    spoil: Callable[[Path], None], tmp_path: Path, file: Path
):
    filled(tmp_path)
    checkpoint(file)
    spoil(file)
    store = Records(str(tmp_path))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.measurements(KEY)
        store.pick(KEY, "set", BOTH)
        store.keep(KEY, "{}", [TWO], Pick(KEY, "mine", MEASURED, "{}", "set"))
        assert store.measurements(KEY)[TWO.config] == TWO
        pick = store.pick(KEY, "set", BOTH)
    assert pick is not None and pick.config == "mine"
    messages = [str(w.message) for w in caught if w.category is RuntimeWarning]
    assert len(messages) == 1 and "not kept" in messages[0]


def lose_the_tables(file: Path) -> None:
    """What stands behind the header is read when a file is opened."""
    data = file.read_bytes()
    file.write_bytes(data[:100] + b"\xff" * (len(data) - 100))


@pytest.mark.parametrize("spoil", [corrupt_header, lose_the_tables])
def test_a_damaged_file_is_put_aside_for_the_next_process(
    spoil: Callable[[Path], None], tmp_path: Path, file: Path
):
    filled(tmp_path)
    checkpoint(file)
    spoil(file)
    with pytest.warns(RuntimeWarning, match="not kept"):
        Records(str(tmp_path)).measurements(KEY)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert filled(tmp_path).measurements(KEY)[ONE.config] == ONE
        assert Records(str(tmp_path)).measurements(KEY)[ONE.config] == ONE


@pytest.mark.parametrize(
    "change", ["samples='__import__'", "seconds='soon'", "seconds=-1", "seconds=9e999"]
)
def test_a_row_that_is_no_data_is_left_out(tmp_path: Path, file: Path, change: str):
    store = filled(tmp_path)
    with sqlite3.connect(file) as db:
        db.execute(f"update measurements set {change} where config=?", (ONE.config,))
    assert list(store.measurements(KEY)) == [TWO.config]


def test_stores_of_several_hosts_are_merged(tmp_path: Path):
    one, two = filled(tmp_path / "a"), Records(str(tmp_path / "b"))
    two.keep(OTHER, "{}", [TWO], Pick(OTHER, "x", MEASURED, "{}", "set"))
    one.add(two.rows())
    one.add({})
    assert one.measurements(OTHER) == {TWO.config: TWO} and len(one.picks()) == 2


def test_many_processes_write_at_once(tmp_path: Path):
    code = (
        "import sys\n"
        "from cubepy.autotune.records import *\n"
        "key = Key('h', 'k', 's', 'p')\n"
        "store = Records(sys.argv[1])\n"
        "for n in range(20):\n"
        "    m = Measurement(f'{sys.argv[2]} {n}', 'ok', 1.0)\n"
        "    found = store.keep(key, '{}', [m], Pick(key, m.config, 'measured', '{}', 'set'))\n"
        "print(found.config)\n"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path)]
    running = [
        subprocess.Popen([*command, str(k)], stdout=subprocess.PIPE, text=True) for k in range(3)
    ]
    said = {process.communicate(timeout=120)[0] for process in running}
    assert all(process.returncode == 0 for process in running)
    assert len(said) == 1  # the first pick stands for all
    assert len(Records(str(tmp_path)).measurements(Key("h", "k", "s", "p"))) == 60


def test_a_forked_child_has_a_connection_of_its_own(tmp_path: Path):
    store = filled(tmp_path)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if store.measurements(KEY)[ONE.config] == ONE else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.measurements(KEY)[ONE.config] == ONE
