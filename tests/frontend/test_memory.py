"""Local arrays that are filled: one by one where registers may hold them, else by a loop."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def filled(x, out, value: cp.f32, n: cp.Comptime[int]):
    i = cp.ABSOLUTE_POS
    lines = cp.local((n, 2), cp.Line[cp.f32, 2], fill=value)
    numbers = cp.local(n, cp.i16, fill=-3)
    lines[x[i], 0] = cp.Line[cp.f32, 2](0)
    numbers[x[i]] = 5
    total = 0.0
    for k in range(n):
        total += (lines[k, 0] + lines[k, 1]).sum() + numbers[k]
    out[i] = total


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 128, 129, 500])
@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_every_element_is_filled(device: str, n: int):
    x, out = np.arange(4, dtype=np.int32) % max(n, 1), np.full(4, -1.0, np.float32)
    expected = 4 * 2.5 * n - 2 * 2.5 - 3 * n + 8 if n else 0
    if n:
        filled.configure(device=device)[1, 4](x, out, 2.5, n)
        assert (out == expected).all()
    text = filled[1, 4].inspect("i32[4]", "f32[4]", "f32", comptime={"n": n}, stage="ir")
    assert text.count("store") < 700


@pytest.mark.parametrize("checked", [False, True])
def test_a_large_fill_takes_a_few_operations(checked: bool):
    kernel = filled.configure(checked=checked)
    text = kernel[1, 4].inspect("i32[4]", "f32[4]", "f32", comptime={"n": 5000}, stage="ir")
    assert text.count("store") == 5


@cp.cube
def sized(x, out, n: cp.Comptime[int]):
    local = cp.local((n, 2), cp.f32, fill=1)
    shared = cp.shared(n, cp.f32)
    shared[0] = 2
    line = cp.load(x, 0, line=n)
    out[0] = local[0, 0] + shared[0] + line.sum() + cp.Line[cp.f32, n](3).sum() + x[::n].size


@pytest.mark.parametrize("kind", [int, np.int32, np.int64, np.uint8])
def test_sizes_are_integers_of_numpy_too(kind: type):
    x, out = np.ones(8, np.float32), np.zeros(1, np.float32)
    sized[1, 1](x, out, kind(4))
    assert out[0] == 1 + 2 + 4 + 12 + 2


@pytest.mark.parametrize("size", [np.float32(4), 4.0, np.int32(-1)])
def test_sizes_that_are_no_integers_are_refused(size):
    @cp.cube
    def wrong(x, n: cp.Comptime):
        x[0] = cp.local(n, cp.f32, fill=1)[0]

    with pytest.raises(cp.CompileError, match="E207(.*)expects integers from 0 on"):
        wrong[1, 1](np.zeros(1), size)
