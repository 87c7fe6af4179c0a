"""Sweeps: in this process, and on workers of which one is killed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cubepy.autotune import jobs
from cubepy.autotune.jobs import (
    Job,
    Sweep,
    argument,
    environments,
    jobs_of,
    run_all,
    run_on_workers,
    visible_devices,
    workers,
)
from cubepy.autotune.records import find_records
from cubepy.config import VISIBLE_GPUS
from tests.optional import require_package

pytestmark = pytest.mark.usefixtures("store")

FILE = """
import os, pathlib, signal
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

def dies_once(x, out, mark):
    marked = pathlib.Path(__file__).with_name(f"mark{mark}")
    if not marked.exists():
        marked.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    double(x, out)
"""
SWEEP = Sweep("quick", 20.0)


def job(folder: Path, size: int, name: str = "double", **more: int) -> Job:
    file = folder / "jobs_file.py"
    file.write_text(FILE, encoding="utf-8")
    spec = f"f32[{size}]"
    return Job(f"{file}:{name}", (("x", spec), ("out", spec), *more.items()))


def test_arguments_are_drawn_from_a_seed():
    a, b = (argument("f32[3,4]", "cpu", np.random.default_rng(1)) for _ in range(2))
    assert a.shape == (3, 4) and a.dtype == np.float32 and a.tobytes() == b.tobytes()
    assert argument("i8[5]", "cpu", np.random.default_rng(1)).dtype == np.int8
    assert argument(3, "cpu", np.random.default_rng(1)) == 3
    assert jobs_of([{"function": "f:g", "arguments": {"n": 1}}]) == [Job("f:g", (("n", 1),))]
    with pytest.raises(ValueError, match="job 0"):
        jobs_of([{"function": 3, "arguments": {}}])


def test_jobs_run_one_after_the_other_and_a_bad_one_stops_none(tmp_path: Path):
    work = [job(tmp_path, 100), job(tmp_path, 100, "absent"), job(tmp_path, 300)]
    reported: list[str] = []
    found = run_all(work, SWEEP, lambda done: reported.append(done.error))
    assert [bool(done.error) for done in found] == [False, True, False]
    assert "absent" in reported[1] and len(find_records().measured_keys()) == 2


@pytest.mark.optional("distributed")
def test_workers_of_which_one_is_killed_fill_one_store(tmp_path: Path):
    require_package("distributed")
    work = [job(tmp_path, 100), job(tmp_path, 300, "dies_once", mark=1), job(tmp_path, 700)]
    with workers("2") as client:
        found = run_on_workers(work, SWEEP, client)
    assert (tmp_path / "mark1").exists()
    assert [done.error for done in found] == ["", "", ""]
    assert len(find_records().measured_keys()) == len(find_records().picks()) == 3


def test_gpus_of_one_host_are_shared_out(monkeypatch: pytest.MonkeyPatch):
    assert environments(2, ["0", "1"]) == [{VISIBLE_GPUS: "0"}, {VISIBLE_GPUS: "1"}]
    assert [e[VISIBLE_GPUS] for e in environments(5, ["3", "7"])] == ["3", "7", "3", "7", "3"]
    assert environments(2, []) == [{}, {}]
    monkeypatch.setenv(VISIBLE_GPUS, "2,GPU-8f6")
    assert visible_devices() == ["2", "GPU-8f6"]
    monkeypatch.setenv(VISIBLE_GPUS, "")
    assert visible_devices() == []
    monkeypatch.delenv(VISIBLE_GPUS)
    names = ("cpu", "cuda:0", "opencl:0", "cuda:1")
    monkeypatch.setattr(jobs, "devices", lambda: [SimpleNamespace(name=name) for name in names])
    assert visible_devices() == ["0", "1"]


@pytest.mark.optional("distributed")
def test_two_gpus_of_one_host_are_two_workers():
    """GPUs that are made up: each worker sees one of them alone."""
    require_package("distributed")
    import dask.config

    no_monitor = dask.config.set({"distributed.diagnostics.nvml": False})  # it looks for these GPUs
    with no_monitor, workers("2", ["11", "12"]) as client:
        seen = client.run(seen_device)
    assert sorted(seen.values()) == ["11", "12"]


def seen_device() -> str:
    import os

    return os.environ[VISIBLE_GPUS]
