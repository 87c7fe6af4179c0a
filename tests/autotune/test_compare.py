"""What counts as agreeing with the reference: the same for NumPy's arrays and for tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy.autotune.compare import TOLERANCES, difference, same_bits
from tests.optional import require_package

KINDS = ("numpy", "torch")
SIZES = {"float16": 2, "float32": 4, "float64": 8}


def make(kind: str, x: np.ndarray) -> Any:
    if kind == "numpy":
        return x.copy()
    torch = require_package("torch")
    return torch.from_numpy(x.copy())


def judge(kind: str, found: np.ndarray, wanted: np.ndarray, rtol: float | None = None) -> str:
    return difference(make(kind, found), make(kind, wanted), rtol)


def numbers(dtype: str) -> np.ndarray:
    return (np.random.default_rng(1).standard_normal((37, 100)) * 4).astype(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", SIZES)
def test_floats_agree_within_their_tolerance(kind: str, dtype: str):
    wanted, rtol = numbers(dtype), TOLERANCES[SIZES[dtype]]
    assert judge(kind, wanted, wanted) == ""
    near = (wanted * (1 + 0.8 * rtol)).astype(dtype)
    assert judge(kind, near, wanted) == ""
    far = wanted.copy()
    far[3, 4] = far[3, 4] * (1 + 4 * rtol) + 4 * rtol * 8
    assert judge(kind, far, wanted).startswith("1 of 3700 elements differ")
    assert judge(kind, far, wanted, rtol=100 * rtol) == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_agrees_with_itself_alone(kind: str, special: float):
    wanted = numbers("float32")
    odd = wanted.copy()
    odd[5, 6] = special
    assert judge(kind, odd, odd) == ""
    assert judge(kind, odd, wanted) and judge(kind, wanted, odd)
    other = odd.copy()
    other[5, 6] = -special if np.isinf(special) else np.inf
    assert judge(kind, other, odd)


@pytest.mark.parametrize("kind", KINDS)
def test_integers_and_zeros_are_equal_or_not(kind: str):
    wanted = np.arange(60, dtype=np.int32).reshape(3, 20)
    assert judge(kind, wanted, wanted) == ""
    assert judge(kind, wanted + (wanted == 7), wanted).startswith("1 of 60")
    zeros = np.zeros(5, np.float32)
    assert judge(kind, zeros, zeros) == "" and judge(kind, zeros + 1e-6, zeros)
    nothing = np.zeros(0, np.float32)
    assert judge(kind, nothing, nothing) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_other_shapes_and_types_are_wrong(kind: str):
    wanted = numbers("float32")
    assert judge(kind, wanted.T.copy(), wanted) and judge(kind, numbers("float64"), wanted)


def test_bits_are_compared_too():
    x = numbers("float32")
    x[0, 0] = np.nan
    for kind in KINDS:
        assert same_bits(make(kind, x), make(kind, x))
        assert not same_bits(make(kind, x), make(kind, x + 1))


def test_types_of_eight_and_sixteen_bits_of_torch():
    torch = require_package("torch")
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        wanted = torch.from_numpy(numbers("float32")).to(dtype)
        far = wanted.to(torch.float32)
        far[2, 2] += 40
        assert difference(wanted.clone(), wanted, None) == ""
        assert difference(far.to(dtype), wanted, None).startswith("1 of 3700")
