"""Whether a candidate computed what the reference computed."""

from __future__ import annotations

import sys
from math import isfinite
from typing import Any

import numpy as np

TOLERANCES = {2: 2e-2, 4: 2e-4, 8: 1e-9}
"""The default relative tolerance of floats, by bytes: orders of summation differ."""


CHUNK = 1 << 24
"""Elements of a device's arrays that are compared at a time: their wider copies take memory."""


def difference(found: Any, wanted: Any, rtol: float | None) -> str:
    """What is wrong with an array, for people; empty where it agrees with the reference.

    Arrays are NumPy's, or torch's tensors, which are compared where they are.

    Floats agree where they differ by at most `rtol` times the wanted value, or times the
    root of the mean square of all wanted values, which sums near zero are as uncertain as.
    NaN and infinities agree with themselves; other types must be equal.
    """
    if type(wanted).__module__ == "torch":
        return _of_tensors(found, wanted, rtol)
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
    bad |= np.isinf(b)  # nothing is near to these
    bad &= ~((a == b) | (np.isnan(a) & np.isnan(b)))
    wrong = int(np.count_nonzero(bad))
    if not wrong:
        return ""
    worst = float(np.nanmax(np.where(bad, error, 0.0)))
    return _shown(wrong, wanted.size, worst, rtol)


def _shown(wrong: int, count: int, worst: float, rtol: float) -> str:
    return f"{wrong} of {count} elements differ, by up to {worst:.3g} (rtol={rtol:g})"


def _of_tensors(found: Any, wanted: Any, rtol: float | None) -> str:
    """As `difference`, on the device of the tensors; of 16 bits and less in f32."""
    torch = sys.modules["torch"]
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"it has {found.dtype}{list(found.shape)} in place of {wanted.dtype}"
    if _agree(found, wanted, rtol):
        return ""
    if not wanted.dtype.is_floating_point:
        wrong = int((found != wanted).sum())
        return f"{wrong} of {wanted.numel()} elements differ" if wrong else ""
    size = wanted.element_size()
    rtol = TOLERANCES.get(size, 0.25) if rtol is None else rtol
    wide = torch.float64 if size >= 4 else torch.float32
    ours, theirs = (x.reshape(-1).split(CHUNK) for x in (found, wanted))
    squares, finite = 0.0, 0
    for part in theirs:
        b = part.to(wide)
        held = torch.isfinite(b)
        squares += float(torch.where(held, b, 0).square().sum(dtype=torch.float64))
        finite += int(held.sum())
    scale = (squares / finite) ** 0.5 if finite else 0.0
    wrong, worst = 0, 0.0
    for one, other in zip(ours, theirs, strict=True):
        a, b = one.to(wide), other.to(wide)
        error = (a - b).abs()
        bad = ~(error <= rtol * b.abs().clamp(min=scale))
        bad |= b.isinf()
        bad &= ~((a == b) | (a.isnan() & b.isnan()))
        count = int(bad.sum())
        if count:
            wrong += count
            worst = max(worst, float(torch.where(bad, error, 0).nan_to_num(nan=0.0).max()))
    return _shown(wrong, wanted.numel(), worst, rtol) if wrong else ""


def _agree(found: Any, wanted: Any, rtol: float | None) -> bool:
    """Whether tensors agree for sure. With few operations: a process loads each when it first uses
    it, which takes longer than a comparison. NaN and infinities are left to others."""
    torch = sys.modules["torch"]
    if not wanted.dtype.is_floating_point:
        return torch.equal(found, wanted)
    if wanted.element_size() < 2 or not wanted.numel():  # these cannot be subtracted
        return False
    rtol = TOLERANCES.get(wanted.element_size(), 0.25) if rtol is None else rtol
    norm = torch.linalg.vector_norm
    wide = torch.float64 if wanted.element_size() >= 4 else torch.float32
    scale = float(norm(wanted, dtype=wide)) / wanted.numel() ** 0.5
    if not isfinite(scale):
        return False
    error = found - wanted
    if float(norm(error, float("inf"))) <= rtol * scale:
        return True
    error /= wanted.abs().clamp_(min=scale)
    return float(norm(error, float("inf"))) <= rtol


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays hold the same bytes; on a device, of tensors, the same values or NaN."""
    if type(a).__module__ == "torch":
        return bool(((a == b) | ((a != a) & (b != b))).all())
    return a.tobytes() == b.tobytes()


def _is_float(dtype: np.dtype) -> bool:
    return dtype.kind in "fc" or "float" in dtype.name


def _integers(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind in "iub" else np.ascontiguousarray(x).view(np.uint8)
