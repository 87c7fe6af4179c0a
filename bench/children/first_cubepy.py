"""Seconds to import CubePy and NumPy, compile a kernel and run it."""

import time

BEGIN = time.perf_counter()

import numpy as np  # noqa: E402 - the imports are what is timed

import cubepy as cp  # noqa: E402


@cp.cube
def multiply_add(
    a: cp.Lines[cp.f32], b: cp.Lines[cp.f32], c: cp.Lines[cp.f32], out: cp.Lines[cp.f32]
):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = a.flat[i] * b.flat[i] + c.flat[i]


if __name__ == "__main__":
    ones, out = np.ones(1 << 20, np.float32), np.zeros(1 << 20, np.float32)
    multiply_add.over(out)(ones, ones, ones, out)
    END = time.perf_counter()
    from bench.children.process import print_seconds

    assert (out == 2).all()
    print_seconds(BEGIN, END)
