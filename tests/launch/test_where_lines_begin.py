"""Contiguous line tensors are taken for one axis only where no kernel can tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit import launch

LINE = 4
SHAPES = ((3, 5), (2, 3, 7), (4, 8), (1, 1), (5, 3))


@cp.cube
def scaled(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        v = x.flat[i]
        out.flat[i] = cp.where(v > 0.5, v * 2, cp.sqrt(v) + 1)


@cp.cube
def returned(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    if cp.ABSOLUTE_POS >= x.size:
        return
    out.flat[cp.ABSOLUTE_POS] = -x.flat[cp.ABSOLUTE_POS]


@cp.cube
def first_lanes(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * 0 + x.flat[i][0]


@cp.cube
def sums(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + x.flat[i].sum()


@cp.cube
def turned(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i][::-1]


@cp.cube
def numbered(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + cp.f32(i)


@cp.cube
def some(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < 1:
        out.flat[i] = x.flat[i] + 1


@cp.cube
def neighbours(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i + 1 < out.size:
        out.flat[i] = x.flat[i + 1]


@cp.cube
def by_hand(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    while i < out.size:
        out.flat[i] = x.flat[i] + cp.f32(out.size)
        i += out.size


@cp.cube
def any_of_them(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        if (x.flat[i] > 0.5).any():
            out.flat[i] = x.flat[i]


@cp.cube
def scales_of_blocks(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32], scale):
    i = cp.ABSOLUTE_POS
    if i < scale.size:
        scale.flat[i] = abs(x.flat[i]).max()


@cp.cube
def counted(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + cp.f32(out.size)


@cp.cube
def asked(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if out.size > 5:
        if i < out.size:
            out.flat[i] = x.flat[i]


@cp.cube
def of_planes(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    place = cp.plane_inclusive_sum(cp.f32(1))
    if i < out.size:
        out.flat[i] = x.flat[i] + place


@cp.cube
def behind_the_end(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    t = cp.shared(1, cp.f32)
    if i == 0:
        t[0] = 0
    cp.sync_cube()
    if i == out.size - 1:
        t[0] = 5.0
    cp.sync_cube()
    if i < out.size:
        out.flat[i] = x.flat[i] + t[0]


@cp.cube
def half(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i <= out.size // 2:
        out.flat[i] = x.flat[i]


@cp.cube
def scaled_by(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32], s):
    i = cp.ABSOLUTE_POS
    if i <= s.size // 8:
        out.flat[i] = x.flat[i] + s[0] * cp.f32(s.size - i * 4)


ALIKE = (scaled, returned)
TELLING = (first_lanes, sums, turned, numbered, some, neighbours, by_hand, any_of_them)
TELLING += (counted, asked, of_planes, behind_the_end, half)


def padded(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros of a shape whose rows lie apart."""
    return np.zeros((*shape[:-1], shape[-1] + 3), np.float32)[..., : shape[-1]]


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kernel", [*ALIKE, *TELLING], ids=lambda k: k.__name__)
def test_strides_change_no_result(kernel: Any, shape: tuple[int, ...], device: str):
    x = np.random.default_rng(3).random(shape, np.float32)
    apart, found, expected = padded(shape), np.zeros(shape, np.float32), padded(shape)
    apart[...] = x
    chosen = kernel.configure(line_size=LINE, device=device)
    units = int(np.prod(shape[:-1])) * -(-shape[-1] // LINE)
    for grid_apart, grid in ((apart, x), (units, units)):
        expected[...] = found[...] = 0
        chosen.over(grid_apart)(apart, expected)
        chosen.over(grid)(x, found)
        assert np.array_equal(found, expected)


@pytest.mark.parametrize("kernel", [*ALIKE, *TELLING], ids=lambda k: k.__name__)
def test_only_kernels_that_cannot_tell_are_collapsed(kernel: Any, monkeypatch: pytest.MonkeyPatch):
    seen: list[bool | None] = []
    plan_of = launch.plan_of
    monkeypatch.setattr(launch, "plan_of", lambda *a: seen.append(a[-1]) or plan_of(*a))
    x = np.ones((3, 6), np.float32)
    kernel.configure(line_size=LINE).over(x)(x, np.zeros_like(x))
    assert seen == [True if kernel in ALIKE else None]


def test_a_number_for_each_line():
    x = np.random.default_rng(4).standard_normal((3, 20), np.float32)
    found = np.zeros((3, 3), np.float32)
    chosen = scales_of_blocks.configure(line_size=8, checked=True)
    chosen.over(found)(x, np.zeros_like(x), found)
    assert np.array_equal(found, np.stack([abs(x[:, k : k + 8]).max(1) for k in (0, 8, 16)], 1))


def test_one_launcher_takes_both():
    """The remembered plan of one layout does not serve the other."""
    launcher = first_lanes.configure(line_size=LINE).over(6)
    for _ in range(3):
        for out in (np.zeros((3, 5), np.float32), padded((3, 5))):
            x = np.arange(15, dtype=np.float32).reshape(3, 5)
            launcher(x, out)
            assert np.array_equal(out[:, 0], x[:, 0]) and np.array_equal(out[:, 4], x[:, 4])


@pytest.mark.parametrize("units", [3, 12])
def test_grids_that_cover_a_part_and_extents_of_others(units: int):
    """What is written does not depend on strides."""
    x, s = np.random.default_rng(5).random((3, 6), np.float32), np.ones(12, np.float32)
    for kernel, more in ((scaled, ()), (scaled_by, (s,))):
        found, expected = np.zeros((3, 6), np.float32), padded((3, 6))
        chosen = kernel.configure(line_size=LINE, plane_dim=1)[units, 1]
        chosen(x, found, *more)
        chosen(x, expected, *more)
        assert np.array_equal(found, expected)
