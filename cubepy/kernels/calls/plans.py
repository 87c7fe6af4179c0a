"""Plans: what a call of a prebuilt function does for one signature of arguments.

Everything that depends on metadata alone is decided once and kept: the launches, and how they see
the operands. A later call with equal metadata only fills in addresses and launches in the order of
the caller's stream, on every device in the same way. Inside a plan arrays are numbered operands:
number k, from 1 on, stands near the address k * 2**48, so that views of it keep their distance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

from cubepy.array.interop import NoMemory
from cubepy.array.memory import HOST, Memory
from cubepy.autotune import session
from cubepy.autotune.session import KEPT, level_in_force
from cubepy.autotune.space import differences
from cubepy.config import get
from cubepy.errors import fail
from cubepy.ir.core import ALIGNMENT
from cubepy.ir.types import DType
from cubepy.jit.ahead import is_ahead
from cubepy.jit.bounded import make_room
from cubepy.jit.compile import Captured
from cubepy.jit.grid import Grid, Over
from cubepy.jit.kernel import CubeKernel
from cubepy.jit.launch import overlaps_itself, pack, prepare, shares_memory
from cubepy.jit.observe import is_observed, report_arrays
from cubepy.jit.profiles import current_profile
from cubepy.jit.programs import Hole, Program, Step
from cubepy.kernels.calls.inspection import Recording
from cubepy.kernels.calls.libraries import (
    Library,
    Shape,
    checked_memory,
    contiguous,
    increment_versions,
    read_output,
    without_memory,
)
from cubepy.kernels.calls.short import ShortCalls
from cubepy.kernels.calls.tuned import Picks
from cubepy.lang.function import Captures
from cubepy.meanwhile import all_done
from cubepy.record import dataclass
from cubepy.runtimes.registry import find_device
from cubepy.targets import Target

LIMIT = 1024
"""Plans kept for each function; the oldest go first."""
_SPAN = 48


def step_of(
    kernel: CubeKernel,
    grid: Grid,
    arguments: dict[str, Any],
    bases: Sequence[int],
    has_addresses: bool,
) -> Step:
    """A prepared launch; `bases`: where each operand stands in the arguments."""
    name = kernel.__name__
    prepared, matcher = prepare(
        name,
        kernel.annotations,
        kernel.bind_arguments((), arguments),
        grid,
        kernel.settings,
        kernel.specialisations,
        has_addresses=has_addresses,
    )
    template = list(prepared.template)
    for slot, argument, dtype in prepared.numbers:
        template[slot] = pack(name, argument, matcher.scalars[argument], dtype)

    def hole(word: int, argument: str) -> Hole:
        address = matcher.memories[argument].address
        number = _operand(address)
        return word, number, address - bases[number]

    return Step(
        prepared,
        tuple(template),
        tuple(hole(word, argument) for word, argument in prepared.addresses),
        tuple((hole(word, argument), encoder) for word, argument, encoder in prepared.maps),
    )


def _written(steps: Sequence[Step]) -> set[int]:
    """The operands that launches write, also by functions of the caller."""
    return {
        number
        for step in steps
        for (_, argument), (_, number, _) in zip(step.prepared.addresses, step.holes, strict=True)
        if argument in step.prepared.plan.written
    }


def _watched(step: Step) -> list[Captured]:
    """What functions of the user captured that the kernel calls."""
    return [c for c in step.prepared.compiled.captured if not _is_ours(c)]


def _is_ours(captured: Captured) -> bool:
    """Whether a captured name is read by this library's code, where it never changes."""
    reader: Any = captured.read.__self__  # type: ignore[attr-defined]
    return isinstance(reader, Captures) and (reader.function.__module__ or "").startswith("cubepy.")


def _operand(address: int) -> int:
    """The position of the operand that an address inside a plan belongs to."""
    return ((address + (1 << _SPAN - 1)) >> _SPAN) - 1


@dataclass(frozen=True, slots=True)
class Plan:
    """The launches of one signature. Operands: the arrays, then the results, then scratch, of which
    the last two are made anew by each call.

    `reaches` are the bytes that arrays and results extend to, relative to their addresses.
    """

    function: str
    results: tuple[Callable[[], Any], ...]
    scratch: tuple[Callable[[], Any], ...]
    program: Program
    reaches: tuple[tuple[int, int], ...]
    operands: tuple[Memory, ...]
    watched: tuple[Captured, ...]
    has_scalars: bool
    """Whether results have no axes; all of them do, or none."""
    updated: tuple[int, ...]
    """The arrays that launches also write."""

    def is_current(self) -> bool:
        """Whether no captured name of a launched kernel has changed."""
        return all(captured.is_unchanged() for captured in self.watched)

    def run(
        self,
        library: Library,
        arrays: Sequence[Any],
        given: Sequence[Any] | None,
        addresses: list[int],
    ) -> Sequence[Any]:
        """The results of a call: new arrays, or those given. `addresses`: where the arrays are,
        and those given, if results are given."""
        results = [make() for make in self.results] if given is None else given
        if given is not None or self.updated:
            addresses = addresses or library.addresses(arrays)
        operands = self.checked_operands(arrays, results, addresses)
        self.launch(library, operands)
        if given is not None or self.updated:
            increment_versions(library, self.written(arrays, given or ()))
        return results

    def written(self, arrays: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """What a call writes of its user's arrays; `given`: the results that he brought."""
        return [*[arrays[k] for k in self.updated], *given]

    def launch(self, library: Library, operands: Sequence[Any]) -> None:
        """Launch on operands of these types and layouts."""
        if is_ahead():
            self.program.enqueue(library.addresses(operands), None)
            return
        program = self.program
        if current_profile() is not None or is_observed():
            report_arrays([operands[k] for k in program.written])
            program = program.run
        try:
            library.launch(program, operands)
        except NoMemory:
            raise without_memory(self.function) from None

    def checked_operands(
        self, arrays: Sequence[Any], results: Sequence[Any], addresses: list[int]
    ) -> tuple[Any, ...]:
        """What the program is called with. `addresses`: where the arrays are, and the results that
        the caller brought, to be checked; none where nothing can overlap."""
        if addresses:
            self._check_overlaps(addresses, (*self.updated, *range(len(arrays), len(addresses))))
        return (*arrays, *results, *[make() for make in self.scratch])

    def _check_overlaps(self, addresses: list[int], written: Sequence[int]) -> None:
        """E601 where a written operand shares memory with another, unless the plan knows that they
        are one array."""
        reaches = self.reaches
        for one in written:
            low, high = reaches[one]
            begin, end = addresses[one] + low, addresses[one] + high
            for other, base in enumerate(addresses):
                low, high = reaches[other]
                meets = base + low < end and base + high > begin and other != one
                if meets and self._collide(addresses, other, one):
                    name = "an argument that is updated" if one in self.updated else "`out`"
                    raise fail(
                        "E601",
                        function=self.function,
                        reason=f"{name} overlaps another argument",
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

    def __init__(
        self,
        function: str,
        library: Library,
        given: list[Any] | None = None,
        picks: Picks | None = None,
    ) -> None:
        """`given`: the results that the caller brought; `picks`: None where rules decide."""
        self.function = function
        self._picks = picks
        self.library = library
        self._given = given
        self.recording = library if isinstance(library, Recording) else None
        self._operands: list[Memory] = []
        self._bases: list[int] = []
        self._places: list[int] = []
        self._results: list[Shape] = []
        self._scratch: list[Shape] = []
        self._steps: list[Step] = []
        self._waiting: list[Callable[[], Step]] = []
        self._updated: list[int] = []
        self._traced: list[Captured] = []

    @property
    def target(self) -> Target:
        """What strategies may read."""
        if self.recording is not None:
            return self.recording.target
        return find_device(self.library.device).target

    def pick(
        self, family: str, key: Any, default: Any, others: Callable[[], Mapping[str, Any]]
    ) -> Any:
        """The configuration for a problem: the default, unless another was measured to be faster.

        `family`: a folder of `cubepy.kernels`; `key`: the problem as plain data, with extents
        rounded by `anchor`; `others`: configurations that are legal for the very problem, by texts
        of what they change (see `autotune.space.variants`).
        """
        if self._picks is None or self.recording is not None:
            return default
        return self._picks.pick(family, key, default, others)

    def pick_among(self, family: str, key: Any, candidates: Sequence[Any]) -> Any:
        """As `pick`, of dataclasses: the first is the default, the others are named by fields."""
        return self.pick(family, key, candidates[0], lambda: differences(candidates))

    def array(self, name: str, x: Any) -> Memory:
        """The next argument, checked; its address is its number."""
        return self._number(checked_memory(self.function, name, self.library, x))

    def result(self, shape: Shape) -> Memory:
        """The next result: a new array, or what the caller brought after a check of its shape and
        dtype. An argument that is the same array gives the result its number."""
        memory = contiguous(shape)
        if self._given is not None:
            name = "out" if len(self._given) == 1 else f"out[{len(self._results)}]"
            given = self._given[len(self._results)]
            memory = read_output(self.function, self.library, given, shape, name)
            if overlaps_itself(memory):
                raise fail(
                    "E601",
                    function=self.function,
                    reason=f"several elements of `{name}` share one address",
                    suggestion="pass an array without zero strides",
                )
        self._results.append(shape)
        return self._number(memory)

    def traced(self, captured: Iterable[Captured]) -> None:
        """Note what a trace captured that is no launch, as of a function whose results have no
        elements."""
        self._traced += [c for c in captured if not _is_ours(c)]

    def updated(self, name: str, argument: Memory) -> Memory:
        """An argument that launches also write; E601 where it cannot be."""
        if not argument.is_writeable:
            raise fail(
                "E601",
                function=self.function,
                reason=f"`{name}` is updated, but it is read-only",
                suggestion="",
            )
        if overlaps_itself(argument):
            raise fail(
                "E601",
                function=self.function,
                reason=f"several elements of `{name}`, which is updated, share one address",
                suggestion="pass an array without zero strides",
            )
        self._updated.append(_operand(argument.address))
        return argument

    def joined(self, result: Memory, arguments: Sequence[Memory]) -> Memory:
        """The result just added, under the number of the first argument that is the same array.

        For kernels that read an element of an argument before they write it.
        """
        for argument in arguments:
            if self._is_same(argument, result):
                self._operands[-1] = replace(result, address=argument.address)
                return self._operands[-1]
        return result

    def merged(self, arguments: Sequence[Memory]) -> list[Memory]:
        """Arguments that may be results, as `joined` has it, of which those that are one array and
        a result have one number."""
        brought = self.library.addresses(self._given or ())
        found: list[Memory] = []
        for argument in arguments:
            number = _operand(argument.address)
            if self._places[number] in brought:
                first = next((x for x in found if self._is_same(x, argument)), argument)
                argument = self._operands[number] = replace(argument, address=first.address)
            found.append(argument)
        return found

    def _is_same(self, a: Memory, b: Memory) -> bool:
        """Whether two operands are one array, element for element."""
        one, two = self._places[_operand(a.address)], self._places[_operand(b.address)]
        return one == two and (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)

    def scratch(self, extents: tuple[int, ...], dtype: DType) -> Memory:
        """Memory for the duration of a call, contiguous and aligned."""
        shape = Shape(extents, dtype)
        self._scratch.append(shape)
        return self._number(contiguous(shape))

    def launch(
        self,
        kernel: CubeKernel,
        grid: int | Grid,
        *,
        line_size: int | None = None,
        **arguments: Any,
    ) -> None:
        """Add a launch over a grid, or so many cubes of one unit; none where nothing is to do.

        `line_size`: lanes of line-typed parameters.
        """
        grid = Over(grid, "cube", 1) if isinstance(grid, int) else grid
        if _is_empty(grid):
            return
        device = self.library.device
        on = device if device != HOST and self.recording is None else None
        if on is not None or line_size is not None:
            kernel = kernel.configure(line_size=line_size, device=on)
        if self.recording is not None:
            self.recording.add(kernel, grid, arguments)
            return
        keeps = self.library.keeps_alignment
        self._waiting.append(partial(step_of, kernel, grid, arguments, self._bases, keeps))
        if is_observed() or is_ahead() or any(map(_may_call, arguments.values())):
            self._prepare()

    def _prepare(self) -> None:
        """Prepare the launches that wait, one while another compiles: those of this library alone,
        as functions of the caller are traced in its thread, and may be refused at their launch."""
        waiting, self._waiting = self._waiting, []
        try:
            self._steps += all_done(waiting) if waiting else []
        except BaseException:
            self._waiting = waiting[:-1]
            raise

    def plan(self) -> Plan:
        """What was collected."""
        self._prepare()
        total = len(self._operands)
        shown = self._operands[: total - len(self._scratch)]
        first = total - len(self._scratch) - len(self._results)
        results = {memory.address for memory in shown[first:]}
        stored = {k for k in _written(self._steps) if k < first}
        stored -= {k for k in stored if shown[k].address in results}
        updated = sorted({*self._updated, *stored})
        written = *updated, *range(first, total)
        watched = [captured for step in self._steps for captured in _watched(step)]
        return Plan(
            self.function,
            tuple(map(self.library.maker, self._results)),
            tuple(map(self.library.scratch_maker, self._scratch)),
            Program(self._steps, len(self._operands), written),
            tuple(_reach(memory) for memory in shown),
            tuple(shown),
            tuple(watched if self._steps else self._traced),
            any(not shape.extents for shape in self._results),
            tuple(updated),
        )

    def _number(self, memory: Memory) -> Memory:
        """The same layout as the next operand: its address only identifies it, and has its
        alignment where that is part of the key."""
        base = len(self._operands) + 1 << _SPAN
        if self.library.keeps_alignment:
            base += memory.address % ALIGNMENT
        # Host arrays stay host arrays, whatever device serves them.
        place = self.library.device if self.library.keeps_alignment else memory.device
        found = replace(memory, address=base, owner=None, queue=None, device=place)
        self._operands.append(found)
        self._bases.append(base)
        self._places.append(memory.address)
        return found


_PLAIN = (int, float, str, type(None), DType, Memory)
"""What holds no function."""


def _may_call(value: Any) -> bool:
    """Whether an argument of a kernel is a function, or may hold one."""
    if isinstance(value, _PLAIN):
        return False
    if isinstance(value, tuple):
        return any(map(_may_call, value))
    if is_dataclass(value):
        return any(_may_call(getattr(value, field.name)) for field in fields(value))
    return True


def _is_empty(grid: Grid) -> bool:
    """Whether a grid has no cube."""
    if not isinstance(grid, Over):
        return 0 in grid.count
    return grid.what == 0 or (isinstance(grid.what, tuple) and 0 in grid.what)


def _reach(memory: Memory) -> tuple[int, int]:
    low, high = memory.extent()
    return low - memory.address, high - memory.address


class Plans:
    """The plans of one function by signature and by the settings that kernels are compiled with."""

    def __init__(self) -> None:
        self._made: dict[Any, Plan] = {}
        self.short = ShortCalls()

    def find(self, key: Any) -> Plan | None:
        """The plan of a signature, unless a name that its kernels capture has changed."""
        plan = self._made.get(_with_settings(key))
        return None if plan is None or (plan.watched and not plan.is_current()) else plan

    def keep(self, key: Any, plan: Plan) -> Plan:
        """Remember a plan; the oldest goes where there are too many."""
        make_room(self._made, LIMIT)
        self._made[_with_settings(key)] = plan
        return plan


def _with_settings(key: Any) -> Any:
    return get("checked"), get("opt_level"), level_in_force(KEPT), session.changes[0], key
