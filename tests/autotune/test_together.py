"""Processes that search at the same time, with one store."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import cubepy as cp
from cubepy.autotune import isolated
from cubepy.autotune.records import MEASURED, Records

pytestmark = pytest.mark.skipif(not isolated.can_fork(), reason="no fork here")
PROGRAM = """
import json, sys, time
from pathlib import Path
import numpy as np
import cubepy as cp
from cubepy.autotune import behind

@cp.cube
def scale(x, out, n: cp.Comptime):
    i = cp.ABSOLUTE_POS * n
    for k in cp.unroll(range(n)):
        if i + k < out.size:
            out.flat[i + k] = x.flat[i + k] * 2

@cp.autotuned(space={"n": (1, 2, 4)}, key=lambda x, out: out.size)
def double(x, out, *, config):
    scale.over(-(-out.size // config["n"]))(x, out, config["n"])

folder, me, sizes = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
(folder / f"here {me}").touch()
while len(list(folder.glob("here *"))) < 2:
    time.sleep(0.001)
picked = {}
for size in sizes:
    x, out = np.arange(size, dtype=np.float32), np.empty(size, np.float32)
    with cp.tuning(level="quick", budget_s=30.0):
        double(x, out)
        assert (out == x * 2).all()
        picked[size] = double.pick(x, out).text
    assert behind.wait(60)
print(json.dumps(picked))
"""


@pytest.mark.parametrize("sizes", [([1000], [1000]), ([1000, 3000], [3000, 1000])])
def test_two_searches_end_and_leave_one_whole_store(tmp_path: Path, sizes: tuple[list[int], ...]):
    program, store = tmp_path / "searching.py", tmp_path / "store"
    program.write_text(PROGRAM, encoding="utf-8")
    settings = {"CUBEPY_CACHE": "1", "CUBEPY_CACHE_DIR": str(store)}
    settings["PYTHONPATH"] = str(Path(cp.__file__).parents[1])
    running = [
        subprocess.Popen(
            [sys.executable, str(program), str(tmp_path), str(me), json.dumps(wanted)],
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for me, wanted in enumerate(sizes)
    ]
    said = [process.communicate(timeout=240) for process in running]
    assert [(p.returncode, e) for p, (_, e) in zip(running, said, strict=True)] == [(0, "")] * 2
    db = sqlite3.connect(store / "tuning-1" / "measurements.sqlite")
    assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    db.close()
    first, second = (json.loads(out) for out, _ in said)
    assert first == second  # the first pick of a problem stands, for both
    texts = {'{"n":1}', '{"n":2}', '{"n":4}'}
    assert set(first.values()) <= texts
    kept = Records(str(store))
    picks = [pick for pick in kept.picks() if pick.origin == MEASURED]
    assert len(picks) == len({pick.key for pick in picks}) == len(set(sizes[0]))
    for pick in picks:
        assert pick.config in texts
        statuses = {m.status for m in kept.measurements(pick.key).values()}
        assert statuses <= {"ok", "untried", "late"} and "ok" in statuses
        assert 1 <= len(kept.searches(pick.key)) <= 4
