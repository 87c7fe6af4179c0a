"""Calls and patterns with stars, and what Python would take at comptime."""

import enum
import functools
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import cubepy as cp


def results(kernel, *values, size=4):
    """What a kernel of one unit stores, given f32 values."""
    out = np.full(size, -1, np.float32)
    kernel[1, 1](np.array(values, np.float32), out)
    return out.tolist()


def mix(a, b, *, scale=1.0):
    return (a + 2 * b) * scale


def test_starred_arguments_of_tuples_and_dicts():
    @cp.cube
    def kernel(x, out):
        pair = (x[0], x[1])
        out[0] = mix(*pair)
        out[1] = mix(*pair, **{"scale": 10.0})
        options = {**{"scale": 2.0}}
        out[2] = mix(*pair, **options)

    assert results(kernel, 1, 3)[:3] == [7, 70, 14]


def test_the_star_of_a_pattern_takes_what_others_leave():
    @cp.cube
    def kernel(x, out):
        match (x[0], x[1], x[2], x[3]):
            case (first, *rest, last):
                out[0], out[1], out[2], out[3] = first, last, rest[0], rest[1]

    assert results(kernel, 1, 2, 3, 4) == [1, 4, 2, 3]


def test_a_pattern_with_a_star_needs_enough_items():
    @cp.cube
    def kernel(x, out):
        match (x[0],):
            case (_, *_, _):
                out[0] = 1
            case (only, *none):
                out[0] = only + len(none)

    assert results(kernel, 5)[0] == 5


def test_extents_can_be_unrolled():
    @cp.cube
    def kernel(x, out):
        total = 0
        for extent in cp.unroll(x.shape):
            total += extent
        out[0] = total

    assert results(kernel, 1, 2, 3)[0] == 3


def test_minimum_and_maximum_of_comptime_sequences():
    @cp.cube
    def kernel(x, out):
        out[0] = max(range(5))
        out[1] = min((3, 2))
        out[2] = max([x[0], x[1], 2])

    assert results(kernel, 1, 7)[:3] == [4, 2, 7]


def test_signatures_of_functions_that_come_from_the_table():
    import inspect

    assert str(inspect.signature(cp.atan2)) == "(y, x, /)"
    assert str(inspect.signature(cp.plane_shuffle)) == "(value, lane, /)"


class Mode(enum.IntEnum):
    ADD = 1
    TWICE = 2


class Name(enum.StrEnum):
    A = "a"


@pytest.mark.parametrize("device", ["cpu", "interpreter"])
@pytest.mark.parametrize(("mode", "wanted"), [(Mode.ADD, [2, 3]), (Mode.TWICE, [3, 5])])
def test_enumerations_are_comptime_values(device: str, mode: Mode, wanted: list[float]):
    @cp.cube
    def kernel(x, mode: cp.Comptime, name: cp.Comptime, scale: cp.Comptime, out):
        i = cp.ABSOLUTE_POS
        kept = mode
        kept += 0
        if mode == Mode.ADD and name is Name.A:
            out[i] = x[i] * scale + kept
        else:
            out[i] = x[i] * mode + Mode.ADD

    out = np.zeros(2, np.float32)
    x = np.array([1, 2], np.float32)
    kernel.configure(device=device)[2, 1](x, mode, Name.A, np.float64(1), out)
    assert out.tolist() == wanted


def _third(values, k):
    return values[k]


def _second(k):
    return _third((1, 2), k) + 1


def _own_position(k):
    return cp.ABSOLUTE_POS + k


def _through_python(k):
    return _own_position(k)


def test_a_plain_helper_of_a_plain_helper():
    @cp.cube
    def works(out):
        out[cp.ABSOLUTE_POS] = _through_python(3)

    out = np.zeros(2, np.int64)
    works[2, 1](out)
    assert out.tolist() == [3, 4]

    @cp.cube
    def fails(out):
        out[0] = _second(5)

    with pytest.raises(
        cp.CompileError,
        match=r"E113.*IndexError.*in `_third` \(test_calls.py:\d+\), "
        r"called by `_second` \(test_calls.py:\d+\)",
    ):
        fails[1, 1](out)

    @cp.cube
    def length(v: cp.f32, out):
        out[0] = len(v)  # pyright: ignore[reportArgumentType]

    with pytest.raises(cp.CompileError, match="E207"):
        length[1, 1](1.0, out)


def test_functions_that_call_others():
    def kernel(x, out):
        out[0] = functools.reduce(operator.add, (x[0], x[1], x[2]))
        out[1] = functools.reduce(lambda a, b: a * b, [x[1], x[2]], 2.0) + operator.pow(x[1], 2)
        out[2] = sum(map(lambda v, w: v * w, (x[0], x[1]), (x[2], x[3], 5.0)))
        a, b = map(float, (1, x[1]))
        out[3] = a - b + max(map(abs, (x[1], -x[2]))) + operator.neg(x[3])
        out[4] = sum(filter(lambda v: v > 1, (1, 2, 3))) + len(tuple(filter(None, (0, 4))))
        out[5] = operator.lt(x[0], x[1]) + 2 * operator.ge(x[0], x[1]) + operator.mul(3, 4)
        out[6] = functools.reduce(operator.or_, map(operator.gt, x_pairs(x), (9.0, 0.0)))

    def x_pairs(x):
        return x[1], x[2]

    x, out, wanted = np.array([1.5, -2.0, 3.0, 4.0]), np.zeros(7), np.zeros(7)
    kernel(x, wanted)
    cp.cube(kernel)[1, 1](x, out)
    np.testing.assert_array_equal(out, wanted)


@pytest.mark.parametrize(
    "function, error",
    [
        (lambda x: functools.reduce(operator.add, ()), "E207"),
        (lambda x: sum(filter(lambda v: v > 1, (x[0], 2))), "E112"),
        (lambda x: tuple(map(abs, x)), "E112"),
        (lambda x: operator.add(x[0]), "E106"),  # pyright: ignore[reportCallIssue]
    ],
)
def test_functions_that_call_others_wrongly(function, error):
    @cp.cube
    def kernel(x, out):
        out[0] = function(x)

    with pytest.raises(cp.CompileError, match=error):
        kernel[1, 1](np.ones(2), np.ones(2))


@pytest.mark.parametrize("dtype", ["u1", "i4", "f4", "f8"])
def test_powers_below_zero(dtype: str):
    @cp.cube
    def kernel(x, out):
        out[0] = x[0] ** -1 + x[0] ** -2
        out[1] = (-2) ** x[1] if x.dtype.kind.name != "UINT" else -8
        out[2] = pow(7, -1, 5) + pow(x[0], 2)

    out = np.zeros(3)
    kernel[1, 1](np.array([4, 3], dtype), out)
    np.testing.assert_allclose(out, [1 / 4 + 1 / 16, -8, 3 + 16], 1e-6)


def test_min_and_max_with_options():
    @cp.cube
    def kernel(x, out):
        out[0] = max((3, -7, 2), key=abs) + min((), default=5) + x[0]

    out = np.zeros(1)
    kernel[1, 1](np.ones(1), out)
    assert out[0] == -7 + 5 + 1


@pytest.mark.parametrize(
    "function, error",
    [
        (lambda x: max(x[0], 1, default=2), "E106.*'default'"),  # pyright: ignore[reportCallIssue]
        (lambda x: pow(x[0], 2, 3), r"(?s)E112.*over the bits of the exponent"),
        (lambda x: pow(x[0], 2, 3, 4), "E106.*it takes 3 arguments, not 4"),  # pyright: ignore[reportCallIssue]
        (lambda x: [x[0]].append(1), r"(?s)E107.*\(\*old, new\)"),
    ],
)
def test_what_calls_say_of_arguments(function, error):
    @cp.cube
    def kernel(x, out):
        out[0] = function(x)

    with pytest.raises(cp.CompileError, match=error):
        kernel[1, 1](np.ones(2), np.ones(2))


def test_the_truth_of_operands_of_different_kinds():
    @dataclass(frozen=True)
    class Pair:
        a: float
        b: float

        def __bool__(self):
            return bool(self.a > self.b)

    def kernel(x, out):
        pair = Pair(x[1], x[0])
        out[0] = bool(pair and x[2]) + 2 * bool(x[0] or pair)
        out[1] = bool(pair and pair.b) + 2 * bool(pair and (1, 2))

    x, out, wanted = np.array([0.0, 1.0, 2.0]), np.zeros(2), np.zeros(2)
    kernel(x, wanted)
    cp.cube(kernel)[1, 1](x, out)
    np.testing.assert_array_equal(out, wanted)


def made(count):
    return [cp.local(2, cp.f32, fill=k) for k in range(count)]


def counted(count):
    return tuple(cp.UNIT_POS + k for k in range(count))


def of_both(count):
    return [made(k + 1)[k] for k in range(count)]


def test_comprehensions_of_functions_that_take_no_values_of_a_kernel():
    @cp.cube
    def kernel(x, out):
        parts = made(2)
        parts[0][1] += x[0]
        out[0], out[1] = parts[0][1], parts[1][0]
        out[2] = counted(4)[3]
        out[3] = of_both(3)[2][0]

    assert results(kernel, 5) == [5, 1, 3, 2]


def test_an_index_that_a_branch_of_an_unrolled_loop_guards():
    @cp.cube
    def kernel(out, n):
        t = cp.local(4, cp.f32, fill=1)
        if n > 0:
            for k in cp.unroll(range(5)):
                out[0] += t[k + 1] if k + 1 < n else 0.5
                if k < n:
                    out[1] += t[k]

    out = np.zeros(2)
    kernel[1, 1](out, 4)
    assert out.tolist() == [3 + 2 * 0.5, 4]


@pytest.mark.parametrize("index", [4, 5])
def test_an_index_that_nothing_guards(index: int):
    @cp.cube
    def kernel(out, n):
        t = cp.local(4, cp.f32, fill=1)
        if n > 0:
            for k in cp.unroll(range(index, index + 1)):
                out[0] = t[k]

    with pytest.raises(cp.CompileError, match="E207: an index of `t` expects less than 4"):
        kernel[1, 1](np.zeros(2), 4)


class Tab(dict[str, float]):
    """A table with a method that changes nothing, by the name of one that would."""

    def add(self, v: Any) -> Any:
        """A number of it added."""
        return v + self["b"]


def test_methods_of_a_users_container():
    table = Tab(a=1.0, b=2.0)

    @cp.cube
    def kernel(out):
        out[0] = table.add(out[0])

    out = np.ones(1)
    kernel[1, 1](out)
    assert out[0] == 3


@pytest.mark.parametrize("function", [globals, locals, eval, exec], ids=lambda f: f.__name__)
def test_what_depends_on_the_caller_is_refused(function: Any):
    """These would give names of the compiler."""

    @cp.cube
    def kernel(x, f: cp.Comptime):
        x[0] = len(f("3") if f is eval or f is exec else f())

    with pytest.raises(cp.CompileError, match=f"E108: `{function.__name__}` cannot be called"):
        kernel[1, 1](np.zeros(1), function)
