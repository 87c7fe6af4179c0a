"""A ray marcher: spheres on a chequered floor, with shadows, written to a picture.

`python examples/raymarch.py [FILE]` writes a PNG if Pillow is there, else a PPM.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cp

SPHERES = ((0.0, 1.0, 6.0, 1.0), (-2.2, 0.7, 5.0, 0.7), (1.9, 0.5, 4.4, 0.5))  # x, y, z, radius
FAR = 30.0


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

    def length(self):
        return cp.sqrt(self.dot(self))

    def unit(self):
        return self * (1 / self.length())


LIGHT = Vec(-0.6, 0.7, -0.4)
EYE = Vec(0.0, 1.2, 0.0)


# Plain functions are inlined into the kernels that call them; they need no decorator.
def distance(p: Vec):
    """How far `p` is from the scene."""
    nearest = p.y  # the floor
    for x, y, z, radius in SPHERES:  # a tuple: the loop is unrolled
        nearest = min(nearest, (p - Vec(x, y, z)).length() - radius)
    return nearest


def march(start: Vec, direction: Vec):
    """The distance along the ray to the first hit, or more than FAR."""
    along = 0.02  # leave the surface that a shadow ray starts from
    for _ in range(100):
        step = distance(start + direction * along)
        along += step
        if step < 1e-3 or along > FAR:
            break
    return along


def normal(p: Vec):
    """The direction in which the distance grows fastest."""
    e, here = 1e-3, distance(p)
    dx = distance(p + Vec(e, 0.0, 0.0)) - here
    dy = distance(p + Vec(0.0, e, 0.0)) - here
    dz = distance(p + Vec(0.0, 0.0, e)) - here
    return Vec(dx, dy, dz).unit()


def brightness(direction: Vec):
    """What the eye sees in this direction, from 0 to 1."""
    along = march(EYE, direction)
    if along > FAR:
        return 0.6 + 0.4 * direction.y  # sky
    p = EYE + direction * along
    to_light = LIGHT.unit()
    light = max(normal(p).dot(to_light), 0.0)
    if light > 0 and march(p, to_light) < FAR:
        light = 0.0  # in shadow
    is_dark = p.y < 0.01 and (cp.floor(p.x) + cp.floor(p.z)) % 2 == 0
    colour = 0.4 if is_dark else 0.9
    return colour * (0.15 + 0.85 * light)


@cp.cube
def render_kernel(out: cp.Tensor[cp.f32]):
    i, j = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    height, width = out.shape
    if i < height and j < width:
        x = (2 * j + 1 - width) / cp.f32(height)  # typed, for an index has no fraction
        y = (height - 2 * i - 1) / cp.f32(height)
        out[i, j] = brightness(Vec(x, y, 1.8).unit())


def render(height: int, width: int, **settings: Any) -> np.ndarray:
    """A picture of floats from 0 to 1."""
    out = np.empty((height, width), np.float32)
    render_kernel.configure(**settings).over(out, cube_dim=(16, 16))(out)
    return out


def save(picture: np.ndarray, path: Path) -> Path:
    """Write a grey picture: PNG with Pillow, else PPM."""
    pixels = (255 * picture.clip(0, 1) ** (1 / 2.2)).astype(np.uint8)
    try:
        from PIL import Image
    except ImportError:
        path = path.with_suffix(".ppm")
        header = f"P6 {pixels.shape[1]} {pixels.shape[0]} 255\n".encode()
        path.write_bytes(header + pixels[..., None].repeat(3, axis=2).tobytes())
    else:
        Image.fromarray(pixels).save(path)
    return path


def reference(height: int, width: int) -> np.ndarray:
    """The same scene with exact intersections instead of marching, in NumPy and f64."""
    i, j = np.mgrid[:height, :width]
    d = np.stack([(2 * j + 1 - width) / height, (height - 2 * i - 1) / height, i * 0 + 1.8], -1)
    d /= np.linalg.norm(d, axis=-1, keepdims=True)
    eye = np.array([EYE.x, EYE.y, EYE.z])
    along, facing = hit(np.broadcast_to(eye, d.shape), d)
    p = eye + d * np.where(np.isfinite(along), along, 0)[..., None]
    light = np.array([LIGHT.x, LIGHT.y, LIGHT.z])
    light /= np.linalg.norm(light)
    shade = np.maximum(facing @ light, 0)
    shade[hit(p + facing * 1e-6, np.broadcast_to(light, d.shape))[0] < FAR] = 0
    dark = (p[..., 1] < 0.01) & ((np.floor(p[..., 0]) + np.floor(p[..., 2])) % 2 == 0)
    lit = np.where(dark, 0.4, 0.9) * (0.15 + 0.85 * shade)
    return np.where(along > FAR, 0.6 + 0.4 * d[..., 1], lit)


def hit(start: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distances to the scene along rays (infinite if none), and the normals there."""
    with np.errstate(divide="ignore", invalid="ignore"):
        along = np.where(d[..., 1] < 0, -start[..., 1] / d[..., 1], np.inf)
    facing = np.broadcast_to(np.array([0.0, 1.0, 0.0]), d.shape)
    for x, y, z, radius in SPHERES:
        centre = np.array([x, y, z])
        to_centre = centre - start
        nearest = (to_centre * d).sum(-1)
        inside = radius**2 - (to_centre**2).sum(-1) + nearest**2
        t = nearest - np.sqrt(np.maximum(inside, 0))
        closer = (inside > 0) & (t > 0) & (t < along)
        along = np.where(closer, t, along)
        n = (start + d * np.where(closer, t, 0)[..., None] - centre) / radius
        facing = np.where(closer[..., None], n, facing)
    return along, facing


def main(path: Path = Path("raymarch.png")) -> None:
    picture = render(360, 640)
    difference = np.abs(picture - reference(360, 640))
    assert np.median(difference) < 1e-2  # marching stops near surfaces, so edges differ
    assert (difference > 0.1).mean() < 0.02
    print(f"ray marcher: agrees with NumPy; wrote {save(picture, path)}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
