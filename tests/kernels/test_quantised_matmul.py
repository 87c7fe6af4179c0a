"""Products of quantised factors against f64, on numbers that are restored without error."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from cubepy.errors import LaunchError, LaunchTypeError
from cubepy.kernels import Quantised, matmul, quantize
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.calls.libraries import serving
from cubepy.kernels.matmul.widened import multiply_widened
from cubepy.targets import cuda_target
from tests.kernels.quantised_numbers import nibbles, restored, scales, some
from tests.optional import require_package

UNIT = 2.0**-24
MOST_SPILLED = 64
SHAPES = ((1, 40, 128), (3, 37, 65), (18, 33, 70))
SMALL = ((3, 7, 35),)
"""Rows, columns, and elements of k."""


def check(found: np.ndarray, a: np.ndarray, b: np.ndarray, more: Any = 0, factor: float = 0):
    """Sums err by k * UNIT of absolute products, scales by some roundings, a widened factor by its
    own (`factor`), and results by that of their type."""
    exact, largest = a @ b + more, abs(a) @ abs(b) + abs(more)
    assert found.shape == exact.shape
    bound = ((a.shape[-1] + 8) * UNIT + factor) * largest
    bound += np.finfo(found.dtype).eps * abs(exact) if found.dtype != "V" else 0
    assert (abs(found.astype("f8") - exact) <= bound + 1e-30).all()


def plus(v: Any, index: Any, more: Any) -> Any:
    return v + cp.load(more[index[:-1]], index[-1], line=v.line_size)


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize("kind", ["i8", "u8", "f8"])
def test_scales_of_rows_and_columns(draw: Any, kind: str, device: str):
    for m, n, k in SHAPES if device == "cpu" else SMALL:
        a, b = some(draw, (m, k), kind), some(draw, (n, k), kind)
        one, two = scales(draw, m, 1), scales(draw, n)
        bias, more = (draw.numbers.standard_normal(s).astype("f4") for s in ((n,), (m, n)))
        out = np.full((m, n), np.nan, "f4")
        x, y = Quantised(a, one), Quantised(b, two, axis=0).T
        with serving(device):
            matmul(x, y, bias=bias, epilogue=(plus, more), out=out)
            other = matmul(Quantised(a, 0.5), y, dtype="bf16")
        left, right = restored(a, one, (1, k)), restored(b, two[:, None], (1, k)).T
        check(out, left, right, bias + more.astype("f8"))
        exact = 0.5 * a.astype("f8") @ right
        assert np.all(abs(other.astype("f8") - exact) <= 2.0**-8 * abs(exact) + 1e-3)


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
def test_large_scales_meet_nothing_behind_k(draw: Any, device: str):
    """What fills the last line is less the zero point too, and that times its scale overflows."""
    for m, k in ((1, 33), (4, 7), (16, 70)) if device == "cpu" else ((3, 7),):
        x = draw.numbers.standard_normal((m, k)).astype("f4") * np.float32(1e-6)
        b = draw.numbers.integers(-128, -120, (21, k)).astype("i1")
        two = scales(draw, 21, 1) * np.float32(1e37)
        zero = np.full((21, 1), -128, "i1")
        with serving(device):
            found = matmul(x, Quantised(b, two, zero).T)
        check(found, x.astype("f8"), restored(b, two, (1, k), zero).T)


def test_stacks_share_weights(draw: Any):
    a, b = some(draw, (2, 3, 19, 40), "i8"), some(draw, (31, 40), "i8")
    one, two = scales(draw, 2, 3, 19, 1), scales(draw, 31)
    found = matmul(Quantised(a, one), Quantised(b, two, axis=0).T)
    check(found, restored(a, one, (1, 40)), restored(b, two[:, None], (1, 40)).T)
    x = draw.numbers.standard_normal((2, 3, 2, 40)).astype("f4")
    found = matmul(x, Quantised(b, two, axis=0).T)
    check(found, x.astype("f8"), restored(b, two[:, None], (1, 40)).T)
    b, two = some(draw, (2, 1, 7, 40), "i8"), scales(draw, 2, 1, 7, 1)
    found = matmul(x, Quantised(b, two).T)
    check(found, x.astype("f8"), restored(b, two, (1, 40)).swapaxes(-1, -2))


@pytest.mark.parametrize("blocks", [((1, 128), (128, 128)), ((1, 32), (1, 32)), ((7, 20), (9, 50))])
def test_blocks_of_small_floats(draw: Any, blocks: Any):
    for m, n, k in draw.pick.sample(SHAPES, 1):
        a, b = some(draw, (m, k), "f8"), some(draw, (n, k), "f8")
        one = scales(draw, *(-(-e // s) for e, s in zip(a.shape, blocks[0], strict=True)))
        two = scales(draw, *(-(-e // s) for e, s in zip(b.shape, blocks[1], strict=True)))
        x = Quantised(a, one, block_size=blocks[0])
        found = matmul(x, Quantised(b, two, block_size=blocks[1]).T)
        assert found.dtype == "f4"
        left, right = restored(a, one, blocks[0]), restored(b, two, blocks[1]).T
        check(found, left, right, factor=2 * UNIT)


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize("kind", ["int4", "uint4", "i8", "u8"])
def test_weights_are_widened(draw: Any, kind: str, device: str):
    group = draw.pick.choice((16, 32, 64))
    packed = kind if kind.endswith("int4") else None
    for m, n, k in draw.pick.sample(SHAPES, 2) if device == "cpu" else SMALL:
        q = some(draw, (n, k), kind)
        scale = scales(draw, n, -(-k // group))
        zero = draw.numbers.integers(0, 16, scale.shape).astype("i4")
        stored = nibbles(q) if packed else q
        x = draw.numbers.standard_normal((m, k)).astype("f4")
        for given in draw.pick.sample((None, zero), 1 if device == "interpreter" else 2):
            w = Quantised(stored, scale, given, None, (1, group), packed, k if packed else None)
            b = restored(q, scale, (1, group), 0 if given is None else given)
            with serving(device):
                found = matmul(x, w.T)
            check(found, x.astype("f8"), b.T, factor=2 * UNIT)
            if m == 3:  # weights as the left factor, and a vector
                with serving(device):
                    found = matmul(w, x.T), matmul(x[0], w.T)
                check(found[0], b, x.T.astype("f8"), factor=2 * UNIT)
                check(found[1][None], x[:1].astype("f8"), b.T, factor=2 * UNIT)


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize("kind", ["int4", "uint4", "i8"])
def test_weights_with_dense_rows(draw: Any, kind: str, device: str):
    packed = kind if kind.endswith("int4") else None
    for m, n, k in ((1, 150, 40), (3, 37, 65), (20, 9, 33)) if device == "cpu" else SMALL:
        q = some(draw, (k, n), kind)
        for block in draw.pick.sample(((16, 1), (k, 1), (1, 64), (7, n + n % 2)), 2):
            scale = scales(draw, -(-k // block[0]), -(-n // block[1]))
            zero = draw.numbers.integers(0, 16, scale.shape).astype("i4")
            given = draw.pick.choice((None, zero))
            x = draw.numbers.standard_normal((m, k)).astype("f4")
            values = nibbles(q) if packed else q
            w = Quantised(values, scale, given, None, block, packed, n if packed else None)
            b = restored(q, scale, block, 0 if given is None else given)
            with serving(device):
                found = matmul(x, w)
            check(found, x.astype("f8"), b, factor=3 * UNIT)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64])
def test_types_of_the_other_factor(draw: Any, dtype: Any):
    q, scale = some(draw, (21, 96), "int4"), scales(draw, 21, 3)
    b = restored(q, scale, (1, 32)).T
    for m in (2, 30):
        x = draw.numbers.standard_normal((m, 96)).astype(dtype)
        w = Quantised(nibbles(q), scale, None, 1, 32, "int4").T
        found = matmul(x, w)
        assert found.dtype == dtype
        rounding = ml_dtypes.finfo(dtype).eps
        exact = x.astype("f8") @ b
        bound = (100 * UNIT + 2 * rounding) * (abs(x.astype("f8")) @ abs(b))
        assert (abs(found.astype("f8") - exact) <= bound).all()


def test_what_quantize_gives(draw: Any):
    w = draw.numbers.standard_normal((24, 64)).astype("f4")
    scale = (abs(w).reshape(24, 2, 32).max(-1) / 7).astype("f4")
    q = quantize(w, scale, axis=1, block_size=32, dtype="int4")
    x = draw.numbers.standard_normal((4, 64)).astype("f4")
    found = matmul(x, Quantised(q, scale, axis=1, block_size=32, packed="int4").T)
    near = np.repeat(scale / 2, 32, 1).astype("f8")
    assert (abs(found - x.astype("f8") @ w.T) <= 1.01 * abs(x) @ near.T + 1e-5).all()


def test_long_sums_of_integers_do_not_wrap():
    k = 1 << 18
    a = np.full((1, k), -128, "i1")
    found = matmul(Quantised(a, 1.0), Quantised(a, 1.0).T)
    assert found[0, 0] == 2.0**32


def test_weights_are_not_copied():
    specs = {
        "x": cp.spec("f32[8,4096]"),
        "q": cp.spec("u8[4096,2048]"),
        "s": cp.spec("f32[4096,32]"),
    }
    made = record(with_weights, specs, {}, cp.device("cpu").target)
    assert [launch.launcher.kernel.__name__ for launch in made] == [multiply_widened.__name__]


def with_weights(x: Any, q: Any, s: Any) -> Any:
    return matmul(x, Quantised(q, s, axis=1, block_size=128, packed="int4").T)


def with_both(a: Any, b: Any, s: Any, t: Any) -> Any:
    return matmul(Quantised(a, s), Quantised(b, t, axis=0).T)


def with_blocks(a: Any, b: Any, s: Any, t: Any) -> Any:
    left, right = Quantised(a, s, block_size=(1, 128)), Quantised(b, t, block_size=(128, 128))
    return matmul(left, right.T, dtype="bf16")


BYTES = {"a": "f8e4m3[512,1024]", "b": "f8e4m3[768,1024]", "s": "f32[512,8]", "t": "f32[6,8]"}
PROGRAMS = {
    "weights": (with_weights, {"x": "bf16[8,4096]", "q": "u8[4096,2048]", "s": "f16[4096,32]"}),
    "copies": (with_weights, {"x": "bf16[80,4096]", "q": "u8[4096,2048]", "s": "f16[4096,32]"}),
    "bytes": (
        with_both,
        {"a": "i8[512,1024]", "b": "i8[768,1024]", "s": "f32[512,1]", "t": "f32[768]"},
    ),
    "blocks": (with_blocks, BYTES),
    "odd": (with_both, {"a": "i8[51,999]", "b": "i8[77,999]", "s": "f32[51,1]", "t": "f32[77]"}),
}


OURS = ("multiply_widened", "multiply_mixed", "multiply_blockwise", "widen")
KERNELS = {
    ("weights", "sm_80"): ["multiply_widened"],
    ("weights", "sm_90a"): ["multiply_mixed"],
    ("copies", "sm_80"): ["widen", "multiply_fragments"],
    ("copies", "sm_90a"): ["multiply_mixed"],
    ("bytes", "sm_80"): ["multiply_fragments"],
    ("bytes", "sm_90a"): ["multiply_pipelined"],
    ("odd", "sm_80"): ["multiply_fragments"],
    ("odd", "sm_90a"): ["multiply_fragments"],
    ("blocks", "sm_80"): ["widen", "widen", "multiply_tiles"],
    ("blocks", "sm_90a"): ["multiply_blockwise"],
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_text_for_gpus_compiles(name: str, arch: str):
    require_package("cuda.bindings")
    function, specs = PROGRAMS[name]
    made = record(function, {k: cp.spec(v) for k, v in specs.items()}, {}, cuda_target(arch))
    assert [launch.launcher.kernel.__name__ for launch in made] == KERNELS[name, arch]
    for launch in made:
        if launch.launcher.kernel.__name__ not in OURS:
            continue
        text = launch.launcher.inspect(**launch.arguments, target=f"cuda:{arch}", stage="resources")
        assert "ptxas" not in text
        stored = re.search(r"spills +(\d+) bytes stored", text)
        assert stored is not None and int(stored.group(1)) <= MOST_SPILLED, text


Q = np.ones((6, 8), "i1")
WRONG: tuple[tuple[Any, Any, type[Exception], str], ...] = (
    (Q, Quantised(Q, 1.0).T, LaunchTypeError, "`a` has dtype i8"),
    (Quantised(Q, np.ones(6)), Quantised(Q, 1.0).T, LaunchError, "`a.scale` has shape"),
    (Quantised(Q, np.ones((6, 3)), block_size=(1, 4)), Quantised(Q, 1.0).T, LaunchError, "a.scale"),
    (Quantised(Q, 1.0, block_size=4), Quantised(Q, 1.0).T, LaunchError, "without `axis`"),
    (Quantised(Q, 1.0, packed="int4"), Quantised(Q, 1.0).T, LaunchTypeError, "int4"),
    (Quantised(Q, np.ones((6, 1), "i4")), Quantised(Q, 1.0).T, LaunchTypeError, "a.scale"),
    (Quantised(Q, 1.0, np.zeros(6, "i1")), Quantised(Q, 1.0).T, LaunchError, "zero_point"),
    (Quantised(Q[0], 1.0), Quantised(Q, 1.0).T, LaunchError, "two axes"),
    (Quantised(Q, 1.0), Quantised(Q, 1.0), LaunchError, "differ"),
    (Quantised(Q.astype("i4"), 1.0), Quantised(Q, 1.0).T, LaunchTypeError, "i32"),
)


@pytest.mark.parametrize("case", range(len(WRONG)))
def test_wrong_factors_are_refused(case: int):
    a, b, error, text = WRONG[case]
    with pytest.raises(error, match=text.replace("`", ".")):
        matmul(a, b)
