"""Host arrays on `configure(device=...)`: copied there and back, and nothing else is touched."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp
from tests.devices.kernels import add, increment, tell_position

LAYOUTS = {
    "plain": lambda a: a,
    "reversed": lambda a: a[::-1, ::-1],
    "columns": lambda a: a[:, ::3],
    "transposed": lambda a: a.T,
    "inner": lambda a: a[2:-1, 1:4],
    "offset": lambda a: a.reshape(-1)[1:],
    "empty": lambda a: a[:0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(device: str, layout: str):
    base = np.random.default_rng(3).normal(size=(9, 12)).astype(np.float32)
    expected = base.copy()
    LAYOUTS[layout](expected)[...] += 1
    part = LAYOUTS[layout](base)
    increment.configure(device=device).over(part)(part)
    np.testing.assert_array_equal(base, expected)


def test_shared_memory_stays_shared(device: str):
    base = np.arange(20, dtype=np.float32)
    add.configure(device=device).over(10)(base[:10], base[10:], base[:10])
    np.testing.assert_array_equal(base[:10], np.arange(10, 30, 2))
    with pytest.raises(cp.LaunchError, match="E405"):
        add.configure(device=device).over(10)(base[:10], base[10:], base[5:15])


def test_unread_scalars_and_arrays_without_elements(device: str):
    x = np.zeros(0, np.float32)
    add.configure(device=device).over(x)(x, x, x)


@pytest.mark.parametrize("count", [(3, 1, 1), (2, 3, 4)])
def test_grids(device: str, count: tuple[int, int, int]):
    cubes = count[0] * count[1] * count[2]
    out = np.full((cubes, 8), -1, np.int64)
    tell_position.configure(device=device)[count, 8](out)
    x, y, z = np.unravel_index(np.arange(cubes), count, order="F")
    np.testing.assert_array_equal(out[:, 0], x + 1000 * y + 1000000 * z)
    assert (out == out[:, :1]).all()


def test_checked_faults_come_back(device: str):
    @cp.cube
    def beyond(x, out):
        i = cp.ABSOLUTE_POS
        out[i] = x[i + 5]

    x, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    with pytest.raises(cp.OutOfBoundsError, match=r"index 6\d .* `x` with extent 64") as caught:
        beyond.configure(device=device, checked=True)[1, 64](x, out)
    assert caught.value.argument == "x" and caught.value.unit[0] == caught.value.index - 5
