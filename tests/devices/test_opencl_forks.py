"""The child of a fork of a process that used an OpenCL device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import cubepy as cp
from tests.devices.conftest import require

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

PROGRAM = """
import os, sys
import numpy as np
import cubepy as cp
from cubepy.runtimes.opencl.platform import found_devices

@cp.cube
def add_one(x):
    if cp.ABSOLUTE_POS < x.size:
        x[cp.ABSOLUTE_POS] = x[cp.ABSOLUTE_POS] + 1

x = cp.asarray(np.zeros(100, np.float32), device="opencl:0")
result = cp.asarray(np.zeros((), np.float32), device="opencl:0")
bound = add_one.over(x).bind(x)
ways = [
    lambda: add_one.over(x)(x),
    bound,
    lambda: cp.kernels.sum(x),
    lambda: cp.kernels.sum(x, out=result),
    x.numpy,
    lambda: cp.asarray(np.zeros(3), device="opencl:0"),
    lambda: cp.synchronize("opencl:0"),
]
for way in ways * 4:  # the later ones by native code
    way()
if "cleared" in sys.argv:
    found_devices.cache_clear()
child = os.fork()
if not child:
    for way in ways:
        try:
            way()
        except cp.DeviceError as error:
            print(error.code, "in the child of a fork" in str(error), flush=True)
        else:
            print("no error", flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(x.numpy().sum())
"""


@pytest.mark.parametrize("caches", ["kept", "cleared"])
def test_all_calls_of_a_child_are_refused(caches: str, tmp_path: Path):
    """A driver would wait for its threads, which the child does not have, for ever."""
    require("opencl:0")
    program = tmp_path / "forking.py"
    program.write_text(PROGRAM)
    command, root = [sys.executable, str(program), caches], Path(cp.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(root)}
    found = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    assert found.stdout.splitlines() == ["E508 True"] * 7 + ["800.0"], found.stderr
