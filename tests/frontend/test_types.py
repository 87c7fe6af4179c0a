"""Which type operations, literals, locals and stores have: the rules of the design, section 5."""

from __future__ import annotations

import itertools
import operator
from typing import Any, TypeVar

import ml_dtypes
import numpy as np
import pytest

import cubepy as cp
from tests.guarded import Guarded

SIGNED: dict[int, Any] = {8: cp.i8, 16: cp.i16, 32: cp.i32, 64: cp.i64}
UNSIGNED: dict[int, Any] = {8: cp.u8, 16: cp.u16, 32: cp.u32, 64: cp.u64}
FLOATS: tuple[Any, ...] = (cp.f16, cp.bf16, cp.f32, cp.f64)
INTEGERS = (*SIGNED.values(), *UNSIGNED.values())
NUMBERS = (*INTEGERS, *FLOATS)
ALL = (cp.bool_, *NUMBERS)
OPERATORS = {
    "+": operator.add,
    "*": operator.mul,
    "//": operator.floordiv,
    "-": operator.sub,
    "%": operator.mod,
    "min": min,
    "max": max,
}


def array(dtype: Any, *values: Any) -> np.ndarray:
    kind = ml_dtypes.bfloat16 if dtype == cp.bf16 else np.dtype(dtype.numpy_name)
    return np.array(values or [1], np.float64).astype(kind)


def expected_type(a: Any, b: Any) -> Any:
    """The rule in words: widen within a kind, mixed signs to signed, integers yield to floats."""
    if a is b:
        return a
    if cp.bool_ in (a, b):
        return b if a == cp.bool_ else a
    floats = [t for t in (a, b) if t in FLOATS]
    if len(floats) == 1:
        return floats[0]
    if len(floats) == 2:
        return cp.f32 if a.bits == b.bits else max(floats, key=lambda t: t.bits)
    if (a in INTEGERS[:4]) == (b in INTEGERS[:4]):
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a in INTEGERS[:4] else (b, a)
    if unsigned == cp.u64:
        return None
    return SIGNED[max(signed.bits, 2 * unsigned.bits)]


def types_of(function: Any, *arrays: np.ndarray) -> Any:
    """The dtypes that `function` of the first elements gives (one, or a tuple)."""
    seen: list[Any] = []

    def note(dtypes: Any) -> None:
        seen[:] = dtypes

    @cp.cube
    def kernel(arrays, f: cp.Comptime):
        result = f(*(a[0] for a in arrays))
        if isinstance(result, tuple):
            note(tuple(r.dtype for r in result))
        else:
            note((result.dtype,))

    kernel[1, 1](arrays, function)
    return tuple(seen) if len(seen) != 1 else seen[0]


@pytest.mark.parametrize("a", ALL, ids=str)
def test_typed_operands(a: Any):
    for b in ALL:
        wanted = expected_type(a, b)
        if wanted is None:
            with pytest.raises(cp.CompileError, match=r"E202.*u64(.|\n)*cp\.u64"):
                types_of(lambda x, y: x + y, array(a), array(b))
            continue
        number = cp.i32 if wanted == cp.bool_ else wanted
        found = types_of(
            lambda x, y: (x + y, y - x, x * y, x // y, x % y, x / y, x < y, x == y, max(x, y)),
            array(a),
            array(b),
        )
        divided = wanted if wanted in FLOATS else cp.f32
        bools = (cp.bool_, cp.bool_)
        assert found[:8] == (*(number,) * 5, divided, *bools), b
        assert found[8] in (wanted, number)
        if wanted not in FLOATS:
            bits = types_of(lambda x, y: (x & y, y | x, x ^ y, x << y, x >> y), array(a), array(b))
            assert bits == (*(wanted,) * 3, *(number,) * 2), b


@pytest.mark.parametrize("t", ALL, ids=str)
def test_literals_are_weak(t: Any):
    found = types_of(
        lambda x: (x + 1, 1 - x, x * True, x * 0.5, 2.0 / x, -x, x < 1, x // 2), array(t)
    )
    whole = cp.i32 if t == cp.bool_ else t
    real = t if t in FLOATS else cp.f32
    assert found == (whole, whole, whole, real, real, whole, cp.bool_, whole)
    assert types_of(lambda x: cp.where(x > 0, x, 1), array(t)) in (t, whole)
    assert types_of(lambda x: x if x > 0 else 1.5, array(t)) == real


def test_literals_must_fit():
    for t, value in ((cp.i8, 128), (cp.u8, -1), (cp.i16, 1 << 15), (cp.u32, 1 << 32), (cp.u64, -1)):
        with pytest.raises(cp.CompileError, match=f"E203.*{value}.*{t}"):
            types_of(lambda x, v=value: x + v, array(t))
    for t, value in ((cp.i8, -128), (cp.u8, 255), (cp.i64, -(1 << 63)), (cp.u64, (1 << 64) - 1)):
        assert types_of(lambda x, v=value: x + v, array(t)) == t


def test_literals_alone():
    found = types_of(lambda x: (x * 0 + 3, cp.i64(3), cp.f16(0.5), abs(x)), array(cp.i32))
    assert found == (cp.i32, cp.i64, cp.f16, cp.i32)


# Locals


def grown(start):
    def f(x):
        total = start
        for _ in range(3):
            total += x
        return total

    return f


def chosen(start):
    def f(x):
        total = start
        if x > 0:
            total = x
        return total

    return f


WIDE = {t: cp.i32 for t in (cp.i8, cp.i16, cp.u8, cp.u16)} | {cp.f16: cp.f32, cp.bf16: cp.f32}


@pytest.mark.parametrize("t", NUMBERS, ids=str)
@pytest.mark.parametrize("shape", [grown, chosen])
def test_locals_that_start_as_literals(t: Any, shape: Any):
    joined = WIDE.get(t, t)
    assert types_of(shape(0), array(t)) == joined
    assert types_of(shape(0.0), array(t)) == (joined if t in FLOATS else cp.f32)


@pytest.mark.parametrize("t", NUMBERS, ids=str)
def test_locals_that_start_with_a_type(t: Any):
    def typed(x):
        total = x.dtype(0)
        for _ in range(2):
            total += x
        return total

    assert types_of(typed, array(t)) == t


def test_typed_locals_keep_their_types_in_loops():
    def widen(x, y):
        total = x
        for _ in range(2):
            total = total + y
        return total

    for a, b in ((cp.i8, cp.i32), (cp.f32, cp.f64), (cp.f16, cp.bf16), (cp.u8, cp.i8)):
        with pytest.raises(
            cp.CompileError, match=rf"E211: `total` is {a} \(line.*{expected_type(a, b)}"
        ):
            types_of(widen, array(a), array(b))
    for a, b in ((cp.i32, cp.i8), (cp.f64, cp.f32), (cp.f32, cp.i64), (cp.i64, cp.u32)):
        assert types_of(widen, array(a), array(b)) == a


def test_locals_of_two_literals():
    def two(x):
        a = 1
        b = False
        if x > 0:
            a = 2.5
            b = 3
        c = 0
        for _ in range(2):
            c = c + a
        return a, b, c

    assert types_of(two, array(cp.i32)) == (cp.f32, cp.i32, cp.f32)


def test_values_of_joined_locals():
    @cp.cube
    def kernel(x, out):
        i = cp.ABSOLUTE_POS
        total = 0
        k = 7
        for _ in range(3):
            total += x[i] * 0.5
            k += 1
        out[i] = total + k

    for t in (cp.f16, cp.f32, cp.f64, cp.bf16):
        x, out = array(t, 1.5, -2, 3), Guarded(3, np.float64)
        kernel[3, 1](x, out.array)
        out.check(x.astype(np.float64) * 1.5 + 10)


def test_a_local_annotated():
    def f(x):
        a: cp.f64 = x
        b: cp.i8 = 3  # pyright: ignore[reportAssignmentType]
        c: float = x
        return a, b, c

    assert types_of(f, array(cp.f32))[:2] == (cp.f64, cp.i8)


def test_an_annotation_holds_its_literal():
    def narrow(v: cp.i8):
        return v

    def local(out, k: cp.Comptime[int]):
        v: cp.u8 = k  # pyright: ignore[reportAssignmentType]
        out[0] = v

    def chosen(out, k: cp.Comptime[int]):
        out[0] = narrow(k if out[1] > 0 else 5)  # pyright: ignore[reportArgumentType]

    for function, least, most in ((local, 0, 255), (chosen, -128, 127)):
        kernel, out = cp.cube(function), np.array([7, 1])
        for k in (least, most):
            kernel[1, 1](out, k)
            assert out[0] == k
        for k in (least - 1, most + 1):
            with pytest.raises(cp.CompileError, match=f"E203: the literal {k} does not fit"):
                kernel[1, 1](out, k)


# Stores and conversions


@pytest.mark.parametrize(("source", "target"), [*itertools.product(ALL, NUMBERS)], ids=str)
def test_stores(source: Any, target: Any):
    @cp.cube
    def kernel(x, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out[i] = x[i]

    x = (
        array(source, 0, 1, 100, 3)
        if source not in INTEGERS[:4]
        else array(source, -128, 1, 100, -1)
    )
    out = Guarded(4, array(target).dtype)
    if source in FLOATS and target not in FLOATS:
        with pytest.raises(cp.CompileError, match=rf"E205.*{target}(.|\n)*cp\.{target}\("):
            kernel[4, 1](x, out.array)
        assert out.is_untouched
        return
    kernel[4, 1](x, out.array)
    out.check(x.astype(out.array.dtype))


@pytest.mark.parametrize("target", INTEGERS, ids=str)
def test_conversions_of_literals(target: Any):
    @cp.cube
    def kernel(out, t: cp.Comptime):
        out[0], out[1], out[2] = t(3.99), t(-1e30), t(1e30)
        out[3], out[4] = t(300), t(-1)

    out = Guarded(5, array(target).dtype)
    kernel[1, 1](out.array, target)
    info = np.iinfo(out.array.dtype)
    wrapped = np.array([300, -1]).astype(out.array.dtype)
    out.check(np.array([3, info.min, info.max, *wrapped.tolist()], out.array.dtype))


@pytest.mark.parametrize(
    "spelling", [np.float64, "f64", "float64", "float", np.dtype("f8"), float, cp.f64], ids=repr
)
def test_spellings_of_dtypes(spelling: Any):
    assert cp.f64 == spelling
    assert types_of(lambda x: (x, x) if x.dtype == spelling else x, array(cp.f64)) == (
        cp.f64,
        cp.f64,
    )
    assert types_of(lambda x: cp.local(3, spelling, fill=0)[0], array(cp.i8)) == cp.f64


@pytest.mark.parametrize("name", ["half", "float", "double", "int"])
def test_names_that_numpy_has_mean_the_same(name: str):
    assert cp.empty(3, dtype=name).dtype == np.dtype(name)


@pytest.mark.optional("torch")
def test_torch_dtypes():
    import torch

    for name, dtype in (
        ("float32", cp.f32),
        ("bfloat16", cp.bf16),
        ("int8", cp.i8),
        ("bool", cp.bool_),
    ):
        assert dtype == getattr(torch, name)
        assert dtype != torch.float64


def test_indices_never_wrap():
    @cp.cube
    def kernel(x, out):
        i = cp.ABSOLUTE_POS
        big = x.size * 3_000_000_000
        out[i] = (big + i * 5_000_000_000) // 1_000_000_000

    out = Guarded(4, np.int64)
    kernel[4, 1](np.zeros(7, np.int8), out.array)
    out.check([21 + 5 * k for k in range(4)])


@cp.cube
def parts_of_lines(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f64], n: int):
    v = cp.load(x, 0, line=8)
    halves = v[1::2]
    pairs = cp.concat(v, v)
    if n > 1:
        v = cp.load(x, 8, line=8)
    for _ in range(n):
        halves = halves + v[::2]
        pairs = pairs + cp.concat(v, v)
    v = cp.Line[cp.f64, 8](v)
    cp.store(out, 0, halves)
    cp.store(out, 4, pairs)


@cp.cube
def lanes_of_lines(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32], n: int):
    v, held = cp.load(x, 0, line=8), 0.0
    for _ in range(n):
        v = v + 1
        held = v[2:4]
    if n == 0:
        held = v[::4]
    cp.store(out, 0, held)


def test_parts_of_lines_keep_their_own_lanes():
    x, out = np.arange(16, dtype=np.float32), np.full(20, np.nan)
    parts_of_lines[1, 1](x, out, 2)
    np.testing.assert_array_equal(out[:4], x[1:8:2] + 2 * x[8::2])
    np.testing.assert_array_equal(out[4:], np.tile(x[:8] + 2 * x[8:], 2))
    short = np.full(2, np.nan, np.float32)
    lanes_of_lines[1, 1](x, short, 3)
    np.testing.assert_array_equal(short, x[2:4] + 3)


def test_float_literals_do_not_become_integers_by_annotation():
    @cp.cube
    def helper(v: cp.i32) -> cp.i32:
        return v

    @cp.cube
    def argument(out):
        out[0] = helper(2.5)

    @cp.cube
    def annotated(out):
        n: cp.i32 = 2.5  # pyright: ignore[reportAssignmentType]
        out[0] = n

    for kernel in (argument, annotated):
        with pytest.raises(cp.CompileError, match="E207: .* expects i32, got 2.5"):
            kernel[1, 1](np.zeros(1))


Kind = TypeVar("Kind")
More = TypeVar("More")
CALLED: Any = Kind
CALLED_TOO: Any = More


@cp.cube
def beside(v: Kind, more: More) -> Any:  # type: ignore[reportInvalidTypeVarUse]
    return v + CALLED(CALLED_TOO(2.5)) + CALLED(1)


@pytest.mark.parametrize("dtype", ["i4", "u1", "f2", "f4", "f8"])
def test_a_type_variable_is_the_dtype_of_its_parameters(dtype: str):
    @cp.cube
    def kernel(x: cp.Tensor[Kind], n: Kind, out: cp.Tensor[Kind]):
        held = cp.local(2, Kind, fill=0)
        held[0] = sum(CALLED(k) for k in range(3))
        is_same = cp.comptime(x.dtype == Kind) and CALLED(7).dtype == Kind
        out[0] = beside(x[0], 1) + held[0] + n + (lambda v: CALLED(v))(x[1] if is_same else 100)

    x, out = np.array([1, 2], dtype), np.zeros(1, dtype)
    kernel[1, 1](x, 3, out)
    assert out[0] == 1 + 2 + 1 + 3 + 3 + 2


def test_a_type_variable_that_no_parameter_has():
    @cp.cube
    def kernel(out):
        out[0] = CALLED(1)

    with pytest.raises(cp.CompileError, match="annotate a parameter with it"):
        kernel[1, 1](np.zeros(1))


def test_no_number_equals_none():
    @cp.cube
    def kernel(x, out):
        out[0] = 1 if None in (x[0], None) else 2
        out[1] = 1 if None in (x[0], 3) else 2
        out[2] = (x[0] == None) + 2 * (None != x[0])  # noqa: E711
        out[3] = (x[0], None) == (0, None)

    out = np.zeros(4)
    kernel[1, 1](np.zeros(1), out)
    np.testing.assert_array_equal(out, [1, 2, 2, 1])


@pytest.mark.parametrize(
    ("a", "b", "shift", "count"),
    [
        (cp.u64, cp.i32, lambda v, n: v >> n, r"v >> cp\.u64\(n\)"),
        (cp.u64, cp.i64, lambda v, n: v << n, r"v << cp\.u64\(n\)"),
        (cp.i32, cp.u64, lambda v, n: v << n, r"v << cp\.i32\(n\)"),
    ],
)
def test_help_for_a_shift_converts_the_count(a: Any, b: Any, shift: Any, count: str):
    """Not the value: i64 in place of u64 keeps the sign."""
    with pytest.raises(cp.CompileError, match=f"E202(.|\n)*help: convert the count, as in {count}"):
        types_of(shift, array(a), array(b))


@pytest.mark.parametrize("dtype", ["i1", "u2", "i8", "f2", "f4", "f8"])
def test_numpy_takes_dtypes(dtype: str):
    @cp.cube
    def kernel(x, out):
        info = np.iinfo(x.dtype) if x.dtype.is_integer else np.finfo(x.dtype)
        out[0] = info.max
        out[1] = info.bits
        out[2] = np.dtype(dtype=x.dtype).itemsize

    x, out = np.zeros(1, dtype), np.zeros(3)
    kernel[1, 1](x, out)
    info: Any = np.iinfo(x.dtype) if x.dtype.kind in "iu" else np.finfo(x.dtype)
    assert out.tolist() == [float(info.max), info.bits, x.itemsize]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_numbers_of_run_time_are_instances_as_literals_of_their_kind(dtype: Any):
    @cp.cube
    def kernel(x, c: cp.Comptime, out):
        out[0] = isinstance(x[0], float) + 2 * isinstance(x[0], (int, str))
        out[1] = isinstance(c, float) + 2 * isinstance(c, (int, str))
        out[2] = isinstance(x[0], bool) + 2 * isinstance(x[0], int | list) + 4 * isinstance(x, list)
        out[3] = isinstance(c, bool) + 2 * isinstance(c, int | list)
        out[4] = isinstance(x, object) + 2 * isinstance(cp.UNIT_POS, int)

    out = np.zeros(5)
    kernel[1, 1](array(dtype), True if dtype == cp.bool_ else 1.0 if dtype in FLOATS else 1, out)
    assert (out[0], out[2], out[4]) == (out[1], out[3], 3)
