"""Minima and maxima of floats on CPUs: zeros and NaN, by their signs, and what LLVM is left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.runtimes.cpu.device import cpu_device
from cubepy.targets import host_target

SPECIAL = (0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.0, 6e-8, -6e-8, 3.5, -65504.0)
TARGETS = ("cpu:x86-64", "cpu:x86-64-v3", "cpu:x86-64-v4")
DTYPES = ("f2", "f4", "f8")


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of special numbers, then random ones."""
    x = np.array(SPECIAL, dtype)
    random = np.random.default_rng().standard_normal((2, 48)).astype(dtype)
    a, b = (np.concatenate((v, r)) for v, r in zip((x.repeat(12), np.tile(x, 12)), random))
    return a, b


def exact(a: Any, b: Any, largest: bool) -> np.ndarray:
    """NaN if an operand is; of equal numbers the one with a sign is less."""
    first_is_less = (a < b) | ((a == b) & np.signbit(a))
    found = np.where(first_is_less, *((b, a) if largest else (a, b)))
    return np.where(np.isnan(a) | np.isnan(b), np.array(np.nan, found.dtype), found)


def check(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found, expected)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found)[is_number], np.signbit(expected)[is_number])


@cp.cube
def scalars(a, b, low, high):
    p = cp.ABSOLUTE_POS
    if p < a.shape[0]:
        low[p] = min(a[p], b[p])
        high[p] = max(a[p], b[p])


@cp.cube
def lines(a: cp.Lines, b: cp.Lines, low: cp.Lines, high: cp.Lines):
    p = cp.ABSOLUTE_POS
    if p < a.shape[0]:
        low[p] = cp.minimum(a[p], b[p])
        high[p] = cp.maximum(a[p], b[p])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vectorise", [False, True])
def test_scalars(dtype: str, vectorise: bool):
    a, b = pairs(dtype)
    low, high = np.full_like(a, 7), np.full_like(a, 7)
    scalars.configure(vectorise=vectorise).over(a.size)(a, b, low, high)
    check(low, exact(a, b, False))
    check(high, exact(a, b, True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("line", [1, 2, 4, 8, 16, 32])
def test_lines(dtype: str, line: int):
    a, b = pairs(dtype)
    low, high = np.full_like(a, 7), np.full_like(a, 7)
    lines.configure(line_size=line).over(a.size // line)(a, b, low, high)
    check(low, exact(a, b, False))
    check(high, exact(a, b, True))


@cp.cube
def beside(a, low, high, by: cp.Comptime[float], is_first: cp.Comptime[bool]):
    p = cp.ABSOLUTE_POS
    if p < a.shape[0]:
        low[p] = min(by, a[p]) if is_first else min(a[p], by)
        high[p] = max(by, a[p]) if is_first else max(a[p], by)


@pytest.mark.parametrize("by", SPECIAL[:3] + (1.0, -1.0, np.inf))
@pytest.mark.parametrize("dtype", ["f2", "f4"])
@pytest.mark.parametrize("is_first", [False, True])
def test_constants(by: float, dtype: str, is_first: bool):
    a, _ = pairs(dtype)
    low, high = np.full_like(a, 7), np.full_like(a, 7)
    beside.over(a.size)(a, low, high, by, is_first)
    number = np.full_like(a, by)
    check(low, exact(a, number, False))
    check(high, exact(a, number, True))


@cp.cube
def of_lanes(a, low, high, width: cp.Comptime[int]):
    p = cp.ABSOLUTE_POS
    if p < low.shape[0]:
        v = cp.load(a, p * width, line=width)
        low[p] = v.min()
        high[p] = v.max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [2, 3, 4, 6, 16])
def test_lanes(dtype: str, width: int):
    a = np.random.default_rng().choice(np.array(SPECIAL, dtype), (200, width))
    low, high = np.full(200, 7, dtype), np.full(200, 7, dtype)
    of_lanes.over(200)(a.reshape(-1), low, high, width)
    for found, largest in ((low, False), (high, True)):
        expected = a[:, 0]
        for lane in a.T[1:]:
            expected = exact(expected, lane, largest)
        check(found, expected)


@cp.cube
def plain(x, out):
    most = cp.f32(-9)
    for i in range(x.shape[0]):
        most = max(most, x[i])
    out[0] = most


@cp.cube
def chosen(x, out):
    most = cp.f32(-9)
    for i in range(x.shape[0]):
        if x[i] < 2:
            most = max(max(x[i], most), x[i] * 0.5)
    out[0] = most


@cp.cube
def stored(x, out):
    most = cp.f32(-9)
    for i in range(x.shape[0]):
        most = max(most, x[i])
        out[i] = most


@cp.cube
def moved(x, out):
    most = cp.f32(-9)
    for i in range(x.shape[0]):
        most = max(most, x[i]) * 0.5
    out[0] = most


@cp.cube
def both(x, out):
    most = cp.f32(-9)
    for i in range(x.shape[0]):
        most = min(max(most, x[i]), x[i] + 1)
    out[0] = most


@cp.cube
def left(x, out):
    most = cp.f32(-9)
    for i in range(x.shape[0]):
        if x[i] > 2:
            break
        most = max(most, x[i])
    out[0] = most


@cp.cube
def crossed(x, out):
    most = cp.f32(-9)
    other = cp.f32(9)
    for i in range(x.shape[0]):
        if x[i] > 0.5:
            most, other = max(most, x[i]), most
        else:
            other = x[i]
    out[0] = most
    out[1] = other


@cp.cube
def pairs_of(x, out):
    most = cp.f32(-9)
    least = cp.f32(9)
    for i in range(x.shape[0] // 2):
        most = max(max(most, x[2 * i]), x[2 * i + 1])
        least = min(min(x[2 * i], x[2 * i + 1]), least)
    out[0] = most
    out[1] = least


@cp.cube
def masked(x, out):
    most, least = cp.f32(-np.inf), cp.f32(9)
    for i in range(x.shape[0]):
        if x[i] < 1:
            most = max(x[i], most)
        if x[i] > -1:
            least = min(least, x[i])
    out[0] = most
    out[1] = least


@cp.cube
def before(x, out):
    """A branch that joins with what another iteration read."""
    last, most = cp.f32(-9), cp.f32(-9)
    for i in range(x.shape[0]):
        if x[i] < 1:
            most = max(last, x[i])
        else:
            most = last
        last = x[i]
        out[i] = most


FOLDS = {
    pairs_of: True,
    masked: True,
    before: False,
    plain: True,
    chosen: True,
    stored: False,
    moved: False,
    both: False,
    left: False,
    crossed: False,
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", FOLDS, ids=lambda k: k.__name__)
def test_what_llvm_makes_lines_of(kernel: Any, target: str):
    text = kernel[1, 1].inspect("f32[301]", "f32[301]", target=target, stage="llvm")
    assert ("@llvm.maximum" in text) is FOLDS[kernel]


@pytest.mark.parametrize("kernel", [plain, chosen, pairs_of, masked], ids=lambda k: k.__name__)
@pytest.mark.parametrize("target", TARGETS)
def test_folds_become_lines(kernel: Any, target: str):
    remarks = kernel[1, 1].inspect("f32[301]", "f32[301]", target=target, stage="remarks")
    assert "vectorised no loop" not in remarks


@pytest.mark.parametrize("kernel", FOLDS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("scale", [0, 1, 4, 9])
def test_folds(kernel: Any, scale: int):
    rng = np.random.default_rng()
    x = (rng.standard_normal(301) * scale).astype("f4")
    if scale == 9:
        x = rng.choice(np.array([*SPECIAL[3:8], 0.0, -0.0], "f4"), 301)
    out, expected = np.zeros(301, "f4"), np.zeros(301, "f4")
    kernel[1, 1](x, out)
    kernel.configure(device="interpreter")[1, 1](x, expected)
    check(out, expected)


def test_hosts_have_the_family_of_their_features():
    for feature, family in (("sse2", "x86-64"), ("neon", "aarch64")):
        assert host_target("unknown", "", frozenset([feature]), (0, 0), 1).family == family
    own = cpu_device().target
    text = scalars[1, 64].inspect(*["f32[64]"] * 4, stage="llvm")
    assert own.family and ("@llvm.maximum" in text) == (own.family != "x86-64")


@pytest.mark.parametrize("target", ["cpu:apple-m1", "cpu:neoverse-n1"])
def test_processors_with_an_instruction_keep_it(target: str):
    text = scalars[1, 64].inspect(*["f32[64]"] * 4, target=target, stage="llvm")
    assert "@llvm.maximum" in text and "@llvm.minimum" in text
