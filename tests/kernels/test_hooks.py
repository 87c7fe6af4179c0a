"""Functions of the user that a prebuilt kernel cannot call, or that give no number."""

from __future__ import annotations

import functools
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.errors import LaunchTypeError

A = np.ones((8, 8), np.float32)
IMAGE = np.ones((1, 3, 8, 8), np.float32)
FILTERS = np.ones((4, 3, 3, 3), np.float32)
TURNED = np.ones((3, 4, 3, 3), np.float32)
ENDS = np.array([8], np.int32)


class Doubled:
    def __call__(self, v: Any) -> Any:
        return v * 2


class Tripled:
    def times(self, v: Any, index: Any) -> Any:
        return v * 3

    @cp.cube
    def times_in_a_cube(self, v: Any, index: Any) -> Any:
        return v * 3


def scaled(by: Any, v: Any, index: Any) -> Any:
    return v * by


EPILOGUES: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda e: kernels.matmul(A, A, epilogue=e),
    "conv2d": lambda e: kernels.conv2d(IMAGE, FILTERS, epilogue=e),
    "max_pool2d": lambda e: kernels.max_pool2d(IMAGE, 2, epilogue=e),
    "softmax": lambda e: kernels.softmax(A, epilogue=e),
    "layer_norm": lambda e: kernels.layer_norm(A, 8, epilogue=e),
    "batch_norm": lambda e: kernels.batch_norm(A, A[0], A[0], epilogue=e),
    "group_norm": lambda e: kernels.group_norm(A, 2, epilogue=e),
    "instance_norm": lambda e: kernels.instance_norm(IMAGE, epilogue=e),
    "conv_transpose2d": lambda e: kernels.conv_transpose2d(IMAGE, TURNED, epilogue=e),
    "grouped_matmul": lambda e: kernels.grouped_matmul(A, A[None], ENDS, epilogue=e),
}
PROLOGUES: dict[str, Callable[[Any], Any]] = {
    "max_pool2d": lambda p: kernels.max_pool2d(IMAGE, 2, prologue=p),
    "softmax": lambda p: kernels.softmax(A, prologue=p),
    "batch_norm": lambda p: kernels.batch_norm(A, A[0], A[0], prologue=p),
    "group_norm": lambda p: kernels.group_norm(A, 2, prologue=p),
    "sum": lambda p: kernels.sum(A, prologue=p),
}
REFUSED: tuple[tuple[Any, str], ...] = (
    (lambda v: v, r"is called with \(v, index\), but its signature is <lambda>\(v\)"),
    (lambda v, index, *, by: v, r"signature is <lambda>\(v, index, \*, by\)"),
    (Doubled(), r"signature is __call__\(self, v\)"),
    (Doubled, r"is the class `Doubled`, not an object: write Doubled\(\)"),
    (functools.partial(scaled, 2.0, 3.0), r"signature is scaled\(by, v, index\)"),
    (cp.tanh, r"signature is tanh\(value, /\)"),
    (np.tanh, r"signature is tanh\(value, /\)"),
    (cp.f64, r"signature is cp.f64\(value, /\)"),
    ("relu", "is 'relu', no function"),
    (3, "is 3, no function"),
    ([scaled], r"signature is scaled\(by, v, index\)"),
    ((), "is a tuple, no function"),
    ([], "is a tuple, no function"),
    ((7,), "is 7, no function"),
    (functools.lru_cache(lambda v: v), "which kernels cannot call"),
    (kernels.softmax, "`cp.kernels.softmax`, which launches kernels itself"),
)
ABOUT = "an epilogue takes the element and its index: write `lambda v, index: ...`"


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogues_that_cannot_be_called(name: str):
    for function, message in REFUSED:
        with pytest.raises(LaunchTypeError, match=f"E602: {name}: `epilogue` .*{message}") as e:
            EPILOGUES[name](function)
        assert ABOUT in str(e.value)


def test_arrays_of_an_epilogue():
    take_two = (lambda v, index, x, y: v, A)
    with pytest.raises(LaunchTypeError, match=r"`epilogue\[0\]` .*\(v, index, x\), .*x, y\)"):
        kernels.matmul(A, A, epilogue=take_two)
    with pytest.raises(LaunchTypeError, match=r"write `lambda v, index, x1, x2: ...`"):
        kernels.matmul(A, A, epilogue=(lambda v, index: v, A, A))
    with pytest.raises(LaunchTypeError, match=r"`epilogue\[0\]` is None, no function"):
        kernels.matmul(A, A, epilogue=(None, A))
    long_default = (lambda v, index, table=A: v, A, A)
    with pytest.raises(LaunchTypeError, match=r"<lambda>\(v, index, table=\.\.\.\)"):
        kernels.matmul(A, A, epilogue=long_default)


def test_a_list_is_like_a_tuple():
    add = [lambda v, index, x: v + x[index[-1]], A[0]]
    np.testing.assert_array_equal(kernels.matmul(A, A, epilogue=add), A * 9)
    np.testing.assert_allclose(kernels.batch_norm(A, A[0], A[0], epilogue=add), A, atol=1e-4)


@pytest.mark.parametrize("name", PROLOGUES)
def test_prologues_that_cannot_be_called(name: str):
    for function in (lambda v, index: v, "relu", (np.tanh,)):
        with pytest.raises(LaunchTypeError, match=f"E602: {name}: `prologue`.*\n.*lambda v: "):
            PROLOGUES[name](function)


def test_epilogues_of_reductions_take_no_index():
    with pytest.raises(LaunchTypeError, match="an epilogue of sum takes the result alone"):
        kernels.sum(A, axis=1, epilogue=lambda v, index: v)


def test_functions_of_map_that_cannot_be_called():
    with pytest.raises(LaunchTypeError, match=r"`function` is called with \(v1, v2\), but"):
        kernels.map(lambda v: v, A, A)
    with pytest.raises(LaunchTypeError, match=r"its signature is fma\(a, b, c\)"):
        kernels.map(cp.fma, A, A)
    with pytest.raises(LaunchTypeError, match="`function` is 'abc', no function"):
        kernels.map("abc", A)  # type: ignore[arg-type]


def test_all_that_kernels_can_call():
    bound, in_a_cube = Tripled().times, Tripled().times_in_a_cube
    more = (lambda *given: given[0] * 3, lambda v, index, by=3: v * by)
    for function in (bound, in_a_cube, functools.partial(scaled, 3.0), *more):
        np.testing.assert_array_equal(kernels.matmul(A, A, epilogue=function), A * 24)
    for function in (cp.tanh, np.tanh, int, float, cp.f64, np.float64, Doubled()):
        assert kernels.map(function, A).shape == A.shape
    assert kernels.map(max, A, A, A).shape == kernels.map(np.isclose, A, A).shape == A.shape


# What they give


def nothing(v: Any, index: Any = None) -> Any:
    v = v + 1


def pair(v: Any, index: Any = None) -> Any:
    return v, v


def tensor(v: Any, index: Any, x: Any) -> Any:
    return x


def line_of(function: Any) -> int:
    return function.__code__.co_firstlineno


@pytest.mark.parametrize("name", EPILOGUES)
def test_what_epilogues_give_is_a_number(name: str):
    assert_points(lambda: EPILOGUES[name](nothing), "nothing", "None", line_of(nothing))
    assert_points(lambda: EPILOGUES[name](pair), "pair", "a tuple of 2", line_of(pair) + 1)


@pytest.mark.parametrize("name", PROLOGUES)
def test_what_prologues_give_is_a_number(name: str):
    assert_points(lambda: PROLOGUES[name](nothing), "nothing", "None", line_of(nothing))


def test_what_other_functions_give_is_a_number():
    assert_points(lambda: kernels.map(nothing, A), "nothing", "None", line_of(nothing))
    assert_points(lambda: kernels.map(pair, A), "pair", "a tuple of 2", line_of(pair) + 1)
    bare = functools.partial(pair, index=3)
    assert_points(lambda: kernels.map(bare, A), "pair", "a tuple of 2", line_of(pair) + 1)
    ended = (tensor, A)
    made = "the tensor `extras.0` (rank 2)"
    assert_points(lambda: kernels.matmul(A, A, epilogue=ended), "tensor", made, line_of(tensor) + 1)
    text = lambda v: "abc"
    assert_points(lambda: kernels.map(text, A), "<lambda>", "'abc'", line_of(text))
    assert_points(
        lambda: kernels.sum(A, axis=1, epilogue=nothing), "nothing", "None", line_of(nothing)
    )


def assert_points(call: Callable[[], Any], name: str, given: str, line: int) -> None:
    with pytest.raises(cp.CompileError) as found:
        call()
    error = found.value
    expected = f"E123: the function `{name}` must give one number, but it gives {given}"
    assert str(error).splitlines()[0] == expected
    assert error.span is not None and (error.span.file, error.span.line) == (__file__, line)


# Frames


def test_no_frame_of_the_compiler_shows():
    wrong = lambda v, index: v.foo
    with pytest.raises(cp.CompileError, match="E107") as found:
        kernels.matmul(A, A, epilogue=wrong)
    library = Path(cp.__file__).parent
    frames = traceback.extract_tb(found.value.__traceback__)
    assert len([f for f in frames if Path(f.filename).is_relative_to(library)]) <= 4
    assert "called from" not in str(found.value)
    assert "During handling" not in "".join(traceback.format_exception(found.value))


def test_functions_of_no_module(tmp_path: Path):
    file = tmp_path / "bare.py"
    file.write_text("function = lambda v: v + more\n", encoding="utf-8")
    names: dict[str, Any] = {"more": 2}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    for names["more"] in (2, 3):
        np.testing.assert_array_equal(kernels.map(names["function"], A), A + names["more"])


class Scales(threading.local):
    scale = 1.0


SCALES = Scales()


def rescaled(v: Any) -> Any:
    return v * SCALES.scale


@pytest.mark.parametrize("last", [False, True])
def test_functions_are_traced_in_the_thread_that_calls(last: bool):
    """What they read may be that thread's own, also where several launches compile together."""
    SCALES.scale = 2.0
    x = np.random.default_rng().standard_normal((1000, 30)).astype(np.float32)
    found = kernels.var(x, axis=0, prologue=rescaled)
    np.testing.assert_allclose(found, (2 * x.astype(np.float64)).var(0), 1e-4)
    y = np.ascontiguousarray(x.reshape(2, 50, 10, 30)) if last else x.reshape(2, 30, 50, 10)
    y = np.moveaxis(y, -1, 1) if last else y
    off = kernels.group_norm(y, 3, prologue=rescaled, eps=1.0)
    parts = 2 * y.astype(np.float64).reshape(2, 3, -1)
    wanted = (parts - parts.mean(2, keepdims=True)) / np.sqrt(parts.var(2, keepdims=True) + 1)
    np.testing.assert_allclose(off, wanted.reshape(y.shape), atol=1e-4)
