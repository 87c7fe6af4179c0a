"""What compilers hand to runtimes: code, its entry, and how a launch fills the arguments.

Plain data; nothing here compiles or runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cubepy.span import Span
from cubepy.targets import Target

FAULT_WORDS = 8
"""Words of 64 bits in a fault record: 1 once it is taken, the code, the linear positions of the
unit and of the cube, then up to four indices that the check tells."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of the argument block: what of which argument it holds.

    `role`: "data" (an address), "shape", "stride" (of `axis`, in elements), "value" (a number
    of type `dtype`), or "tensor_map" (the address in this process of 128 bytes that a CUDA kernel
    takes by value). Slots are eight bytes each, in order; the cube counts of x, y and z follow.
    """

    argument: str
    role: str
    axis: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Fault:
    """What a check of a kernel tests; the position in the artifact's table is its code.

    `kind`: bounds, division, assert, ...; `argument` and `axis` say of what.
    """

    kind: str
    argument: str
    axis: int
    span: Span | None


@dataclass(frozen=True, slots=True)
class Artifact:
    """Compiled code for one target. `code` is what its runtime loads; `entry` its symbol.

    With `faults`, one more slot follows the cube counts: the address of a `FAULT_WORDS` record.
    `shared_bytes`: memory of a cube that a launch must ask for; 0 where the code declares all.
    `meets_in_loops`: units wait for each other in a loop of the source.
    """

    target: Target
    entry: str
    code: bytes
    slots: tuple[Slot, ...]
    cube_dim: tuple[int, int, int]
    faults: tuple[Fault, ...] = ()
    shared_bytes: int = 0
    meets_in_loops: bool = False


Place = tuple[str, int]
"""A file of Python and a line in it, counted from 1."""


class Listing(str):
    """The text of a stage. `places` tells of its lines, counted from 1, where they come from."""

    places: Mapping[int, Place] = MappingProxyType({})

    @classmethod
    def of(cls, lines: Sequence[tuple[str, Place | None]]) -> Listing:
        """Lines with their places; the text ends with a newline."""
        listing = cls("\n".join(text for text, _ in lines).rstrip() + "\n")
        places = {k: place for k, (_, place) in enumerate(lines, 1) if place is not None}
        listing.places = MappingProxyType(places)
        return listing
