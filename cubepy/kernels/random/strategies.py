"""How random numbers are cut: lines of blocks on CPUs, a block for each unit of a GPU."""

from __future__ import annotations

from cubepy.kernels.calls.cubes import is_wide
from cubepy.kernels.random.kernel import RandomTiling
from cubepy.targets import Target

STEPS = 64
"""Lines of blocks of one unit of a CPU: enough to hide its start."""


def random_tiling(target: Target) -> RandomTiling:
    """The configuration for any number of blocks."""
    if is_wide(target):
        return RandomTiling(1, 1)
    return RandomTiling(max(1, target.line_bytes // 4), STEPS)
