"""A bound launch keeps its arguments, not what they were when it was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import cubepy as cp
from tests.optional import require_package

SCALE = 2.0


@cp.cube
def scale(x, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * SCALE


@cp.cube
def scale_lines(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * 2.0


@cp.cube
def beyond(x, out):
    out.flat[cp.ABSOLUTE_POS] = x.flat[cp.ABSOLUTE_POS + 1]


class Pair(NamedTuple):
    x: Any
    factor: Any


@cp.cube
def of_pair(pair, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = pair.x.flat[i] * pair.factor


def numbers(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@pytest.mark.optional("torch")
@pytest.mark.parametrize("kernel", [scale, scale_lines])
def test_a_tensor_whose_data_were_replaced(kernel: Any):
    torch = require_package("torch")
    x, out = torch.from_numpy(numbers(100)), torch.zeros(100)
    bound = kernel.over(out).bind(x, out)
    bound()
    for seed, offset in ((1, 0), (2, 1), (3, 3)):
        x.data = torch.from_numpy(numbers(100 + offset, seed))[offset:]
        bound()
        assert torch.equal(out, x * 2)
    x.data = torch.from_numpy(numbers(200, 4))[::2]
    bound()
    assert torch.equal(out, x * 2)


@pytest.mark.parametrize("kernel", [scale, scale_lines])
def test_arrays_that_were_resized(kernel: Any):
    x, out = numbers(64), np.zeros(64, np.float32)
    bound = kernel.over(out).bind(x, out)
    bound()
    for size in (1 << 16, 77, 5):
        x.resize(size, refcheck=False)
        out.resize(size, refcheck=False)
        x[:], out[:] = numbers(size, size), 0
        bound()
        np.testing.assert_array_equal(out, x * 2)


def test_a_shape_that_was_assigned():
    x, out = numbers(64), np.zeros(64, np.float32)
    bound = scale.over(x).bind(x, out)
    x.shape, out.shape = (8, 8), (8, 8)
    bound()
    np.testing.assert_array_equal(out, x * 2)


def test_the_array_that_the_grid_covers_need_not_be_an_argument():
    x, out, like = numbers(64), np.zeros(64, np.float32), np.zeros(8)
    bound = scale.over(like, cube_dim=1).bind(x, out)
    bound()
    assert not out[8:].any()
    like.resize(64, refcheck=False)
    bound()
    np.testing.assert_array_equal(out, x * 2)


def test_a_captured_name_that_changed():
    global SCALE
    x, out = numbers(64), np.zeros(64, np.float32)
    bound = scale.over(out).bind(x, out)
    try:
        for factor in (2.0, 3.0, 2.0):
            SCALE = factor
            bound()
            np.testing.assert_array_equal(out, x * np.float32(factor))
    finally:
        SCALE = 2.0


def test_an_output_that_became_read_only():
    x, out = numbers(64), np.zeros(64, np.float32)
    bound = scale.over(out).bind(x, out)
    out.flags.writeable = False
    with pytest.raises(cp.LaunchError, match="E404"):
        bound()
    assert not out.any()
    out.flags.writeable = True
    bound()
    np.testing.assert_array_equal(out, x * 2)


@pytest.mark.optional("torch")
def test_overlaps_are_looked_for_again():
    torch = require_package("torch")
    held = torch.from_numpy(numbers(200))
    x, out = held[:100], torch.zeros(100)
    bound = scale.over(out).bind(x, out)
    bound()
    out.data = held[50:150]
    with pytest.raises(cp.LaunchError, match="E405"):
        bound()


def test_checked_mode_is_that_of_the_launch():
    x = np.zeros(64, np.float32)
    bound = beyond[1, 63].bind(x, np.zeros(64, np.float32))
    shifted = beyond[1, 64].bind(x, np.zeros(64, np.float32))
    with cp.settings(checked=True):
        bound()
        with pytest.raises(cp.OutOfBoundsError):
            shifted()


def test_nested_arguments_and_numbers():
    x, out = numbers(64), np.zeros(64, np.float32)
    bound = of_pair.over(out).bind(pair=Pair(x, np.float32(3)), out=out)
    for size in (64, 128):
        x.resize(size, refcheck=False)
        out.resize(size, refcheck=False)
        x[:] = numbers(size, size)
        bound()
        np.testing.assert_array_equal(out, x * 3)


def test_nothing_is_prepared_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch):
    from cubepy.jit import kernel

    made: list[Any] = []
    original = kernel.prepare
    monkeypatch.setattr(kernel, "prepare", lambda *a: made.append(a) or original(*a))
    x, out = numbers(64), np.zeros(64, np.float32)
    for kind in (np.asarray, cp.asarray):
        made.clear()
        bound = scale.over(out).bind(kind(x), kind(out))
        for _ in range(3):
            bound()
        assert len(made) == 1


@dataclass
class Given:
    """Arguments whose fields may be assigned between launches."""

    x: Any
    by: Any


@cp.cube
def scale_given(given, out):
    out[0] = given.x[0] * given.by


@cp.cube
def scale_both(pair, out):
    out[0] = pair[0].x[0] * pair[0].by + pair[1]


@pytest.mark.parametrize("is_inside", [False, True])
def test_fields_are_read_again(is_inside: bool):
    given, out = Given(np.full(1, 3.0), 2), np.zeros(1)
    kernel, rest = (scale_both, 1) if is_inside else (scale_given, 0)
    bound = kernel[1, 1].bind((given, 1) if is_inside else given, out)
    for x, by in ((3.0, 2), (3.0, 4), (5.0, 4), (5.0, 0.5), (5.0, np.float32(7)), (1.0, 2)):
        given.x, given.by = np.full(1, x), by
        for _ in range(4):  # native code launches from the third on
            bound()
            assert out[0] == x * by + rest
    given.x[0] = 9.0
    bound()
    assert out[0] == 18 + rest
