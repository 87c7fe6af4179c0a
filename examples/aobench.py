"""Ambient occlusion after Syoyo Fujita's AO bench: spheres on a floor, lit from everywhere.

A unit for each pixel; where its ray hits, 64 more rays see how much of the sky is hidden.
`python examples/aobench.py [FILE]` writes a PNG if Pillow is there, else a PPM.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cp

SPHERES = ((-2.0, 0.0, -3.5, 0.5), (-0.5, 0.0, -3.0, 0.5), (1.0, 0.0, -2.2, 0.5))
FLOOR = -0.5
FAR = 1e17
SAMPLES = 64
LIFT = 1e-4  # from where rays start above the surface


@dataclass(frozen=True)
class Vec:
    """Three numbers; inside a kernel they are values in registers."""

    x: Any
    y: Any
    z: Any

    def __add__(self, other):
        return Vec(self.x + other.x, self.y + other.y, self.z + other.z)

    def __sub__(self, other):
        return Vec(self.x - other.x, self.y - other.y, self.z - other.z)

    def __mul__(self, factor):
        return Vec(self.x * factor, self.y * factor, self.z * factor)

    def dot(self, other):
        return self.x * other.x + self.y * other.y + self.z * other.z

    def cross(self, other):
        return Vec(
            self.y * other.z - self.z * other.y,
            self.z * other.x - self.x * other.z,
            self.x * other.y - self.y * other.x,
        )

    def unit(self):
        return self * (1 / cp.sqrt(self.dot(self)))


def sphere(start: Vec, direction: Vec, centre: Vec, radius: float):
    """How far along a ray a sphere is; FAR where it is not."""
    to_start = start - centre
    b = to_start.dot(direction)
    inside = b * b - (to_start.dot(to_start) - radius * radius)
    along = cp.f32(FAR)
    if inside > 0:
        nearer = -b - cp.sqrt(inside)
        if nearer > 0:
            along = nearer
    return along


def floor(start: Vec, direction: Vec):
    """How far along a ray the floor is; FAR where it is not."""
    along = (FLOOR - start.y) / direction.y
    return along if along > 0 else cp.f32(FAR)  # a NaN is not


def occlusion(p: Vec, n: Vec, state):
    """The share of random rays from `p` around `n` that hit something; they prefer `n`."""
    is_flat = n.x < 0.6 and n.x > -0.6
    s = Vec(cp.where(is_flat, cp.f32(1), 0), cp.where(is_flat, cp.f32(0), 1), 0.0).cross(n).unit()
    t = n.cross(s)
    start, hits = p + n * LIFT, cp.f32(0)
    for _ in range(SAMPLES):
        state = state * 1664525 + 1013904223  # Numerical Recipes' generator of 32 bits
        squared = cp.f32(state >> 8) * (1 / 2**24)
        state = state * 1664525 + 1013904223
        angle = cp.f32(state >> 8) * (2 * np.pi / 2**24)
        radius = cp.sqrt(squared)
        x, y, z = cp.cos(angle) * radius, cp.sin(angle) * radius, cp.sqrt(1 - squared)
        direction = s * x + t * y + n * z
        nearest = floor(start, direction)
        for cx, cy, cz, r in SPHERES:  # a tuple: the loop is unrolled
            nearest = min(nearest, sphere(start, direction, Vec(cx, cy, cz), r))
        if nearest < FAR:
            hits += 1
    return hits / SAMPLES


def brightness(direction: Vec, state):
    """What the eye, in the origin, sees in this direction, from 0 to 1."""
    eye = Vec(cp.f32(0), cp.f32(0), cp.f32(0))
    nearest, n = floor(eye, direction), Vec(cp.f32(0), cp.f32(1), cp.f32(0))
    for x, y, z, r in SPHERES:
        along = sphere(eye, direction, Vec(x, y, z), r)
        if along < nearest:
            nearest, n = along, (direction * along - Vec(x, y, z)) * (1 / r)
    if nearest >= FAR:
        return cp.f32(0)
    return 1 - occlusion(direction * nearest, n, state)


@cp.cube
def render_kernel(out: cp.Tensor[cp.f32]):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    height, width = out.shape
    if i < height and j < width:
        x = (2 * j + 1 - width) / cp.f32(width)  # typed, for an index has no fraction
        y = (height - 2 * i - 1) / cp.f32(height)
        state = cp.u32(i * width + j) * 2654435761 + 1
        out[i, j] = brightness(Vec(x, y, cp.f32(-1)).unit(), state)


def render(height: int, width: int, **settings: Any) -> np.ndarray:
    """A picture of floats from 0 to 1."""
    out = np.empty((height, width), np.float32)
    render_kernel.configure(**settings).over(out, cube_dim=(16, 16))(out)
    return out


def reference(height: int, width: int) -> np.ndarray:
    """The same picture in NumPy and f64, of the same random numbers."""
    i, j = np.mgrid[:height, :width]
    d = np.stack([(2 * j + 1 - width) / width, (height - 2 * i - 1) / height, i * 0.0 - 1], -1)
    d = (d / np.linalg.norm(d, axis=-1, keepdims=True)).reshape(-1, 3)
    along, n = hit(np.zeros_like(d), d)
    seen = along < FAR
    state = ((i * width + j).astype(np.uint32) * np.uint32(2654435761) + np.uint32(1)).ravel()[seen]
    d, along, n = d[seen], along[seen], n[seen]
    is_flat = (np.abs(n[:, :1]) < 0.6).astype(np.float64)
    s = np.cross(np.concatenate([is_flat, 1 - is_flat, 0 * is_flat], -1), n)
    s /= np.linalg.norm(s, axis=-1, keepdims=True)
    t = np.cross(n, s)
    start, hits = d * along[:, None] + n * LIFT, np.zeros(len(d))
    for _ in range(SAMPLES):
        state = state * np.uint32(1664525) + np.uint32(1013904223)
        squared = (state >> 8) / 2**24
        state = state * np.uint32(1664525) + np.uint32(1013904223)
        angle, radius = (state >> 8) * (2 * np.pi / 2**24), np.sqrt(squared)
        x, y, z = np.cos(angle) * radius, np.sin(angle) * radius, np.sqrt(1 - squared)
        hits += hit(start, s * x[:, None] + t * y[:, None] + n * z[:, None])[0] < FAR
    picture = np.zeros(height * width)
    picture[seen] = 1 - hits / SAMPLES
    return picture.reshape(height, width)


def hit(start: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances to the scene along rays (FAR if none), and the normals there."""
    with np.errstate(divide="ignore", invalid="ignore"):
        along = (FLOOR - start[:, 1]) / d[:, 1]
    along = np.where(along > 0, along, FAR)
    normal = np.broadcast_to(np.array([0.0, 1.0, 0.0]), d.shape)
    for x, y, z, r in SPHERES:
        to_start = start - np.array([x, y, z])
        b = (to_start * d).sum(-1)
        inside = b * b - ((to_start**2).sum(-1) - r * r)
        t = -b - np.sqrt(np.maximum(inside, 0))
        closer = (inside > 0) & (t > 0) & (t < along)
        along = np.where(closer, t, along)
        normal = np.where(closer[:, None], (to_start + d * along[:, None]) / r, normal)
    return along, normal


def save(picture: np.ndarray, path: Path) -> Path:
    """Write a grey picture: PNG with Pillow, else PPM."""
    pixels = (255 * picture.clip(0, 1)).astype(np.uint8)
    try:
        from PIL import Image
    except ImportError:
        path = path.with_suffix(".ppm")
        header = f"P6 {pixels.shape[1]} {pixels.shape[0]} 255\n".encode()
        path.write_bytes(header + pixels[..., None].repeat(3, axis=2).tobytes())
    else:
        Image.fromarray(pixels).save(path)
    return path


def main(path: Path = Path("aobench.png")) -> None:
    picture = render(256, 256)
    difference = np.abs(picture - reference(256, 256))
    assert difference.mean() < 1e-3  # rays that graze a sphere may go either way
    assert (difference > 0.05).mean() < 0.01
    print(f"ambient occlusion: agrees with NumPy; wrote {save(picture, path)}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
