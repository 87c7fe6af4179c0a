"""Attention against softmax(q k^T) v in f64, with the error of its sums as the bound."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.kernels.calls.inspection import record
from cubepy.lang.annotations import spec
from cubepy.runtimes.registry import find_device
from cubepy.targets import parse_target
from tests.guarded import Guarded

EPS = {"f2": 2.0**-10, "f4": 2.0**-23, "f8": 2.0**-52, "bf16": 2.0**-7}


def dtype_of(name: str) -> Any:
    return ml_dtypes.bfloat16 if name == "bf16" else np.dtype(name)


def attended(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    mask: Any,
    causal: bool,
    eps: float,
    window: Any = (None, None),
    rounding: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """The result in f64, and how far a computation with roundings of `eps` may be from it.

    A score is off by its length in roundings of its absolute products; a weight relatively by
    twice the worst of that, by the rounding of its exponent, and by `rounding`; sums add one
    rounding for a key.
    """
    q, k, v = (x.astype("f8") for x in (q, k, v))
    scale = 1 / np.sqrt(q.shape[-1])
    scores = q @ k.swapaxes(-1, -2) * scale
    size = np.abs(q) @ np.abs(k).swapaxes(-1, -2) * scale
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores, size = scores + mask.astype("f8"), size + np.abs(mask.astype("f8"))
    if causal:
        sees = np.tril(np.ones(scores.shape[-2:], bool))
        scores = np.where(sees, scores, -np.inf)
    ahead = np.subtract.outer(-np.arange(q.shape[-2]), -np.arange(k.shape[-2]))
    for n, sign in zip(window, (-1, 1), strict=True):
        scores = np.where(ahead * sign > (np.inf if n is None else n), -np.inf, scores)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(-1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    worst = size.max(-1, keepdims=True, initial=0) * (q.shape[-1] + 8) * eps
    return weights @ v, (4 * worst + (k.shape[-2] + 32) * eps + rounding) * (weights @ np.abs(v))


def rounding_of(name: str) -> float:
    """By what weights are rounded: where a processor's matrix units multiply them."""
    has_units = "amx-bf16" in find_device("cpu").target.features
    return 2.0**-8 if name == "bf16" and has_units else 0.0


def check(found: Any, expected: np.ndarray, bound: np.ndarray, eps: float) -> None:
    error = np.abs(np.asarray(found).astype("f8") - expected)
    assert error.shape == expected.shape
    assert np.all(error <= bound + eps * np.abs(expected) + 1e-7 * eps)


SHAPES = (
    ((2, 3), 5, 7, 8, 8),
    ((1,), 33, 70, 64, 64),
    ((), 1, 300, 33, 17),
    ((3,), 61, 13, 16, 40),
    ((2,), 13, 1, 3, 5),
)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", EPS)
def test_of_any_shape(draw, name, causal):
    dtype, computed = dtype_of(name), EPS["f8" if name == "f8" else "f4"]
    for batch, queries, keys, size, width in draw.pick.sample(SHAPES, 1):
        q = draw.layout(draw.numbers.standard_normal((*batch, queries, size)).astype(dtype))
        k = draw.layout(draw.numbers.standard_normal((*batch, keys, size)).astype(dtype))
        v = draw.layout(draw.numbers.standard_normal((*batch, keys, width)).astype(dtype))
        sees = draw.numbers.random((queries, keys)) < 0.6
        sees[0] = False
        added = draw.numbers.standard_normal((*batch, 1, keys)).astype(dtype)
        for mask in draw.pick.sample((None, sees, added), 2):
            out = np.full((*batch, queries, width), np.nan, dtype)
            assert kernels.attention(q, k, v, causal=causal, mask=mask, out=out) is out
            expected = attended(q, k, v, mask, causal, computed, rounding=rounding_of(name))
            check(out, *expected, EPS[name])


WINDOWS = (0, 0), (3, 0), (0, 2), (5, 7), (None, 1), (2, None), (64, 3), (1000, 1000)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["f4", "f2", "bf16"])
def test_windows(draw, name, causal):
    dtype = dtype_of(name)
    for batch, queries, keys, size, width in ((((2,), 70, 45, 8, 12)), ((), 45, 70, 33, 8)):
        q = draw.layout(draw.numbers.standard_normal((*batch, queries, size)).astype(dtype))
        k = draw.layout(draw.numbers.standard_normal((*batch, keys, size)).astype(dtype))
        v = draw.layout(draw.numbers.standard_normal((*batch, keys, width)).astype(dtype))
        sees = draw.numbers.random((queries, keys)) < 0.6
        for window in draw.pick.sample(WINDOWS, 1):
            for mask in (None, sees):
                out = np.full((*batch, queries, width), np.nan, dtype)
                kernels.attention(q, k, v, causal=causal, mask=mask, window=window, out=out)
                rounding = rounding_of(name)
                expected = attended(q, k, v, mask, causal, EPS["f4"], window, rounding)
                check(out, *expected, EPS[name])


def test_long_windows_take_several_steps(draw):
    q, k, v = draw.numbers.standard_normal((3, 1, 1500, 64)).astype("f4")
    for window in ((300, 0), (700, 40), (10, 900)):
        found = kernels.attention(q, k, v, window=window)
        expected = attended(q, k, v, None, False, EPS["f4"], window)
        check(found, *expected, EPS["f4"])


def test_long_rows_take_several_steps(draw):
    q, k, v = draw.numbers.standard_normal((3, 1, 1500, 128)).astype("f4")
    for causal in (False, True):
        found = kernels.attention(q[:, :700] * 4, k, v, causal=causal)
        check(found, *attended(q[:, :700] * 4, k, v, None, causal, EPS["f4"]), EPS["f4"])


def test_scales_are_not_rounded_as_narrow_floats(draw):
    q, k, v = draw.numbers.standard_normal((3, 40, 33)).astype(ml_dtypes.bfloat16)
    q = q * ml_dtypes.bfloat16(16)
    expected, bound = attended(q, k, v, None, False, EPS["f4"], rounding=rounding_of("bf16"))
    check(kernels.attention(q, k, v), expected, bound, EPS["bf16"] / 2)


def test_steps_of_matrix_units(draw):
    q = draw.numbers.standard_normal((4, 300, 70)).astype(ml_dtypes.bfloat16)
    k, v = draw.numbers.standard_normal((2, 2, 700, 70)).astype(ml_dtypes.bfloat16)
    q[1] *= ml_dtypes.bfloat16(-8)
    keys, values = np.repeat(k, 2, 0), np.repeat(v, 2, 0)
    for causal in (False, True):
        found, logs = kernels.attention(q, k, v, causal=causal, return_lse=True)
        rounding = rounding_of("bf16")
        expected = attended(q, keys, values, None, causal, EPS["f4"], rounding=rounding)
        check(found, *expected, EPS["bf16"])
        scores = q.astype("f8") @ keys.astype("f8").swapaxes(-1, -2) / 70**0.5
        scores = np.where(np.tri(300, 700, dtype=bool) | (not causal), scores, -np.inf)
        exact = np.log(np.exp(scores).sum(-1))
        np.testing.assert_allclose(logs, exact, 1e-5, rounding / 8 + 1e-5)


def test_rows_of_bf16_that_see_nothing_and_numbers_that_are_none(draw):
    q, k, v = draw.numbers.standard_normal((3, 40, 24)).astype(ml_dtypes.bfloat16)
    mask = np.zeros((40, 40), "f4")
    mask[1], mask[2, :39], mask[3, 5] = -np.inf, -np.inf, np.inf
    found = kernels.attention(q, k, v, mask=mask).astype("f4")
    assert np.all(found[1] == 0) and np.all(np.isnan(found[3]))
    np.testing.assert_array_equal(found[2], v[39].astype("f4"))
    assert np.all(np.isfinite(np.delete(found, 3, 0)))
    q[7, 0] = np.nan
    found = kernels.attention(q, k, v).astype("f4")
    assert np.all(np.isnan(found[7])) and np.all(np.isfinite(np.delete(found, 7, 0)))


def test_matrix_units_are_used_where_they_are():
    specs = {name: spec("bf16[2,64,64]") for name in "qkv"}
    for target, used in (("cpu:sapphirerapids", True), ("cpu:x86-64-v4", False)):
        (launch,) = record(kernels.attention, specs, {}, parse_target(target))
        text = launch.launcher.inspect(**launch.arguments, target=target)
        assert ("tdpbf16ps" in text) == used
    few = {**specs, "q": spec("bf16[2,15,64]")}
    (launch,) = record(kernels.attention, few, {}, parse_target("cpu:sapphirerapids"))
    assert launch.kernel.__name__ == "attend_strips"


def test_sizes_that_fit_no_cache(draw):
    q, k, v = draw.numbers.standard_normal((3, 5, 2100)).astype("f4")
    found = kernels.attention(q, k, v[:, :70], causal=True)
    check(found, *attended(q, k, v[:, :70], None, True, EPS["f4"]), EPS["f4"])


def test_heads_share_keys_and_axes_are_broadcast(draw):
    q = draw.numbers.standard_normal((2, 6, 9, 16)).astype("f4")
    k, v = draw.numbers.standard_normal((2, 2, 2, 11, 16)).astype("f4")
    seen = draw.numbers.random((2, 6, 1, 11)) < 0.7
    wide = np.repeat(k, 3, 1), np.repeat(v, 3, 1)
    for causal, mask in itertools.product((False, True), (None, seen)):
        expected, bound = attended(q, *wide, mask, causal, EPS["f4"])
        found = kernels.attention(q, k, v, mask=mask, causal=causal)
        check(found, expected, bound, EPS["f4"])
    expected, bound = attended(q[:1], k[:, :1], v[:1, :1], None, False, EPS["f4"])
    check(kernels.attention(q[:1], k[:, :1], v[:1, :1]), expected, bound, EPS["f4"])


def test_rows_that_see_nothing_and_numbers_that_are_none(draw):
    q, k, v = draw.numbers.standard_normal((3, 4, 8)).astype("f4")
    mask = np.zeros((4, 4), "f4")
    mask[1] = -np.inf
    found = kernels.attention(q, k, v, mask=mask)
    assert np.all(found[1] == 0) and np.all(np.isfinite(found))
    assert np.all(kernels.attention(q, k[:0], v[:0]) == 0)
    assert kernels.attention(q[:0], k, v).shape == (0, 8)
    q[2, 0] = np.nan
    found = kernels.attention(q, k, v)
    assert np.all(np.isnan(found[2])) and np.all(np.isfinite(found[[0, 1, 3]]))
    mean = np.tile(v.astype("f8").mean(0), (2, 1))
    np.testing.assert_allclose(kernels.attention(q[:2], k, v, scale=0), mean, 1e-6, 1e-6)


def test_writes_nothing_else(draw):
    q, k, v = draw.numbers.standard_normal((3, 13, 19)).astype("f4")
    out = Guarded(q.shape, q.dtype, draw.pick.randrange(9))
    kernels.attention(q, k, v, out=out.array)
    out.check(out.array)
    with pytest.raises(LaunchError, match="overlaps"):
        kernels.attention(q, k, v, out=k)


def test_refused():
    q = np.zeros((2, 3, 4), np.float32)
    with pytest.raises(LaunchError, match=r"`q` has shape \(2, 3, 4\), `k` \(2, 3, 5\)"):
        kernels.attention(q, np.zeros((2, 3, 5), np.float32), q)
    with pytest.raises(LaunchError, match="equally many keys"):
        kernels.attention(q, q, q[:, :2])
    with pytest.raises(LaunchError, match="a multiple of those"):
        kernels.attention(np.zeros((5, 3, 4), np.float32), q, q)
    with pytest.raises(LaunchError, match=r"`mask` has shape \(2, 2\), the scores \(2, 3, 3\)"):
        kernels.attention(q, q, q, mask=np.zeros((2, 2), bool))
    with pytest.raises(LaunchError, match="`window` is .-1, 0., which is negative"):
        kernels.attention(q, q, q, window=(-1, 0))
    wrong: list[Any] = [3, (1, 2, 3), (1.0, None), (True, 0)]
    for window in wrong:
        with pytest.raises(LaunchTypeError, match="`window` is"):
            kernels.attention(q, q, q, window=window)
    with pytest.raises(LaunchTypeError, match="`mask` has dtype f64"):
        kernels.attention(q, q, q, mask=np.zeros((3, 3)))
    with pytest.raises(LaunchTypeError, match="`v` is f64"):
        kernels.attention(q, q, q.astype("f8"))
    with pytest.raises(LaunchTypeError, match="`q` has dtype i32"):
        kernels.attention(q.astype("i4"), q, q)


@pytest.mark.optional("torch")
def test_as_torch(require_package):
    torch = require_package("torch")
    attend = torch.nn.functional.scaled_dot_product_attention
    q, k, v = torch.randn(2, 6, 20, 32), torch.randn(2, 2, 20, 32), torch.randn(2, 2, 20, 32)
    mask = torch.rand(20, 20) < 0.5
    mask[3] = False
    ours = {"is_causal": "causal", "attn_mask": "mask"}
    cases: list[dict[str, Any]] = [{"is_causal": True}, {"attn_mask": mask}, {"scale": 0.5}]
    for options in cases:
        found = kernels.attention(q, k, v, **{ours.get(n, n): x for n, x in options.items()})
        torch.testing.assert_close(found, attend(q, k, v, enable_gqa=True, **options))
