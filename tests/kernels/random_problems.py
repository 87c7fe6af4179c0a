"""Random convolutions and products for CPUs: `python -m tests.kernels.random_problems [COUNT]`.

What they draw is what decides how a kernel divides its work: channels and filters of a group around
the lanes of a line, windows larger and smaller than the image, layouts of arrays and weights, and
what lies behind their rows.
"""

from __future__ import annotations

import argparse
from math import prod
from random import Random
from typing import Any

import ml_dtypes
import numpy as np

from cubepy import kernels
from tests.guarded import Guarded
from tests.kernels.test_convolution import reference

ROUNDING = {"float32": 0.0, "float64": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Of one rounding of a result, for each dtype of the arrays."""
SMALLEST = {"float16": 2.0**-24}
"""The distance of the smallest numbers."""
DTYPES = ("float32", "float32", "float64", "float16", "bfloat16", "bfloat16", "int8", "uint8")
EXTENTS = (1, 2, 4, 7, 14, 17, 33)
CHANNELS = (1, 1, 1, 2, 3, 4, 5, 8, 16, 17, 24, 40)
CONVOLUTIONS = {1: kernels.conv1d, 2: kernels.conv2d, 3: kernels.conv3d}


def array(rng: Random, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Normal numbers of a dtype, or bytes of all sizes."""
    if dtype in ("int8", "uint8"):
        return np.frombuffer(rng.randbytes(prod(shape)), dtype).reshape(shape)
    numbers = np.random.default_rng(rng.getrandbits(32)).standard_normal(shape)
    return numbers.astype(getattr(ml_dtypes, dtype, dtype))


def laid(rng: Random, x: np.ndarray) -> np.ndarray:
    """The same numbers with another layout: channels last, rows apart, or backwards."""
    match rng.randrange(5):
        case 0:
            return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)
        case 1:
            wide = np.full((*x.shape[:-1], 2 * x.shape[-1] + 1), behind(x.dtype), x.dtype)
            wide[..., : x.shape[-1]] = x
            return wide[..., : x.shape[-1]]
        case 2:
            return np.ascontiguousarray(x[..., ::-1])[..., ::-1]
        case _:
            return x


def behind(dtype: np.dtype) -> float:
    """What no result depends on."""
    return 77 if dtype.kind in "iu" else np.nan


def result_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of results of arrays of a dtype."""
    return np.dtype("i4") if dtype.kind in "iu" else dtype


def bias_of(rng: Random, count: int, dtype: str) -> np.ndarray | None:
    """Biases of the dtype of the arrays or of sums, or none."""
    sums = "int32" if dtype in ("int8", "uint8") else "float64" if dtype == "float64" else "float32"
    kind = rng.choice((None, None, dtype, sums))
    if kind == "int32":
        return np.frombuffer(rng.randbytes(2 * count), "i2").astype("i4")
    return None if kind is None else array(rng, (count,), kind)


def bound(exact: np.ndarray, largest: np.ndarray, count: int, dtype: str) -> np.ndarray:
    """How far results may be from the exact ones, whose products have a sum of `largest`."""
    if dtype in ("int8", "uint8"):
        return np.zeros(exact.shape)
    unit = 2.0**-53 if dtype == "float64" else 2.0**-24
    rounding = ROUNDING[dtype] * abs(exact) + SMALLEST.get(dtype, 1e-30)
    return (count + 4) * unit * largest + rounding


def convolve(rng: Random) -> None:
    """One convolution, into memory between guard bands or into a new array."""
    axes, dtype = rng.choice((1, 2, 2, 2, 3)), rng.choice(DTYPES)
    groups = rng.choice((1, 1, 2, 3, 5, 16, 33))
    channels, filters = rng.choice(CHANNELS), rng.choice(CHANNELS)
    window = [rng.choice((1, 2, 3, 3, 5, 9)) for _ in range(axes)]
    options: dict[str, Any] = {
        "stride": tuple(rng.choice((1, 1, 2, 3)) for _ in range(axes)),
        "dilation": tuple(rng.choice((1, 1, 2)) for _ in range(axes)),
        "padding": tuple((rng.choice((0, 1, k // 2, k)), rng.randrange(k + 1)) for k in window),
        "groups": groups,
    }
    spans = [(k - 1) * d + 1 for k, d in zip(window, options["dilation"], strict=True)]
    extents = [
        max(rng.choice(EXTENTS[: 7 - axes]), span - before - after)
        for span, (before, after) in zip(spans, options["padding"], strict=True)
    ]
    x = array(rng, (rng.choice((1, 2)), groups * channels, *extents), dtype)
    w = array(rng, (groups * filters, channels, *window), dtype)
    bias = bias_of(rng, groups * filters, dtype)
    more = 0 if bias is None else bias.astype("f8").reshape(-1, *[1] * axes)
    exact = reference(x.astype("f8"), w.astype("f8"), **options) + more
    largest = reference(abs(x.astype("f8")), abs(w.astype("f8")), **options) + abs(more)
    weight: Any = laid(rng, w)
    if rng.random() < 0.3:
        weight = kernels.prepack(weight, groups=groups)
    seen, call = laid(rng, x), CONVOLUTIONS[axes]
    if rng.random() < 0.5:
        last = rng.random() < 0.5
        out = Guarded(
            np.moveaxis(exact, 1, -1).shape if last else exact.shape, result_dtype(x.dtype)
        )
        found = np.moveaxis(out.array, -1, 1) if last else out.array
        call(seen, weight, bias, out=found, **options)
        assert out.is_fenced
    else:
        found = call(seen, weight, bias, **options)
    limit = bound(exact, largest, w[0].size, dtype)
    assert (abs(found.astype("f8") - exact) <= limit).all()


def multiply(rng: Random) -> None:
    """One product of many rows by few columns."""
    dtype = rng.choice(DTYPES)
    m, k, n = rng.choice((127, 128, 301, 1000)), rng.randrange(1, 140), rng.randrange(1, 70)
    a, b = array(rng, (m, k), dtype), array(rng, (k, n), dtype)
    bias = bias_of(rng, n, dtype)
    more = 0 if bias is None else bias.astype("f8")
    exact = a.astype("f8") @ b.astype("f8") + more
    largest = abs(a.astype("f8")) @ abs(b.astype("f8")) + abs(more)
    out = Guarded((m, n), result_dtype(a.dtype))
    kernels.matmul(laid(rng, a), laid(rng, b), bias=bias, out=out.array)
    assert out.is_fenced
    limit = bound(exact, largest, k, dtype)
    assert (abs(out.array.astype("f8") - exact) <= limit).all()


PROBLEMS = (convolve, convolve, multiply)


def run(seed: int) -> None:
    """The problem of a seed."""
    rng = Random(seed)
    rng.choice(PROBLEMS)(rng)


def main() -> int:
    """Run many; says which failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernels.random_problems")
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--first", type=int, default=0, help="the seed of the first problem")
    options = parser.parse_args()
    failed = 0
    for seed in range(options.first, options.first + options.count):
        try:
            run(seed)
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}")
    print(f"{failed} of {options.count} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
