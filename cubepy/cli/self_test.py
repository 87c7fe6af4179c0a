"""A kernel that shows whether compiling and launching works here, and how long it takes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import cubepy as cp
from cubepy.config import settings


@cp.cube
def scale_and_add(x: cp.Lines[cp.f32], y: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = 2 * x.flat[i] + cp.sqrt(y.flat[i])


def run_self_test() -> dict[str, Any]:
    """Compile, run, compare with NumPy, run again; seconds, and the error if there is one."""
    x = np.arange(100_003, dtype=np.float32)
    out = np.zeros_like(x)
    try:
        with settings(cache=False):  # the compiler is tested too
            first = _timed(x, out)
        wrong = int(np.sum(np.abs(out - (2 * x + np.sqrt(x))) > 1e-6 * (1 + 3 * x)))
        error = f"{wrong} of {x.size} results differ from NumPy" if wrong else ""
        return {"ok": not wrong, "compile_s": first, "launch_s": _timed(x, out), "error": error}
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return {"ok": False, "compile_s": None, "launch_s": None, "error": text}


def _timed(x: np.ndarray, out: np.ndarray) -> float:
    begin = time.perf_counter()
    scale_and_add.over(out)(x, x, out)
    return time.perf_counter() - begin
