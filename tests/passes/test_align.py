"""Lines of scalar tensors are aligned accesses where divisibility proves it, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def four(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32], w: int):
    i = cp.ABSOLUTE_POS
    if i < out.size // 4:
        cp.store(out, 4 * i, cp.load(x, i * 4, line=4) + cp.load(x, i * w, line=4))


@cp.cube
def through_shared(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    tile = cp.shared((8, 32), cp.f32)
    j = cp.UNIT_POS
    for k in range(8):
        cp.store(tile, (k, 4 * j), cp.load(x, 32 * k + 4 * j, line=4))
    cp.sync_cube()
    for k in range(8):
        cp.store(out, 32 * k + 4 * j, cp.load(tile, (k, 4 * j), line=4))


def test_aligned_lines_are_stated() -> None:
    text = four.inspect("f32[?]", "f32[?]", "i64", target="cuda:sm_90a", stage="ir")
    loads = [line for line in text.splitlines() if " = load" in line and "line<f32" in line]
    assert sum("align = 16" in line for line in loads) >= 1
    assert any("align" not in line for line in loads)
    shared = through_shared.inspect("f32[?]", "f32[?]", target="cuda:sm_90a", stage="ir")
    stores = [line for line in shared.splitlines() if "store %shared" in line]
    assert stores and all("align = 16" in line for line in stores)


@pytest.mark.parametrize("device", ["cpu", "pocl", "metal_text"])
@pytest.mark.parametrize("begin", [0, 1, 2, 4, 16])
def test_results_do_not_depend_on_alignment(device: str, begin: int, require_text_device) -> None:
    if device != "cpu":
        require_text_device(device)
    base = np.random.default_rng(5).standard_normal(300).astype(np.float32)
    x, out = base[begin : begin + 256], np.zeros(280, np.float32)[begin : begin + 256]
    kernel = four.configure(device=device)
    for w in (3, 4):
        kernel.over(64)(x, out, w)
        i = np.arange(64)[:, None]
        lanes = np.arange(4)[None, :]
        found = np.where(i * w + lanes < 256, x[np.minimum(i * w + lanes, 255)], 0)
        assert (out.reshape(64, 4) == x.reshape(64, 4) + found).all()
    through_shared.configure(device=device)[1, 8](x, out)
    assert (out == x).all()
