"""Kernels of our own, as a user would write them; reference.py says what is right."""

import cubepy as cp

READ_LINES = 4096
"""Lines that one cube of `read` sums up."""


@cp.cube
def add(x: cp.Tensor[cp.f32], y: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i] + y.flat[i]


@cp.cube
def gelu(v: cp.f32) -> cp.f32:
    return v * 0.5 * (1 + cp.erf(v * 0.7071067811865476))


@cp.cube
def exp_kernel(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = cp.exp(x.flat[i])


@cp.cube
def gelu_kernel(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = gelu(x.flat[i])


@cp.cube
def multiply_add_kernel(
    a: cp.Lines[cp.f32], b: cp.Lines[cp.f32], c: cp.Lines[cp.f32], out: cp.Lines[cp.f32]
):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = a.flat[i] * b.flat[i] + c.flat[i]


@cp.cube
def chain_kernel(
    a: cp.Lines[cp.f32], b: cp.Lines[cp.f32], c: cp.Lines[cp.f32], out: cp.Lines[cp.f32]
):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = gelu(a.flat[i] * b.flat[i] + c.flat[i]) * a.flat[i]


# What the memory of the machine can do


@cp.cube
def read(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    """Each cube sums a run of lines, with four sums to hide the additions' latency."""
    begin = cp.CUBE_POS * READ_LINES
    a = cp.Line[cp.f32, x.line_size](0)
    b, c, d = a, a, a
    for i in range(begin, min(begin + READ_LINES, x.size - 3), 4):
        a += x.flat[i]
        b += x.flat[i + 1]
        c += x.flat[i + 2]
        d += x.flat[i + 3]
    out.flat[cp.CUBE_POS] = (a + b) + (c + d)


@cp.cube
def copy(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = x.flat[i]


@cp.cube
def copy_stream(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    """A copy that writes past the caches."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        cp.store(out.flat, i, x.flat[i], hint="stream")


@cp.cube
def triad(x: cp.Lines[cp.f32], y: cp.Lines[cp.f32], s: cp.f32, out: cp.Lines[cp.f32]):
    """STREAM's triad, with streaming stores."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        cp.store(out.flat, i, x.flat[i] + s * y.flat[i], hint="stream")
