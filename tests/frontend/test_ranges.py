"""`range` at the edges of 64 bits, with bounds that are known and with bounds that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp

LEAST, LARGEST = -(2**63), 2**63 - 1
EDGES = [
    (LARGEST - 3, LARGEST, 1),
    (LARGEST - 3, LARGEST, 2),
    (LARGEST - 4, LARGEST, 3),
    (LARGEST - 1, LARGEST, LARGEST),
    (LARGEST, LARGEST - 3, -1),
    (LEAST, LEAST + 3, 1),
    (LEAST + 3, LEAST, -1),
    (LEAST + 3, LEAST, -2),
    (LEAST + 4, LEAST, -3),
    (LEAST + 1, LEAST, LEAST),
    (LEAST, LARGEST, LARGEST),
    (LEAST, LARGEST, 2**62),
    (LARGEST, LEAST, LEAST),
    (LARGEST, LEAST, -(2**62)),
    (LARGEST, LEAST, 1),
    (LEAST, LARGEST, -1),
    (0, 5, LARGEST),
]


@cp.cube
def at_run_time(start: int, stop: int, step: int, out):
    k = 0
    for i in range(start, stop, step):
        out[k] = i
        k += 1
        if k == out.size:  # a loop that would not end
            break


@cp.cube
def at_comptime(start: cp.Comptime, stop: cp.Comptime, step: cp.Comptime, out):
    k = 0
    for i in range(start, stop, step):
        out[k] = i
        k += 1
        if k == out.size:
            break


@cp.cube
def with_a_known_step(start: int, stop: int, step: cp.Comptime, out):
    k = 0
    for i in range(start, stop, step):
        out[k] = i
        k += 1
        if k == out.size:
            break


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize("kernel", [at_run_time, at_comptime, with_a_known_step])
def test_ranges_are_those_of_python(kernel: Any, device: str):
    for bounds in EDGES:
        out = np.full(9, 77, np.int64)
        kernel.configure(device=device)[1, 1](*bounds, out)
        wanted = list(range(*bounds))[:9]
        assert out.tolist() == wanted + [77] * (9 - len(wanted)), bounds


@pytest.mark.parametrize(
    "bounds", [(2**63,), (0, 2**63), (LEAST - 1, 0), (0, 5, 2**63), (0, -5, LEAST - 1), (2**70, 0)]
)
def test_bounds_beyond_64_bits_are_refused(bounds: tuple[int, ...]):
    @cp.cube
    def kernel(out):
        for i in range(*bounds):
            out[0] += i

    with pytest.raises(cp.CompileError, match="E203.*index"):
        kernel[1, 1](np.zeros(1))
