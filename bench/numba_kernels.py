"""What a numba user writes: loops over `prange`, fastmath off. Import it only with numba."""

import math
from typing import Any

import numba
import numpy as np


def _parallel(function: Any) -> Any:
    return numba.njit(parallel=True, fastmath=False)(function)


@numba.njit
def _gelu(v):  # v: f32
    half, one = np.float32(0.5), np.float32(1)
    return v * half * (one + math.erf(v * np.float32(0.7071067811865476)))


@_parallel
def exp(x, out):
    for i in numba.prange(x.size):
        out[i] = math.exp(x[i])


@_parallel
def gelu(x, out):
    for i in numba.prange(x.size):
        out[i] = _gelu(x[i])


@_parallel
def multiply_add(a, b, c, out):
    for i in numba.prange(a.size):
        out[i] = a[i] * b[i] + c[i]


@_parallel
def chain(a, b, c, out):
    for i in numba.prange(a.size):
        out[i] = _gelu(a[i] * b[i] + c[i]) * a[i]


@numba.njit
def add(x, y, out):
    for i in range(x.size):
        out[i] = x[i] + y[i]


@_parallel
def add_parallel(x, y, out):
    for i in numba.prange(x.size):
        out[i] = x[i] + y[i]


@numba.njit
def stencil(x, out):
    h, w = x.shape
    for i in range(h):
        for j in range(w):
            v = x[i, j] * np.float32(4)
            if i > 0:
                v -= x[i - 1, j]
            if i + 1 < h:
                v -= x[i + 1, j]
            if j > 0:
                v -= x[i, j - 1]
            if j + 1 < w:
                v -= x[i, j + 1]
            out[i, j] = v


@_parallel
def sum_all(x, out):
    total = np.float32(0)
    for i in numba.prange(x.shape[0]):
        row = np.float32(0)
        for j in range(x.shape[1]):
            row += x[i, j]
        total += row
    out[0] = total


@_parallel
def sum_last(x, out):
    for i in numba.prange(x.shape[0]):
        row = np.float32(0)
        for j in range(x.shape[1]):
            row += x[i, j]
        out[i] = row


@_parallel
def max_pool2d(x, kernel, stride, padding, out):
    n, c, height, width = x.shape
    for plane in numba.prange(n * c):
        source, target = x[plane // c, plane % c], out[plane // c, plane % c]
        for i in range(target.shape[0]):
            top, bottom = max(i * stride - padding, 0), min(i * stride - padding + kernel, height)
            for j in range(target.shape[1]):
                left, right = (
                    max(j * stride - padding, 0),
                    min(j * stride - padding + kernel, width),
                )
                best = np.float32(-np.inf)
                for y in range(top, bottom):
                    for z in range(left, right):
                        best = max(best, source[y, z])
                target[i, j] = best


@_parallel
def matmul(a, b, out):
    for i in numba.prange(a.shape[0]):
        out[i, :] = 0
        for k in range(a.shape[1]):
            v = a[i, k]
            for j in range(b.shape[1]):
                out[i, j] += v * b[k, j]


@numba.njit
def histogram(x, out):
    out[:] = 0
    for i in range(x.size):
        out[x[i]] += 1


@numba.njit
def shortest_ways(d):
    n = d.shape[0]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                d[i, j] = min(d[i, j], d[i, k] + d[k, j])
