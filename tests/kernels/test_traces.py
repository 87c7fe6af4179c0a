"""How often prebuilt kernels are traced for a first call: once each."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

CHILD = """
import json
import numpy as np, cubepy as cp
from cubepy.frontend.specialise import _Specialisation
inner, traces = _Specialisation.attempt, []
def attempt(self):
    found = inner(self)
    traces.append((self._function.__name__, found is not None))
    return found
_Specialisation.attempt = attempt
def ones(*shape):
    return np.ones(shape, np.float32)
k = cp.kernels
{call}
print(json.dumps(traces))
"""
CALLS = [
    "k.matmul(ones(64, 64), ones(64, 64)); k.matmul(ones(1, 256), ones(256, 256))",
    "k.conv2d(ones(1, 64, 14, 14), ones(64, 64, 3, 3), padding=1)",
    "k.conv2d(ones(1, 64, 14, 14), ones(64, 64, 1, 1)); k.max_pool2d(ones(1, 8, 8, 8), 2)",
    "k.attention(ones(2, 128, 64), ones(2, 128, 64), ones(2, 128, 64))",
    "k.sum(ones(64, 64), axis=1); k.softmax(ones(8, 64)); k.sort(ones(4096))",
]


@pytest.mark.parametrize("call", CALLS)
def test_each_kernel_is_traced_once(call: str):
    """A trace that guesses a type wrong is repeated, which takes as long again."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD.format(call=call)],
        env=os.environ | {"CUBEPY_CACHE": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    traces = json.loads(done.stdout)
    assert traces and all(settled for _, settled in traces), traces
