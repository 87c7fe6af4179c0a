"""Permutations of axes and choices between arrays, against NumPy's and torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.kernels.calls.inspection import record
from cubepy.lang.annotations import spec
from cubepy.targets import cuda_target
from tests.guarded import Guarded


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i1", "?"])
def test_any_permutation_and_strides(draw: Any, dtype: str):
    for _ in range(12):
        rank = draw.pick.randint(0, 4)
        shape = tuple(draw.pick.choice((1, 2, 3, 16, 19, 70)) for _ in range(rank))
        x = draw.layout(draw.array(shape, dtype, specials=True))
        axes = draw.pick.choice((None, tuple(draw.pick.sample(range(rank), rank))))
        found = kernels.transpose(x, axes)
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, x.transpose(axes))


@pytest.mark.parametrize("shape", [(130, 257), (64, 64), (3, 200), (200, 3), (1000, 16)])
def test_blocks_and_their_edges_stay_inside(draw: Any, shape: tuple[int, int]):
    x = draw.numbers.standard_normal(shape).astype(np.float32)
    out = Guarded(shape[::-1], np.float32, offset=draw.pick.randrange(16))
    assert kernels.transpose(x, out=out.array) is out.array
    out.check(x.T)


def test_bits_are_kept():
    x = np.arange(6, dtype=np.uint32).reshape(2, 3) + np.uint32(0x7FA00000)
    assert np.array_equal(kernels.transpose(x.view(np.float32)).view(np.uint32), x.T)


def test_transpose_refuses(draw: Any):
    x = draw.array((3, 4), "f4")
    assert kernels.transpose(x[:0]).shape == (4, 0)
    for axes, match in (((0,), "2 axes"), ((0, 0), "twice"), ((0, 2), "out of bounds")):
        with pytest.raises(LaunchError, match=match):
            kernels.transpose(x, axes)
    square = draw.array((4, 4), "f4")
    with pytest.raises(LaunchError, match="overlaps"):
        kernels.transpose(square, out=square)
    with pytest.raises(LaunchTypeError, match="`x` is a list"):
        kernels.transpose([[1]])


@pytest.mark.parametrize("kinds", ["f4 f8", "i1 u1", "i4 f4", "f2 f2", "? i8"])
def test_where_broadcasts_and_promotes(draw: Any, kinds: str):
    one, two = kinds.split()
    c, a, b = draw.array((5, 1, 70), "?"), draw.array((3, 70), one), draw.array((5, 1, 1), two)
    for args in ((c, a, b), (c, draw.layout(a), 1), (b, 0, a), (c, a, np.float64(2))):
        found, expected = kernels.where(*args), np.where(*args)
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_where_in_place_and_without_axes(draw: Any):
    x = draw.array((6, 70), "f4")
    expected = np.maximum(x, 0)
    assert kernels.where(x > 0, x, 0, out=x) is x
    np.testing.assert_array_equal(x, expected)
    assert kernels.where(True, np.array(3), 4) == 3
    assert kernels.where(np.zeros(0, bool), 1, 2).dtype == np.int64


def test_where_refuses(draw: Any):
    x = draw.array((4, 5), "i1")
    with pytest.raises(LaunchError, match=r"`b` is 300, which does not fit i8"):
        kernels.where(x, x, 300)
    with pytest.raises(LaunchError, match=r"\(4, 5\), \(4,\), \(\) do not broadcast"):
        kernels.where(x, x[:, 0], 1)
    with pytest.raises(LaunchTypeError, match="so are the others"):
        kernels.where(True, 1, 2)


@pytest.mark.optional("torch")
def test_tensors_of_torch(draw: Any):
    import torch

    x = torch.from_numpy(draw.array((5, 40), "f4")).to(torch.bfloat16)
    assert torch.equal(kernels.transpose(x), x.T)
    k = torch.arange(40)
    wide = torch.tensor(2.5, dtype=torch.float64)  # without axes it counts less, as in torch
    for a, b in ((x, k), (k, 1.5), (x, x.float()), (x, wide), (wide, k), (wide, wide)):
        found, expected = kernels.where(x > 0, a, b), torch.where(x > 0, a, b)
        assert found.dtype is expected.dtype
        assert torch.equal(found, expected)


@pytest.mark.parametrize("shape", [(3, 100000), (100000, 8), (9, 100000), (512, 9), (70, 31)])
def test_blocks_have_all_of_few_rows_or_columns(shape: tuple[int, int]):
    given = {"x": spec(f"u16[{shape[0]},{shape[1]}]")}
    (launch,) = record(kernels.transpose, given, {}, cuda_target("sm_90a"))
    tiling = launch.arguments["tiling"]
    assert min(tiling.band, tiling.columns) == min(shape)
    assert 1024 <= tiling.band * tiling.columns <= 4096 + 32 * min(shape)
