"""`//`, `%` and divmod of floats: Python's in f64, and its steps in narrower types."""

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.types import DType, bf16, f16, f32, f64
from tests.conformance.operations import bits_of, numpy_type
from tests.floors import floor_pairs


@cp.cube
def divide(a: cp.Lines, b: cp.Lines, quotient: cp.Lines, rest: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < a.size:
        quotient[i] = a[i] // b[i]
        rest[i] = divmod(a[i], b[i])[1]


def in_python(a: float, b: float) -> tuple[float, float]:
    if b == 0:
        return float(np.divide(a, b)), np.nan
    return a // b, a % b


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("dtype", [f64, f32, f16, bf16], ids=str)
def test_as_in_python(device: str, is_slow: bool, lacks: set[DType], dtype: DType, width: int):
    if dtype in lacks:
        pytest.skip(f"the device has no {dtype}")
    kind = numpy_type(dtype)
    wide: Any = np.float64 if dtype is f64 else np.float32
    finfo = np.float32 if dtype in (bf16, f32) else kind
    pairs = floor_pairs(finfo, 400 if is_slow else 20_000)
    a, b = (np.array(column).astype(kind) for column in zip(*pairs, strict=True))
    found, rest = np.empty_like(a), np.empty_like(a)
    kernel = divide.configure(device=device, line_size=width)
    kernel.over(-(-a.size // width))(a, b, found, rest)
    with np.errstate(all="ignore"):
        if dtype is f64:
            both = [in_python(x, y) for x, y in pairs]
            wanted, wanted_rest = (np.array(column) for column in zip(*both, strict=True))
            np.testing.assert_array_equal(bits_of(_one_nan(rest)), bits_of(_one_nan(wanted_rest)))
        else:
            wanted = np.floor_divide(a.astype(wide), b.astype(wide)).astype(kind)
    differ = np.flatnonzero(bits_of(_one_nan(found)) != bits_of(_one_nan(wanted)))
    examples = [(a[k], b[k], found[k], wanted[k]) for k in differ[:5]]
    assert len(differ) == 0, f"{len(differ)} differ: {examples}"


def _one_nan(x: Any) -> Any:
    return np.where(np.isnan(x.astype(np.float64)), x.dtype.type(np.nan), x)


@cp.cube
def divide_by_shifted(
    ones: cp.Comptime, is_rest: cp.Comptime, x: cp.Lines, n: cp.Lines, out: cp.Lines
):
    i = cp.ABSOLUTE_POS
    d = x.dtype(ones) >> n[i]
    out[i] = x[i] % d if is_rest else x[i] // d


@pytest.mark.parametrize("is_rest", [False, True])
@pytest.mark.parametrize("width", [1, 8])
@pytest.mark.parametrize(
    "kind", [np.uint8, np.uint16, np.uint32, np.uint64], ids=lambda t: t.__name__
)
def test_division_by_bits_that_were_shifted_out(device: str, kind: Any, width: int, is_rest: bool):
    """LLVM 22 took such a divisor for nonzero, and divided before the test that it is."""
    bits = np.iinfo(kind).bits
    n = (np.arange(64) % (bits + 9)).astype(kind)
    x = np.random.default_rng(5).integers(0, np.iinfo(kind).max, 64, kind)
    out = np.full(64, 77, kind)
    kernel = divide_by_shifted.configure(device=device, line_size=width)
    kernel[1, 64 // width](2**bits - 1, is_rest, x, n, out)
    pairs = zip(x.tolist(), [(2**bits - 1) >> int(k) for k in n], strict=True)
    assert out.tolist() == [(v % d if is_rest else v // d) if d else 0 for v, d in pairs]
