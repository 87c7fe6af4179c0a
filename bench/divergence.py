"""Kernels with one unit per element whose control flow differs from unit to unit."""

from __future__ import annotations

import cubepy as cp

FAR = 1e30
"""More than a way of `warp` takes."""


@cp.cube
def mandelbrot(out: cp.Tensor[cp.f32], limit: cp.i32) -> None:
    """Iterations of z*z + c before |z| reaches 2, over the square from (-2, -1.5) to (1, 1.5)."""
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < out.shape[0] and j < out.shape[1]:
        step = 3 / cp.f32(out.shape[1])
        cx, cy = j * step - 2, i * step - 1.5
        x, y, n = cp.f32(0), cp.f32(0), cp.i32(0)
        while x * x + y * y < 4 and n < limit:
            x, y = x * x - y * y + cx, 2 * x * y + cy
            n += 1
        out[i, j] = n


@cp.cube
def collatz(x: cp.Tensor[cp.i32], out: cp.Tensor[cp.i32]) -> None:
    """Steps until 1: halves of even numbers, three times odd ones and 1."""
    i = cp.ABSOLUTE_POS
    if i < x.size:
        v, n = x[i], cp.i32(0)
        while v != 1:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            n += 1
        out[i] = n


@cp.cube
def search(keys: cp.Tensor[cp.f32], table: cp.Tensor[cp.f32], out: cp.Tensor[cp.i32]) -> None:
    """Where each key belongs in a sorted table."""
    i = cp.ABSOLUTE_POS
    if i < keys.size:
        key, low, high = keys[i], cp.i32(0), cp.i32(table.size)
        while low < high:
            middle = (low + high) // 2
            if table[middle] < key:
                low = middle + 1
            else:
                high = middle
        out[i] = low


@cp.cube
def sum_rows(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]) -> None:
    """A unit for each row, which reads along it."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        total = cp.f32(0)
        for k in range(x.shape[1]):
            total += x[i, k]
        out[i] = total


@cp.cube
def relu_rows(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]) -> None:
    """A unit for each row, which writes along it."""
    i = cp.ABSOLUTE_POS
    if i < out.shape[0]:
        for k in range(out.shape[1]):
            out[i, k] = max(x[i, k], 0.0)


@cp.cube
def moving_sum(x: cp.Tensor[cp.f32], width: int, out: cp.Tensor[cp.f32]) -> None:
    """The sum of an element and of those before it, as many as there are up to `width`."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        total = cp.f32(0)
        for k in range(max(0, i - width + 1), i + 1):
            total += x[k]
        out[i] = total


@cp.cube
def box_sum(x: cp.Tensor[cp.f32], radius: int, out: cp.Tensor[cp.f32]) -> None:
    """The sum of a square around each element, with those at the border repeated."""
    y, i = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if y < out.shape[0] and i < out.shape[1]:
        total = cp.f32(0)
        for dy in range(-radius, radius + 1):
            for dx in range(-radius, radius + 1):
                row = max(0, min(y + dy, x.shape[0] - 1))
                total += x[row, max(0, min(i + dx, x.shape[1] - 1))]
        out[y, i] = total


@cp.cube
def count_rows(x: cp.Tensor[cp.i32], limit: cp.i32, out: cp.Tensor[cp.i32]) -> None:
    """How many elements of each row exceed a limit."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        count = cp.i32(0)
        for k in range(x.shape[1]):
            if x[i, k] > limit:
                count += 1
        out[i] = count


@cp.cube
def warp(
    x: cp.Tensor[cp.f32], y: cp.Tensor[cp.f32], kept: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]
) -> None:
    """How far two series of each row are apart where time may be stretched: the cheapest way
    through the differences of their elements (Sakoe and Chiba, "Dynamic programming algorithm
    optimization for spoken word recognition", 1978). `kept`: memory for a row of sums."""
    i = cp.ABSOLUTE_POS
    if i < out.size:
        row = kept[i]
        for k in range(row.shape[0]):
            row[k] = FAR
        diagonal = cp.f32(0)
        for j in range(x.shape[1]):
            left, v = cp.f32(FAR), x[i, j]
            for k in range(y.shape[1]):
                up = row[k]
                left = abs(v - y[i, k]) + min(min(left, up), diagonal)
                diagonal, row[k] = up, left
            diagonal = cp.f32(FAR)
        out[i] = row[row.shape[0] - 1]
