"""Processes that `multiprocessing` starts without `fork`, after their parent has launched."""

from __future__ import annotations

import multiprocessing

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit.kernel import Launcher
from cubepy.jit.tables import native_executor

METHODS = [m for m in ("spawn", "forkserver") if m in multiprocessing.get_all_start_methods()]


@cp.cube
def doubled(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * 2


def work(x: np.ndarray) -> tuple[np.ndarray, float, bool]:
    """Launches until native code does, and says whether it does."""
    out = np.full_like(x, np.nan)
    launcher = doubled.over(out)
    for _ in range(4):
        launcher(x, out)
    total = [cp.kernels.sum(x) for _ in range(4)][-1]
    return out, float(total), type(launcher) is not Launcher


@pytest.mark.parametrize("method", METHODS)
def test_children_launch_kernels(method: str):
    """Two children at once; the parent goes on afterwards."""
    x = np.arange(1000, dtype=np.float32)
    work(x)
    with multiprocessing.get_context(method).Pool(2) as pool:
        found = pool.map(work, [x, x])
    for out, total, is_native in [*found, work(x)]:
        np.testing.assert_array_equal(out, x * 2)
        assert total == x.sum() and is_native == (native_executor() is not None)
