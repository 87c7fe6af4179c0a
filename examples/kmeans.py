"""K-means (Lloyd's algorithm) in the plane: assign, accumulate with atomics, divide."""

from typing import Any

import numpy as np

import cubepy as cp

CUBE = 256


@cp.cube
def assign_kernel(points, centres, labels, sums, K: cp.Comptime[int]):
    """Label each point with its nearest centre; add x, y and 1 to that centre's row of `sums`."""
    mine = cp.shared((K, 3), cp.f32)
    for k in range(cp.UNIT_POS, K, CUBE):
        mine[k, 0], mine[k, 1], mine[k, 2] = 0.0, 0.0, 0.0
    cp.sync_cube()

    i = cp.ABSOLUTE_POS
    if i < points.shape[0]:
        x, y = points[i, 0], points[i, 1]
        best, nearest = cp.f32(3e38), 0
        for k in cp.unroll(range(K)):
            dx, dy = x - centres[k, 0], y - centres[k, 1]
            distance = dx * dx + dy * dy
            if distance < best:
                best, nearest = distance, k
        labels[i] = nearest
        cp.atomic.add(mine, (nearest, 0), x)
        cp.atomic.add(mine, (nearest, 1), y)
        cp.atomic.add(mine, (nearest, 2), 1.0)
    cp.sync_cube()  # outside the `if`: every unit of the cube comes here

    for k in range(cp.UNIT_POS, K, CUBE):
        for c in cp.unroll(range(3)):
            cp.atomic.add(sums, (k, c), mine[k, c])


def kmeans(
    points: np.ndarray, centres: np.ndarray, rounds: int, **settings: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Centres and labels after some rounds."""
    labels = np.empty(len(points), np.int32)
    assign = assign_kernel.configure(**settings).over(len(points), cube_dim=CUBE)
    for _ in range(rounds):
        sums = np.zeros((len(centres), 3), np.float32)
        assign(points, centres, labels, sums, len(centres))
        centres = np.where(sums[:, 2:] > 0, sums[:, :2] / np.maximum(sums[:, 2:], 1), centres)
    return centres, labels


def reference(
    points: np.ndarray, centres: np.ndarray, rounds: int
) -> tuple[np.ndarray, np.ndarray]:
    points, centres = points.astype(np.float64), centres.astype(np.float64)
    for _ in range(rounds):
        labels = ((points[:, None] - centres) ** 2).sum(-1).argmin(1)
        for k in set(labels.tolist()):
            centres[k] = points[labels == k].mean(0)
    return centres, labels


def blobs(count: int, seed: int = 0) -> np.ndarray:
    """Points around four places."""
    rng = np.random.default_rng(seed)
    places = np.array([[0, 0], [8, 1], [1, 9], [9, 8]], np.float32)
    return places[rng.integers(0, 4, count)] + rng.normal(size=(count, 2)).astype(np.float32)


def main() -> None:
    points = blobs(20_000)
    start = points[:4] + np.array([[0, 0], [1, 0], [0, 1], [1, 1]], np.float32)
    centres, labels = kmeans(points, start, 15)
    expected, expected_labels = reference(points, start, 15)
    np.testing.assert_allclose(centres, expected, atol=1e-2)
    assert (labels != expected_labels).mean() < 1e-3
    print(f"k-means: {len(points)} points, centres agree with NumPy")


if __name__ == "__main__":
    main()
