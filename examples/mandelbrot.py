"""The Mandelbrot set: a loop that each unit leaves when its own point escapes."""

from typing import Any

import numpy as np

import cubepy as cp


@cp.cube
def escape_time(cx, cy, limit: cp.Comptime[int]):
    """Iterations of z*z + c before |z| exceeds 2; at most `limit`."""
    x, y, n = 0.0, 0.0, 0
    while n < limit and x * x + y * y <= 4:
        x, y = x * x - y * y + cx, 2 * x * y + cy
        n += 1
    return n


@cp.cube
def mandelbrot_kernel(out, left, top, step, limit: cp.Comptime[int]):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    if i < out.shape[0] and j < out.shape[1]:
        # Positions are indices; multiplied with a float they become that float's type.
        out[i, j] = escape_time(left + j * step, top - i * step, limit)


def mandelbrot(
    shape: tuple[int, int],
    left: float = -2.2,
    top: float = 1.2,
    width: float = 3.2,
    limit: int = 200,
    **settings: Any,
) -> np.ndarray:
    """Escape times on a grid of points, in f64."""
    out = np.empty(shape, np.int32)
    corner = np.float64(left), np.float64(top), np.float64(width / shape[1])
    mandelbrot_kernel.configure(**settings).over(shape)(out, *corner, limit)
    return out


def reference(
    shape: tuple[int, int], left: float, top: float, width: float, limit: int
) -> np.ndarray:
    step = width / shape[1]
    c = left + np.arange(shape[1]) * step + 1j * (top - np.arange(shape[0])[:, None] * step)
    z, n = np.zeros_like(c), np.zeros(shape, np.int32)
    for _ in range(limit):
        inside = z.real**2 + z.imag**2 <= 4
        n += inside
        z = np.where(inside, z * z + c, z)
    return n


def main() -> None:
    place = (-2.2, 1.2, 3.2, 100)
    found, expected = mandelbrot((240, 320), *place), reference((240, 320), *place)
    # A point that sits on the border within rounding may escape an iteration sooner or later.
    assert (found != expected).mean() < 1e-3
    print(f"mandelbrot: {expected.size} points agree with NumPy")


if __name__ == "__main__":
    main()
