"""Extents that constant indices imply, and arrays that are otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.parser import parse_kernel
from cubepy.passes.guess_extents import guess_extents


@cp.cube
def norms(p: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.size:
        o[i] = p[i, 0] * p[i, 0] + p[i, 1] * p[i, 1] + p[i, 2] * p[i, 2]


@pytest.mark.parametrize("columns", [3, 4, 5, 9])
@pytest.mark.parametrize("way", [{}, {"vectorise": True}, {"checked": True}], ids=str)
def test_rows_of_points(columns: int, way: dict[str, Any]):
    p = np.random.default_rng().standard_normal((501, columns)).astype(np.float32)
    o = np.full(501, np.nan, np.float32)
    norms.configure(**way).over(o)(p, o)
    assert np.allclose(o, (p[:, :3].astype(np.float64) ** 2).sum(1), rtol=1e-6)


@cp.cube
def gray(x: Any, o: Any):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < o.shape[0] and j < o.shape[1]:
        red, green, blue = cp.u32(x[i, j, 0]), cp.u32(x[i, j, 1]), cp.u32(x[i, j, 2])
        o[i, j] = cp.u8((red * 77 + green * 150 + blue * 29) >> 8)


@pytest.mark.parametrize("shape", [(37, 53, 3), (37, 53, 4), (1, 1, 3), (0, 5, 3)], ids=str)
def test_images(shape: tuple[int, int, int]):
    x = np.random.default_rng().integers(0, 256, shape).astype(np.uint8)
    o = np.full(shape[:2], 7, np.uint8)
    gray.over(o)(x, o)
    assert (o == ((x[..., :3].astype(np.uint32) @ [77, 150, 29]) >> 8)).all()


@cp.cube
def products(a: Any, b: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < o.shape[0]:
        for r in cp.unroll(range(2)):
            for c in cp.unroll(range(2)):
                o[i, r, c] = a[i, r, 0] * b[i, 0, c] + a[i, r, 1] * b[i, 1, c]


@pytest.mark.parametrize(
    "shapes", [(2, 2, 2, 2), (2, 3, 2, 2), (3, 2, 2, 5), (2, 2, 4, 2)], ids=str
)
def test_matrices(shapes: tuple[int, int, int, int]):
    rng = np.random.default_rng()
    h, w, rows, columns = shapes
    a, b = rng.standard_normal((100, h, w)), rng.standard_normal((100, rows, columns))
    o = np.full((100, 2, 2), np.nan)
    products.over(100)(a, b, o)
    assert np.allclose(o, a[:, :2, :2] @ b[:, :2, :2])


@cp.cube
def conjugates(x: Any, o: Any):
    i = cp.ABSOLUTE_POS
    if i < x.shape[0]:
        o[i, 0], o[i, o.shape[1] - 1] = x[i, 0], -x[i, 1]


def test_the_last_place_from_the_end():
    x = np.random.default_rng().standard_normal((70, 2))
    o = np.zeros_like(x)
    conjugates.over(70)(x, o)
    assert (o == x * [1, -1]).all()


@pytest.mark.parametrize(("kernel", "shape"), [(norms, (4096, 3)), (gray, (64, 64, 3))])
def test_rows_are_shuffled(kernel: Any, shape: tuple[int, ...]):
    """Loads of one column each would be gathers, or single ones."""
    x = np.ones(shape, np.float32 if kernel is norms else np.uint8)
    o = np.ones(shape[:-1], x.dtype)
    text = kernel.over(o).inspect(x, o, target="cpu:x86-64-v4", stage="llvm")
    assert "shufflevector" in text


HEAD = """
kernel @k(%x: buffer<f32, global> = data x {rank = 2, linear = true, unit_axis = 1},
          %x_shape1: index = shape x 1) cube_dim 256 1 1 plane_dim 1 {
  %i = absolute_pos {axis = 'all'} : index
  %row = mul %i, %x_shape1 : index
  %two = const {type = index, value = 2} : index
"""
TAIL = """
  %v = load %x, %place {type = f32} : f32
  store %x, %row, %v
  return
}
"""


def test_what_is_guessed():
    guessed = guess_extents(parse_kernel(f"{HEAD} %place = add %row, %two : index {TAIL}"))
    assert guessed is not None
    assert [(v.name, n) for v, n in guessed.extents] == [("x_shape1", 3)]


def test_neighbours_say_nothing():
    place = "%j = add %row, %i : index\n %place = add %j, %two : index"
    assert guess_extents(parse_kernel(f"{HEAD} {place} {TAIL}")) is None


@cp.cube
def rotate(x: Any, angles: Any, o: Any):
    i = cp.ABSOLUTE_POS
    half = angles.shape[1]
    if i < o.size // 2:
        p, h, k = i // (x.shape[1] * half), i // half % x.shape[1], i % half
        a, b = x[p, h, k], x[p, h, k + half]
        o[p, h, k] = a * angles[p, k] - b
        o[p, h, k + half] = a + b * angles[p, k]


@pytest.mark.parametrize("half", [1, 2, 5, 64])
def test_an_extent_that_is_added_to_indices_of_another_array(half: int):
    rng = np.random.default_rng()
    x, angles = rng.standard_normal((7, 3, 2 * half)), rng.standard_normal((7, half))
    o = np.full_like(x, np.nan)
    rotate.over(o.size // 2)(x, angles, o)
    a, b, c = x[..., :half], x[..., half:], angles[:, None]
    assert np.allclose(o, np.concatenate([a * c - b, a + b * c], -1))
