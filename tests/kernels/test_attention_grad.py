"""Gradients of attention against f64, with the error of their sums as the bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cubepy import kernels
from cubepy.errors import LaunchError, LaunchTypeError
from tests.guarded import Guarded
from tests.kernels.test_attention import EPS, dtype_of


def weights_of(
    q: np.ndarray, k: np.ndarray, mask: Any, causal: bool, scale: float, window: Any = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights, the logarithms of their sums, and the sizes of scores."""
    scores, size = q @ k.swapaxes(-1, -2) * scale, np.abs(q) @ np.abs(k).swapaxes(-1, -2)
    size = size * abs(scale)
    if mask is not None and mask.dtype == bool:
        scores = np.where(mask, scores, -np.inf)
    elif mask is not None:
        scores, size = scores + mask.astype("f8"), size + np.abs(mask.astype("f8"))
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    ahead = np.arange(k.shape[-2]) - np.arange(q.shape[-2])[:, None]
    for n, sign in zip(window or (None, None), (-1, 1), strict=True):
        scores = np.where(ahead * sign > (np.inf if n is None else n), -np.inf, scores)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        logs = (top + np.log(total))[..., 0]
    return weights / np.where(total == 0, 1, total), logs, size


def gradients(
    operands: tuple[np.ndarray, ...],
    mask: Any = None,
    causal: bool = False,
    scale: float | None = None,
    eps: float = 2.0**-23,
    rounding: float = 2.0**-23,
    window: Any = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The gradients by queries, keys and values in f64, and how far a computation may be off that
    rounds by `eps`, and results of attention by `rounding`.

    A weight is off relatively by E, as in `test_attention`; the gradient of a weight by its length
    in roundings of its absolute products, and so is what is subtracted, which also has the rounding
    of the results. Products with rows of queries and keys add one rounding for each summand.
    """
    q, k, v, grad = (x.astype("f8") for x in operands)
    number = q.shape[-1] ** -0.5 if scale is None else scale
    weights, _, size = weights_of(q, k, mask, causal, number, window)
    turned = weights.swapaxes(-1, -2)
    worst = size.max(-1, keepdims=True, initial=0) * (q.shape[-1] + 8) * eps
    off = 4 * worst + (k.shape[-2] + 32) * eps
    sums = (k.shape[-2] + q.shape[-2] + 16) * eps
    changes = grad @ v.swapaxes(-1, -2)
    delta = (grad * (weights @ v)).sum(-1, keepdims=True)
    slopes = weights * (changes - delta) * number
    most = np.abs(grad) @ np.abs(v).swapaxes(-1, -2)
    known = (np.abs(grad) * (weights @ np.abs(v))).sum(-1, keepdims=True)
    steep = weights * (most + known) * abs(number)
    error = steep * (off + (v.shape[-1] + 16) * eps) + weights * known * abs(number) * rounding
    error += sums * steep
    flat = (weights * (off + sums)).swapaxes(-1, -2)
    found = (
        (slopes @ k, error @ np.abs(k), q.shape),
        (slopes.swapaxes(-1, -2) @ q, error.swapaxes(-1, -2) @ np.abs(q), k.shape),
        (turned @ grad, flat @ np.abs(grad), v.shape),
    )
    return [(summed(x, shape), summed(bound, shape)) for x, bound, shape in found]


def summed(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The sums over axes that were broadcast."""
    x = x.sum(tuple(range(x.ndim - len(shape))))
    shared = tuple(n for n, extent in enumerate(shape) if extent != x.shape[n])
    return x.sum(shared, keepdims=True)


def check(found: Any, expected: list[tuple[np.ndarray, np.ndarray]], rounding: float) -> None:
    for x, (exact, bound) in zip(found, expected, strict=True):
        assert x.shape == exact.shape
        error = np.abs(np.asarray(x).astype("f8") - exact)
        # The last is the rounding of subnormal numbers of f16.
        assert np.all(error <= bound + rounding * np.abs(exact) + 2.0**-15 * rounding)


def grads(operands: tuple[Any, ...], out: Any = None, **options: Any) -> Any:
    """Both passes."""
    q, k, v, grad = operands
    result, lse = kernels.attention(q, k, v, return_lse=True, **options)
    return kernels.attention_grad(q, k, v, result, lse, grad, out=out, **options)


SHAPES = (
    ((2, 3), 5, 7, 8, 8),
    ((1,), 33, 70, 64, 64),
    ((), 1, 100, 33, 17),
    ((3,), 61, 13, 16, 40),
    ((2,), 13, 1, 3, 5),
)


@pytest.mark.parametrize("name", EPS)
def test_of_any_shape(draw, name):
    dtype, computed = dtype_of(name), EPS["f8" if name == "f8" else "f4"]
    causal, masked = draw.pick.random() < 0.5, draw.pick.random() < 0.5
    for batch, queries, keys, size, width in draw.pick.sample(SHAPES, 1):
        extents = ((queries, size), (keys, size), (keys, width), (queries, width))
        operands = tuple(
            draw.layout(draw.numbers.standard_normal((*batch, *e)).astype(dtype)) for e in extents
        )
        sees = draw.numbers.random((queries, keys)) < 0.6
        sees[0] = False
        added = draw.numbers.standard_normal((*batch, 1, keys)).astype(dtype)
        reach = tuple(draw.pick.choice((None, 0, 3, 20)) for _ in range(2))
        for mask, window in ((None, reach), (sees if masked else added, None)):
            out = tuple(draw.layout(np.full(x.shape, np.nan, dtype)) for x in operands[:3])
            assert grads(operands, out, causal=causal, mask=mask, window=window) is out
            exact = gradients(operands, mask, causal, None, computed, EPS[name], window)
            check(out, exact, EPS[name])


def test_logarithms(draw):
    q, k, v = draw.numbers.standard_normal((3, 2, 40, 24)).astype("f4")
    sees = draw.numbers.random((40, 40)) < 0.4
    sees[3] = False
    for causal in (False, True):
        out = np.full(v.shape, np.nan, "f4"), np.full((2, 40), np.nan, "f4")
        kernels.attention(q, k, v, mask=sees, causal=causal, return_lse=True, out=out)
        exact = weights_of(q.astype("f8"), k.astype("f8"), sees, causal, 24**-0.5)[1]
        np.testing.assert_allclose(out[1], exact, 1e-5, 1e-5)
        assert out[1][0, 3] == -np.inf
        alone = kernels.attention(q, k, v, mask=sees, causal=causal)
        np.testing.assert_array_equal(alone, out[0])
    result, lse = kernels.attention(q, k[:, :0], v[:, :0], return_lse=True)
    assert np.all(result == 0) and np.all(lse == -np.inf)
    with pytest.raises(LaunchError, match="rows without elements"):
        kernels.attention(q, k, v[..., :0], return_lse=True)


def test_what_is_shared_is_summed(draw):
    q, grad = draw.numbers.standard_normal((2, 2, 6, 9, 16)).astype("f4")
    k, v = draw.numbers.standard_normal((2, 2, 2, 11, 16)).astype("f4")
    mask = draw.numbers.random((2, 6, 1, 11)) < 0.7
    wide = tuple(np.repeat(x, 3, 1) for x in (k, v))
    exact = gradients((q, *wide, grad), mask)
    for n in (1, 2):
        exact[n] = tuple(x.reshape(2, 2, 3, *x.shape[2:]).sum(2) for x in exact[n])
    check(grads((q, k, v, grad), mask=mask), exact, EPS["f4"])
    few = q[:1], k[:, :1], v[0, :1], grad
    check(grads(few), gradients(few), EPS["f4"])
    few = q[:, 0], k[:1, 0], v[0, 0], grad[:, 0]
    check(grads(few, causal=True, scale=-0.3), gradients(few, None, True, -0.3), EPS["f4"])


@pytest.mark.parametrize("causal, window", [(False, None), (True, None), (False, (300, 40))])
def test_many_blocks_of_weights(draw, causal, window):
    """Several blocks of queries and keys, and cubes that share the queries of a head."""
    q, grad = draw.numbers.standard_normal((2, 2, 430, 40)).astype("f4")
    k, v = draw.numbers.standard_normal((2, 610, 40)).astype("f4")
    found = grads((q, k, v, grad), causal=causal, window=window)
    check(found, gradients((q, k, v, grad), None, causal, window=window), EPS["f4"])
    again = grads((q, k, v, grad), causal=causal, window=window)
    assert all(np.array_equal(one, two) for one, two in zip(found, again, strict=True))


def test_rows_that_see_nothing_and_arrays_of_nothing(draw):
    q, k, v, grad = draw.numbers.standard_normal((4, 4, 8)).astype("f4")
    mask = np.zeros((4, 4), "f4")
    mask[1] = -np.inf
    found = grads((q, k, v, grad), mask=mask)
    assert np.all(found[0][1] == 0) and all(np.all(np.isfinite(x)) for x in found)
    found = grads((q, k[:0], v[:0], grad))
    assert np.all(found[0] == 0) and found[1].shape == found[2].shape == (0, 8)
    found = grads((q[:0], k, v, grad[:0]))
    assert found[0].shape == (0, 8) and np.all(found[1] == 0) and np.all(found[2] == 0)


def test_writes_nothing_else_and_repeats(draw):
    q, k, v, grad = draw.numbers.standard_normal((4, 13, 19)).astype("f4")
    out = tuple(Guarded(q.shape, q.dtype, draw.pick.randrange(9)) for _ in range(3))
    grads((q, k, v, grad), tuple(x.array for x in out))
    again = grads((q, k, v, grad))
    for one, two in zip(out, again, strict=True):
        one.check(one.array)
        np.testing.assert_array_equal(one.array, two)
    with pytest.raises(LaunchError, match="overlaps"):
        grads((q, k, v, grad), (q, k.copy(), v.copy()))


def test_refused():
    q = np.zeros((2, 3, 4), np.float32)
    lse = np.zeros((2, 3), np.float32)
    call: Any = kernels.attention_grad
    with pytest.raises(LaunchError, match=r"`lse` has shape \(3,\), attention gives \(2, 3\)"):
        call(q, q, q, q, lse[0], q)
    with pytest.raises(LaunchError, match=r"`result` has shape \(2, 2, 4\)"):
        call(q, q, q, q[:, :2], lse, q)
    with pytest.raises(LaunchTypeError, match="`grad_output` is f64, attention gives f32"):
        call(q, q, q, q, lse, q.astype("f8"))
    with pytest.raises(LaunchTypeError, match="`lse` is f64"):
        call(q, q, q, q, lse.astype("f8"), q)
    with pytest.raises(LaunchError, match="equally many keys"):
        call(q, q, q[:, :2], q, lse, q)
    with pytest.raises(LaunchError, match="negative"):
        call(q, q, q, q, lse, q, window=(-1, 2))
    with pytest.raises(LaunchTypeError, match="scale"):
        call(q, q, q, q, lse, q, scale="one")


@pytest.mark.optional("torch")
def test_as_torch(require_package):
    torch = require_package("torch")
    q, k, v = (torch.randn(2, n, 20, 32, requires_grad=True) for n in (6, 2, 2))
    attend = torch.nn.functional.scaled_dot_product_attention
    result = attend(q, k, v, is_causal=True, enable_gqa=True)
    grad = torch.randn_like(result)
    result.backward(grad)
    found = grads(tuple(x.detach() for x in (q, k, v, grad)), causal=True)
    for x, own in zip((q, k, v), found, strict=True):
        torch.testing.assert_close(own, x.grad)
