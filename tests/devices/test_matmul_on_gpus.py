"""`cp.kernels.matmul` on a GPU of NVIDIA by asynchronous copies, against NumPy in f64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.kernels.matmul import aligned, entry, grids

EXTENTS = [
    (1, 1, 1),
    (130, 264, 8),
    (257, 65, 1000),
    (511, 300, 77),
    (1, 700, 4096),
    (64, 64, 8192),
]


def product(
    device: str, extents: tuple[int, int, int], layout: str, dtype: Any, precision: str | None
) -> None:
    """A product with a bias."""
    m, n, k = extents
    rng = np.random.default_rng()
    a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    bias = rng.standard_normal(n).astype(dtype)
    x, y = view(device, a, layout[0] == "T"), view(device, b, layout[1] == "T")
    out = cp.asarray(np.full((m, n), np.nan, dtype), device=device)
    given = cp.asarray(bias, device=device)
    cp.kernels.matmul(x, y, bias=given, precision=precision, out=out)
    wide_type = np.longdouble if dtype == "f8" else np.float64
    found, wide = out.numpy().astype(wide_type), [v.astype(wide_type) for v in (a, b, bias)]
    exact = wide[0] @ wide[1] + wide[2]
    largest = abs(wide[0]) @ abs(wide[1]) + abs(wide[2])
    unit = 2.0**-9 if precision == "tf32" else 2.0**-53 if dtype == "f8" else 2.0**-22
    bound = ((k + 2) * unit if unit < 2.0**-9 else unit) * largest
    assert (abs(found - exact) <= bound + np.finfo(dtype).eps * abs(exact)).all()


def view(device: str, x: np.ndarray, is_transposed: bool) -> Any:
    """The same matrix on a device; the columns of a transposed one are dense."""
    kept = cp.asarray(np.ascontiguousarray(x.T if is_transposed else x), device=device)
    if not is_transposed:
        return kept
    memory = type(kept).__cubepy_memory__(kept)
    return type(kept)(replace(memory, shape=memory.shape[::-1], strides=memory.strides[::-1]))


@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_f32(cuda: str, extents: tuple[int, int, int], layout: str):
    product(cuda, extents, layout, "f4", None)


@pytest.mark.parametrize("layout", ["NN", "TT"])
@pytest.mark.parametrize(("dtype", "precision"), [("f8", None), ("f2", "exact"), ("f4", "tf32")])
def test_other_kinds(cuda: str, layout: str, dtype: str, precision: str | None):
    product(cuda, (257, 65, 1000), layout, dtype, precision)


@pytest.mark.parametrize("extents", [(1, 1, 1), (131, 77, 45), (130, 66, 34), (128, 256, 192)])
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_f16_by_tensor_cores(cuda: str, extents: tuple[int, int, int], layout: str):
    product(cuda, extents, layout, "f2", None)


@pytest.mark.parametrize(
    "extents", [(1, 1, 1), (131, 77, 45), (130, 66, 34), (128, 256, 192), (300, 1000, 17)]
)
@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_f64_by_tensor_cores(cuda: str, extents: tuple[int, int, int], layout: str):
    product(cuda, extents, layout, "f8", None)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("is_square", [False, True])
def test_every_tile_of_f64(
    cuda: str, is_square: bool, layout: str, monkeypatch: pytest.MonkeyPatch
):
    """Also by products of 8 rows, as GPUs before Hopper have them alone."""
    if cp.device(cuda).target.version < grids.TENSOR_CORES_SINCE:
        pytest.skip("no tensor cores that take f64")
    for shape in grids.DOUBLES:
        monkeypatch.setattr(grids, "DOUBLES", (shape,))
        monkeypatch.setattr(grids, "TALL_SINCE", 1000 if is_square else grids.TALL_SINCE)
        monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
        product(cuda, (261, 131, 83), layout, "f8", None)
        product(cuda, (130, 264, 96), layout, "f8", None)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_factors_that_are_transposed_first(cuda: str, layout: str, monkeypatch: pytest.MonkeyPatch):
    for name in ("TURNED_ROWS", "TURNED_COLUMNS", "COPIED", "COPIED_WORK"):
        monkeypatch.setattr(grids, name, 1)
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
    for extents in ((130, 264, 8), (257, 65, 1000), (511, 300, 77), (300, 200, 1)):
        product(cuda, extents, layout, "f4", None)
    product(cuda, (257, 65, 100), layout, "f8", None)


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize("extents", [(201, 163, 77), (64, 130, 101), (130, 64, 33)])
def test_tf32_of_copies(
    cuda: str, extents: tuple[int, int, int], layout: str, monkeypatch: pytest.MonkeyPatch
):
    """Factors that are not dense along k, and rows that boxes cannot describe."""
    monkeypatch.setattr(aligned, "LEAST", 1)
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
    product(cuda, extents, layout, "f4", "tf32")


def test_i8_by_tensor_cores(cuda: str):
    rng = np.random.default_rng()
    for m, n, k in ((64, 48, 96), (65, 47, 33)):
        a, b = rng.integers(-128, 128, (m, k), "i1"), rng.integers(-128, 128, (k, n), "i1")
        found = cp.kernels.matmul(cp.asarray(a, device=cuda), cp.asarray(b, device=cuda)).numpy()
        np.testing.assert_array_equal(found, a.astype("i4") @ b.astype("i4"))
