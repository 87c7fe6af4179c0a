"""The errors of convolutions in Winograd's forms beside their bounds, on inputs hard for them.

`python -m tests.winograd_errors` prints a table in Markdown, for docs/accuracy.md.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import cubepy as cp

UNIT = 2.0**-24
# The changes of basis of elements, of weights and of products to results, as in Lavin and Gray.
MATRICES = {
    2: (
        [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
        [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]],
        [[1, 1, 1, 0], [0, 1, -1, -1]],
    ),
    4: (
        [
            [4, 0, -5, 0, 1, 0],
            [0, -4, -4, 1, 1, 0],
            [0, 4, -4, -1, 1, 0],
            [0, -2, -1, 2, 1, 0],
            [0, 2, -1, -2, 1, 0],
            [0, 4, 0, -5, 0, 1],
        ],
        np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24,
        [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
    ),
}
ROUNDINGS = {2: 11, 4: 21}
"""Those of a result beside one for each channel: of the changes of elements, weights and products,
of the bias, and one for terms of second order."""
PRECISIONS = {2: "winograd2x2", 4: "winograd4x4"}


def exact(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution in f64 with one zero around, tap by tap."""
    rows, columns = x.shape[2:]
    padded = np.pad(x.astype("f8"), ((0, 0), (0, 0), (1, 1), (1, 1)))
    found = np.zeros((x.shape[0], w.shape[0], rows, columns))
    for a in range(3):
        for b in range(3):
            cut = padded[:, :, a : a + rows, b : b + columns]
            found += np.einsum("nchw,fc->nfhw", cut, w[:, :, a, b].astype("f8"))
    return found


def bound(x: np.ndarray, w: np.ndarray, size: int) -> np.ndarray:
    """The largest error of each result: that of the definition with absolute matrices."""
    of_elements, of_weights, of_results = (abs(np.asarray(m, "f8")) for m in MATRICES[size])
    rows, columns = (-(-n // size) for n in x.shape[2:])
    missing = [(1, n * size + 1 - m) for n, m in zip((rows, columns), x.shape[2:], strict=True)]
    padded = np.pad(abs(x.astype("f8")), ((0, 0), (0, 0), *missing))
    cut = np.lib.stride_tricks.sliding_window_view(padded, (size + 2, size + 2), (2, 3))
    elements = of_elements @ cut[:, :, ::size, ::size] @ of_elements.T
    weights = of_weights @ abs(w.astype("f8")) @ of_weights.T
    products = np.einsum("nchwab,fcab->nfhwab", elements, weights)
    found = np.moveaxis(of_results @ products @ of_results.T, 4, 3)
    found = found.reshape(*found.shape[:2], rows * size, columns * size)
    return (w.shape[1] + ROUNDINGS[size]) * UNIT * found[:, :, : x.shape[2], : x.shape[3]]


def constant(size: int) -> float:
    """The bound for largest elements of 1 and absolute sums of weights of 1, over roundings."""
    of_elements, of_weights, of_results = (abs(np.asarray(m, "f8")) for m in MATRICES[size])
    return (of_results @ np.diag(of_elements.sum(1)) @ of_weights).max() ** 2


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Normal numbers."""
    return rng.standard_normal(shape).astype("f4")


def positive(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of one sign and magnitude, so that sums grow."""
    return (1 + rng.random(shape)).astype("f4")


def mixed(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Numbers of many magnitudes: large ones lie beside the small ones that results need."""
    return (rng.standard_normal(shape) * 10.0 ** rng.integers(-6, 7, shape)).astype("f4")


def striped(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Signs that alternate along both axes, with which changes of basis cancel least."""
    signs = (-1.0) ** np.add.outer(np.arange(shape[2]) // 2, np.arange(shape[3]) // 2)
    return (signs * (1 + rng.random(shape))).astype("f4")


INPUTS: dict[str, Callable[..., np.ndarray]] = {
    f.__name__: f for f in (normal, positive, mixed, striped)
}


def direct_bound(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The largest error of each result of the direct form, as its docstring says."""
    return w[0].size * UNIT * exact(abs(x), abs(w))


def errors(kind: str, size: int | None, channels: int, seed: int) -> tuple[float, float, float]:
    """The largest error of the form relative to the largest result, to the bound of the direct
    form, and to its own bound."""
    rng = np.random.default_rng(seed)
    x, w = INPUTS[kind](rng, 1, channels, 14, 14), INPUTS[kind](rng, 16, channels, 3, 3)
    packed = cp.kernels.prepack(w, precision="direct" if size is None else PRECISIONS[size])
    right, plain = exact(x, w), direct_bound(x, w)
    error = abs(cp.kernels.conv2d(x, packed, padding=1) - right)
    own = plain if size is None else bound(x, w, size)
    return error.max() / abs(right).max(), (error / plain).max(), (error / own).max()


def main() -> None:
    """Print the largest of five runs for each kind of input and form."""
    print("| inputs | channels | form | of the largest result | of direct's bound | of its bound |")
    print("|---|---|---|---|---|---|")
    for kind in INPUTS:
        for channels in (16, 256):
            for size, form in ((None, "direct"), (2, "2x2"), (4, "4x4")):
                runs = [errors(kind, size, channels, seed) for seed in range(5)]
                cells = (f"{max(run[k] for run in runs):.2g}" for k in range(3))
                print(f"| {kind} | {channels} | {form} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
