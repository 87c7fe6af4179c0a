"""What the demo does to the picture: four steps, each with CubePy, with NumPy and with its peers.

A contender is a function `(input, output)` that leaves its result in `output`. The NumPy one also
computes in f64, where it judges all others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from cubepy.cli.demo import kernels
from cubepy.record import dataclass

EXPOSURE, CONTRAST = 2.4, 1.35
POOL = 8
SHARES = 64
"""Shares of the picture that units reduce on their own, in cubes of 8."""

Contender = Callable[[np.ndarray, np.ndarray], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do to the picture.

    `run(device, input, output)` launches the kernels; `shows` names them, the first is inspected
    with the arguments `specs(input, output)`. `tolerance` is absolute, beside f64.
    """

    key: str
    title: str
    about: str
    prepare: Callable[[np.ndarray], np.ndarray]
    shape: Callable[[np.ndarray], tuple[int, ...]]
    run: Callable[[str, np.ndarray, np.ndarray], None]
    numpy: Contender
    tolerance: float
    shows: tuple[str, ...]
    specs: Callable[[np.ndarray, np.ndarray], dict[str, Any]]
    comptime: Mapping[str, Any] = field(default_factory=dict)

    def output(self, x: np.ndarray) -> np.ndarray:
        """An array for the result."""
        return np.zeros(self.shape(x), x.dtype)


def _on(kernel: Any, device: str) -> Any:
    return kernel if device == "cpu" else kernel.configure(device=device)


def _spec(array: np.ndarray) -> str:
    return f"f32[{','.join(map(str, array.shape))}]"


def grey(planes: np.ndarray) -> np.ndarray:
    """The luminance of a picture (ITU-R BT.709)."""
    weights = np.array([0.2126, 0.7152, 0.0722], planes.dtype)
    return np.ascontiguousarray(np.tensordot(weights, planes, 1))


def faded(planes: np.ndarray) -> np.ndarray:
    """The picture as an old print: neither black nor white is left."""
    return planes * np.float32(0.35) + np.float32(0.4)


# The tone curve


def develop(device: str, x: np.ndarray, out: np.ndarray) -> None:
    """The film curve with CubePy."""
    _on(kernels.tone_curve, device).over(out)(x, out, EXPOSURE, CONTRAST)


def develop_numpy(x: np.ndarray, out: np.ndarray) -> None:
    """The film curve with NumPy, in place."""
    np.power(x, CONTRAST, out=out)
    np.multiply(out, -EXPOSURE, out=out)
    np.exp(out, out=out)
    np.subtract(1, out, out=out)
    np.multiply(out, 1 / (1 - np.exp(-EXPOSURE)), out=out)


# Edges


def edges(device: str, x: np.ndarray, out: np.ndarray) -> None:
    """The Sobel filter with CubePy."""
    _on(kernels.sobel, device).over(out, cube_dim=(128, 8))(x, out)


def edges_numpy(x: np.ndarray, out: np.ndarray) -> None:
    """The Sobel filter with NumPy: two separable passes."""
    smooth = x[:-2] + 2 * x[1:-1] + x[2:]
    across = smooth[:, 2:] - smooth[:, :-2]
    change = x[2:] - x[:-2]
    down = change[:, :-2] + 2 * change[:, 1:-1] + change[:, 2:]
    np.sqrt(across * across + down * down, out=out)


# Contrast


def stretch(device: str, x: np.ndarray, out: np.ndarray) -> None:
    """Least and greatest value, then a map, with CubePy."""
    low, high = np.empty(SHARES, x.dtype), np.empty(SHARES, x.dtype)
    _on(kernels.extremes, device).over(low, cube_dim=8)(x, low, high)
    darkest, brightest = low.min(), high.max()
    gain = 1 / (brightest - darkest)
    _on(kernels.stretch, device).over(out)(x, out, darkest, gain)


def stretch_numpy(x: np.ndarray, out: np.ndarray) -> None:
    """The same with NumPy."""
    low, high = x.min(), x.max()
    np.subtract(x, low, out=out)
    np.multiply(out, 1 / (high - low), out=out)


# Pooling


def pool(device: str, x: np.ndarray, out: np.ndarray) -> None:
    """The brightest of each square, with the demo's kernel."""
    _on(kernels.pool, device).over(out)(x, out, POOL)


def pool_numpy(x: np.ndarray, out: np.ndarray) -> None:
    """The same with NumPy, as a view with axes for the squares."""
    planes, height, width = x.shape
    squares = x.reshape(planes, height // POOL, POOL, width // POOL, POOL)
    np.max(squares, axis=(2, 4), out=out)


def same_shape(x: np.ndarray) -> tuple[int, ...]:
    """For maps."""
    return x.shape


STEPS: tuple[Step, ...] = (
    Step(
        "tone",
        "Tone curve",
        "An element-wise map with pow and exp: 1 − exp(−exposure · light ^ contrast).",
        lambda planes: planes,
        same_shape,
        develop,
        develop_numpy,
        2e-6,
        ("film", "tone_curve"),
        lambda x, out: {"picture": _spec(x), "out": _spec(out), "exposure": "f32",
                        "contrast": "f32"},
    ),
    Step(
        "edges",
        "Sobel filter",
        "A custom stencil over the luminance: two 3×3 filters and the length of their gradient.",
        grey,
        lambda x: (x.shape[0] - 2, x.shape[1] - 2),
        edges,
        edges_numpy,
        2e-6,
        ("sobel",),
        lambda x, out: {"image": _spec(x), "out": _spec(out)},
    ),
    Step(
        "contrast",
        "Contrast stretch",
        "A reduction (least and greatest value) of a faded print, then a map that uses its result.",
        faded,
        same_shape,
        stretch,
        stretch_numpy,
        2e-6,
        ("extremes", "stretch"),
        lambda x, out: {"picture": _spec(x), "low": f"f32[{SHARES}]", "high": f"f32[{SHARES}]"},
    ),
    Step(
        "pool",
        "Max pooling",
        f"The brightest of each {POOL}×{POOL} square, its window unrolled at comptime.",
        lambda planes: planes,
        lambda x: (x.shape[0], x.shape[1] // POOL, x.shape[2] // POOL),
        pool,
        pool_numpy,
        0.0,
        ("pool",),
        lambda x, out: {"picture": _spec(x), "out": _spec(out)},
        {"size": POOL},
    ),
)  # fmt: skip
