"""Code on disk for devices: a second process neither traces nor optimises nor compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubepy.cache.folder import IS_SUPPORTED
from tests.cache.test_processes import COUNTED, finish, start
from tests.devices.conftest import require

pytestmark = pytest.mark.skipif(not IS_SUPPORTED, reason="the cache is POSIX only")
SCRIPT = """
import sys
import numpy as np
import cubepy as cp

@cp.cube
def k(x, out, factor: cp.f32):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * factor + {more}

given = np.arange(100, dtype=np.float32)
x, out = cp.asarray(given, device="{device}"), cp.zeros(100, device="{device}")
for n in range(1, 6):  # the last ones natively
    k.over(out)(x, out, float(n))
    assert (out.numpy() == given * n + {more}).all()
for _ in range(4):
    assert cp.kernels.sum(x).item() == 4950
names = "cubepy.frontend.tracer", "cubepy.passes.", "cubepy.compilers.cstyle"
print(*(int(any(m.startswith(name) for m in sys.modules)) for name in names), flush=True)
"""
TRACED, KEPT = "1 1 1\n", "0 0 0\nparsed 0\n"


@pytest.mark.parametrize("name", ["cuda:0", "opencl:0"])
def test_a_second_process_compiles_nothing(name: str, tmp_path: Path):
    require(name)
    path = tmp_path / "script.py"

    def run(more: int) -> str:
        path.write_text(COUNTED + SCRIPT.format(device=name, more=more))
        said, errors = finish(start(path, tmp_path / "c"))
        assert not errors
        return said

    for more in (1, 2):
        assert run(more).startswith(TRACED)
        assert run(more) == KEPT
    assert run(1) == KEPT
