"""Gravity between all pairs of bodies, with tiles of positions in shared memory."""

from typing import Any

import numpy as np

import cubepy as cp

TILE = 64
SOFTENING = 0.01  # keeps close pairs finite


@cp.cube
def pull(dx, dy, dz, mass):
    """The acceleration towards a body at this distance; helpers may return tuples."""
    squared = dx * dx + dy * dy + dz * dz + SOFTENING
    inverse = cp.rsqrt(squared)
    strength = mass * inverse * inverse * inverse
    return dx * strength, dy * strength, dz * strength


@cp.cube
def accelerations_kernel(bodies, out):
    """`bodies` holds x, y, z and mass in each row; `out` an acceleration."""
    tile = cp.shared((TILE, 4), bodies.dtype)
    i, unit, count = cp.ABSOLUTE_POS, cp.UNIT_POS, bodies.shape[0]
    me = bodies[min(i, count - 1)]  # a view of one row; idle units look at the last body
    x, y, z = me[0], me[1], me[2]
    ax, ay, az = 0.0, 0.0, 0.0
    for start in range(0, count, TILE):
        other = start + unit
        for k in cp.unroll(range(4)):
            tile[unit, k] = bodies[other, k] if other < count else 0.0  # no mass, no pull
        cp.sync_cube()
        for k in range(TILE):
            dx, dy, dz = pull(tile[k, 0] - x, tile[k, 1] - y, tile[k, 2] - z, tile[k, 3])
            ax, ay, az = ax + dx, ay + dy, az + dz
        cp.sync_cube()
    if i < count:
        out[i, 0], out[i, 1], out[i, 2] = ax, ay, az


def accelerations(bodies: np.ndarray, **settings: Any) -> np.ndarray:
    out = np.empty((len(bodies), 3), bodies.dtype)
    accelerations_kernel.configure(**settings).over(len(bodies), cube_dim=TILE)(bodies, out)
    return out


def simulate(
    bodies: np.ndarray, velocities: np.ndarray, steps: int, dt: float, **settings: Any
) -> np.ndarray:
    """Positions and masses after some leapfrog steps."""
    bodies, velocities = bodies.copy(), velocities.copy()
    for _ in range(steps):
        velocities += 0.5 * dt * accelerations(bodies, **settings)
        bodies[:, :3] += dt * velocities
        velocities += 0.5 * dt * accelerations(bodies, **settings)
    return bodies


def reference(bodies: np.ndarray) -> np.ndarray:
    position, mass = bodies[:, :3].astype(np.float64), bodies[:, 3].astype(np.float64)
    d = position[None] - position[:, None]
    strength = mass / ((d**2).sum(-1) + SOFTENING) ** 1.5
    return (d * strength[..., None]).sum(1)


def main() -> None:
    rng = np.random.default_rng(0)
    bodies = rng.random((500, 4), np.float32)
    np.testing.assert_allclose(accelerations(bodies), reference(bodies), rtol=1e-3, atol=1e-2)
    moved = simulate(bodies, np.zeros((500, 3), np.float32), steps=5, dt=1e-3)
    centre = (bodies[:, :3] * bodies[:, 3:]).sum(0)
    np.testing.assert_allclose((moved[:, :3] * bodies[:, 3:]).sum(0), centre, rtol=1e-4)
    print("n-body: 500 bodies agree with NumPy, and their centre of mass rests")


if __name__ == "__main__":
    main()
