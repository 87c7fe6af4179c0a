"""The kernels whose generated source is committed: each shows one thing that writers must do well.

`CASES`: the launcher, the arguments' specs, and comptime values.
"""

from __future__ import annotations

from typing import Any

import cubepy as cp


@cp.cube
def gelu(v: cp.f32) -> cp.f32:
    return v * 0.5 * (1 + cp.tanh(0.7978845608 * (v + 0.044715 * v * v * v)))


@cp.cube
def gelu_lines(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = gelu(x.flat[i])


@cp.cube
def axpy_lines(alpha: cp.f32, x: cp.Lines[cp.f32], y: cp.Lines[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < y.size:
        y[i] = alpha * x[i] + y[i]


@cp.cube
def saxpy(alpha: cp.f32, x, y, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = alpha * x.flat[i] + y.flat[i]


@cp.cube
def blur_rows(image, out):
    row, column = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if row < out.shape[0] and column < out.shape[1]:
        left = image[row, max(column - 1, 0)]
        right = image[row, min(column + 1, image.shape[1] - 1)]
        out[row, column] = (left + 2 * image[row, column] + right) * 0.25


TILE = 32


@cp.cube
def transpose(x, out):
    tile = cp.shared((TILE, TILE + 1), x.dtype)
    tx, ty = cp.UNIT_POS_X, cp.UNIT_POS_Y
    row, column = cp.CUBE_POS_Y * TILE, cp.CUBE_POS_X * TILE
    for k in range(ty, TILE, cp.CUBE_DIM_Y):
        if row + k < x.shape[0] and column + tx < x.shape[1]:
            tile[k, tx] = x[row + k, column + tx]
    cp.sync_cube()
    for k in range(ty, TILE, cp.CUBE_DIM_Y):
        if column + k < x.shape[1] and row + tx < x.shape[0]:
            out[column + k, row + tx] = tile[tx, k]


@cp.cube
def tree_sum(x, partial):
    unit, units = cp.UNIT_POS, cp.CUBE_DIM
    sums = cp.shared(cp.CUBE_DIM, cp.f32)
    total = 0.0
    for i in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * units):
        total += x[i]
    sums[unit] = total
    cp.sync_cube()
    half = units // 2
    while half > 0:
        if unit < half:
            sums[unit] += sums[unit + half]
        cp.sync_cube()
        half //= 2
    if unit == 0:
        partial[cp.CUBE_POS] = sums[0]


@cp.cube
def row_sums(x, out):
    row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    if row < x.shape[0]:
        total = 0.0
        for column in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM):
            total += x[row, column]
        total = cp.plane_sum(total)
        if cp.plane_elect():
            out[row] = total


@cp.cube
def histogram(x, counts):
    local = cp.shared(256, cp.i32)
    for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM):
        local[k] = 0
    cp.sync_cube()
    for i in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * cp.CUBE_DIM):
        cp.atomic.add(local, cp.i32(x[i]), 1)
    cp.sync_cube()
    for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM):
        cp.atomic.add(counts, k, local[k])


@cp.cube
def softmax(x, out):
    row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    if row < x.shape[0]:
        largest = x[row, 0]
        for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM):
            largest = max(largest, x[row, k])
        largest = cp.plane_max(largest)
        total = 0.0
        for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM):
            total += cp.exp(x[row, k] - largest)
        scale = 1 / cp.plane_sum(total)
        for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM):
            out[row, k] = cp.exp(x[row, k] - largest) * scale


@cp.cube
def mix_halves(a: cp.Lines[cp.f16], b: cp.Lines[cp.bf16], out: cp.Lines[cp.f16]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = cp.f16(cp.f32(a[i]) * cp.f32(b[i])) + a[i]


@cp.cube
def collatz(x, steps, limit: int):
    i = cp.ABSOLUTE_POS
    if i >= x.size:
        return
    value, count = x[i], 0
    while value != 1:
        if value < 1:
            count = -1
            break
        if count == limit:
            break
        count += 1
        if value % 2 == 0:
            value //= 2
            continue
        value = 3 * value + 1
    steps[i] = count


@cp.cube
def clamp(v: cp.f32, low: cp.f32, high: cp.f32) -> cp.f32:
    return min(max(v, low), high)


@cp.cube
def shade(row, k, gain: cp.f32):
    total = 0.0
    for j in cp.unroll(range(3)):
        total += row[k + j] * (j + 1)
    return clamp(total * gain, 0.0, 1.0)


@cp.cube
def views(image, out, gain: cp.f32):
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        row = image[i][1:]
        for k in range(out.shape[1]):
            out[i][k] = shade(row, k, gain)


@cp.cube
def sum_columns(x: cp.Lines[cp.f32], out: cp.Lines[cp.f32]):
    column = cp.ABSOLUTE_POS
    if column < out.size:
        total = x[0, column]
        for row in range(1, x.shape[0]):
            total += x[row, column]
        out[column] = total


@cp.cube
def tile_product(a: cp.Tensor[cp.f16], b: cp.Tensor[cp.f16], c: cp.Tensor[cp.f32]):
    """Tiles beside each other along the columns of c, one for each plane."""
    i, j = cp.CUBE_POS_Y * 16, (cp.CUBE_POS_X * cp.PLANE_COUNT + cp.PLANE_POS) * 8
    left = cp.cmma.fragment("a", 16, 16, cp.f16)
    right = cp.cmma.fragment("b", 16, 8, cp.f16)
    total = cp.cmma.fragment("accumulator", 16, 8, cp.f32, fill=0)
    for k in range(0, a.shape[1], 16):
        cp.cmma.load(left, a, (i, k))
        cp.cmma.load(right, b, (k, j))
        cp.cmma.mma(total, left, right)
    cp.cmma.store(c, (i, j), total)


CASES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "gelu_lines": (gelu_lines[1, 256], ("f32[1024]",) * 2),
    "axpy_lines": (axpy_lines[1, 256], ("f32", "f32[?]", "f32[?]")),
    "saxpy": (saxpy[1, 256], ("f32", *("f32[?]",) * 3)),
    "blur_rows": (blur_rows[1, (32, 8)], ("f32[?,?]",) * 2),
    "transpose": (transpose[1, (32, 8)], ("f32[?,?]",) * 2),
    "tree_sum": (tree_sum[1, 256], ("f32[?]", "f32[?]")),
    "row_sums": (row_sums[1, 256], ("f32[?,?]", "f32[?]")),
    "histogram": (histogram[1, 256], ("u8[?]", "i32[256]")),
    "softmax": (softmax[1, 256], ("f32[?,?]",) * 2),
    "mix_halves": (mix_halves[1, 256], ("f16[1024]", "bf16[1024]", "f16[1024]")),
    "collatz": (collatz[1, 256], ("i32[?]", "i32[?]", "i64")),
    "views": (views[1, 256], ("f32[?,?]", "f32[?,?]", "f32")),
    "tile_product": (tile_product[1, 64], ("f16[?,?]", "f16[?,?]", "f32[?,?]")),
    "sum_columns": (sum_columns[1, 256], ("f32[?,1024]", "f32[1024]")),
}
