"""Words that native launches write for each compiled form of a kernel."""

from __future__ import annotations

import platform
from typing import Any

IS_USED = 0
RATE = 1
"""The time of a cube in one thread, in ticks shifted by `RATE_BITS`; 0 where nobody knows, or where
launches are too short to be noted."""
WORDS = 2
RATE_BITS = 8
MAX_RATE = (1 << 31) - 1
"""So that no product with a number of cubes wraps."""
HAS_COUNTER = platform.machine() == "x86_64"
"""Whether kernels are timed by the processor's time stamp, which is read faster than the clock."""
TICKS = 3 if HAS_COUNTER else 1
"""In a ns: time stamps have two to four."""
LONG_NS = 50_000
"""A cube that takes longer does not run with the GIL held, as far as is known."""


def note_time(marks: Any, cubes: int, ns: int) -> None:
    """Note what a launch through Python took, in ns; short ones are left to native launches, which
    measure the kernel alone."""
    if ns > LONG_NS:
        marks[RATE] = min((ns * TICKS << RATE_BITS) // max(1, cubes) + 1, MAX_RATE)
