"""Fragments: products against float64 with emulated planes, and the text for every target."""

from __future__ import annotations

import numpy as np
import pytest

import cubepy as cp


@cp.cube
def tiled_product(a, b, c):
    i, j = cp.CUBE_POS_Y * 16, cp.CUBE_POS_X * 16
    left = cp.cmma.fragment("a", 16, 16, cp.f16)
    right = cp.cmma.fragment("b", 16, 16, cp.f16)
    total = cp.cmma.fragment("accumulator", 16, 16, cp.f32, fill=0.0)
    for k in range(0, a.shape[1], 16):
        cp.cmma.load(left, a, (i, k))
        cp.cmma.load(right, b, (k, j))
        cp.cmma.mma(total, left, right)
    cp.cmma.store(c, (i, j), total)


@pytest.mark.parametrize("plane_dim", [1, 8])
@pytest.mark.parametrize("shape", [(16, 16, 16), (40, 50, 33), (1, 1, 1)])
def test_product_of_fragments(plane_dim: int, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    rng = np.random.default_rng([plane_dim, *shape])
    a = rng.standard_normal((m, k)).astype(np.float16)
    b = rng.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float32)
    grid = (-(-n // 16), -(-m // 16))
    tiled_product.configure(plane_dim=plane_dim)[grid, plane_dim](a, b, c)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    bound = k * 2.0**-23 * (np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)))
    assert (np.abs(c - expected) <= bound).all()


@cp.cube
def moved(x, out, i: cp.i32, j: cp.i32):
    tile = cp.cmma.fragment("accumulator", 16, 16, cp.f32)
    cp.cmma.load(tile, x, (i, j))
    cp.cmma.store(out, (i, j), tile)


@pytest.mark.parametrize("plane_dim", [1, 8])
@pytest.mark.parametrize(
    "place", [(2**31 - 8, 0), (0, 2**31 - 1), (-(2**31), 4), (4, -17), (-16, 0)]
)
def test_tiles_outside_of_an_array_read_and_write_nothing(
    plane_dim: int, place: tuple[int, int]
) -> None:
    x, out = np.ones((20, 20), np.float32), np.full((20, 20), np.nan, np.float32)
    moved.configure(plane_dim=plane_dim)[1, plane_dim](x, out, *place)
    assert np.isnan(out).all()


@cp.cube
def filled(b, c, weight: cp.i32):
    left = cp.cmma.fragment("a", 16, 32, b.dtype)
    right = cp.cmma.fragment("b", 32, 16, b.dtype)
    total = cp.cmma.fragment("accumulator", 16, 16, c.dtype, fill=1)
    cp.cmma.fill(left, weight)
    cp.cmma.load(right, b, (0, 0))
    cp.cmma.mma(total, left, right)
    cp.cmma.store(c, (0, 0), total)


TARGETS = {
    "cuda:sm_75": (),
    "cuda:sm_80": ("f16", "bf16", "i8", "u8", "f8e4m3"),
    "cuda:sm_90a": ("f16", "bf16", "i8", "u8", "f8e4m3", "f64"),
    "cpu:x86-64-v4": (),
    "cpu:sapphirerapids": ("bf16", "i8", "u8"),
    "metal": ("f16", "bf16", "f32", "f8e4m3"),
    "opencl": (),
    "hip:gfx942": (),
}
"""The types of factors that each target has matrix units for."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "i8", "u8", "i32", "f8e4m3"])
def test_matrix_units(target: str, dtype: str) -> None:
    if target == "metal" and dtype == "f64":
        pytest.skip("Metal has no double")
    sums = {"f64": "f64", "i8": "i32", "u8": "i32", "i32": "i32"}.get(dtype, "f32")
    units = 32 if target.startswith(("cuda", "metal")) else 1 if target.startswith("cpu") else 64
    launcher = filled[1, units]
    text = launcher.inspect(f"{dtype}[?,?]", f"{sums}[?,?]", "i32", target=target)
    used = "mma.sync" in text or "simdgroup_multiply_accumulate" in text or "tdp" in text
    assert used == (dtype in TARGETS[target])


@pytest.mark.parametrize("units", [16, 48])
def test_planes_with_missing_units_have_no_matrix_units(units: int) -> None:
    text = ["f16[?,?]", "f32[?,?]", "i32"]
    if units == 48:
        with pytest.raises(cp.CompileError, match="E113.*units missing: the cube has 48"):
            filled[1, units].inspect(*text, target="cuda:sm_90a")
    else:
        assert "mma.sync" not in filled[1, units].inspect(*text, target="cuda:sm_90a")


@cp.cube
def of_columns(b, c, column: cp.Comptime[int]):
    kept = cp.shared((2, 16, 40), cp.f16)
    for e in range(cp.UNIT_POS, kept.size, cp.CUBE_DIM):
        kept.flat[e] = b.flat[e]
    cp.sync_cube()
    tile = kept[1][:, column:]
    left, right = (cp.cmma.fragment(use, 16, 16, cp.f16) for use in ("a", "b"))
    total = cp.cmma.fragment("accumulator", 16, 16, cp.f32, fill=0)
    cp.cmma.load(left, tile, (0, 0))
    cp.cmma.load(right, tile, (0, 8))
    cp.cmma.mma(total, left, right)
    cp.cmma.store(c, (0, 0), total)


@pytest.mark.parametrize("column", [0, 4, 7, 8])
def test_ldmatrix_loads_what_begins_at_whole_lines_of_shared_memory(column: int) -> None:
    text = of_columns[1, 32].inspect("f16[?,?,?]", "f32[?,?]", column, target="cuda:sm_80")
    loads = text[text.index("cp.cmma.load(left") :]
    assert loads.count("= ldmatrix") == (2 if column % 8 == 0 else 0)
    assert "__all_sync" not in loads


@cp.cube
def of_swizzled_rows(b, c):
    kept = cp.shared((2, 64, 64), cp.f16)
    for e in range(cp.UNIT_POS, kept.size, cp.CUBE_DIM):
        kept.flat[e] = b.flat[e]
    cp.sync_cube()
    left, right = (cp.cmma.fragment(use, 16, 16, cp.f16) for use in ("a", "b"))
    total = cp.cmma.fragment("accumulator", 16, 16, cp.f32, fill=0)
    cp.cmma.load(left, kept[1], (16, 0), 128)
    cp.cmma.load(right, kept[1], (0, 48), 128)
    cp.cmma.mma(total, left, right)
    cp.cmma.store(c, (0, 0), total)


def test_ldmatrix_loads_swizzled_rows() -> None:
    text = of_swizzled_rows[1, 32].inspect("f16[?,?,?]", "f32[?,?]", target="cuda:sm_80")
    loads = text[text.index("cp.cmma.load(left") :]
    assert loads.count("= ldmatrix") == 2
    assert "__all_sync" not in loads


def test_checked_kernels_load_swizzled_rows_without_a_fault() -> None:
    """Matrices to the right were counted from their own column, which others come before."""
    checked = of_swizzled_rows.configure(checked=True)[1, 32]
    text = checked.inspect("f16[?,?,?]", "f32[?,?]", target="cuda:sm_80")
    loads = text[text.index("cp.cmma.load(left") : text.index("cp.cmma.mma")]
    assert loads.count("= ldmatrix") == 2
    assert "note_fault" not in loads


@cp.cube
def into_swizzled_rows(c, column: cp.Comptime[int]):
    total = cp.cmma.fragment("accumulator", 16, 16, cp.f32, fill=0)
    kept = cp.shared((16, 32), cp.f32)
    cp.cmma.store(kept, (0, column), total, 128)
    cp.sync_cube()
    c[cp.UNIT_POS] = kept.flat[cp.UNIT_POS]


@pytest.mark.parametrize("column, pairs", [(0, 4), (15, 0), (16, 4)])
def test_swizzled_rows_take_pairs_where_these_stay_together(column: int, pairs: int) -> None:
    """Columns 3 and 4 of f32 do not: they are in two spans of 16 bytes."""
    text = into_swizzled_rows[1, 32].inspect("f32[?]", column, target="cuda:sm_80")
    stores = text[text.index("cp.cmma.store(kept") : text.index("cp.sync_cube")]
    assert stores.count("store_f32x2(") == pairs
    assert stores.count("] = held") == 8 - 2 * pairs
