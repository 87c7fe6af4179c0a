"""What compilers hand to runtimes: code, its entry, and how a launch fills the arguments.

Plain data; nothing here compiles or runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from cubepy.record import dataclass
from cubepy.span import Span
from cubepy.targets import Target

FAULT_WORDS = 8
"""Words of 64 bits in a fault record: 1 once it is taken, the code, the linear positions of the
unit and of the cube, then up to four indices that the check reports."""


class Arguments(Protocol):
    """What a launch knows of its arguments; parameters ask it for the words that they hold."""

    def address(self, argument: str) -> int:
        """Where the first element of an array is."""
        ...

    def extent(self, argument: str, axis: int) -> int:
        """The extent of an axis, in elements."""
        ...

    def stride(self, argument: str, axis: int) -> int:
        """The stride of an axis, in elements."""
        ...

    def number(self, argument: str, dtype: str) -> int:
        """The bits of a number of this type."""
        ...


@dataclass(frozen=True, slots=True)
class ParamKind:
    """What a parameter of a kernel holds. `word` names it in the text of the IR.

    `is_address`: it is the address of device memory. `is_copied`: it is the address of bytes that
    the kernel takes by value. `hardware`: the only kind of target that has it. `varies`: what it
    holds differs between launches with equal metadata, so that each launch asks anew.
    """

    word = ""
    is_address = False
    is_copied = False
    hardware = ""
    varies = False

    def bind(self, arguments: Arguments, argument: str, dtype: str) -> int:
        """The word of the argument block, of 64 bits."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Data(ParamKind):
    """The address of a tensor, and the layout that the kernel was made for.

    `rank`: axes, None where the shapes and strides that are passed decide; `linear`: row-major
    without gaps; `unit_axis`: the axis whose stride is one, without a parameter; `align`: bytes
    that the address and every other stride are multiples of; `lanes`: elements that it counts as
    one, and with `whole` the extent along the unit axis is a multiple of that.
    """

    word = "data"
    is_address = True
    varies = True
    rank: int | None = None
    linear: bool = False
    unit_axis: int | None = None
    align: int = 0
    lanes: int = 1
    whole: bool = False

    def bind(self, arguments: Arguments, argument: str, dtype: str) -> int:
        return arguments.address(argument)


@dataclass(frozen=True, slots=True)
class Extent(ParamKind):
    """The extent of an axis of a tensor, in elements; not negative."""

    word = "shape"
    axis: int = 0

    def bind(self, arguments: Arguments, argument: str, dtype: str) -> int:
        return arguments.extent(argument, self.axis)


@dataclass(frozen=True, slots=True)
class Stride(ParamKind):
    """The stride of an axis of a tensor, in elements."""

    word = "stride"
    axis: int = 0

    def bind(self, arguments: Arguments, argument: str, dtype: str) -> int:
        return arguments.stride(argument, self.axis)


@dataclass(frozen=True, slots=True)
class Scalar(ParamKind):
    """A number."""

    word = "value"
    varies = True

    def bind(self, arguments: Arguments, argument: str, dtype: str) -> int:
        return arguments.number(argument, dtype)


@dataclass(frozen=True, slots=True)
class TensorMapOf(ParamKind):
    """What the copy engine of NVIDIA's hardware takes: boxes of an array, perhaps swizzled; or the
    pixels by channels of convolutions, of an array of `axes` axes."""

    word = "tensor_map"
    is_copied = True
    varies = True
    hardware = "cuda"
    box: tuple[int, ...] = ()
    swizzle: int = 0
    axes: int = 0

    def bind(self, arguments: Arguments, argument: str, dtype: str) -> int:
        raise AssertionError("tensor maps are encoded for the addresses of each launch")


KINDS: dict[str, type[ParamKind]] = {
    kind.word: kind for kind in (Data, Extent, Stride, Scalar, TensorMapOf)
}
"""The kinds of parameters by their words in the text of the IR."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of the argument block: what of which argument it holds, as a number of `dtype`.

    Slots are eight bytes each, in order; the cube counts of x, y and z follow.
    """

    argument: str
    kind: ParamKind
    dtype: str

    def bind(self, arguments: Arguments) -> int:
        """The word of the argument block, of 64 bits."""
        return self.kind.bind(arguments, self.argument, self.dtype)


CHECKS = {
    "bounds": "E701",
    "division": "E702",
    "assert": "E703",
    "overflow": "E704",
    "shift": "E705",
    "quotient": "E706",
}
"""The code of what a check of a kernel reports, by the kind of the check."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What a check of a kernel tests; the position in the artifact's table is its code.

    `kind`: bounds, division, assert, ...; `argument` and `axis` say of what.
    """

    kind: str
    argument: str
    axis: int
    span: Span | None


def host_symbol(kernel: str) -> str:
    """What a kernel is called in machine code of processors: none of the functions that LLVM calls
    by name, as `memset`, which a user's kernel may be named like."""
    return f"cube.{kernel}"


@dataclass(frozen=True, slots=True)
class Artifact:
    """Compiled code for one target. `code` is what its runtime loads; `entry` the kernel's name.

    With `scratch_bytes`, one more slot follows the cube counts: 0, where the kernel writes how many
    bytes it asked for in vain. With `faults`, so does the address of a `FAULT_WORDS` record.
    `shared_bytes`: memory of a cube that a launch must ask for; 0 where the code declares all.
    `scratch_bytes`: memory of a cube that threads of a CPU keep; 0 where their stack holds all.
    `has_barrier_in_loop`: units wait for each other in a loop of the source.
    """

    target: Target
    entry: str
    code: bytes
    slots: tuple[Slot, ...]
    cube_dim: tuple[int, int, int]
    faults: tuple[Fault, ...] = ()
    shared_bytes: int = 0
    scratch_bytes: int = 0
    has_barrier_in_loop: bool = False

    @property
    def lacking_at(self) -> int:
        """Where in the argument block it says how much memory was lacking, in bytes; else 0."""
        return 8 * (len(self.slots) + 3) if self.scratch_bytes else 0


Place = tuple[str, int]
"""A file of Python and a line in it, counted from 1."""


class Listing(str):
    """The text of a stage. `places`: where its lines, counted from 1, come from."""

    places: Mapping[int, Place] = MappingProxyType({})

    @classmethod
    def of(cls, lines: Sequence[tuple[str, Place | None]]) -> Listing:
        """Lines with their places; the text ends with a newline."""
        listing = cls("\n".join(text for text, _ in lines).rstrip() + "\n")
        places = {k: place for k, (_, place) in enumerate(lines, 1) if place is not None}
        listing.places = MappingProxyType(places)
        return listing
