"""Right kernels raise no fault: a sample of the suites in checked mode.

The whole: `CUBEPY_CHECKED=1 python -m pytest tests/conformance tests/examples tests/kernels`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLES = [
    ("tests/conformance", "(i32 and cpu) or (u8 and interpreter) or (exp and f32)", 15),
    ("tests/examples", "(cpu or interpreter) and (reduction or matmul or scan or heat)", 10),
    ("tests/kernels", "streamed or channels_last", 3),
]


@pytest.mark.parametrize(("folder", "chosen", "least"), SAMPLES)
def test_no_false_alarm(folder: str, chosen: str, least: int):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, folder, "-k", chosen],
        cwd=ROOT,
        env=os.environ | {"CUBEPY_CHECKED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    passed = re.search(r"(\d+) passed", run.stdout)
    assert run.returncode == 0, run.stdout[-4000:]
    assert passed is not None and int(passed[1]) >= least
