"""Kernels with a unit per element that find its place in arrays of several axes."""

from __future__ import annotations

import cubepy as cp


@cp.cube
def scale_planes(x: cp.Tensor[cp.f32], a: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]) -> None:
    """Each plane times a number of its own, of images whose channels are planes."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        c, h, w = i // (x.shape[1] * x.shape[2]), i // x.shape[2] % x.shape[1], i % x.shape[2]
        out[c, h, w] = x[c, h, w] * a[c]


@cp.cube
def add_bias(x: cp.Tensor[cp.f32], b: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]) -> None:
    """A row added to all rows."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        row, k = divmod(i, x.shape[1])
        out[row, k] = cp.exp(x[row, k]) + b[k]


@cp.cube
def rotate(
    x: cp.Tensor[cp.f32],
    cosines: cp.Tensor[cp.f32],
    sines: cp.Tensor[cp.f32],
    out: cp.Tensor[cp.f32],
) -> None:
    """Rotary embedding of (positions, heads, 2 d), with angles of (positions, d)."""
    i = cp.ABSOLUTE_POS
    half = cosines.shape[1]
    if i < out.size // 2:
        p, h, k = i // (x.shape[1] * half), i // half % x.shape[1], i % half
        a, b = x[p, h, k], x[p, h, k + half]
        out[p, h, k] = a * cosines[p, k] - b * sines[p, k]
        out[p, h, k + half] = a * sines[p, k] + b * cosines[p, k]


@cp.cube
def gray(x: cp.Tensor[cp.u8], out: cp.Tensor[cp.u8]) -> None:
    """The luma of an image of red, green and blue."""
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < out.shape[0] and j < out.shape[1]:
        red, green, blue = cp.u32(x[i, j, 0]), cp.u32(x[i, j, 1]), cp.u32(x[i, j, 2])
        out[i, j] = cp.u8((red * 77 + green * 150 + blue * 29) >> 8)


@cp.cube
def attract(p: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]) -> None:
    """The pull of the origin on points of x, y and z."""
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        x, y, z = p[i, 0], p[i, 1], p[i, 2]
        s = 1 / cp.sqrt(x * x + y * y + z * z + 0.001)
        s = s * s * s
        out[i, 0], out[i, 1], out[i, 2] = -x * s, -y * s, -z * s
