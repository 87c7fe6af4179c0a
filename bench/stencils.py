"""The five-point stencil by flat index, as users of GPUs write it."""

import cubepy as cp


@cp.cube
def flat_stencil(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]) -> None:
    """Each unit finds its row and column from its position."""
    p = cp.ABSOLUTE_POS
    h, w = x.shape
    if p < x.size:
        i = p // w
        j = p % w
        v = x[i, j] * 4.0
        if i > 0:
            v -= x[i - 1, j]
        if i + 1 < h:
            v -= x[i + 1, j]
        if j > 0:
            v -= x[i, j - 1]
        if j + 1 < w:
            v -= x[i, j + 1]
        out[i, j] = v


@cp.cube
def flat_stencil_of_numbers(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32], h: int, w: int) -> None:
    """The same over a flat array, with the shape as numbers."""
    p = cp.ABSOLUTE_POS
    if p < h * w:
        i = p // w
        j = p % w
        v = x[p] * 4.0
        if i > 0:
            v -= x[p - w]
        if i + 1 < h:
            v -= x[p + w]
        if j > 0:
            v -= x[p - 1]
        if j + 1 < w:
            v -= x[p + 1]
        out[p] = v
