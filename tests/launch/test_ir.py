"""Kernels from IR: text that was printed, or written by hand, and kernels that were built."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.artifact import Data
from cubepy.ir import ops
from cubepy.ir.build import Builder
from cubepy.ir.core import Kernel
from cubepy.ir.types import f32

DEVICES = ("cpu", "interpreter")

SCALE = """
kernel @scale(%x: buffer<f32, global> = data x, %n: index = shape x 0, %a: f32 = value a)
cube_dim 64 1 1 plane_dim 1 {
  %i = absolute_pos {axis = 'all'} : index
  %inside = lt %i, %n : bool_
  if %inside then {
    %v = load %x, %i {type = f32} : f32
    %w = mul %v, %a : f32
    store %x, %i, %w
    yield
  } else {
    yield
  }
  return
}
"""


def scale() -> Kernel:
    """The same as `SCALE`, built."""
    b = Builder()
    x, n, a = b.tensor("x", f32), b.extent("x", 0), b.scalar("a", f32)
    i = b.emit(ops.ABSOLUTE_POS, axis="all")
    with b.region() as then:
        b.emit_op(ops.STORE, x, i, b.emit(ops.MUL, b.emit(ops.LOAD, x, i, type=f32), a))
        b.emit_op(ops.YIELD)
    with b.region() as otherwise:
        b.emit_op(ops.YIELD)
    b.branch(b.emit(ops.LT, i, n), then, otherwise)
    return b.kernel("scale", cube_dim=(64, 1, 1))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("ir", [SCALE, scale()], ids=["text", "built"])
def test_it_is_launched_like_others(ir: Any, device: str):
    kernel = cp.from_ir(ir).configure(device=device)
    x = np.arange(100, dtype=np.float32)
    kernel[2](x, 2.0)
    kernel[2, 64](x, a=3)
    kernel.over(x)(a=0.5, x=x)
    kernel.over(100).bind(x, np.float32(2))()
    for _ in range(3):
        kernel[2](x, 1.0)
    np.testing.assert_array_equal(x, np.arange(100, dtype=np.float32) * 6)
    assert "scale" in kernel.inspect(target="cuda:sm_90a")
    assert "mul" in kernel.inspect(stage="ir")


BAD = [
    pytest.param((np.ones(4), 1.0), "E402", id="dtype"),
    pytest.param((np.ones((2, 2), np.float32), 1.0), "E424", id="rank"),
    pytest.param((np.ones(8, np.float32)[::2], 1.0), "E424", id="strides"),
    pytest.param((3.0, 1.0), "E401", id="no array"),
    pytest.param((np.ones(4, np.float32), "a"), "E401", id="no number"),
    pytest.param((np.ones(4, np.float32),), "E406", id="too few"),
    pytest.param((np.ones(4, np.float32), 1.0, 2.0), "E406", id="too many"),
    pytest.param((np.broadcast_to(np.float32(1), 4).view(), 1.0), "E424", id="broadcast"),
]


@pytest.mark.parametrize(("args", "code"), BAD)
def test_arguments_are_checked(args: tuple[Any, ...], code: str):
    with pytest.raises(cp.LaunchError, match=code):
        cp.from_ir(SCALE)[1](*args)


def test_what_is_written_is_found_in_the_operations():
    x = np.ones(4, np.float32)
    x.flags.writeable = False
    with pytest.raises(cp.LaunchError, match="E404"):
        cp.from_ir(SCALE)[1](x, 2.0)


def test_grids_are_checked():
    kernel, x = cp.from_ir(SCALE), np.ones(4, np.float32)
    with pytest.raises(cp.LaunchError, match="E416"):
        kernel[1, 32](x, 1.0)
    with pytest.raises(cp.LaunchError, match="E416"):
        kernel.over(x, cube_dim=32)(x, 1.0)
    with pytest.raises(cp.LaunchError, match="E416"):
        kernel[-1](x, 1.0)


COPY = """
kernel @copy(%x: buffer<f32, global> =
               data x {align = 64, lanes = 4, rank = 1, whole = true, unit_axis = 0},
             %y: buffer<f32, global> = data y) cube_dim 8 1 1 plane_dim 1 noalias {
  %i = absolute_pos {axis = 'all'} : index
  %four = const {type = index, value = 4} : index
  %at = mul %i, %four : index
  %v = load %x, %at {align = 16, type = line<f32, 4>} : line<f32, 4>
  store %y, %at, %v
  return
}
"""


def aligned(count: int, offset: int = 0) -> np.ndarray:
    held = np.zeros(count + 64, np.float32)
    start = -held.ctypes.data // 4 % 16 + offset
    return held[start : start + count]


def test_promised_layouts_are_checked():
    kernel, y = cp.from_ir(COPY), np.zeros(32, np.float32)
    x = aligned(32)
    x[:] = np.random.default_rng(1).normal(size=32)
    kernel.over(x)(x, y)
    np.testing.assert_array_equal(x, y)
    with pytest.raises(cp.LaunchError, match="multiple of 64 bytes"):
        kernel[1](aligned(32, 1), y)
    with pytest.raises(cp.LaunchError, match="no multiple of 4"):
        kernel[1](aligned(30), y)


def test_overlap_is_refused_and_the_same_array_is_not():
    b = Builder()
    x, y = b.tensor("x", f32), b.tensor("y", f32)
    i = b.emit(ops.ABSOLUTE_POS, axis="all")
    v = b.emit(ops.LOAD, x, i, type=f32)
    b.emit_op(ops.STORE, y, i, b.emit(ops.ADD, v, v))
    kernel = cp.from_ir(b.kernel("double", cube_dim=(8, 1, 1)))
    a = np.ones(16, np.float32)
    kernel[1](a[:8], a[:8])
    np.testing.assert_array_equal(a, [2] * 8 + [1] * 8)
    with pytest.raises(cp.LaunchError, match="E405"):
        kernel[1](a[:8], a[4:12])


def test_strides_that_are_asked_for_are_passed():
    b = Builder()
    x, step = b.tensor("x", f32), b.stride("x", 0)
    i = b.emit(ops.ABSOLUTE_POS, axis="all")
    b.emit_op(ops.STORE, x, b.emit(ops.MUL, i, step), b.const(7.0, f32))
    kernel = cp.from_ir(b.kernel("fill", cube_dim=(4, 1, 1)))
    x = np.zeros(12, np.float32)
    kernel[1](x[::3])
    np.testing.assert_array_equal(np.flatnonzero(x), [0, 3, 6, 9])


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (SCALE.replace("mul %v, %a", "mul %v, %i"), 8, "operands differ"),
        (SCALE.replace("%w = mul", "%w = mull"), 8, "unknown operation 'mull'"),
        (SCALE.replace("%x, %i, %w", "%x, %i, %q"), 9, "%q is not defined"),
        (SCALE.replace("= data x", "= date x"), 2, "'date' is no kind of parameter"),
        (SCALE.replace("= data x", "= data x {color = 1}"), 2, "a data has no color"),
    ],
)
def test_errors_name_the_line_of_the_text(text: str, line: int, message: str):
    with pytest.raises(cp.CompileError) as caught:
        cp.from_ir(text)
    shown = str(caught.value)
    assert "E130" in shown and message in shown
    assert f":{line}:" in shown and text.splitlines()[line - 1].strip()[:20] in shown


def test_later_errors_name_it_too():
    text = SCALE.replace("%w = mul %v, %a : f32", "%w = plane_sum %v : f32").replace(
        "plane_dim 1", "plane_dim 16"
    )
    with pytest.raises(cp.CompileError) as caught:
        cp.from_ir(text).inspect(target="cuda:sm_90a")
    assert ":8:" in str(caught.value) and "plane_sum" in str(caught.value)


def test_faults_of_the_interpreter_name_it_too():
    text = SCALE.replace("load %x, %i", "load %x, %n")
    with pytest.raises(cp.Error) as caught:
        cp.from_ir(text).configure(device="interpreter")[1](np.ones(4, np.float32), 1.0)
    assert "x" in str(caught.value)


def test_a_layout_may_be_given_to_the_builder():
    b = Builder()
    x = b.tensor("x", f32, Data(rank=2, linear=True))
    b.emit_op(ops.STORE, x, b.index(3), b.const(1.0, f32))
    kernel = cp.from_ir(b.kernel("mark"))
    x = np.zeros((2, 2), np.float32)
    kernel[1](x)
    assert x[1, 1] == 1
    with pytest.raises(cp.LaunchError, match="it has 1 axes, not 2"):
        kernel[1](np.zeros(4, np.float32))
