"""What annotations mean, and how messages show them."""
# To type checkers annotations are types, which are neither compared nor printed.
# pyright: reportOperatorIssue=false, reportInvalidTypeArguments=false, reportGeneralTypeIssues=false

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pytest

import cubepy as cp

T = TypeVar("T", cp.f32, cp.f64)  # type: ignore[misc]


def doubled(v: cp.Line[cp.f32]):  # type: ignore[valid-type]
    return v * 2


@cp.cube
def lines(x: cp.Tensor[cp.Line[cp.f32]], out: cp.Tensor[cp.Line[cp.f32]]):  # type: ignore[misc]
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = doubled(x.flat[i])


@cp.cube
def generic(x: cp.Tensor[cp.Line[T]], out: cp.Tensor[cp.Line[T]]):  # type: ignore[misc]
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * 2


@cp.cube
def unknown_width(out):
    out[0] = cp.Line[cp.f32](1.0)  # type: ignore[misc]


def test_lines_without_a_width_are_as_wide_as_can_be():
    assert cp.Tensor[cp.Line[cp.f32]] == cp.Lines[cp.f32] != cp.Tensor[cp.Line[cp.f32, 1]]
    for size in (1, 7, 64, 1003):
        x, out = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        lines.over(out)(x, out)
        np.testing.assert_array_equal(out, x * 2)
    assert lines.inspect("f32[64]", "f32[64]", stage="ir").count("line<f32, 16>") or (
        "line<f32, 8>" in lines.inspect("f32[64]", "f32[64]", stage="ir")
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lines_of_a_type_variable(dtype: type):
    x, out = np.arange(100, dtype=dtype), np.zeros(100, dtype)
    generic.over(out)(x, out)
    np.testing.assert_array_equal(out, x * 2)


def test_a_line_that_is_made_needs_a_width():
    with pytest.raises(cp.CompileError, match=r"how many lanes\? write cp\.Line\[dtype, width\]"):
        unknown_width[1, 1](np.zeros(4, np.float32))


def test_annotations_are_shown_as_they_are_written():
    shown = [
        cp.Tensor[cp.f32],
        cp.Tensor[T],
        cp.Lines[cp.bool_],
        cp.Tensor[cp.Line[cp.f16]],
        cp.Tensor[cp.Line[cp.f32, 4]],
    ]
    assert [repr(annotation) for annotation in shown] == [
        "cp.Tensor[cp.f32]",
        "cp.Tensor[T]",
        "cp.Lines[cp.bool_]",
        "cp.Lines[cp.f16]",
        "cp.Tensor[cp.Line[cp.f32, 4]]",
    ]


@cp.cube
def by_names(n: i32, m: np.uint8, out: Unknown):  # type: ignore[name-defined]  # noqa: F821
    out[0] = n / 2
    out[1] = m + 0.5


def test_dtypes_of_numpy_and_names_of_dtypes():
    """As those of CubePy; what only type checkers know says nothing."""
    out = np.zeros(2)
    by_names[1, 1](7, 200, out)
    assert out.tolist() == [3.5, 200.5]
    with pytest.raises(cp.LaunchError, match="E402.*`n`.*float.*i32"):
        by_names[1, 1](7.5, 200, out)
    with pytest.raises(cp.LaunchError, match="E407.*`m` = 300 does not fit u8"):
        by_names[1, 1](7, 300, out)


@pytest.mark.parametrize(
    ("of", "taken", "refused"),
    [
        (bool, (True, np.True_), (1, 1.0, "yes")),
        (int, (3, np.int8(3), True), (3.0, np.float32(3), "3", None)),
        (float, (3, 2.5, np.float16(2.5)), ("3", None, (1.0,))),
        (str, ("3",), (3, None)),
    ],
)
def test_comptime_values_are_of_the_class_that_is_named(of: type, taken: Any, refused: Any):
    @cp.cube
    def noted(n: cp.Comptime[of], out):  # type: ignore[valid-type]
        out[0] = 1

    for value in taken:
        out = np.zeros(1)
        noted[1, 1](value, out)
        assert out[0] == 1
    for value in refused:
        with pytest.raises(cp.LaunchError, match=rf"E402.*`n`.*{type(value).__name__}"):
            noted[1, 1](value, np.zeros(1))


def test_a_tensor_of_any_elements():
    @cp.cube
    def halves(x: cp.Tensor[Any], out: cp.Lines[Any]):  # type: ignore[misc]
        out[0] = x[0] / 2

    out = np.zeros(1, np.float32)
    halves[1, 1](np.full(1, 3), out)
    assert out[0] == 1.5
