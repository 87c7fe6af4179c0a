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
    ("conformance/test_operations.py", "cpu-i32 or interpreter-u8", 10),
    ("conformance/test_elementary.py", "exp-f32 and bounds and (cpu or interpreter)", 2),
    ("examples", "(cpu-1 or interpreter-1) and (reduction or matmul or scan or heat)", 8),
    ("kernels/test_pool.py", "streamed or channels_last", 3),
]


@pytest.mark.parametrize(("place", "chosen", "least"), SAMPLES)
def test_no_false_alarm(place: str, chosen: str, least: int):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, f"tests/{place}", "-k", chosen],
        cwd=ROOT,
        env=os.environ | {"CUBEPY_CHECKED": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    passed = re.search(r"(\d+) passed", run.stdout)
    assert run.returncode == 0, run.stdout[-4000:]
    assert passed is not None and int(passed[1]) >= least
