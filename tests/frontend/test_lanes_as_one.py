"""The lanes of a line as one number: truth, counts, extremes, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp

DEVICES = ["cpu", "interpreter"]


@cp.cube
def truths(x: Any, out: cp.Tensor[cp.i32]) -> None:
    v = x[0]
    out[0], out[1] = v.any(), v.all()
    out[2], out[3] = any(v), all(v)
    out[4] = 1 if v.all() else 2
    out[5] = cp.any_(v)


@cp.cube
def of_masks(x: Any, out: cp.Tensor[cp.i32]) -> None:
    mask = x[0] > 1
    out[0], out[1] = mask.sum(), mask.prod()
    out[2], out[3] = mask.min(), mask.max()


@cp.cube
def chosen(x: Any, out: Any) -> None:
    out[0] = 1.0 if x[0] else 2.0


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["i4", "u1", "f4", "f2", "f8"])
@pytest.mark.parametrize("lanes", [(1, 2, 4, 8), (0, 0, 0, 0), (0, 1, 0, 2), (2, 2, 2, 2)])
def test_any_and_all_are_of_the_truth_of_lanes(device: str, dtype: str, lanes: Any):
    x, out = np.array(lanes, dtype), np.full(6, 9, "i4")
    lines = cp.Lines[cp.asarray(x).dtype]
    kernel = with_lines(truths, lines).configure(line_size=4, device=device)
    kernel[1, 1](x, out)
    some, every = bool(x.any()), bool(x.all())
    assert out.tolist() == [some, every, some, every, 1 if every else 2, some]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("lanes", [(1, 2, 4, 8), (0, 0, 0, 0), (0, 1, 0, 2), (2, 2, 2, 2)])
def test_lanes_of_masks_are_counted(device: str, lanes: Any):
    x, out = np.array(lanes, "f4"), np.full(4, 9, "i4")
    with_lines(of_masks, cp.Lines[cp.f32]).configure(line_size=4, device=device)[1, 1](x, out)
    mask = x > 1
    assert out.tolist() == [mask.sum(), mask.prod(), mask.min(), mask.max()]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["i4", "f4"])
def test_lines_choose_by_their_truth(device: str, dtype: str):
    x, out = np.array([0, 3, -1, -0.0], dtype), np.zeros(4, "f4")
    lines = cp.Lines[cp.asarray(x).dtype]
    kernel = with_lines(chosen, lines, out=cp.Lines[cp.f32])
    kernel.configure(line_size=4, device=device)[1, 1](x, out)
    np.testing.assert_array_equal(out, np.where(x != 0, 1, 2))


@cp.cube
def with_an_axis(x: cp.Lines[cp.f32], out: Any) -> None:
    out[0] = x[0].sum(axis=0)


@cp.cube
def with_a_start(x: cp.Lines[cp.f32], out: Any) -> None:
    out[0] = x[0].max(3)


@pytest.mark.parametrize("kernel", [with_an_axis, with_a_start])
def test_arguments_of_methods_are_refused(kernel: Any):
    with pytest.raises(cp.CompileError, match="E106.*no arguments"):
        kernel.configure(line_size=4)[1, 1](np.zeros(4, "f4"), np.zeros(1, "f4"))


def with_lines(kernel: Any, lines: Any, **more: Any) -> Any:
    """The kernel with an annotation of `x`."""
    from types import FunctionType

    plain = kernel.function
    copy = FunctionType(plain.__code__, plain.__globals__, plain.__name__, plain.__defaults__)
    copy.__annotations__ = {**plain.__annotations__, "x": lines, **more}
    return cp.cube(copy)
