"""Sizes at and beyond 32 bits, on devices with narrow and with wide indices.

Large arrays are mapped and never filled, so that they take no memory.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.core import NARROW_LIMIT, UNLIMITED
from cubepy.jit.classes import is_small
from cubepy.targets import CHECKED_LIMIT

DEVICES = ("cpu", "pocl", "metal_text")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, require_text_device: Any) -> str:
    if request.param != "cpu":
        require_text_device(request.param)
    return request.param


def huge(elements: int, dtype: type = np.uint8) -> np.ndarray:
    """Zeros of which only touched pages exist."""
    nbytes = elements * np.dtype(dtype).itemsize
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=flags), dtype)


@cp.cube
def copy_from(x: cp.Tensor[cp.u8], places: cp.Tensor[cp.i64], out: cp.Tensor[cp.u8]):
    i = cp.ABSOLUTE_POS
    if i < places.size:
        out[i] = x[places[i]]


@cp.cube
def write_to(x: cp.Tensor[cp.u8], places: cp.Tensor[cp.i64]):
    i = cp.ABSOLUTE_POS
    if i < places.size:
        x[places[i]] = cp.u8(i + 1)


@cp.cube
def last_ones(x: cp.Tensor[cp.u8], out: cp.Tensor[cp.i64]):
    """Arithmetic at the edge of the extent."""
    i = cp.ABSOLUTE_POS
    n = x.shape[0]
    if i < out.size:
        p = n - 1 - i
        right = 1 if p + 1 < n else 0
        out[i] = (p + 1) * 10 + right + p // 7 + p % 7 + x[p]


@cp.cube
def corners(x: cp.Tensor[cp.u8], out: cp.Tensor[cp.u8]):
    """Row i and column j of a view, for all i and j."""
    p = cp.ABSOLUTE_POS
    h, w = x.shape
    if p < h * w:
        out.flat[p] = x[p // w, p % w]


LENGTHS = (
    NARROW_LIMIT - 1,
    NARROW_LIMIT,
    NARROW_LIMIT + 1,
    2**31 - 1,
    2**31,
    2**31 + 1,
    2**32 - 1,
    2**32,
    2**32 + 1,
    3 * 2**32 + 5,
)


@pytest.mark.parametrize("n", LENGTHS)
def test_large_offsets_are_read_and_written(device: str, n: int) -> None:
    x = huge(n)
    places = np.unique([p % n for p in (0, 1, n // 2, n - 2, n - 1, 2**31 - 1, 2**31, 2**32)])
    write_to.configure(device=device).over(places)(x, places)
    assert x[places].tolist() == list(range(1, len(places) + 1))
    out = np.zeros(len(places), np.uint8)
    copy_from.configure(device=device).over(places)(x, places, out)
    assert out.tolist() == list(range(1, len(places) + 1))


@pytest.mark.parametrize("n", [1, 5, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**32 + 1])
def test_edges_of_large_extents(device: str, n: int) -> None:
    x = np.broadcast_to(np.full(1, 3, np.uint8), (n,))
    out = np.zeros(min(n, 40), np.int64)
    last_ones.configure(device=device).over(out)(x, out)
    p = n - 1 - np.arange(len(out))
    assert out.tolist() == ((p + 1) * 10 + (p + 1 < n) + p // 7 + p % 7 + 3).tolist()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("step", [2**26, 2**27, 2**28 + 1, 2**29 + 3])
def test_views_with_large_strides(device: str, step: int, reverse: bool) -> None:
    base = huge(step * 12 + 64)
    view = np.lib.stride_tricks.as_strided(base, (12, 5), (step, 3))
    want = np.arange(60, dtype=np.uint8).reshape(12, 5)
    view[...] = want
    if reverse:
        view, want = view[::-1, ::-1], want[::-1, ::-1]
    out = np.zeros((12, 5), np.uint8)
    corners.configure(device=device).over(60)(view, out)
    assert out.tolist() == want.tolist()
    view[...] = 0
    corners.configure(device=device).over(60)(out, view)
    assert view.tolist() == want.tolist()


@cp.cube
def with_width(x: cp.Tensor[cp.i64], out: cp.Tensor[cp.i64], w: int, k: int):
    p = cp.ABSOLUTE_POS
    if p < out.size:
        out[p] = (p // w) * 1000 + p % w + k * p + (p + k) // 3


WIDTHS = (1, 2, 3, 64, 100, 2**30, 2**30 + 1, 2**31, 2**40, -1, -3, -(2**33), 0)


@pytest.mark.parametrize("k", [0, 5, -5, 2**30, 2**31, -(2**31) - 1, 2**40])
def test_numbers_of_any_size_on_one_kernel(device: str, k: int) -> None:
    kernel, out = with_width.configure(device=device), np.zeros(300, np.int64)
    p = np.arange(300)
    for w in WIDTHS:
        quotient, rest = (p // w, p % w) if w else (0 * p, 0 * p)
        for _ in range(2):  # the second call takes the short way
            out[:] = 0
            kernel.over(out)(out, out, w, k)
            assert out.tolist() == (quotient * 1000 + rest + k * p + (p + k) // 3).tolist(), w


def signature_of(kernel: Any, compiled: list[Any], grid: Any, *args: Any) -> Any:
    compiled.clear()
    kernel[grid](*args)
    return compiled[-1]


def test_each_launch_states_what_it_promises(compiled: list[Any], require_text_device: Any) -> None:
    require_text_device("pocl")
    out = np.zeros(8, np.int64)

    def promise(grid: Any, x: np.ndarray, w: int, device: str) -> Any:
        kernel = cp.cube(with_width.function).configure(device=device)
        return signature_of(kernel, compiled, grid, x, out, w, 1)

    small, large = np.zeros(8, np.int64), np.broadcast_to(np.int64(0), (2**31,))
    assert promise((1, 8), small, 3, "pocl").limit == NARROW_LIMIT
    assert promise((1, 8), small, 3, "cpu").limit == NARROW_LIMIT
    assert promise((1, 8), large, 3, "pocl").limit == CHECKED_LIMIT
    vast = np.broadcast_to(np.int64(0), (2**50,))
    assert promise((1, 8), vast, 3, "cpu").limit == UNLIMITED
    assert promise((1, 8), small, 3, "pocl").small == {"w", "k"}
    assert promise((1, 8), small, -3, "pocl").small == {"k"}
    assert promise((1, 8), small, 2**40, "pocl").small == {"k"}
    assert promise((1, 8), small, 3, "cpu").flat
    assert not promise(((1, 2, 1), 8), small, 3, "cpu").flat


def test_grids_of_many_units_are_not_narrow(compiled: list[Any]) -> None:
    """No unit beyond the guard does anything, so that the loop ends at once."""
    out = np.zeros(8, np.int64)
    kernel = cp.cube(with_width.function)
    found = signature_of(kernel, compiled, (2**42, 256), out, out, 3, 1)
    assert found.limit == UNLIMITED
    p = np.arange(8)
    assert out.tolist() == (p // 3 * 1000 + p % 3 + p + (p + 1) // 3).tolist()


def test_empty_grids_and_extents(device: str) -> None:
    out = np.zeros((3, 0), np.uint8)
    corners.configure(device=device)[4, 8](np.zeros((3, 0), np.uint8), out)
    kept = np.zeros((2, 2), np.uint8)
    corners.configure(device=device)[0, 8](np.ones((2, 2), np.uint8), kept)
    assert not kept.any()


def test_small_numbers() -> None:
    assert is_small(0) and is_small(NARROW_LIMIT)
    assert not is_small(NARROW_LIMIT + 1) and not is_small(-1)
