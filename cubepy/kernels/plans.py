"""Plans: what a call of a prebuilt function does for one signature of arguments.

Everything that depends on metadata alone is decided once and kept; a later call with equal
metadata only fills in addresses. Inside a plan arrays are numbered operands: number k, from 1 on,
stands at the address k * 2**48, so that views of it keep their distance.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from cubepy.array.memory import Memory
from cubepy.config import get
from cubepy.errors import fail
from cubepy.ir.types import DType
from cubepy.jit.compile import Captured
from cubepy.jit.grid import Over
from cubepy.jit.kernel import CubeKernel
from cubepy.jit.launch import Prepared, overlaps_itself, prepare, shares_memory
from cubepy.kernels.hosts import Host, Shape, contiguous, numbered, read, read_output
from cubepy.kernels.inspection import Recording
from cubepy.runtimes.cpu.memory import get_memory
from cubepy.runtimes.registry import find_device
from cubepy.targets import Target

LIMIT = 1024
"""Plans kept for each function; the oldest go first."""
_SPAN = 48


def host_target() -> Target:
    """What strategies may read: the target of the device that host arrays are served by."""
    return find_device("cpu").target


class Step:
    """A prepared launch whose addresses are operands' plus an offset."""

    def __init__(self, kernel: CubeKernel, cubes: int, arguments: dict[str, Any]) -> None:
        """Prepare `kernel` for so many cubes."""
        prepared, matcher = prepare(
            kernel.__name__,
            kernel.annotations,
            kernel.bind_arguments((), arguments),
            Over(cubes, "cube"),
            kernel.settings,
            kernel.specialisations,
        )
        self._prepared: Prepared = prepared
        self._watched = [c for c in prepared.compiled.captured if not _is_ours(c)]
        self._type = ctypes.c_uint64 * len(prepared.template)
        self._holes = [
            (slot, *_operand(matcher.memories[name].address)) for slot, name in prepared.addresses
        ]

    @property
    def is_watched(self) -> bool:
        """Whether the kernel calls functions of the user that capture names."""
        return bool(self._watched)

    def is_current(self) -> bool:
        """Whether the names that the user's functions captured still mean the same."""
        return all(captured.is_unchanged() for captured in self._watched)

    def run(self, addresses: Sequence[int]) -> None:
        """Launch on operands at these addresses; returns when the cubes are done.

        In checked mode it raises what a check of the kernel found.
        """
        prepared = self._prepared
        block = self._type(*prepared.template)
        for slot, number, offset in self._holes:
            block[slot] = addresses[number - 1] + offset
        prepared.launch(block)


def _is_ours(captured: Captured) -> bool:
    """Whether a captured name is read by this library's code, where it never changes."""
    function = captured.read.__self__.function  # type: ignore[attr-defined]
    return str(function.__module__).startswith("cubepy.")


def _operand(address: int) -> tuple[int, int]:
    """Number and byte offset of an address inside a plan."""
    number = (address + (1 << _SPAN - 1)) >> _SPAN
    return number, address - (number << _SPAN)


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches of one signature. Operands: the arrays, then the results, then scratch.

    `reaches` are the bytes that arrays and results extend to, relative to their addresses.
    """

    function: str
    results: tuple[Shape, ...]
    scratch: tuple[int, ...]
    steps: tuple[Step, ...]
    reaches: tuple[tuple[int, int], ...]
    operands: tuple[Memory, ...]
    watched: tuple[Step, ...]

    def is_current(self) -> bool:
        """Whether no captured name of a launched kernel has changed."""
        return all(step.is_current() for step in self.watched)

    def run(self, host: Host, arrays: Sequence[Any], given: Sequence[Any] | None) -> Sequence[Any]:
        """The results of one call: new arrays, or those that were given."""
        results = [host.empty(shape) for shape in self.results] if given is None else given
        addresses = host.addresses(arrays) + host.addresses(results)
        if given is not None:
            self._check_overlaps(addresses, len(arrays))
        if self.scratch:
            blocks = [get_memory().empty(nbytes) for nbytes in self.scratch]
            addresses += [block.address for block in blocks]
        for step in self.steps:
            step.run(addresses)
        return results

    def _check_overlaps(self, addresses: list[int], first: int) -> None:
        """E601 where a result shares memory with another operand that is not the same array."""
        spans = [
            (a + low, a + high) for a, (low, high) in zip(addresses, self.reaches, strict=True)
        ]
        for out in range(first, len(spans)):
            for other in range(out):
                apart = spans[other][0] >= spans[out][1] or spans[other][1] <= spans[out][0]
                if not apart and self._collide(addresses, other, out):
                    raise fail(
                        "E601",
                        function=self.function,
                        reason="`out` overlaps another argument",
                        suggestion="pass an array that shares no memory",
                    )

    def _collide(self, addresses: list[int], a: int, b: int) -> bool:
        """Exact where extents overlap; operands that the plan knows to be one array do not."""
        one, two = self.operands[a], self.operands[b]
        if one.address == two.address:
            return False
        return shares_memory(replace(one, address=addresses[a]), replace(two, address=addresses[b]))


class Planner:
    """Collects operands and launches of a plan; arrays come first, then results, then scratch."""

    def __init__(self, function: str, host: Host) -> None:
        self.function = function
        self.host = host
        self.recording = host if isinstance(host, Recording) else None
        self.target = self.recording.target if self.recording else host_target()
        self._operands: list[Memory] = []
        self._results: list[Shape] = []
        self._scratch: list[int] = []
        self._steps: list[Step] = []

    def array(self, name: str, x: Any) -> Memory:
        """The next argument, checked; its address is its number."""
        return self._number(read(self.function, name, self.host, x))

    def result(self, shape: Shape, given: Any = None, name: str = "out") -> Memory:
        """The next result: a new array, or `given` after a check of its shape and dtype."""
        memory = contiguous(shape)
        if given is not None:
            memory = read_output(self.function, self.host, given, shape, name)
            if overlaps_itself(memory):
                raise fail(
                    "E601",
                    function=self.function,
                    reason=f"several elements of `{name}` share one address",
                    suggestion="pass an array without zero strides",
                )
        self._results.append(shape)
        return self._number(memory)

    def join(self, other: Memory) -> Memory:
        """Say that the result just added is the same array as an earlier operand."""
        self._operands[-1] = replace(self._operands[-1], address=other.address)
        return self._operands[-1]

    def scratch(self, extents: tuple[int, ...], dtype: DType) -> Memory:
        """Memory for the duration of a call, contiguous and aligned."""
        memory = contiguous(Shape(extents, dtype))
        self._scratch.append(max(1, prod(extents)) * dtype.itemsize)
        return self._number(memory)

    def launch(self, kernel: CubeKernel, cubes: int, **arguments: Any) -> None:
        """Add a launch of `cubes` cubes; none where there is nothing to do."""
        if self.recording is not None:
            self.recording.add(kernel, cubes, arguments)
        elif cubes > 0:
            self._steps.append(Step(kernel, cubes, arguments))

    def plan(self) -> Plan:
        """What was collected."""
        shown = self._operands[: len(self._operands) - len(self._scratch)]
        return Plan(
            self.function,
            tuple(self._results),
            tuple(self._scratch),
            tuple(self._steps),
            tuple(_reach(memory) for memory in shown),
            tuple(shown),
            tuple(step for step in self._steps if step.is_watched),
        )

    def _number(self, memory: Memory) -> Memory:
        found = numbered(memory, len(self._operands) + 1)
        self._operands.append(found)
        return found


def _reach(memory: Memory) -> tuple[int, int]:
    low, high = memory.extent()
    return low - memory.address, high - memory.address


class Plans:
    """The plans of one function by signature and by the settings that kernels are compiled with."""

    def __init__(self) -> None:
        self._made: dict[Any, Plan] = {}

    def find(self, key: Any) -> Plan | None:
        """The plan of a signature, unless a name that its kernels capture has changed."""
        plan = self._made.get(_with_settings(key))
        return None if plan is None or (plan.watched and not plan.is_current()) else plan

    def keep(self, key: Any, plan: Plan) -> Plan:
        """Remember a plan; the oldest goes where there are too many."""
        while len(self._made) >= LIMIT:
            self._made.pop(next(iter(self._made)), None)
        self._made[_with_settings(key)] = plan
        return plan


def _with_settings(key: Any) -> Any:
    return get("checked"), get("opt_level"), key
