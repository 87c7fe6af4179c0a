"""`python -m bench.tuning_agreement`: whether processes with an imported file pick alike.

A file of picks is made by one search; then `--processes` at a time start `--starts` times each,
with a store of their own that holds nothing but the file. Each says what it picks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from cubepy.autotune.files import export_text, import_text
from cubepy.autotune.records import Records

PROGRAM = """
import json, numpy as np, cubepy as cp

@cp.cube
def scale(x, out, n: cp.Comptime):
    i = cp.ABSOLUTE_POS * n
    for k in cp.unroll(range(n)):
        if i + k < out.size:
            out.flat[i + k] = x.flat[i + k] * 2

@cp.autotuned(space={"n": (1, 2, 4, 8, 16)}, key=lambda x, out: (cp.anchor(out.size), out.dtype))
def double(x, out, *, config):
    scale.over(-(-out.size // config["n"]))(x, out, config["n"])

picked = {}
for size in (1000, 30000, 1 << 20):
    x, out = np.ones(size, np.float32), np.empty(size, np.float32)
    double(x, out)
    assert (out == 2).all()
    picked[size] = dict(double.pick(x, out))
print(json.dumps(picked, sort_keys=True))
"""


def start(program: Path, store: Path, level: str) -> subprocess.Popen[str]:
    """A process that runs the program with a store."""
    settings = {"CUBEPY_CACHE": "1", "CUBEPY_CACHE_DIR": str(store), "CUBEPY_TUNE": level}
    return subprocess.Popen(
        [sys.executable, str(program)], env=os.environ | settings, stdout=subprocess.PIPE, text=True
    )


def main() -> None:
    """Print how many processes picked what; exit with 1 if they did not agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--starts", type=int, default=20)
    given = parser.parse_args()
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "program.py"
        program.write_text(PROGRAM, encoding="utf-8")
        assert start(program, folder / "first", "full").wait() == 0
        text = export_text(Records(str(folder / "first")))
        assert len(json.loads(text)["picks"]) == 3
        for number in range(given.starts):
            stores = [folder / f"{number} {k}" for k in range(given.processes)]
            for store in stores:
                import_text(Records(str(store)), text)
            running = [start(program, store, "quick") for store in stores]
            found.update(process.communicate()[0].strip() for process in running)
            assert all(process.returncode == 0 for process in running)
            measured = [Records(str(store)).measured_keys() for store in stores]
            assert not any(measured)
    for picks, count in found.most_common():
        print(f"{count} processes: {json.loads(picks)}")
    print(f"{sum(found.values())} cold starts, {len(found) - 1} disagreements")
    raise SystemExit(len(found) != 1)


if __name__ == "__main__":
    main()
