# pyright: strict
"""Kernels as users with a type checker write them; pyright checks this file, strictly, in CI.

An annotated local starts with a literal, and a parameter has a default: neither needs a comment
for the type checker. What a type checker should refuse stands at the end, where a comment that
suppresses nothing is an error.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import Any, TypeVar

import cubepy as cp

T = TypeVar("T")


@cp.cube
def gelu(v: cp.f32) -> cp.f32:
    return v * 0.5 * (1 + cp.erf(v * 0.7071067811865476))


@cp.cube
def scaled_sum(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32], alpha: cp.f32 = 1.0, n: cp.i32 = 4):
    total: cp.f32 = 0.0
    count: cp.i32 = 0
    found: cp.bool_ = False
    for i in range(x.shape[0]):
        if x[i] > alpha:
            total += gelu(x[i]) * alpha
            count += n
            found = True
    out[0] = total + cp.f32(count) if found else -1.0


@cp.cube
def fill(out: cp.Lines[cp.f32], value: cp.f64 = 2.5, times: cp.Comptime[int] = 2):
    line = out[0]
    for _ in cp.unroll(range(times)):
        line = line + cp.f32(value)
    out[0] = line


@cp.cube
def copy(x: cp.Tensor[T], out: cp.Tensor[T], offset: cp.u8 = 0, flag: cp.bool_ = True):
    i = cp.ABSOLUTE_POS
    if flag and i < out.size:
        out[i] = x[i + offset]


@cp.cube
def halved(x: cp.Tensor[cp.Line[cp.f32]], out: cp.Tensor[cp.Line[cp.f32]]):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        out[i] = x[i] * cp.Line[cp.f32, x.line_size](0.5)


def launch_all(x: Any, out: Any) -> None:
    """Launches take any array, and numbers or none for parameters with defaults."""
    scaled_sum[1, 1](x, out)
    scaled_sum[1, 1](x, out, alpha=0.5, n=2)
    fill[1, 1](out, 1.5)
    copy.over(out)(x, out)
    halved.over(out)(x, out)


@cp.cube
def refused(out: cp.Tensor[cp.i32], count: cp.i32 = 1.5):  # pyright: ignore[reportArgumentType]
    half: cp.i32 = 0.5  # pyright: ignore[reportAssignmentType]
    out[0] = half + count
