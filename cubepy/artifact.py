"""What compilers hand to runtimes: code, its entry, and how a launch fills the arguments.

Plain data; nothing here compiles or runs.
"""

from __future__ import annotations

from dataclasses import dataclass

from cubepy.targets import Target


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of the argument block: what of which argument it holds.

    `role`: "data" (an address), "shape", "stride" (of `axis`, in elements), or "value" (a number
    of type `dtype`). Slots are eight bytes each, in order; the cube counts of x, y and z follow.
    """

    argument: str
    role: str
    axis: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Artifact:
    """Compiled code for one target. `code` is what its runtime loads; `entry` its symbol."""

    target: Target
    entry: str
    code: bytes
    slots: tuple[Slot, ...]
    cube_dim: tuple[int, int, int]
