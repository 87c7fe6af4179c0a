"""Kernels that the tests of devices launch."""

from __future__ import annotations

import cubepy as cp


@cp.cube
def add(x, y, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + y.flat[i]


@cp.cube
def scale(x: cp.Lines[cp.f32], a: cp.f32, out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] * a


@cp.cube
def increment(x: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        x.flat[i] += 1.0


@cp.cube
def spin(x: cp.Tensor[cp.f32], times: int):
    """Keeps a device busy: later work that does not wait for it shows."""
    i = cp.ABSOLUTE_POS
    if i < x.size:
        v = x.flat[i]
        for _ in range(times):
            v = cp.sqrt(v * v)
        x.flat[i] = v + 1.0


@cp.cube
def stray(x: cp.Tensor[cp.f32], far: int):
    """Writes where nothing is, if `far` says so."""
    x.flat[cp.ABSOLUTE_POS + far] = 1.0


@cp.cube
def tell_position(out: cp.Tensor[cp.i64]):
    i = cp.ABSOLUTE_POS
    out.flat[i] = cp.CUBE_POS_X + 1000 * cp.CUBE_POS_Y + 1000000 * cp.CUBE_POS_Z
