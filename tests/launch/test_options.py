"""What `configure` changes: widths and planes change nothing, contraction and fast_math round."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.jit.kernel import MAX_CONFIGURED
from tests.guarded import Guarded
from tests.lang.numpy_language import fma_f32, fma_f64

RNG = np.random.default_rng(5)
KINDS = {"f32": np.float32, "f64": np.float64}


@cp.cube
def multiply_add(a: cp.Lines, b: cp.Lines, c: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = a.flat[i] * b.flat[i] + c.flat[i]


@cp.cube
def multiply_add_scalars(a, b, c, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = a.flat[i] * b.flat[i] + c.flat[i]


def cancelling(kind: Any, count: int = 1003) -> list[np.ndarray]:
    """a, b, c where the product and `c` cancel, so that its rounding shows."""
    a, b = (RNG.normal(size=count).astype(kind) for _ in range(2))
    return [a, b, -(a * b)]


@pytest.mark.parametrize("kernel", [multiply_add, multiply_add_scalars], ids=["lines", "scalars"])
@pytest.mark.parametrize("kind", KINDS)
def test_contraction_is_a_choice(kernel: Any, kind: str):
    a, b, c = cancelling(KINDS[kind])
    twice, once = a * b + c, {"f32": fma_f32, "f64": fma_f64}[kind](a, b, c)
    assert (twice != once).mean() > 0.5
    for contract, wanted in ((True, once), (False, twice)):
        out = Guarded(a.shape, KINDS[kind])
        kernel.configure(contract=contract).over(out.array)(a, b, c, out.array)
        out.check(wanted)
    out = Guarded(a.shape, KINDS[kind])
    kernel.over(out.array)(a, b, c, out.array)
    out.check(once)


@cp.cube
def forms(a, b, c, out):
    i = cp.ABSOLUTE_POS
    if i < a.size:
        x, y, z = a[i], b[i], c[i]
        out[i, 0] = x * y - z
        out[i, 1] = z - x * y
        product = x * y
        out[i, 2] = product + z
        out[i, 3] = product
        out[i, 4] = cp.fma(x, y, z)
        out[i, 5] = x * y + z * x


def test_what_contraction_fuses():
    """A product used twice is not fused; `cp.fma` always is."""
    a, b, c = cancelling(np.float32)
    for contract in (False, True):
        out = Guarded((a.size, 6))
        forms.configure(contract=contract).over(a.size)(a, b, c, out.array)
        found = out.array
        np.testing.assert_array_equal(found[:, 4], fma_f32(a, b, c))
        np.testing.assert_array_equal(found[:, 3], a * b)
        np.testing.assert_array_equal(found[:, 2], a * b + c)
        np.testing.assert_array_equal(found[:, 0], fma_f32(a, b, -c) if contract else a * b - c)
        np.testing.assert_array_equal(found[:, 1], fma_f32(-a, b, c) if contract else c - a * b)
        either = [fma_f32(a, b, c * a), fma_f32(c, a, a * b)] if contract else [a * b + c * a]
        assert any((found[:, 5] == e).all() for e in either)


@cp.cube
def everything(x: cp.Lines[cp.f32], y: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        a, b = x.flat[i], y.flat[i]
        s = cp.where(a > b, a - b, a * b) + min(a, b) / 3
        for k in range(3):
            s = s * a + cp.exp(-b * b)
        out.flat[i] = cp.sqrt(abs(s)) + cp.tanh(a) if i % 2 == 0 else cp.erf(s)


@cp.cube
def everything_alike(x: cp.Lines[cp.f32], y: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    """As `everything`, without asking for the position, which counts lines."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        a, b = x.flat[i], y.flat[i]
        s = cp.where(a > b, a - b, a * b) + min(a, b) / 3
        for k in range(3):
            s = s * a + cp.exp(-b * b)
        out.flat[i] = cp.where(a < 0, cp.sqrt(abs(s)) + cp.tanh(a), cp.erf(s))


@pytest.mark.parametrize("shape", [(1,), (15,), (4096,), (37, 29)], ids=str)
def test_results_do_not_depend_on_widths_planes_and_cubes(shape: Any):
    x, y = (RNG.normal(size=shape).astype(np.float32) for _ in range(2))
    expected = np.empty_like(x)
    everything_alike.configure(line_size=1).over(expected)(x, y, expected)
    assert np.isfinite(expected).all()
    for options in (
        {},
        {"line_size": 4},
        {"line_size": 16},
        {"line_size": 5},
        {"plane_dim": 32},
        {"plane_dim": 32, "line_size": 8},
        {"line_size": 64},
    ):
        for dim in (None, 1, 33 if "plane_dim" not in options else 64):
            out = Guarded(shape)
            everything_alike.configure(**options).over(out.array, cube_dim=dim)(x, y, out.array)
            out.check(expected)
    with cp.settings(opt_level=0):
        out = Guarded(shape)
        cp.cube(everything_alike.function).over(out.array)(x, y, out.array)
        out.check(expected)


@cp.cube
def total(x, out):
    s = 0.0
    for k in range(x.size):
        s += x[k]
    out[0] = s


@cp.cube
def signed_zero(x, out):
    out[0] = x[0] + 0.0


def test_fast_math_changes_the_code():
    plain, fast = total.configure(contract=True), total.configure(fast_math=True)
    texts = [k[1, 1].inspect("f32[?]", "f32[1]") for k in (plain, fast)]
    assert "reassoc" not in texts[0] and "reassoc" in texts[1]
    assert "fadd <" not in texts[0] and "fadd reassoc" in texts[1]
    assert "<16 x float>" in texts[1] or "<8 x float>" in texts[1] or "<4 x float>" in texts[1]


def test_fast_math_gives_close_results():
    x = RNG.normal(size=10_007).astype(np.float32)
    out, ordered = np.zeros(1, np.float32), np.float32(0)
    for v in x:
        ordered += v
    total[1, 1](x, out)
    assert out[0] == ordered, "without it, the order is the program's"
    total.configure(fast_math=True)[1, 1](x, out)
    assert math.isclose(out[0], x.sum(dtype=np.float64), rel_tol=1e-4, abs_tol=1e-2)


def test_ieee_754_without_fast_math():
    out = np.ones(1, np.float32)
    signed_zero[1, 1](np.array([-0.0], np.float32), out)
    assert not np.signbit(out[0]), "-0 + 0 is +0"


@pytest.mark.parametrize(
    "options",
    [
        {"line_size": 0},
        {"line_size": -4},
        {"line_size": 2.5},
        {"line_size": "wide"},
        {"plane_dim": 0},
        {"plane_dim": -1},
        {"plane_dim": 2.5},
        {"device": "cuda:7"},
    ],
    ids=str,
)
def test_wrong_options(options: Any):
    with pytest.raises((cp.Error, TypeError, ValueError)) as caught:
        total.configure(**options)[1, 1](np.zeros(4, np.float32), np.zeros(1, np.float32))
    (name,), (value,) = options.keys(), options.values()
    assert name in str(caught.value) or str(value) in str(caught.value)


def test_configure_keeps_what_it_is_not_given():
    kernel = multiply_add_scalars.configure(contract=False).configure(line_size=4)
    a, b, c = cancelling(np.float32)
    out = Guarded(a.shape)
    kernel.over(out.array)(a, b, c, out.array)
    out.check(a * b + c)


def test_configuring_again_gives_the_same_kernel():
    first = multiply_add.configure(checked=True, line_size=4)
    assert first is not multiply_add
    assert multiply_add.configure(line_size=4).configure(checked=True) is first
    assert first.configure(checked=True) is first


def test_configured_kernels_are_bounded():
    for width in range(1, 200):
        multiply_add.configure(line_size=width)
    assert len(multiply_add._configured) <= MAX_CONFIGURED


def test_unknown_settings_are_refused():
    for kernel in (total, cp.from_ir(total.inspect("f32[8]", "f32[1]", stage="ir"))):
        with pytest.raises(TypeError, match="E406.*no setting `chekced`") as found:
            kernel.configure(chekced=True)  # pyright: ignore[reportArgumentType]
        assert isinstance(found.value, cp.LaunchError)
    with pytest.raises(TypeError, match="did you mean `line_size`"):
        multiply_add.configure(linesize=4)
    with pytest.raises(TypeError, match="settings are line_size, plane_dim"):
        multiply_add.configure(zzz=4)


@pytest.mark.parametrize("name", ["checked", "fast_math", "contract"])
def test_a_switch_takes_nothing_but_true_and_false(name: str):
    """A text such as "no" is true."""
    kernels: tuple[Any, ...] = (total, cp.from_ir(total.inspect("f32[8]", "f32[1]", stage="ir")))
    for kernel in kernels:
        if name == "checked" and kernel is not total:
            continue
        for value in ("no", 1, 0.0):
            with pytest.raises(cp.LaunchError, match=rf"E420.*{name} cannot be .*True or False"):
                kernel.configure(**{name: value})
        assert kernel.configure(**{name: np.bool_(True)}) is kernel.configure(**{name: True})


def test_true_is_no_number_of_lanes():
    for value in (True, "wide", 0, 257, np.arange(2)):
        with pytest.raises(cp.LaunchError, match="E420.*line_size cannot be"):
            multiply_add.configure(line_size=value)  # pyright: ignore[reportArgumentType]
    with pytest.raises(cp.LaunchError, match="E420.*vectorise cannot be"):
        multiply_add.configure(vectorise=np.arange(2))  # pyright: ignore[reportArgumentType]
