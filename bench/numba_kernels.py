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


@numba.njit
def mandelbrot(out, limit):
    step = np.float32(3) / np.float32(out.shape[1])
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            cx, cy = np.float32(j) * step - np.float32(2), np.float32(i) * step - np.float32(1.5)
            x, y, n = np.float32(0), np.float32(0), 0
            while x * x + y * y < np.float32(4) and n < limit:
                x, y = x * x - y * y + cx, np.float32(2) * x * y + cy
                n += 1
            out[i, j] = n


@numba.njit
def collatz(x, out):
    for i in range(x.size):
        v, n = x[i], 0
        while v != 1:
            v = np.int32(v // 2) if v % 2 == 0 else np.int32(3 * v + 1)
            n += 1
        out[i] = n


@numba.njit
def search(keys, table, out):
    for i in range(keys.size):
        low, high = 0, table.size
        while low < high:
            middle = (low + high) // 2
            if table[middle] < keys[i]:
                low = middle + 1
            else:
                high = middle
        out[i] = low


@numba.njit
def sum_rows(x, out):
    for i in range(x.shape[0]):
        total = np.float32(0)
        for k in range(x.shape[1]):
            total += x[i, k]
        out[i] = total


@numba.njit
def relu_rows(x, out):
    for i in range(x.shape[0]):
        for k in range(x.shape[1]):
            out[i, k] = max(x[i, k], np.float32(0))


@numba.njit
def moving_sum(x, width, out):
    for i in range(x.size):
        total = np.float32(0)
        for k in range(max(0, i - width + 1), i + 1):
            total += x[k]
        out[i] = total


@numba.njit
def box_sum(x, radius, out):
    for y in range(x.shape[0]):
        for i in range(x.shape[1]):
            total = np.float32(0)
            for dy in range(-radius, radius + 1):
                for dx in range(-radius, radius + 1):
                    row = max(0, min(y + dy, x.shape[0] - 1))
                    total += x[row, max(0, min(i + dx, x.shape[1] - 1))]
            out[y, i] = total


@numba.njit
def count_rows(x, limit, out):
    for i in range(x.shape[0]):
        count = 0
        for k in range(x.shape[1]):
            if x[i, k] > limit:
                count += 1
        out[i] = count


@numba.njit
def warp(x, y, kept, out):
    far = np.float32(1e30)
    for i in range(out.size):
        row = kept[i]
        row[:] = far
        diagonal = np.float32(0)
        for j in range(x.shape[1]):
            left, v = far, x[i, j]
            for k in range(y.shape[1]):
                up = row[k]
                left = abs(v - y[i, k]) + min(min(left, up), diagonal)
                diagonal, row[k] = up, left
            diagonal = far
        out[i] = row[-1]


@numba.njit
def binomial(spot, strike, years, out, steps, rate, volatility):
    value = np.empty(steps + 1, np.float32)
    for i in range(out.size):
        dt = years[i] / np.float32(steps)
        root = volatility * np.float32(math.sqrt(dt))
        up = np.float32(math.exp(root))
        growth, discount = np.float32(math.exp(rate * dt)), np.float32(math.exp(-rate * dt))
        likely = (growth - np.float32(1) / up) / (up - np.float32(1) / up) * discount
        unlikely = discount - likely
        price = spot[i] * np.float32(math.exp(-root * np.float32(steps)))
        for k in range(steps + 1):
            value[k] = max(strike[i] - price, np.float32(0))
            price *= up * up
        for step in range(steps - 1, -1, -1):
            price = spot[i] * np.float32(math.exp(-root * np.float32(step)))
            for k in range(step + 1):
                held = likely * value[k + 1] + unlikely * value[k]
                value[k] = max(held, strike[i] - price)
                price *= up * up
        out[i] = value[0]


@numba.njit
def _distance(x, y, z, spheres):
    nearest = y
    for k in range(spheres.shape[0]):
        dx, dy, dz = x - spheres[k, 0], y - spheres[k, 1], z - spheres[k, 2]
        length = np.float32(math.sqrt(dx * dx + dy * dy + dz * dz))
        nearest = min(nearest, length - spheres[k, 3])
    return nearest


@numba.njit
def _march(p, d, spheres, far):
    along = np.float32(0.02)
    for _ in range(100):
        step = _distance(p[0] + d[0] * along, p[1] + d[1] * along, p[2] + d[2] * along, spheres)
        along += step
        if step < np.float32(1e-3) or along > far:
            break
    return along


@numba.njit
def _unit(x, y, z):
    scale = np.float32(1) / np.float32(math.sqrt(x * x + y * y + z * z))
    return x * scale, y * scale, z * scale


@numba.njit
def _brightness(d, spheres, far, eye, light):
    along = _march(eye, d, spheres, far)
    if along > far:
        return np.float32(0.6) + np.float32(0.4) * d[1]
    p = (eye[0] + d[0] * along, eye[1] + d[1] * along, eye[2] + d[2] * along)
    e = np.float32(1e-3)
    here = _distance(p[0], p[1], p[2], spheres)
    nx = _distance(p[0] + e, p[1], p[2], spheres) - here
    ny = _distance(p[0], p[1] + e, p[2], spheres) - here
    nz = _distance(p[0], p[1], p[2] + e, spheres) - here
    n, to = _unit(nx, ny, nz), _unit(light[0], light[1], light[2])
    lit = max(n[0] * to[0] + n[1] * to[1] + n[2] * to[2], np.float32(0))
    if lit > 0 and _march(p, to, spheres, far) < far:
        lit = np.float32(0)
    dark = p[1] < np.float32(0.01) and (math.floor(p[0]) + math.floor(p[2])) % 2 == 0
    colour = np.float32(0.4) if dark else np.float32(0.9)
    return colour * (np.float32(0.15) + np.float32(0.85) * lit)


@numba.njit
def raymarch(out, spheres, far, eye, light):
    height, width = out.shape
    for i in range(height):
        for j in range(width):
            x = np.float32(2 * j + 1 - width) / np.float32(height)
            y = np.float32(height - 2 * i - 1) / np.float32(height)
            d = _unit(x, y, np.float32(1.8))
            out[i, j] = _brightness(d, spheres, far, eye, light)


@numba.njit
def _floor_along(p, d, height, far):
    along = (height - p[1]) / d[1] if d[1] != 0 else far
    return along if along > 0 else far


@numba.njit
def _sphere_along(p, d, spheres, k, far):
    x, y, z = p[0] - spheres[k, 0], p[1] - spheres[k, 1], p[2] - spheres[k, 2]
    b = x * d[0] + y * d[1] + z * d[2]
    inside = b * b - (x * x + y * y + z * z - spheres[k, 3] * spheres[k, 3])
    if inside > 0:
        nearer = -b - np.float32(math.sqrt(inside))
        if nearer > 0:
            return nearer
    return far


@numba.njit
def _occlusion(p, n, state, spheres, height, samples, far, lift):
    one, zero = np.float32(1), np.float32(0)
    is_flat = n[0] < np.float32(0.6) and n[0] > np.float32(-0.6)
    ax, ay = (one, zero) if is_flat else (zero, one)
    s = _unit(ay * n[2], -ax * n[2], ax * n[1] - ay * n[0])
    t = (n[1] * s[2] - n[2] * s[1], n[2] * s[0] - n[0] * s[2], n[0] * s[1] - n[1] * s[0])
    start = (p[0] + n[0] * lift, p[1] + n[1] * lift, p[2] + n[2] * lift)
    hits = zero
    for _ in range(samples):
        state = np.uint32(state * np.uint32(1664525) + np.uint32(1013904223))
        squared = np.float32(state >> np.uint32(8)) * np.float32(1 / 2**24)
        state = np.uint32(state * np.uint32(1664525) + np.uint32(1013904223))
        angle = np.float32(state >> np.uint32(8)) * np.float32(2 * np.pi / 2**24)
        radius = np.float32(math.sqrt(squared))
        x, y = np.float32(math.cos(angle)) * radius, np.float32(math.sin(angle)) * radius
        z = np.float32(math.sqrt(one - squared))
        d = (
            s[0] * x + t[0] * y + n[0] * z,
            s[1] * x + t[1] * y + n[1] * z,
            s[2] * x + t[2] * y + n[2] * z,
        )
        nearest = _floor_along(start, d, height, far)
        for k in range(spheres.shape[0]):
            nearest = min(nearest, _sphere_along(start, d, spheres, k, far))
        if nearest < far:
            hits += one
    return hits / np.float32(samples)


@numba.njit
def aobench(out, spheres, height, samples, far, lift):
    rows, columns = out.shape
    zero, one = np.float32(0), np.float32(1)
    eye = (zero, zero, zero)
    for i in range(rows):
        for j in range(columns):
            x = np.float32(2 * j + 1 - columns) / np.float32(columns)
            y = np.float32(rows - 2 * i - 1) / np.float32(rows)
            d = _unit(x, y, np.float32(-1))
            nearest, n = _floor_along(eye, d, height, far), (zero, one, zero)
            for k in range(spheres.shape[0]):
                along = _sphere_along(eye, d, spheres, k, far)
                if along < nearest:
                    by = one / spheres[k, 3]
                    nearest = along
                    n = (
                        (d[0] * along - spheres[k, 0]) * by,
                        (d[1] * along - spheres[k, 1]) * by,
                        (d[2] * along - spheres[k, 2]) * by,
                    )
            out[i, j] = zero
            if nearest < far:
                p = (d[0] * nearest, d[1] * nearest, d[2] * nearest)
                state = np.uint32(np.uint32(i * columns + j) * np.uint32(2654435761) + np.uint32(1))
                hidden = _occlusion(p, n, state, spheres, height, samples, far, lift)
                out[i, j] = one - hidden


@_parallel
def scale_planes(x, a, out):
    depth, height, width = x.shape
    for i in numba.prange(depth * height * width):
        c, h, w = i // (height * width), i // width % height, i % width
        out[c, h, w] = x[c, h, w] * a[c]


@_parallel
def add_bias(x, b, out):
    for i in numba.prange(x.size):
        row, k = i // x.shape[1], i % x.shape[1]
        out[row, k] = math.exp(x[row, k]) + b[k]


@_parallel
def rotate(x, cosines, sines, out):
    heads, half = x.shape[1], cosines.shape[1]
    for i in numba.prange(x.size // 2):
        p, h, k = i // (heads * half), i // half % heads, i % half
        a, b = x[p, h, k], x[p, h, k + half]
        out[p, h, k] = a * cosines[p, k] - b * sines[p, k]
        out[p, h, k + half] = a * sines[p, k] + b * cosines[p, k]


@_parallel
def gray(x, out):
    for i in numba.prange(out.shape[0]):
        for j in range(out.shape[1]):
            red, green = np.uint32(x[i, j, 0]), np.uint32(x[i, j, 1])
            blue = np.uint32(x[i, j, 2])
            out[i, j] = (red * 77 + green * 150 + blue * 29) >> 8


@_parallel
def attract(p, out):
    for i in numba.prange(p.shape[0]):
        x, y, z = p[i, 0], p[i, 1], p[i, 2]
        s = np.float32(1) / np.sqrt(x * x + y * y + z * z + np.float32(0.001))
        s = s * s * s
        out[i, 0], out[i, 1], out[i, 2] = -x * s, -y * s, -z * s
