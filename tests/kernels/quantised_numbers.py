"""Quantised numbers for tests, and what they stand for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

F8 = ml_dtypes.float8_e4m3fn


def restored(q: Any, scale: Any, block: tuple[int, int], zero: Any = 0) -> np.ndarray:
    """What numbers stand for, exactly: each block of rows and columns has a scale."""

    def spread(x: Any) -> np.ndarray:
        x = np.repeat(np.repeat(np.asarray(x, "f8"), block[0], -2), block[1], -1)
        return x[..., : q.shape[-2], : q.shape[-1]]

    return (q.astype("f8") - (spread(zero) if np.ndim(zero) else zero)) * spread(scale)


def nibbles(q: np.ndarray) -> np.ndarray:
    """Numbers of four bits, two to a byte."""
    bits = q.astype("i8") & 15
    if bits.shape[-1] % 2:
        bits = np.concatenate([bits, np.zeros_like(bits[..., :1])], -1)
    return (bits[..., ::2] | bits[..., 1::2] << 4).astype("u1")


def some(draw: Any, shape: tuple[int, ...], kind: str) -> np.ndarray:
    if kind == "f8":
        return draw.numbers.standard_normal(shape).astype(F8)
    low, high = {"i8": (-128, 128), "u8": (0, 256), "int4": (-8, 8), "uint4": (0, 16)}[kind]
    return draw.numbers.integers(low, high, shape).astype("u1" if kind == "u8" else "i1")


def scales(draw: Any, *shape: int) -> np.ndarray:
    return (draw.numbers.random(shape) + 0.1).astype("f4")
