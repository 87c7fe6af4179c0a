"""What a process loads: names on first use, and for a call what its target and kernel need."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

SUM = """
import numpy as np, cubepy as cp
assert cp.kernels.sum(np.ones((8, 8), np.float32)) == 64
"""
FOREIGN = [
    "cubepy.autotune.model",
    "cubepy.autotune.tuner",
    "cubepy.compilers.cuda",
    "cubepy.compilers.cstyle",
    "cubepy.ir.parser",
    "cubepy.jit.ir_kernel",
    "cubepy.kernels.matmul",
    "cubepy.lang.cmma",
    "cubepy.passes.fission",
    "cubepy.passes.vectorise",
    "cubepy.passes.legalise.lower_planes",
    "cubepy.runtimes.cuda",
    "statistics",
    "sysconfig",
    "traceback",
]
"""What a sum on a CPU has nothing to do with."""


def child(code: str) -> Any:
    """What a fresh process prints as JSON."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_call_on_a_cpu_loads_what_it_needs() -> None:
    code = "import json, sys, numpy; before = set(sys.modules)\n" + SUM
    loaded = child(code + "print(json.dumps(sorted(set(sys.modules) - before)))")
    assert "cubepy.passes.fold" in loaded
    assert not set(FOREIGN) & set(loaded)


@pytest.mark.parametrize("name", ["atomic", "autotuned", "cmma", "from_ir", "pipelines"])
def test_names_that_are_loaded_late(name: str) -> None:
    """Each is there as the first name that is asked for, and listed from the start."""
    code = f"""
import json, cubepy as cp
listed = "{name}" in dir(cp), "{name}" in cp.__all__
early = "{name}" in vars(cp)
found = cp.{name}
from cubepy import *
print(json.dumps([*listed, not early, {name} is found is vars(cp)["{name}"]]))
"""
    assert child(code) == [True] * 4


def test_unknown_names_are_unknown() -> None:
    code = """
import json, cubepy as cp
try:
    cp.nothing
except AttributeError as error:
    print(json.dumps(str(error)))
"""
    assert child(code) == "module 'cubepy' has no attribute 'nothing'"
