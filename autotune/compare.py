"""Whether a candidate computed what the reference computed."""

from __future__ import annotations

import numpy as np

TOLERANCES = {2: 2e-2, 4: 2e-4, 8: 1e-9}
"""The default relative tolerance of floats, by bytes: orders of summation differ."""


def difference(found: np.ndarray, wanted: np.ndarray, rtol: float | None) -> str:
    """What is wrong with an array, for people; empty where it agrees with the reference.

    Floats agree where they differ by at most `rtol` times the wanted value, or times the
    root of the mean square of all wanted values, which sums near zero are as uncertain as.
    NaN and infinities agree with themselves; other types must be equal.
    """
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"it has {found.dtype}{list(found.shape)} in place of {wanted.dtype}"
    if not _is_float(wanted.dtype):
        wrong = int(np.count_nonzero(_integers(found) != _integers(wanted)))
        return f"{wrong} of {wanted.size} elements differ" if wrong else ""
    rtol = TOLERANCES.get(wanted.dtype.itemsize, 0.25) if rtol is None else rtol
    wide = np.float64 if wanted.dtype.kind != "c" else np.complex128
    a, b = found.astype(wide), wanted.astype(wide)
    finite = np.isfinite(b)
    scale = float(np.sqrt(np.mean(np.abs(b[finite]) ** 2))) if finite.any() else 0.0
    with np.errstate(all="ignore"):
        error = np.abs(a - b)
        bad = ~(error <= rtol * np.maximum(np.abs(b), scale))
    bad &= ~((a == b) | (np.isnan(a) & np.isnan(b)))
    wrong = int(np.count_nonzero(bad))
    if not wrong:
        return ""
    worst = np.nanmax(np.where(bad, error, 0.0))
    return f"{wrong} of {wanted.size} elements differ, by up to {worst:.3g} (rtol={rtol:g})"


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind in "fc" or "float" in dtype.name


def _integers(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind in "iub" else np.ascontiguousarray(x).view(np.uint8)
