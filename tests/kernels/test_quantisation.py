"""`quantize` and `dequantize` against NumPy in f64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError
from tests.guarded import Guarded

ENDS = {"int8": (-128, 127), "uint8": (0, 255), "int4": (-8, 7), "uint4": (0, 15)}


def spread(scale: np.ndarray, x: np.ndarray, axis: int | None, block: int | None) -> np.ndarray:
    """Scales as an array like `x`."""
    if axis is None:
        return np.broadcast_to(scale, x.shape)
    if block is None:
        return np.broadcast_to(
            scale.reshape([-1 if k == axis else 1 for k in range(x.ndim)]), x.shape
        )
    return np.repeat(scale, block, axis)


def expected(x: np.ndarray, scale: Any, zero: Any, dtype: str) -> np.ndarray:
    low, high = ENDS[dtype]
    return np.clip(np.rint(x / scale).astype("f8") + zero, low, high)


def packed(q: np.ndarray) -> np.ndarray:
    """Nibbles, two to a byte along the last axis."""
    bits = q.astype("i8") & 15
    if bits.shape[-1] % 2:
        bits = np.concatenate([bits, np.zeros_like(bits[..., :1])], -1)
    return (bits[..., ::2] | bits[..., 1::2] << 4).astype("u1")


CASES = (
    ((5, 70), None, None),
    ((3, 4, 37), 1, None),
    ((6, 33), -1, None),
    ((4, 64), 1, 16),
    ((8, 21), 0, 4),
    ((0, 6), 1, None),
)
"""Shapes, axes of scales, and blocks along them."""


@pytest.mark.parametrize("dtype", ENDS)
def test_scales_of_all_channels_and_blocks(draw: Any, dtype: str):
    for shape, axis, block in draw.pick.sample(CASES, 3):
        x = draw.layout((draw.numbers.standard_normal(shape) * 9).astype("f4"))
        which = None if axis is None else axis % x.ndim
        extents: tuple[int, ...] = ()
        if which is not None:
            extents = (shape[which],)
            if block:
                extents = tuple(n // block if k == which else n for k, n in enumerate(shape))
        scale = draw.numbers.uniform(0.3, 2, extents).astype("f4")
        zero = draw.numbers.integers(0, 8, extents).astype("i4")
        wide, shift = (spread(np.asarray(v), x, which, block) for v in (scale, zero))
        z = draw.pick.choice((None, zero))
        shift = 0 if z is None else shift
        q = expected(x, wide, shift, dtype)
        found = kernels.quantize(x, scale, z, dtype, axis, block)
        how: dict[str, Any] = {"axis": axis, "block_size": block}
        stored = q.astype("i8").astype(dtype if "8" in dtype else "i8")
        if "4" in dtype:
            stored, how = packed(q), how | {"packed": dtype, "size": shape[-1]}
        assert found.dtype == stored.dtype
        np.testing.assert_array_equal(found, stored)
        back = kernels.dequantize(found, scale, z, **how)
        np.testing.assert_array_equal(back, ((q - shift) * wide).astype("f4"))


def test_rounding_and_ends():
    x = np.array([0.5, 1.5, -2.5, 1e9, -1e9, np.inf, -np.inf, np.nan, -0.5], "f4")
    assert kernels.quantize(x, 1.0).tolist() == [0, 2, -2, 127, -128, 127, -128, 0, 0]
    assert kernels.quantize(x, 1.0, 3, "uint8").tolist() == [3, 5, 1, 255, 0, 255, 0, 0, 3]
    small = kernels.quantize(x, 1.0, dtype="f8e4m3").astype("f4")
    np.testing.assert_array_equal(small, [0.5, 1.5, -2.5, 448, -448, 448, -448, np.nan, -0.5])
    assert kernels.quantize(np.array(4.0), np.float64(2)) == 2
    payload = np.array([0x7FC00055, 0xFFC00001], "u4").view("f4")
    assert kernels.quantize(payload, 1.0).tolist() == [0, 0]
    assert kernels.quantize(payload, 1.0, dtype="int4").tolist() == [0]
    assert kernels.quantize(x[:3].astype("f8"), 1.0, dtype="int16").tolist() == [0, 2, -2]


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_small_floats(draw: Any, name: str):
    dtype = np.dtype(getattr(ml_dtypes, name))
    x = draw.numbers.uniform(-200, 200, (7, 40)).astype("f4")
    q = kernels.quantize(x, 0.5, dtype=dtype)
    assert q.dtype == dtype
    np.testing.assert_array_equal(q.astype("f4"), (x / 0.5).astype(dtype).astype("f4"))
    back = kernels.dequantize(q, 0.5, dtype="float16")
    np.testing.assert_array_equal(back, (q.astype("f4") * 0.5).astype("f2"))


def test_results_that_are_given(draw: Any):
    x = draw.numbers.standard_normal((4, 33)).astype("f2")
    out = Guarded((4, 17), np.uint8)
    assert kernels.quantize(x, 0.25, dtype="int4", out=out.array) is out.array
    out.check(packed(expected(x, 0.25, 0, "int4")))


@pytest.mark.optional("torch")
def test_torch_agrees(draw: Any):
    import torch

    x = torch.from_numpy(draw.numbers.standard_normal((5, 40)).astype("f4"))
    scale, zero = torch.rand(5) + 0.1, torch.arange(5, dtype=torch.int32)
    q = torch.fake_quantize_per_channel_affine(x, scale, zero, 0, -128, 127)
    found = kernels.quantize(x, scale, zero, torch.int8, 0)
    back = kernels.dequantize(found, scale, zero, axis=0)
    # torch multiplies by the inverse, and may round to the other side.
    assert ((back - q).abs() <= 1.001 * scale[:, None]).all()
    assert (back == q).float().mean() > 0.9


def test_refusals(draw: Any):
    x = draw.array((4, 6), "f4")
    quantize, dequantize, q = kernels.quantize, kernels.dequantize, np.zeros(4, "u1")
    half = {"dtype": "int4", "axis": 1, "block_size": 3}
    for match, error, call in (
        ("`dtype` is 'int5'", LaunchTypeError, lambda: quantize(x, 1.0, dtype="int5")),
        ("`x` has dtype i32", LaunchTypeError, lambda: quantize(np.zeros(3, "i4"), 1.0)),
        (r"`scale` has shape \(4,\).*\(6,\)", LaunchError, lambda: quantize(x, x[:, 0], axis=1)),
        ("does not divide the 6", LaunchError, lambda: quantize(x, x, axis=1, block_size=4)),
        ("without `axis`", LaunchError, lambda: quantize(x, x, block_size=4)),
        ("share a byte", LaunchError, lambda: quantize(x, x[:, :2], **half)),
        ("has none", LaunchError, lambda: quantize(x, 1.0, 1, "f8e5m2")),
        ("`zero_point` is 0.5", LaunchTypeError, lambda: quantize(x, 1.0, 0.5)),
        ("`packed` is 'int2'", LaunchError, lambda: dequantize(x, 1.0, packed="int2")),
        ("`size` is 9", LaunchError, lambda: dequantize(q, 1.0, packed="int4", size=9)),
        ("`q` has dtype f32", LaunchTypeError, lambda: dequantize(x, 1.0)),
    ):
        with pytest.raises(error, match=match):
            call()


def test_dim_is_the_axis():
    x, scale = (
        np.linspace(-3, 3, 12, dtype="f4").reshape(3, 4),
        np.array([0.1, 0.2, 0.3, 0.4], "f4"),
    )
    q = kernels.quantize(x, scale, dim=1)
    np.testing.assert_array_equal(q, kernels.quantize(x, scale, axis=1))
    found = kernels.dequantize(q, scale, dim=1)
    np.testing.assert_array_equal(found, kernels.dequantize(q, scale, axis=1))
    with pytest.raises(LaunchError, match="both `axis` and `dim` are given"):
        kernels.quantize(x, scale, axis=1, dim=1)


def test_numbers_are_scales_of_the_type_that_is_computed_in():
    """0.1 and 1e300 are other numbers, or none, in f32."""
    q = np.arange(-8, 8, dtype="i1")
    for scale in (0.1, 1e300, 1e-50, np.float64(0.1)):
        x = q * float(scale)
        np.testing.assert_array_equal(kernels.dequantize(q, scale, dtype="float64"), x)
        np.testing.assert_array_equal(kernels.quantize(x, scale), q)
    for scale in (0.1, np.float32(0.1), np.float16(0.1)):
        wanted = q * np.float32(scale)
        np.testing.assert_array_equal(kernels.dequantize(q, scale), wanted)


@pytest.mark.parametrize("scale", [0.1, np.float64(0.1), np.float32(0.1), np.array(0.1)])
def test_quantised_factors_take_numbers_of_numpy(scale: Any):
    a, q = np.eye(3), np.arange(-4, 5, dtype="i1").reshape(3, 3)
    found = kernels.matmul(a, kernels.Quantised(q, scale, np.int8(2)))
    np.testing.assert_array_equal(found, (q - 2.0) * float(scale))
    found = kernels.matmul(a.astype("f4"), kernels.Quantised(q, scale, np.int8(2)))
    np.testing.assert_allclose(found, (q - 2.0) * float(scale), 1e-6)
