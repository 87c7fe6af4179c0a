"""Pictures: the photograph of the demo or the user's, and small copies for the report."""

from __future__ import annotations

import base64
import importlib.util
import io
import math
from pathlib import Path
from typing import Any

import numpy as np

from cubepy.cli.failures import Failure, misuse
from cubepy.record import dataclass

INSTALL = "pip install 'cubepy-jit[demo]', or `make demo` in the repository"
PREVIEW = 720
"""Pixels of the longer side of pictures in the report."""
MULTIPLE = 32
"""Sides are multiples of this, so that pooling needs no border."""


@dataclass(frozen=True, slots=True)
class Photograph:
    """Colour planes `(3, height, width)` of f32 from 0 to 1, and where they come from."""

    planes: np.ndarray
    name: str
    original: tuple[int, int]

    @property
    def story(self) -> str:
        """What was loaded and what was done to it."""
        width, height = self.original
        now_height, now_width = self.planes.shape[1:]
        if (width, height) == (now_width, now_height):
            return f"{self.name}, {width}×{height}"
        grown = "enlarged" if now_width * now_height > width * height else "reduced"
        return f"{self.name}, {width}×{height}, {grown} to {now_width}×{now_height} (Lanczos)"


def load_photograph(path: Path | None, megapixels: float) -> Photograph:
    """The user's picture, or the one in scikit-image's wheel, resized to about `megapixels`."""
    images = _pillow()
    source = path or _example()
    try:
        image = images.open(source)
        image.load()
    except FileNotFoundError:
        raise misuse(f"there is no file `{source}`") from None
    except OSError as error:
        raise misuse(f"`{source}` is no picture that Pillow reads: {error}") from None
    image = image.convert("RGB")
    resized = image.resize(_size(image.size, megapixels), images.Resampling.LANCZOS)
    planes = np.asarray(resized, dtype=np.float32).transpose(2, 0, 1) / np.float32(255)
    name = path.name if path else "the astronaut Eileen Collins (NASA), from scikit-image"
    return Photograph(np.ascontiguousarray(planes), name, image.size)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise Failure("the demo reads and writes pictures with Pillow", INSTALL) from None
    return Image


def _example() -> Path:
    """The file in the wheel; scikit-image itself, and all that it needs, is not imported."""
    found = importlib.util.find_spec("skimage")
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / "data" / "astronaut.png"
        if path.is_file():
            return path
    raise Failure(
        "the demo's photograph comes with scikit-image, which is not installed",
        f"{INSTALL}; or give a picture of yours: cubepy demo IMAGE",
    )


def _size(size: tuple[int, int], megapixels: float) -> tuple[int, int]:
    scale = math.sqrt(megapixels * 2**20 / (size[0] * size[1]))
    width, height = (max(MULTIPLE, round(n * scale / MULTIPLE) * MULTIPLE) for n in size)
    return width, height


def data_uri(pixels: np.ndarray) -> str:
    """A small JPEG of `(3, height, width)` or `(height, width)`, clipped to 0..1, as a URI."""
    images = _pillow()
    planes = pixels if pixels.ndim == 2 else pixels.transpose(1, 2, 0)
    image = images.fromarray((np.clip(planes, 0, 1) * 255 + 0.5).astype(np.uint8))
    if max(image.size) < PREVIEW:  # pooled pictures: show their pixels
        factor = max(1, PREVIEW // max(image.size))
        image = image.resize((image.width * factor, image.height * factor), 0)
    image.thumbnail((PREVIEW, PREVIEW), images.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=86)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
