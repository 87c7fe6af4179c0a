"""Products of quantised factors on GPUs, against f64."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.kernels import Quantised, matmul
from tests.kernels.conftest import Draw
from tests.kernels.quantised_numbers import nibbles, restored, scales, some

KINDS = {
    "bf16": (ml_dtypes.bfloat16, 2.0**-8),
    "f16": (np.float16, 2.0**-10),
    "f32": (np.float32, 0),
}
SUMS = 2.0**-22
FEW_BITS = 2.0**-12
"""Tensor cores keep 13 bits of 128 products of 8-bit floats."""


@pytest.fixture
def draw() -> Draw:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    return Draw(random.Random(seed), np.random.default_rng(seed))


def check(
    device: str, a: Any, b: Any, left: Any, right: Any, kind: str, factor: float, bias: Any = None
) -> None:
    """Compare with f64: `factor` is how much factors are rounded, or sums of few bits."""
    dtype, rounding = KINDS[kind]
    shape = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    poison = np.full((*shape, left.shape[-2], right.shape[-1]), np.nan, dtype)
    out = cp.asarray(poison, device=device)
    both = isinstance(a, Quantised) and isinstance(b, Quantised)
    more = 0 if bias is None else bias.astype("f8")
    given = None if bias is None else cp.asarray(bias, device=device)
    matmul(a, b, bias=given, dtype=dtype if both else None, out=out)
    exact, largest = left @ right + more, abs(left) @ abs(right) + abs(more)
    bound = rounding * abs(exact) + ((left.shape[-1] + 8) * SUMS + factor) * largest + 1e-30
    assert np.all(abs(out.numpy().astype("f8") - exact) <= bound)


SHAPES = ((128, 256, 512), (200, 392, 1040), (65, 128, 144), (1, 8, 128), (300, 130, 250))


@pytest.mark.parametrize("kind", ["i8", "u8", "f8"])
@pytest.mark.parametrize("result", KINDS)
def test_scales_of_rows_and_columns(cuda: str, draw: Draw, kind: str, result: str):
    for m, n, k in SHAPES:
        a, b = some(draw, (m, k), kind), some(draw, (n, k), kind)
        s, t = scales(draw, m, 1) / 32, scales(draw, n) / 32  # f16 ends at 65504
        bias = draw.numbers.standard_normal(n).astype("f4")
        x, y, one, two = (cp.asarray(v, device=cuda) for v in (a, b, s, t))
        left, right = restored(a, s, (1, k)), restored(b, t[:, None], (1, k)).T
        factor = FEW_BITS if kind == "f8" else 2.0**-22
        factors = Quantised(x, one), Quantised(y, two, axis=0).T
        check(cuda, *factors, left, right, result, factor, bias)


BLOCKS = (((1, 128), (128, 128)), ((64, 256), (256, 128)), ((1, 64), (9, 32)))


@pytest.mark.parametrize("kind", ["f8", "i8"])
@pytest.mark.parametrize(
    "blocks", [((1, 128), (128, 128)), ((64, 256), (256, 128)), ((1, 64), (9, 32))]
)
def test_blocks(cuda: str, draw: Draw, kind: str, blocks: Any):
    for m, n, k in SHAPES:
        a, b = some(draw, (m, k), kind), some(draw, (n, k), kind)
        s = scales(draw, *(-(-e // q) for e, q in zip(a.shape, blocks[0], strict=True))) / 1024
        t = scales(draw, *(-(-e // q) for e, q in zip(b.shape, blocks[1], strict=True)))
        x, y, one, two = (cp.asarray(v, device=cuda) for v in (a, b, s, t))
        left, right = restored(a, s, blocks[0]), restored(b, t, blocks[1]).T
        factors = Quantised(x, one, block_size=blocks[0]), Quantised(y, two, block_size=blocks[1]).T
        check(cuda, *factors, left, right, draw.pick.choice(list(KINDS)), FEW_BITS)


@pytest.mark.parametrize("rows", [1, 7, 33, 64, 100, 300])
@pytest.mark.parametrize("form", ["int4", "uint4", "i8", "u8"])
def test_weights(cuda: str, draw: Draw, rows: int, form: str):
    packed = form if form.endswith("int4") else None
    for n, k in ((72, 256), (264, 1032), (1000, 640)):
        block = draw.pick.choice((16, 32, 64, 128, 256))
        q, s = some(draw, (n, k), form), scales(draw, n, -(-k // block)) / 32
        zero = (
            draw.numbers.integers(0, 16, s.shape).astype("i4") if draw.pick.random() < 0.5 else None
        )
        kind = draw.pick.choice(("bf16", "f16", "f32"))
        x = draw.numbers.standard_normal((rows, k)).astype(KINDS[kind][0])
        values = nibbles(q) if packed else q
        arrays = (None if v is None else cp.asarray(v, device=cuda) for v in (values, s, zero, x))
        stored, scale, zeros, left = arrays
        layer = Quantised(stored, scale, zeros, None, (1, block), packed)
        b = restored(q, s, (1, block), 0 if zero is None else zero)
        rounded = 2 * KINDS[kind][1] + 2.0**-20  # of scales and of weights
        check(cuda, left, layer.T, x.astype("f8"), b.T, kind, rounded)


def test_stacks_of_weights(hopper: str, draw: Draw):
    q, s = some(draw, (3, 136, 256), "int4"), scales(draw, 3, 136, 2)
    x = draw.numbers.standard_normal((3, 20, 256)).astype(np.float16)
    stored, scale, left = (cp.asarray(v, device=hopper) for v in (nibbles(q), s, x))
    layer = Quantised(stored, scale, None, 2, 128, "int4")
    b = restored(q, s, (1, 128)).swapaxes(-1, -2)
    check(hopper, left, layer.T, x.astype("f8"), b, "f16", 2.0**-9)
