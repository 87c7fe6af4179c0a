"""`map` against the same functions of NumPy, in float64 where they are not exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.errors import CompileError, LaunchError, LaunchTypeError
from cubepy.kernels import map as cube_map
from tests.guarded import Guarded

SCALE = 3.0


@cp.cube
def scaled(v: cp.f32) -> cp.f32:
    return v * SCALE


@cp.cube
def gelu(v: cp.f32) -> cp.f32:
    return v * 0.5 * (1 + cp.erf(v * 0.7071067811865476))


def branching(v: Any) -> Any:
    if v > 0:
        return v * 2
    return v - 1


FUNCTIONS = (
    (lambda a: a + 1, lambda a: a + 1),
    (lambda a, b: a * b + a, lambda a, b: a * b + a),
    (lambda a, b, c: (a + b) * c, lambda a, b, c: (a + b) * c),
    (lambda a, b: max(a, b), np.maximum),
    (lambda a: a if a > 1 else -a, lambda a: np.where(a > 1, a, -a)),
    (branching, lambda a: np.where(a > 0, a * 2, a - 1)),
    (lambda a, b: b, lambda a, b: np.broadcast_arrays(a, b)[1]),
)


def operand(draw: Any, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array that broadcasts to `shape`."""
    shape = tuple(1 if draw.pick.random() < 0.2 else n for n in shape)
    if draw.pick.random() < 0.2:
        shape = shape[draw.pick.randint(0, len(shape)) :]
    return draw.layout(draw.array(shape, dtype))


@pytest.mark.parametrize("pair", FUNCTIONS)
def test_shapes_and_strides(draw, pair):
    function, expected_of = pair
    count = function.__code__.co_argcount
    for _ in range(5):
        rank = draw.pick.choice((0, 1, 2, 2, 3))
        shape = tuple(draw.pick.choice((0, 1, 2, 5, 16, 17, 33, 100, 511)) for _ in range(rank))
        dtype = draw.pick.choice("ffdi") if math.prod(shape) < 10**6 else "f"
        arrays = [operand(draw, shape, dtype) for _ in range(count)]
        expected = expected_of(*arrays)
        case = str([(x.shape, x.strides, x.dtype) for x in arrays])
        found = cube_map(function, *arrays)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, expected, err_msg=case)
        out = Guarded(expected.shape, dtype, draw.pick.randrange(9))
        assert cube_map(function, *arrays, out=out.array) is out.array
        out.check(out.array)
        np.testing.assert_array_equal(out.array, expected, err_msg=case)


@pytest.mark.parametrize("width", (511, 4096))
def test_large_arrays(draw, width):
    a, b, c = (draw.numbers.standard_normal((1300, width)).astype(np.float32) for _ in range(3))
    out = Guarded(a.shape, offset=draw.pick.randrange(20))
    cube_map(lambda a, b, c: (a + b) * c, a, b, c, out=out.array)
    out.check((a + b) * c)


def test_elementary_functions(draw):
    x = draw.numbers.standard_normal(5000).astype(np.float32)
    wide = x.astype(np.float64)
    normal = 0.5 * wide * (1 + np.vectorize(math.erf)(wide * math.sqrt(0.5)))
    np.testing.assert_allclose(cube_map(cp.exp, x), np.exp(wide), rtol=3e-7)
    np.testing.assert_allclose(cube_map(gelu, x), normal, rtol=1e-5, atol=1e-6)
    found = cube_map(lambda v: cp.exp(v) + 1, wide)
    np.testing.assert_allclose(found, np.exp(wide) + 1, rtol=1e-15)


def test_in_place(draw):
    x, y = draw.array((70, 33), np.float32), draw.array((70, 33), np.float32)
    expected = x * y + x
    assert cube_map(lambda a, b: a * b + a, x, y, out=x) is x
    np.testing.assert_array_equal(x, expected)
    with pytest.raises(LaunchError, match="overlap"):
        cube_map(lambda a: a + 1, y[1:], out=y[:-1])


def test_one_array_several_times_and_as_the_result(draw):
    x, y = draw.array((70, 33), np.float32), draw.array((70, 33), np.float32)
    function = lambda a, b, c: a * 2 + b - c * np.float32(0.5)
    for given in ((x, x, y), (x, y, x), (y, x, x), (x, x, x), (y, y, x), (y, y, y)):
        expected = function(*given)
        assert cube_map(lambda a, b, c: a * 2 + b - c * 0.5, *given, out=x) is x
        np.testing.assert_array_equal(x, expected)
    expected = np.where(x != 0, x, 2)
    assert cp.kernels.where(x, x, 2.0, out=x) is x
    np.testing.assert_array_equal(x, expected)
    with pytest.raises(LaunchError, match="overlap"):
        cube_map(lambda a, b: a + b, y, y[::-1], out=y)


def test_numbers(draw):
    x = draw.array((7, 5), np.float32)
    np.testing.assert_array_equal(cube_map(lambda a, b: a * b, x, 2.5), x * np.float32(2.5))
    np.testing.assert_array_equal(cube_map(lambda a, b: a * b, x, 3), x * 3)
    small = draw.array((9,), np.int8)
    assert cube_map(lambda a, b: a + b, small, 3).dtype == np.int8
    assert cube_map(lambda a, b: a + b, x, np.float64(1)).dtype == np.float64
    with pytest.raises(LaunchError, match="fit"):
        cube_map(lambda a, b: a + b, small, 300)


def test_dtypes(draw):
    x = draw.array((50,), np.int32)
    assert cube_map(lambda a: a > 0, x).dtype == np.bool_
    np.testing.assert_array_equal(cube_map(lambda a: a > 0, x), x > 0)
    assert cube_map(lambda a: cp.f64(a), x).dtype == np.float64
    assert cube_map(lambda a, b: a + b, x, x.astype(np.float16)).dtype == np.float16
    assert cube_map(lambda a: 7, x).tolist() == [7] * 50
    wide = np.empty(50, np.int64)
    cube_map(lambda a: a * 2, x, out=wide)
    np.testing.assert_array_equal(wide, x * 2)


def test_results_lie_as_the_array_does(draw):
    x = draw.array((40, 30, 20), np.float32).transpose(2, 0, 1)
    found = cube_map(lambda a: a + 1, x)
    assert found.strides == x.strides
    np.testing.assert_array_equal(found, x + 1)


def test_captured_values_are_current(draw):
    global SCALE
    x = draw.array((100,), np.float32)
    try:
        for value in (2.0, 5.0, 2.0):
            SCALE = value
            np.testing.assert_array_equal(cube_map(scaled, x), x * np.float32(value))
    finally:
        SCALE = 3.0
    for factor in (2, 3):
        np.testing.assert_array_equal(cube_map(lambda v: v * factor, x), x * factor)


@pytest.mark.parametrize("n", [0, 1, 5, 37, 1000])
def test_numbers_that_depend_on_no_element(n: int):
    """They are one for all lanes of a line, whether they are literals or have a type."""
    x = np.zeros(n, np.float32)
    for function, dtype in (
        (lambda v: 3, np.int32),
        (lambda v: cp.f32(3), np.float32),
        (lambda v: cp.sqrt(cp.f64(9)), np.float64),
        (lambda v: cp.i16(SCALE), np.int16),
    ):
        found = cube_map(function, x)
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, np.full(n, 3))
    row, out = x[:0] if n < 3 else x[1:-1], np.full(max(0, n - 2), np.nan)
    cube_map(lambda v: cp.f64(3), row, out=out)
    assert (out == 3).all()


def test_refused():
    x = np.zeros((3, 4), np.float32)
    with pytest.raises(LaunchError, match="broadcast"):
        cube_map(lambda a, b: a + b, x, x[:, :3])
    with pytest.raises(LaunchTypeError, match="array"):
        cube_map(lambda a: a, 1.0)
    with pytest.raises(LaunchError, match="shape"):
        cube_map(lambda a: a, x, out=np.zeros((4, 3), np.float32))
    with pytest.raises(CompileError):
        cube_map(lambda a: (a, a), x)
    with pytest.raises(CompileError, match="E123.*a value of type index"):
        cube_map(lambda a: cp.ABSOLUTE_POS, x)
    with pytest.raises(CompileError, match="does not fit"):
        cube_map(lambda a: 1 << 70, x)
    with pytest.raises(CompileError):
        cube_map(lambda a: undefined + a, x)  # noqa: F821  # pyright: ignore[reportUndefinedVariable]


@pytest.mark.optional("torch")
def test_torch(draw, require_package):
    torch = require_package("torch")
    x = torch.from_numpy(draw.array((2, 3, 5, 7), np.float32))
    last = x.contiguous(memory_format=torch.channels_last)
    for y in (x, last):
        found = cube_map(lambda a, b: a * b, y, 2)
        assert torch.equal(found, x * 2) and found.stride() == y.stride()
    assert cube_map(lambda a: a > 0, x).dtype == torch.bool
    with pytest.raises(LaunchTypeError, match="libraries"):
        cube_map(lambda a, b: a + b, x, x.numpy())
    with pytest.raises(LaunchError, match="grad"):
        cube_map(lambda a: a, x.clone().requires_grad_())


def test_what_a_number_is_an_instance_of_is_one_for_lines_and_elements():
    x = np.arange(37, dtype=np.float32)
    half = cube_map(lambda v: v * 0.5 if isinstance(v, float) else v // 2, x)
    np.testing.assert_array_equal(half, x * 0.5)
    ones = cube_map(lambda v: cp.i32(1) if isinstance(v, float) else v, x)
    assert ones.dtype == np.int32
    np.testing.assert_array_equal(ones, np.ones(37))
    found = cube_map(lambda v: v // 2 if isinstance(v, int) else v * 0.5, x.astype(np.int32))
    np.testing.assert_array_equal(found, x.astype(np.int32) // 2)


def test_more_arrays_than_there_are_names_for_are_refused():
    with pytest.raises(LaunchError, match="given 257 arrays"):
        cube_map(lambda v: v, *[np.ones(1, "f4")] * 257)


def test_floats_are_not_stored_as_integers():
    """The error names `out`, and no line of the library."""
    x = np.ones(3, np.float32)
    for dtype in (np.int32, np.uint8, np.bool_):
        out = np.full(3, 1, dtype)
        with pytest.raises(LaunchTypeError, match="E602: map: `out` has dtype .*gives f32"):
            cube_map(lambda v: v * 2, x, out=out)
        cube_map(lambda v: v > 0.5, x, out=out)
        assert out.all()
