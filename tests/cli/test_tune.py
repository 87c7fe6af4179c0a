"""`cubepy tune`: searches, tables, pictures and files of picks."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import cubepy as cp
from cubepy.autotune import database, records
from cubepy.autotune.files import FORMAT
from cubepy.cache.folder import IS_SUPPORTED
from tests.optional import require_package

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="the store is POSIX only")

FILE = """
import cubepy as cp

@cp.cube
def scale(x, out, n: cp.Comptime):
    i = cp.ABSOLUTE_POS * n
    for k in cp.unroll(range(n)):
        if i + k < out.size:
            out.flat[i + k] = x.flat[i + k] * 2

@cp.autotuned(space={"n": (1, 2)})
def double(x, out, *, config):
    scale.over(-(-out.size // config["n"]))(x, out, config["n"])

def fails(x):
    raise ValueError("no such luck")

if __name__ == "__main__":
    import numpy as np

    x = np.ones(1000, np.float32)
    print(double.pick(x, x.copy())["n"])
"""


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Any]:
    """Runs the command in a folder of its own; gives the finished process."""
    (tmp_path / "mine.py").write_text(FILE, encoding="utf-8")
    settings = {"CUBEPY_CACHE": "1", "CUBEPY_CACHE_DIR": str(tmp_path / "cache"), "CUBEPY_TUNE": ""}
    environment = {**os.environ, **settings}
    del environment["CUBEPY_TUNE"]

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-m", "cubepy.cli", *args]
        return subprocess.run(
            call, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )

    run.environment = environment  # type: ignore[attr-defined]
    return run


def test_tune_show_export_and_import(command: Callable[..., Any], tmp_path: Path):
    assert json.loads(command("tune", "show", "--json").stdout) == []
    arguments = "--arg", "x=f32[1000]", "--arg", "out=f32[1000]", "--budget", "20"
    done = command("tune", "--kernel", "mine.py:double", *arguments)
    assert done.returncode == 0 and "tuned" in done.stdout, done.stderr
    (problem,) = json.loads(command("tune", "show", "--json").stdout)
    assert problem["origin"] == "measured" and len(problem["configurations"]) == 2
    assert all(row["status"] == "ok" and row["seconds"] for row in problem["configurations"])
    shown = command("tune", "show", "--only", "*double").stdout
    assert '{"n":1}' in shown and "µs" in shown and "*" in shown and "model" in shown
    (again,) = json.loads(command("tune", "replay", "--json").stdout)
    assert again["before"] == again["now"] == problem["pick"]
    assert "nothing was measured" in command("tune", "show", "--only", "other").stdout
    assert command("tune", "export", "picks.json").returncode == 0
    text = (tmp_path / "picks.json").read_text(encoding="utf-8")
    assert command("tune", "export").stdout == command("tune", "export", "--json").stdout == text
    done = command("tune", "export", "picks.json", "--json")
    assert json.loads(done.stdout) == {"exported": 1, "file": "picks.json"}
    done = command("tune", "import", "picks.json", "--json")
    assert json.loads(done.stdout) == {"imported": 1}
    (problem,) = json.loads(command("tune", "show", "--json").stdout)
    assert problem["origin"] == "imported"
    (tmp_path / "picks.json").write_text("{}", encoding="utf-8")
    done = command("tune", "import", "picks.json")
    assert done.returncode == 2 and "picks.json" in done.stderr


def test_jobs_from_a_file_and_what_fails(command: Callable[..., Any], tmp_path: Path):
    jobs = [
        {"function": "mine.py:fails", "arguments": {"x": "f32[3]"}},
        {"function": "mine.py:double", "arguments": {"x": "i32[50]", "out": "i32[50]"}},
    ]
    (tmp_path / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
    done = command("tune", "--jobs", "jobs.json", "--json", "--budget", "20")
    assert done.returncode == 1
    first, second = json.loads(done.stdout)["jobs"]
    assert "no such luck" in first["error"] and second["error"] == ""


def test_picks_of_a_file_hold_where_it_is_imported_and_where_it_runs(
    command: Callable[..., Any], tmp_path: Path
):
    arguments = "--arg", "x=f32[1000]", "--arg", "out=f32[1000]", "--budget", "20"
    assert command("tune", "--kernel", "mine.py:double", *arguments).returncode == 0
    command("tune", "export", "picks.json")
    text = (tmp_path / "picks.json").read_text(encoding="utf-8")
    document = json.loads(text)
    (pick,) = document["picks"]
    assert pick["kernel"] == "mine.double"
    pick["config"] = {"n": 2}
    (tmp_path / "picks.json").write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "other.py").write_text(
        "import numpy as np, mine\n"
        "x = np.ones(1000, np.float32)\n"
        "print(mine.double.pick(x, x.copy())['n'])\n"
    )
    shutil.rmtree(tmp_path / "cache")
    assert command("tune", "import", "picks.json").returncode == 0
    environment: dict[str, str] = command.environment  # type: ignore[attr-defined]
    environment = {**environment, "CUBEPY_TUNE": "off"}
    for call in (["mine.py"], ["-m", "mine"], ["other.py"]):
        done = subprocess.run(
            [sys.executable, *call],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.stdout == "2\n", done.stderr
    assert "*" in (shown := command("tune", "show").stdout) and "imported" in shown
    again = json.loads(command("tune", "export").stdout)
    assert again["hardware"] == document["hardware"] and all(again["hardware"].values())


def test_what_cannot_be_loaded_is_said_in_a_line(command: Callable[..., Any], tmp_path: Path):
    (tmp_path / "bad.py").write_text("def f(:", encoding="utf-8")
    (tmp_path / "raises.py").write_text("raise KeyError('gone')", encoding="utf-8")
    for name in ("absent.py", "bad.py", "raises.py"):
        done = command("tune", "--kernel", f"{name}:f")
        assert done.returncode == 1 and "Traceback" not in done.stderr and "Error" in done.stdout


def test_a_kernel_that_is_not_autotuned_is_said(command: Callable[..., Any]):
    done = command("tune", "--kernel", "mine.py:scale", "--arg", "x=f32[8]")
    assert done.returncode == 1
    assert "scale: it is not @cp.autotuned: there is nothing to search" in done.stdout


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--kernel", "mine"),
        ("--kernel", "a:b", "--jobs", "x.json"),
        ("--jobs", "absent.json"),
        ("--kernel", "mine.py:double", "--level", "fast"),
        ("import", "absent.json"),
    ],
)
def test_wrong_usage_is_said(args: tuple[str, ...], command: Callable[..., Any]):
    done = command("tune", *args)
    assert done.returncode == 2 and done.stderr.startswith("error: ")


MATMUL = ("--kernel", "cubepy.kernels:matmul", "--arg")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((*MATMUL, "a=f32[?,4]"), "--arg a=f32[?,4]: `?` of 'f32[?,4]' has no size"),
        ((*MATMUL, "a=f32[4"), "--arg a=f32[4: 'f32[4' is no specification"),
        ((*MATMUL, "a=f32[4,4]", "--workers", "zzz"), "--workers zzz: expected a number"),
        ((*MATMUL, "a=f32[4,4]", "--workers", "0"), "--workers 0: expected a number"),
    ],
)
def test_what_is_wrong_is_named(cli: Callable[..., Any], args: tuple[str, ...], text: str):
    found = cli("tune", *args)
    assert found.status == 2 and text in found.err


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ({"a": 1}, "a list of objects is expected, not an object"),
        ([], "there is nothing to tune"),
        ([{"function": "a:b", "arguments": {}}, 5], "job 1 is a number; an object is expected"),
        ([{"function": "a:b", "arguments": {"x": "f32[?]"}}], "job 0: `x`: `?` of 'f32[?]'"),
        ([{"function": "a:b", "arguments": [1]}], "job 0 has no function or no arguments"),
    ],
)
def test_a_wrong_list_of_jobs(cli: Callable[..., Any], tmp_path: Path, rows: Any, text: str):
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(rows), encoding="utf-8")
    found = cli("tune", "--jobs", file)
    assert found.status == 2 and text in found.err and str(file) in found.err


def test_a_missing_argument_is_named(cli: Callable[..., Any]):
    found = cli("tune", *MATMUL, "a=f32[4,4]")
    assert found.status == 1 and "matmul: missing a required argument: 'b'" in found.out


def test_picks_and_measurements_that_are_not_kept_are_a_failure(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "PATIENCE_S", 0.01)
    pick = {"kernel": "k", "source": "s", "hardware": "*", "problem": [], "config": {"n": 1}}
    picks = tmp_path / "picks.json"
    picks.write_text(json.dumps({"format": FORMAT, "picks": [pick]}), encoding="utf-8")
    tune = ("tune", *MATMUL, "a=f32[2,2]", "--arg", "b=f32[2,2]", "--budget", "0.1")
    with records.forgotten(), cp.settings(cache=True, cache_dir=str(tmp_path / "cache")):
        assert cli("tune", "import", picks).status == 0
        file = records.named_records().path
        assert file is not None
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("begin immediate")
            for words in (("tune", "import", picks), tune):
                monkeypatch.setattr(database, "_warnings", [True])
                with pytest.warns(RuntimeWarning, match="locked"):
                    found = cli(*words, "--json")
                assert found.status == 1 and "could not be kept" in found.json["error"]["message"]
            other.execute("rollback")
        assert cli("tune", "import", picks).status == 0


def test_a_scheduler_that_does_not_answer(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    def refuse(where: str) -> Any:
        raise OSError("timed out")

    monkeypatch.setattr("cubepy.cli.tuning.workers", refuse)
    found = cli("tune", *MATMUL, "a=f32[4,4]", "--workers", "tcp://nowhere:1")
    assert found.status == 1 and "tcp://nowhere:1: timed out" in found.err


@pytest.mark.optional("matplotlib")
def test_a_picture_is_drawn(tmp_path: Path):
    require_package("matplotlib")
    from cubepy.cli.tuning import _draw

    rows = [
        {"config": f"n={n}", "seconds": n * 1e-5, "low": n * 9e-6, "high": n * 2e-5, "samples": 3}
        for n in (1, 2, 3)
    ]
    rows[0]["predicted"] = 2e-5
    rows.append({"config": "n=4", "seconds": None, "low": None, "high": None, "samples": 0})
    found = [{"kernel": "k", "problem": "[]", "pick": "n=1", "bound": 1e-6, "configurations": rows}]
    _draw(found, tmp_path / "times.png")
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")
