"""Bias and epilogue of products of groups of rows, and groups of all sizes on CPUs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.kernels.calls.libraries import serving
from tests.conformance.test_kernels import On
from tests.guarded import Guarded
from tests.kernels.test_grouped_matmul import expected

SIZES = {
    "each way": [0, 1, 2, 4, 5, 8, 9, 16, 17, 23, 0, 24, 25],
    "one group": [0, 0, 261, 0],
    "ends that fall": [70, 20, -3, 75],
    "one row each": [1, 2, 3, 4, 5, 6],
    "nothing": [0, 0],
}
"""Ends of groups, or their sizes: those of "each way" are added up."""


def gated(v: Any, index: Any, gate: Any) -> Any:
    return v * gate[index] + index[0] * 0.5 + index[1] * 0.25


def relu(v: Any, index: Any) -> Any:
    return max(v, 0)


def made(
    device: str,
    function: Callable[..., Any],
    arrays: tuple[np.ndarray, ...],
    options: dict[str, Any],
    shape: tuple[int, ...],
    dtype: Any,
) -> np.ndarray:
    """The result of a call on a device, into memory between guard bands; of arrays that lie there,
    where it has its own memory."""
    out = Guarded(shape, dtype, random.randrange(9))
    on = On(device)
    if on.is_here:
        with serving(device):
            function(*arrays, out=out.array, **options)
        assert out.is_fenced
        return out.array
    there = on.output(shape, dtype)
    given = {
        k: tuple(map(on.placed, v)) if isinstance(v, tuple) else on.placed(v)
        for k, v in options.items()
    }
    function(*map(on.placed, arrays), out=there, **given)
    return on.taken(there)


def check(
    ends: list[int],
    extents: tuple[int, int, int],
    dtype: Any,
    device: str = "cpu",
    orders: tuple[str, str] = ("C", "C"),
) -> None:
    """With bias and epilogue, with one of them, and with none, against sums in f64."""
    rng = np.random.default_rng()
    rows, k, n = extents
    is_float = np.dtype(dtype).kind not in "iu"
    draw = (
        (lambda s: rng.standard_normal(s).astype(dtype))
        if is_float
        else (lambda s: rng.integers(0, 9, s).astype(dtype))
    )
    x, w = draw((rows, k)), draw((len(ends), k, n))
    x = np.asfortranarray(x) if orders[0] == "F" else x
    if orders[1] == "F":
        w = np.ascontiguousarray(w.swapaxes(1, 2)).swapaxes(1, 2)
    bias, gate = draw((len(ends), n)), rng.standard_normal((rows, n)).astype("f4")
    where = np.array(ends, rng.choice(["i4", "i8"]))
    plain = expected(x, w, ends)
    room = expected(abs(x), abs(w), ends)
    added = plain + expected(np.ones((rows, 1)), bias[:, None].astype("f8"), ends)
    place = np.indices((rows, n))
    finished = added * gate + place[0] * 0.5 + place[1] * 0.25
    cases: list[tuple[dict[str, Any], np.ndarray]] = [({}, plain), ({"bias": bias}, added)]
    if is_float:
        cases += [
            ({"bias": bias, "epilogue": (gated, gate)}, finished),
            ({"epilogue": relu}, np.maximum(plain, 0)),
        ]
    kind = np.result_type(cp.kernels.matmul(x[:1], w[0])) if k and ends else dtype
    unit = {ml_dtypes.bfloat16: 2.0**-8, np.float16: 2.0**-11}.get(dtype, 2.0**-23)
    for options, wanted in cases:
        found = made(device, cp.kernels.grouped_matmul, (x, w, where), options, (rows, n), kind)
        scale = 1 + (abs(gate) if "epilogue" in options else 0)
        step = 2.0**-24 if device in ("cpu", "interpreter") else 2.0**-22  # of tensor cores
        bound = (k + 4) * step * room * scale + 2 * unit * (abs(wanted) + scale) + 1e-6
        assert (abs(found.astype("f8") - wanted) <= (bound if is_float else 0)).all()


@pytest.mark.parametrize("ends", SIZES.values(), ids=list(SIZES))
@pytest.mark.parametrize("orders", [("C", "C"), ("C", "F"), ("F", "C")])
def test_groups_of_all_sizes(ends: list[int], orders: tuple[str, str]):
    found = np.cumsum(ends).tolist() if len(ends) == 13 else ends
    check(found, (max(found) + 3, 70, 75), np.float32, "cpu", orders)


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float16, ml_dtypes.bfloat16, np.int8, np.uint8, np.int32, np.int64]
)
def test_dtypes(dtype: Any):
    check([3, 40, 41, 41, 150], (155, 75, 70), dtype)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_several_steps_along_k_and_shares_of_rows(dtype: Any):
    check([200, 201, 520], (540, 2600, 40), dtype)


@pytest.mark.parametrize("extents", [(5, 0, 3), (5, 1, 1), (1, 3, 600), (40, 2, 1)])
def test_least_extents(extents: tuple[int, int, int]):
    check([1, 4], extents, np.float32)


@pytest.mark.parametrize("orders", [("C", "C"), ("C", "F"), ("F", "C")])
def test_on_the_interpreter(orders: tuple[str, str]):
    check([2, 2, 20, 39], (41, 9, 19), np.float32, "interpreter", orders)


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize("checked", [False, True])
def test_no_groups(device: str, checked: bool):
    with cp.settings(checked=checked):
        check([], (5, 4, 3), np.float32, device)


@pytest.mark.parametrize("rows", [1, 3, 5])
@pytest.mark.parametrize("orders", [("C", "C"), ("C", "F")])
def test_groups_of_few_rows(rows: int, orders: tuple[str, str]):
    ends = np.cumsum(np.random.default_rng().integers(0, 2 * rows, 9)).tolist()
    check(ends, (ends[-1] + 1, 33, 40), np.float32, "cpu", orders)


def test_what_does_not_fit_is_refused():
    x, w, ends = np.ones((4, 3), "f4"), np.ones((2, 3, 5), "f4"), np.array([1, 4])
    with pytest.raises(cp.LaunchError, match=r"`bias` has shape \(5,\)"):
        cp.kernels.grouped_matmul(x, w, ends, bias=np.ones(5, "f4"))
    with pytest.raises(cp.LaunchError, match="`bias` is f64"):
        cp.kernels.grouped_matmul(x, w, ends, bias=np.ones((2, 5)))
    with pytest.raises(cp.LaunchError, match="signature"):
        cp.kernels.grouped_matmul(x, w, ends, epilogue=lambda v: v)
    with pytest.raises(cp.LaunchError, match="`weights`"):
        cp.kernels.grouped_matmul(x, None, ends)
