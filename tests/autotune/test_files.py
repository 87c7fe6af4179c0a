"""Picks as a file: the same text for the same picks, and the same picks in every process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cubepy.autotune.files import FORMAT, BadFile, export_text, import_text, read_picks
from cubepy.autotune.records import IMPORTED, MEASURED, Key, Measurement, Pick, Records

KEY = Key("here", "mine.kernel", "source", '[[64,"f32"],1.5]')
CONFIG = '{"n":4,"wide":true}'

PROGRAM = """
import json, sys
import numpy as np
import cubepy as cp

@cp.cube
def scale(x, out, n: cp.Comptime):
    i = cp.ABSOLUTE_POS * n
    for k in cp.unroll(range(n)):
        if i + k < out.size:
            out.flat[i + k] = x.flat[i + k] * 2

@cp.autotuned(space={"n": (1, 4, 8, 16)})
def double(x, out, *, config):
    scale.over(-(-out.size // config["n"]))(x, out, config["n"])

found = {}
for size in (10, 1000):
    x, out = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
    double(x, out)
    assert (out == 2 * x).all()
    found[size] = double.pick(x, out)["n"]
print(json.dumps(found))
"""


def filled(folder: Path) -> Records:
    store = Records(str(folder))
    measured = [Measurement(CONFIG, "ok", 0.00123456), Measurement('{"n":1}', "ok", 0.002)]
    about = '{"reason": "separated", "confidence": 0.98765}'
    store.keep(KEY, '{"arch":"x"}', measured, Pick(KEY, CONFIG, MEASURED, about, "set"))
    other = Key("here", "other", "s2", "[]")
    store.keep(other, "{}", [], Pick(other, "default", MEASURED, "{}", "set"))
    return store


def test_what_is_exported_is_imported_and_exported_alike(tmp_path: Path):
    text = export_text(filled(tmp_path / "a"))
    document = json.loads(text)
    assert document["format"] == FORMAT and document["hardware"] == {"here": {"arch": "x"}}
    assert (
        document["picks"][0]
        == {
            "kernel": "mine.kernel",
            "problem": [[64, "f32"], 1.5],
            "source": "source",
            "hardware": "here",
            "config": {"n": 4, "wide": True},
            "about": {
                "reason": "separated",
                "confidence": 0.988,
                "seconds": 0.00123,
                "measured": 2,
            },
        }
        or document["picks"][1]["kernel"] == "mine.kernel"
    )
    store = Records(str(tmp_path / "b"))
    found = import_text(store, text)
    assert {(p.key, p.config, p.origin) for p in found} >= {(KEY, CONFIG, IMPORTED)}
    again = json.loads(export_text(store))
    for pick in (*again["picks"], *document["picks"]):
        del pick["about"]
    assert again["picks"] == document["picks"]


def test_a_pattern_chooses_and_anywhere_holds_on_one_kind_of_hardware(tmp_path: Path):
    store = filled(tmp_path)
    (only,) = json.loads(export_text(store, "mine.*"))["picks"]
    assert only["kernel"] == "mine.kernel"
    everywhere = json.loads(export_text(store, anywhere=True))["picks"]
    assert {pick["hardware"] for pick in everywhere} == {"*"}
    there = Key("there", "k", "s", "[]")
    store.keep(there, "{}", [], Pick(there, "default", MEASURED, "{}", "set"))
    with pytest.raises(BadFile, match="2 kinds"):
        export_text(store, anywhere=True)


def spoiled(**changes: Any) -> str:
    pick = {"kernel": "k", "source": "s", "hardware": "h", "problem": [], "config": {}}
    return json.dumps({"format": FORMAT, "picks": [{**pick, **changes}]})


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"format": "other"}', json.dumps({"format": FORMAT})),
        json.dumps({"format": FORMAT, "picks": [3]}),
        *(spoiled(**{name: 3}) for name in ("kernel", "source", "hardware", "problem", "config")),
    ],
)
def test_what_is_no_file_of_picks_changes_nothing(text: str, tmp_path: Path):
    store = Records(str(tmp_path))
    with pytest.raises(BadFile):
        import_text(store, text)
    assert not store.exists
    assert len(read_picks(spoiled())) == 1


def run(folder: Path, file: Path, count: int, **environment: str) -> list[Any]:
    """What so many processes pick, all at once."""
    import os

    settings = {"CUBEPY_CACHE": "1", "CUBEPY_CACHE_DIR": str(folder), **environment}
    running = [
        subprocess.Popen(
            [sys.executable, str(file)],
            env=os.environ | settings,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(count)
    ]
    found = [process.communicate(timeout=300)[0] for process in running]
    assert all(process.returncode == 0 for process in running)
    return [json.loads(text) for text in found]


def test_eight_processes_agree_by_a_file_and_measure_nothing(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    store = tmp_path / "store"
    (first,) = run(store, program, 1, CUBEPY_TUNE="full")  # has time also beside other work
    text = export_text(Records(str(store)))
    assert len(json.loads(text)["picks"]) == 2
    odd = json.loads(text)
    for number, pick in enumerate(odd["picks"]):  # nothing that a measurement would give
        pick["config"] = {"n": (16, 8)[number]}
    shipped = tmp_path / "shipped"
    import_text(Records(str(shipped)), json.dumps(odd))
    found = run(shipped, program, 4, CUBEPY_TUNE="quick")
    found += run(shipped, program, 4, CUBEPY_TUNE="off")
    assert all(each == found[0] for each in found) and set(found[0].values()) == {8, 16}
    assert Records(str(shipped)).measured_keys() == [] and first.keys() == found[0].keys()
