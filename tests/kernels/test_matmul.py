"""`cp.kernels.matmul` against NumPy in f64, with the bound that its docstring gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.types import bf16, f32
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.calls.plans import Plans
from cubepy.kernels.matmul import entry, strategies
from cubepy.kernels.matmul.problem import ROWS
from cubepy.lang.annotations import spec
from cubepy.runtimes.cpu.device import cpu_device
from cubepy.targets import parse_target

RNG = np.random.default_rng(11)


def matrix(*shape: int, layout: str = "rows", dtype: Any = np.float32) -> np.ndarray:
    """Random numbers that lie in memory as asked: every second one for "steps"."""
    if layout == "columns":
        return matrix(*shape[:-2], shape[-1], shape[-2], dtype=dtype).swapaxes(-1, -2)
    if layout == "steps":
        return matrix(*shape[:-1], 2 * shape[-1], dtype=dtype)[..., ::2]
    if np.dtype(dtype).kind in "iu":
        low, high = max(-128, np.iinfo(dtype).min), 128
        return RNG.integers(low, high, shape).astype(dtype)
    return RNG.standard_normal(shape).astype(dtype)


def check(found: np.ndarray, a: np.ndarray, b: np.ndarray, unit: float, more: Any = 0) -> None:
    """Assert that a product errs by no more than k * unit * |a| |b|, and its rounding."""
    exact = np.matmul(a.astype("f8"), b.astype("f8")) + more
    largest = np.matmul(abs(a).astype("f8"), abs(b).astype("f8")) + abs(more)
    assert found.shape == exact.shape
    rounding = 0 if found.dtype == "f8" else np.finfo(found.dtype).eps
    bound = (a.shape[-1] + 2) * unit * largest + rounding * abs(exact) + 1e-30
    assert (abs(found - exact) <= bound).all()


UNIT = 2.0**-24
LAYOUT_PAIRS = ("rows rows", "rows columns", "columns rows", "columns columns")


@pytest.mark.parametrize("layouts", LAYOUT_PAIRS)
def test_layouts(layouts: str):
    left, right = layouts.split()
    for m, k, n in ((1, 65, 130), (1, 1, 1), (1, 300, 19), (61, 350, 43), (37, 31, 33)):
        a, b = matrix(m, k, layout=left), matrix(k, n, layout=right)
        check(cp.kernels.matmul(a, b), a, b, UNIT)


@pytest.mark.parametrize("m", [5, 8, 11, 16])
def test_few_rows_meet_long_columns(m: int):
    """Longer than a step along k, which has no whole number of lines."""
    a, b = matrix(m, 4403), matrix(4403, 29, layout="columns")
    out = np.full((m, 29), np.nan, np.float32)
    cp.kernels.matmul(a, b, out=out)
    check(out, a, b, UNIT)


@pytest.mark.parametrize("m", [3, 13])
def test_elements_that_lie_apart(m: int):
    a, b = matrix(m, 19, layout="steps"), matrix(19, 21, layout="steps")
    check(cp.kernels.matmul(a, b), a, b, UNIT)


@pytest.mark.parametrize("layout", ["columns", "steps"])
def test_outputs(layout: str):
    a, b = matrix(29, 40), matrix(40, 37)
    out = matrix(29, 37, layout=layout)
    out[...] = np.nan
    assert cp.kernels.matmul(a, b, out=out) is out
    check(out, a, b, UNIT)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that small matrices have many of."""
    real, divided = strategies.blocks, strategies.divide
    cut = {"depth": 64, "width": 64}

    def blocks(target: Any, problem: Any) -> Any:
        return replace(real(target, problem), **cut)

    def divide(target: Any, problem: Any, t: Any) -> Any:
        found = divided(target, problem, t)
        return strategies.Division(2 * t.rows, found.width, found.depth)

    monkeypatch.setattr(strategies, "blocks", blocks)
    monkeypatch.setattr(entry, "divide", divide)
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_many_blocks(dtype: str):
    a, b = matrix(83, 150, dtype=dtype), matrix(150, 133, dtype=dtype)
    check(cp.kernels.matmul(a, b), a, b, UNIT)
    bias = matrix(133, dtype=dtype)
    found = cp.kernels.matmul(a, b, bias=bias)
    check(found, a, b, UNIT, bias.astype("f8"))


@pytest.mark.parametrize(
    ("dtype", "result", "m"),
    [("i1", "i4", 3), ("i1", "i4", 13), ("u1", "i4", 13), ("i2", "i4", 3), ("i8", "i8", 13)],
)
def test_integers(dtype: str, result: str, m: int):
    a, b = matrix(m, 70, dtype=dtype), matrix(70, 37, dtype=dtype)
    found = cp.kernels.matmul(a, b)
    assert found.dtype == result
    np.testing.assert_array_equal(found, a.astype(result) @ b.astype(result))


@pytest.mark.parametrize("m", [3, 13])
@pytest.mark.parametrize(("dtype", "unit"), [("f2", UNIT), ("f8", 2.0**-53)])
def test_floats(dtype: str, unit: float, m: int):
    a, b = matrix(m, 70, dtype=dtype), matrix(70, 37, dtype=dtype)
    found = cp.kernels.matmul(a, b)
    assert found.dtype == dtype
    check(found, a, b, 2 * unit)
    turned = np.ascontiguousarray(b.T).T
    check(cp.kernels.matmul(a, turned), a, b, 2 * unit)


@pytest.mark.parametrize("shape", [(1, 1032, 2060), (5, 9000, 48)])
def test_parts_of_k(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch):
    m, k, n = shape
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
    real = entry.parts_of_k
    seen: list[int] = []

    def parts(target: Any, problem: Any) -> int:
        seen.append(real(replace(target, cores=4), problem))
        return seen[-1]

    monkeypatch.setattr(entry, "parts_of_k", parts)
    a, b, bias = matrix(m, k), matrix(k, n), matrix(n)
    check(cp.kernels.matmul(a, b, bias=bias), a, b, UNIT, bias.astype("f8"))
    assert seen[0] == 4


def test_parts_of_k_and_a_rest(monkeypatch: pytest.MonkeyPatch):
    """As of a k that is prime, where devices cut it into powers of two."""
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
    seen = list[int]()

    def parts(target: Any, problem: Any) -> int:
        seen.append(problem.k)
        return 1 if problem.k % 8 else 8

    monkeypatch.setattr(entry, "parts_of_k", parts)
    for m, k, n in ((3, 9001, 32), (1, 8193, 37)):
        a, b, bias = matrix(m, k), matrix(k, n), matrix(n)
        found = cp.kernels.matmul(a, b, bias=bias, epilogue=lambda v, index: v * 2)
        np.testing.assert_allclose(found, 2 * (a.astype("f8") @ b + bias), 1e-4, 1e-3)
        turned = np.ascontiguousarray(a.T).T
        check(cp.kernels.matmul(turned, b), a, b, UNIT)
    assert set(seen) == {9001, 8704, 8193, 8192}


@pytest.mark.optional("torch")
def test_bf16():
    import torch

    a, b = torch.randn(13, 70).bfloat16(), torch.randn(70, 37).bfloat16()
    found = cp.kernels.matmul(a, b)
    assert found.dtype is torch.bfloat16
    exact = (a.double() @ b.double()).numpy()
    np.testing.assert_allclose(found.double().numpy(), exact, 2**-8, 1e-4)


def has_tiles() -> bool:
    """Whether this processor has matrix units, and the process may use them."""
    return bool(cpu_device().target.matrix_units)


DOTS = frozenset(("avx512vnni", "avx512bf16"))
"""What processors with dot products of bytes and of bf16 are known by."""


@pytest.fixture
def small_steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Steps and cubes that small matrices have many of; what was chosen comes back.

    With "dots" as its parameter, for a processor with dot products, but no matrix units.
    """
    real, seen = strategies.units, []

    def units(target: Any, problem: Any) -> Any:
        if request.param == "dots":
            target = replace(target, line_bytes=64, features=DOTS)
        found = real(target, problem)
        seen.append(found and replace(found, depth=found.line, width=64))
        return seen[-1]

    monkeypatch.setattr(strategies, "units", units)
    monkeypatch.setattr(strategies, "UNIT_WORK", 1 << 12)
    monkeypatch.setattr(entry, "_PLANS", type(entry._PLANS)())
    return seen


BOTH = pytest.mark.parametrize("small_steps", ["unit", "dots"], indirect=True)


@BOTH
@pytest.mark.parametrize(
    ("dtype", "layouts"),
    [
        *(("i1", layouts) for layouts in LAYOUT_PAIRS),
        ("u1", "rows rows"),
        ("u1", "columns columns"),
    ],
)
def test_short_integers_in_steps(dtype: str, layouts: str, small_steps: list[Any]):
    left, right = layouts.split()
    for m, k, n in ((17, 1, 33), (61, 350, 143), (96, 128, 64)):
        a = matrix(2, m, k, layout=left, dtype=dtype)
        b = matrix(2, k, n, layout=right, dtype=dtype)
        out, exact = np.full((2, m, n), 77, "i4"), a.astype("i4") @ b.astype("i4")
        np.testing.assert_array_equal(cp.kernels.matmul(a, b, out=out), exact)
        found = cp.kernels.matmul(a, b, bias=out, epilogue=lambda v, index: v - 3)
        np.testing.assert_array_equal(found, 2 * exact - 3)
    for k, t in enumerate(small_steps):
        assert t is None or t.has_unit == (has_tiles() and t.rows == 32)
        assert t is None or t.is_direct == (t.has_unit and t.left == ROWS and k not in (2, 3))


@BOTH
def test_short_integers_that_lie_apart(small_steps: list[Any]):
    a = matrix(96, 128, layout="steps", dtype="i1")
    b = matrix(128, 64, layout="steps", dtype="i1")
    found = cp.kernels.matmul(a, b)
    np.testing.assert_array_equal(found, a.astype("i4") @ b.astype("i4"))
    offset = matrix(97, 131, dtype="u1")[1:, 3:]
    found = cp.kernels.matmul(offset, offset.T)
    np.testing.assert_array_equal(found, offset.astype("i4") @ offset.T.astype("i4"))


def test_sums_of_short_integers_wrap():
    a, b = np.full((20, 1 << 17), -128, "i1"), np.full((1 << 17, 40), -128, "i1")
    assert (cp.kernels.matmul(a, b) == -(1 << 31)).all()


@pytest.mark.optional("torch")
@BOTH
@pytest.mark.parametrize("layouts", LAYOUT_PAIRS)
def test_bf16_in_steps(layouts: str, small_steps: list[Any], request: pytest.FixtureRequest):
    import torch

    torch.manual_seed(3)
    left, right = (layout == "columns" for layout in layouts.split())
    for m, k, n in ((17, 1, 33), (61, 350, 143), (96, 128, 64)):
        a = torch.randn(k, m).T if left else torch.randn(m, k)
        b = torch.randn(n, k).T if right else torch.randn(k, n)
        a, b, bias = a.bfloat16(), b.bfloat16(), torch.randn(n).bfloat16()
        out = torch.full((m, n), torch.nan, dtype=torch.bfloat16)
        cp.kernels.matmul(a, b, bias=bias, out=out)
        exact = a.double() @ b.double() + bias.double()
        largest = a.double().abs() @ b.double().abs() + bias.double().abs()
        assert ((out.double() - exact).abs() <= 2**-8 * exact.abs() + k * UNIT * largest).all()
    for t in small_steps:
        assert t is None or t.has_unit == (has_tiles() and t.rows == 32)
    has_form = bool(cpu_device().target.features & {"amx-bf16", "avx512bf16"})
    is_told = request.node.callspec.params["small_steps"] == "dots"
    assert all(small_steps) == (has_form or is_told)


@pytest.mark.optional("torch")
def test_exact_products_of_bf16_keep_denormals():
    import torch

    a, b = torch.full((32, 32), 2.0**-130).bfloat16(), torch.full((32, 32), 2.0**10).bfloat16()
    assert (cp.kernels.matmul(a, b, precision="exact").double() == 2.0**-115).all()
    beside = a.clone()
    beside[:, 1:] = 0
    nan = torch.full((32, 40), torch.nan).bfloat16()
    assert cp.kernels.matmul(beside[:, :0], nan[:0]).eq(0).all()


@pytest.mark.parametrize("dtype", ["bf16", "i8"])
def test_matrix_units_are_used_where_they_are(dtype: str):
    specs = {"a": spec(f"{dtype}[64,96]"), "b": spec(f"{dtype}[96,80]")}
    for target, used in (("cpu:sapphirerapids", True), ("cpu:x86-64-v4", False)):
        (launch,) = record(cp.kernels.matmul, specs, {}, parse_target(target))
        text = launch.launcher.inspect(**launch.arguments, target=target)
        assert ("ldtilecfg" in text) == ("tdp" in text) == ("tilerelease" in text) == used
    (launch,) = record(cp.kernels.matmul, specs, {}, parse_target("cpu:znver4"))
    text = launch.launcher.inspect(**launch.arguments, target="cpu:znver4")
    assert ("vpdpbusd.512" in text) == (dtype == "i8")
    assert ("dpbf16ps.512" in text) == (dtype == "bf16")


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((70,), (70,)),
        ((70,), (70, 5)),
        ((5, 70), (70,)),
        ((70,), (3, 70, 5)),
        ((3, 20, 33), (33, 21)),
        ((2, 1, 20, 33), (3, 33, 21)),
        ((3, 0, 33), (33, 21)),
        ((3, 4, 0), (0, 21)),
        ((0, 4, 3), (0, 3, 21)),
    ],
)
def test_stacks(one: tuple[int, ...], two: tuple[int, ...]):
    a, b = matrix(*one), matrix(*two)
    check(np.asarray(cp.kernels.matmul(a, b)), a, b, UNIT)


def test_stacks_that_lie_apart():
    a, b = matrix(6, 20, 33)[::2], np.broadcast_to(matrix(33, 21), (3, 33, 21))
    check(cp.kernels.matmul(a, b), a, b, UNIT)
    check(cp.kernels.matmul(a.transpose(0, 2, 1), a), a.transpose(0, 2, 1), a, UNIT)


@pytest.mark.parametrize("m", [3, 13])
@pytest.mark.parametrize("bias", [(37,), (), "m"])
def test_bias(m: int, bias: Any):
    shape: tuple[int, ...] = (m, 1) if bias == "m" else bias
    a, b, c = matrix(m, 20), matrix(20, 37), np.asarray(matrix(*shape))
    check(cp.kernels.matmul(a, b, bias=c), a, b, 2 * UNIT, c.astype("f8"))


def scaled(v: Any, index: Any, scale: Any, rest: Any) -> Any:
    """An epilogue that reads one number for each row, and numbers that lie as the result does."""
    other = cp.load(rest[index[:-1]], index[-1], line=v.line_size)
    return max(v, 0) * scale[index[-2]] + other


@pytest.mark.parametrize(("m", "layout"), [(3, "rows"), (3, "columns"), (13, "rows")])
def test_epilogues(m: int, layout: str):
    a, b = matrix(m, 20), matrix(20, 37, layout=layout)
    scale, rest = matrix(m), matrix(m, 37)
    found = cp.kernels.matmul(a, b, epilogue=(scaled, scale, rest))
    exact = np.maximum(a.astype("f8") @ b, 0) * scale[:, None] + rest
    np.testing.assert_allclose(found, exact, 1e-4, 1e-4)
    gelu = cp.kernels.matmul(a, b, epilogue=lambda v, index: v * v)
    np.testing.assert_allclose(gelu, (a.astype("f8") @ b) ** 2, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("one", "two", "words"),
    [
        (matrix(3, 4), matrix(5, 6), "`a` has shape (3, 4) and `b` (5, 6)"),
        (matrix(2, 3, 4), matrix(3, 4, 6), "do not broadcast"),
        (matrix(3, 4), matrix(4, 6).astype("f8"), "`a` is f32[3,4] and `b` is f64[4,6]"),
        (np.ones((3, 4), bool), np.ones((4, 6), bool), "`a` has dtype bool_"),
        (matrix(3, 4), np.float32(3), "`b` (); both need an axis"),
    ],
)
def test_errors(one: Any, two: Any, words: str):
    with pytest.raises(cp.LaunchError, match="matmul") as raised:
        cp.kernels.matmul(one, two)
    assert words in str(raised.value)


def test_errors_of_options():
    a, b = matrix(3, 4), matrix(4, 6)
    with pytest.raises(cp.LaunchError, match="`bias` has shape"):
        cp.kernels.matmul(a, b, bias=matrix(5))
    with pytest.raises(cp.LaunchError, match="`precision`"):
        cp.kernels.matmul(a, b, precision="f3")
    with pytest.raises(cp.LaunchError, match="`out` has shape"):
        cp.kernels.matmul(a, b, out=matrix(3, 5))
    square = matrix(4, 4)
    with pytest.raises(cp.LaunchError, match="overlaps"):
        cp.kernels.matmul(square, square, out=square)


@pytest.mark.parametrize("target", ["cuda:sm_80", "opencl", "metal", "hip:gfx942", "cpu:apple-m1"])
def test_every_target_has_it(target: str):
    dtype = "f16" if target.startswith(("cuda", "metal")) else "f32"
    specs = {"a": spec(f"{dtype}[64,96]"), "b": spec(f"{dtype}[96,80]")}
    (launch,) = record(cp.kernels.matmul, specs, {}, parse_target(target))
    assert launch.launcher.inspect(**launch.arguments, target=target)


def test_blocks_follow_the_caches():
    target = parse_target("cpu:x86-64-v4")
    problem = entry.Problem(512, 512, 512, (), f32, f32, f32, "rows", "rows")
    found = strategies.blocks(target, problem)
    assert found.rows * found.depth * 4 <= target.near_bytes * 3 // 4
    assert found.width * found.depth * 4 <= target.cache_bytes // 2
    division = strategies.divide(target, problem, found)
    assert division.height % found.rows == 0
    assert division.width % found.step == 0


@pytest.mark.parametrize("m", [1, 2, 7, 8, 13, 16])
def test_runs_of_few_rows(draw: Any, m: int):
    """Columns are cut into whole steps, for each core to have some."""
    target = replace(parse_target("cpu:x86-64-v3"), cores=draw.pick.choice((1, 2, 5)))
    n = draw.pick.choice((64, 4096, 5000, 20000))
    t = strategies.streams(target, entry.Problem(m, n, 4096, (), f32, f32, f32, "rows", "rows"))
    assert t.width % (t.line * t.lines) == 0 and t.rows * t.groups >= m
    assert n <= 64 or -(-n // t.width) >= target.cores
    a, b = matrix(m, 9), matrix(9, 5000 + m)
    check(cp.kernels.matmul(a, b), a, b, UNIT)


def test_cores_share_blocks_evenly(draw):
    """Each core has as many results as any other, but for a tile of a cube along each axis."""
    for _ in range(20):
        m, n, k = (draw.pick.choice((64, 100, 256, 512, 1000, 2048)) for _ in range(3))
        target = replace(parse_target("cpu:x86-64-v4"), cores=draw.pick.choice((1, 2, 4, 8)))
        problem = entry.Problem(m, n, k, (), f32, f32, f32, "rows", "rows")
        t = strategies.blocks(target, problem)
        d = strategies.divide(target, problem, t)
        assert d.height % t.rows == d.width % t.step == 0 and d.width <= t.width
        cubes = -(-m // d.height) * -(-n // d.width)
        if problem.work >= target.cores * strategies.CUBE_WORK:
            assert cubes >= target.cores or d.height == t.rows or d.width == t.step
    two = replace(parse_target("cpu:x86-64-v4"), cores=2)
    problem = entry.Problem(256, 256, 256, (), f32, f32, f32, "rows", "rows")
    d = strategies.divide(two, problem, strategies.blocks(two, problem))
    assert -(-256 // d.height) * -(-256 // d.width) == 4


def test_matrix_units_give_all_cores_work_where_columns_are_few(draw):
    target = replace(parse_target("cpu:sapphirerapids"), cores=8)
    for _ in range(20):
        m, n, k = draw.pick.randint(500, 4000), draw.pick.randint(16, 200), 1280
        problem = entry.Problem(m, n, k, (), f32, f32, f32, "rows", "rows", elements=bf16)
        t = strategies.units(target, problem)
        assert t is not None
        d = strategies.divide(target, problem, t)
        wanted = min(target.cores, problem.work // strategies.UNIT_WORK)
        is_least = d.height <= 4 * t.rows and d.width <= 2 * t.step
        assert -(-m // d.height) * -(-n // d.width) >= wanted or is_least


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64", "f8e4m3"])
@pytest.mark.parametrize("factors", [np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("m", [1, 20])
def test_the_dtype_of_the_result(dtype: str, factors: Any, m: int):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(s).astype(factors) for s in ((m, 33), (33, 40)))
    found = cp.kernels.matmul(a, b, dtype=dtype)
    expected = a.astype(float) @ b.astype(float)
    rounding = {"float32": 2**-20, "float64": 2**-20, "bfloat16": 2**-8, "float16": 2**-10}
    assert found.dtype == (ml_dtypes.float8_e4m3fn if dtype == "f8e4m3" else np.dtype(dtype))
    np.testing.assert_allclose(
        found.astype(float), expected, rtol=rounding.get(dtype, 2**-3), atol=2e-2
    )


@pytest.mark.parametrize(("factors", "dtype"), [(np.int8, "float32"), (np.float32, "int32")])
def test_a_dtype_that_is_no_float_s(factors: Any, dtype: str):
    a = np.ones((4, 4), factors)
    with pytest.raises(cp.LaunchError):
        cp.kernels.matmul(a, a, dtype=dtype)


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8"])
def test_right_factors_that_no_cache_holds_are_prefetched(monkeypatch, dtype: str):
    """Products of few rows, which ask for memory behind the factor's end, give what others do."""
    target, numbers = cpu_device().target, np.random.default_rng(8)
    monkeypatch.setattr(strategies, "FAR", 0)
    monkeypatch.setattr(strategies, "fills_cache_lines", lambda target: True)
    monkeypatch.setattr(entry, "_PLANS", Plans())
    for m, k, n in ((1, 130, 77), (3, 67, 130), (16, 515, 40), (13, 8, 2100), (1, 3, 1)):
        a, b = (numbers.standard_normal(s).astype(dtype) for s in ((m, k), (k, n)))
        factors, bound = a.astype("f8"), b.astype("f8")
        unit = 2.0**-52 if dtype == "f8" else 2.0**-23 if dtype == "f4" else 2.0**-10
        limit = k * unit * (abs(factors) @ abs(bound)) + unit
        for right in (b, np.asfortranarray(b)):
            error = abs(cp.kernels.matmul(a, right).astype("f8") - factors @ bound)
            assert (error <= limit).all()
    p = entry.Problem(1, 64, 64, (), f32, f32, f32, ROWS, ROWS)
    assert strategies.streams(target, p).ahead and strategies.dots(target, p).ahead


def test_short_lines_are_not_prefetched():
    p = entry.Problem(1, 4096, 4096, (), f32, f32, f32, ROWS, ROWS)
    for arch, is_ahead in (("x86-64-v3", False), ("x86-64-v4", True)):
        target = parse_target(f"cpu:{arch}")
        assert bool(strategies.streams(target, p).ahead) == is_ahead
        assert bool(strategies.dots(target, p).ahead) == is_ahead
