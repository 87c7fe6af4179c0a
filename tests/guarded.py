"""Outputs that show what a kernel wrote: poisoned, between guard bands.

A kernel that forgets an element leaves poison; one that writes past its output breaks a band.
"""

from __future__ import annotations

from typing import Any

import numpy as np

BAND = 64
"""Elements before and behind the data; a multiple of the widest line."""


def poison(dtype: Any) -> np.ndarray:
    """An element that no test computes, as an array of one."""
    size = np.dtype(dtype).itemsize
    if np.dtype(dtype) == np.bool_:
        return np.array([True])
    return np.frombuffer(bytes([0xA5, 0x5C, 0x3B, 0x96, 0xE1, 0x6D, 0xC7, 0x2A][:size]), dtype)


class Guarded:
    """`array` of `shape` filled with poison; `check` says whether anything around it changed."""

    def __init__(self, shape: Any, dtype: Any = np.float32, offset: int = 0) -> None:
        count = int(np.prod(shape))
        self._whole = np.repeat(poison(dtype), 2 * BAND + offset + count)
        self._place = slice(BAND + offset, BAND + offset + count)
        self.array = self._whole[self._place].reshape(shape)

    @property
    def is_untouched(self) -> bool:
        """Whether nothing at all was written."""
        return self._is_poison(self._whole)

    @property
    def is_fenced(self) -> bool:
        """Whether nothing outside of the array was written."""
        low, high = self._whole[: self._place.start], self._whole[self._place.stop :]
        return self._is_poison(low) and self._is_poison(high)

    def check(self, expected: Any, **tolerance: Any) -> None:
        """Compare with `expected` (bit for bit but for NaN, or by tolerance); look at the bands."""
        assert self.is_fenced, "written outside of the output"
        expected = np.asarray(expected)
        if tolerance:
            np.testing.assert_allclose(self.array, expected, **tolerance)
            return
        assert_same(self.array, expected.astype(self.array.dtype))

    def _is_poison(self, part: np.ndarray) -> bool:
        return part.tobytes() == np.repeat(poison(part.dtype), part.size).tobytes()


def assert_same(found: Any, expected: Any) -> None:
    """Equal values, signs of zero included; all NaN are one."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if found.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):  # of NaN that signal
            found, expected = found.astype(np.float64), expected.astype(np.float64)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])
    np.testing.assert_array_equal(found, expected)
