"""Lines of this suite's kernels, found by their comments."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def line_of(file: str, mark: str) -> int:
    """The number of the one line of a file that ends with this comment."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    (number,) = [k for k, text in enumerate(lines, 1) if text.endswith(f"  # {mark}")]
    return number
