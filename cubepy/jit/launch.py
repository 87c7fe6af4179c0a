"""One launch: checks, the argument block, and the way to the device.

`prepare` does everything that depends on metadata alone; what it gives is kept for calls with the
same metadata, so that these only fill in addresses and numbers.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Collection, Iterable
from dataclasses import replace
from functools import partial
from math import prod
from struct import Struct
from typing import Any

import numpy as np

from cubepy.array.interop import has_tangent, read_memory, records_gradients
from cubepy.array.memory import HOST, Memory, raw_view
from cubepy.array.order import Ordered
from cubepy.array.streams import check_queues
from cubepy.errors import fail
from cubepy.frontend.signature import Signature
from cubepy.ir.numbers import convert, to_bits
from cubepy.ir.types import DType, f32, find_dtype
from cubepy.jit.ahead import MapAt, Recorded, is_ahead, note_launch
from cubepy.jit.arguments import Matcher, check_scalar, finish, layout_of, line_width
from cubepy.jit.classes import promised
from cubepy.jit.compile import Compiled, Specialisations
from cubepy.jit.devices import choose_device
from cubepy.jit.faults import fault_of
from cubepy.jit.grid import (
    Dim3,
    Fixed,
    Grid,
    Over,
    check_clusters,
    check_limits,
    default_cube_dim,
    dim3,
    shown,
)
from cubepy.jit.observe import report_written
from cubepy.jit.plan import GridRule, LaunchPlan, grid_rule, plan_of
from cubepy.jit.profiles import current_profile
from cubepy.jit.settings import Settings
from cubepy.jit.staging import Staged
from cubepy.jit.tensor_maps import Encoder, encoder
from cubepy.record import dataclass
from cubepy.targets import CHECKED_LIMIT

_F32, _BITS_OF_F32 = Struct("f"), Struct("I")
_LARGE = 1e38
"""Below this a float rounds to a finite f32, as `struct` does."""
EFFORT: Any = 100_000  # NumPy's stubs know only -1 and 0
"""Steps of the search for a byte that two arrays have in common."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan with the metadata of one launch: code, and the block with holes for addresses.

    `work`: about how many elements it computes, which decides how cubes are spread over threads.
    """

    plan: LaunchPlan
    compiled: Compiled
    device: Any
    template: tuple[int, ...]
    addresses: tuple[tuple[int, str], ...]
    numbers: tuple[tuple[int, str, DType], ...]
    count: int
    work: int
    queue: int | None = None
    maps: tuple[tuple[int, str, Encoder], ...] = ()
    """The words that hold the address of a tensor map, and the arguments that they describe."""

    def is_staged(self, memories: dict[str, Memory]) -> bool:
        """Whether arrays of the host are copied to the device for the launch."""
        return not self.device.uses_host_memory and any(m.device == HOST for m in memories.values())

    def run(self, memories: dict[str, Memory], scalars: dict[str, Any], kernel: str) -> None:
        """Fill the block and launch; `check_overlaps` has been done."""
        if is_ahead():
            addresses = {name: memory.address for name, memory in memories.items()}
            maps = [(at, addresses[name], encoder) for at, name, encoder in self.maps]
            self.record(self.filled(addresses, scalars, kernel), maps, memories.values())
            return
        names = self.plan.written
        written = [memories[name] for name in names]
        ordered = Ordered(self.device, self.queue, memories.values(), written)
        if not self.is_staged(memories):
            addresses = {name: memory.address for name, memory in memories.items()}
            maps = [(at, encoder.at(addresses[name])) for at, name, encoder in self.maps]
            with ordered as queue:
                block = self.filled(addresses, scalars, kernel)
                for position, encoded in maps:
                    block[position] = encoded.address
                self.launch(block, queue)
            return
        staging = Staged(self.device, memories, names)
        with ordered as queue, staging as staged:
            self.launch(self.filled(staged.addresses, scalars, kernel), queue)

    def filled(self, addresses: dict[str, int], scalars: dict[str, Any], kernel: str) -> Any:
        """The argument block."""
        block = (ctypes.c_uint64 * len(self.template))(*self.template)
        for position, name in self.addresses:
            block[position] = addresses[name]
        for position, name, dtype in self.numbers:
            block[position] = pack(kernel, name, scalars[name], dtype)
        return block

    def record(
        self,
        block: Any,
        maps: Iterable[tuple[int, int, Encoder]],
        memories: Iterable[Memory] = (),
    ) -> None:
        """Note a launch that is not done: `maps` are words, addresses and encoders of these."""
        found = [MapAt(word, address, e.method, e.layout) for word, address, e in maps]
        held = tuple(memories)
        note_launch(Recorded(self.compiled.artifact, tuple(block), tuple(found), held))

    def launch(self, block: Any, queue: int | None = None) -> None:
        """Launch with a filled block; raises what a check of the kernel found."""
        profile = current_profile()
        if profile is None:
            self._launch(block, queue)
        else:
            launch = partial(self._launch, block, queue)
            profile.time(self.compiled.artifact.entry, self.device, queue, launch)

    def _launch(self, block: Any, queue: int | None) -> None:
        artifact = self.compiled.artifact
        grain = self.device.grain(self.count, self.work)
        if not artifact.faults:
            self.device.launch(self.compiled.loaded, block, self.count, grain, queue)
            return
        record = self.device.fault_record()
        block[len(self.template) - 1] = record.address
        self.device.launch(self.compiled.loaded, block, self.count, grain, queue)
        error = fault_of(artifact, record.words())
        if error is not None:
            raise error


def pack(kernel: str, name: str, value: Any, dtype: DType) -> int:
    """The bits of a scalar argument; E407 where an integer does not fit."""
    if dtype is f32 and type(value) is float and abs(value) < _LARGE:
        return _BITS_OF_F32.unpack(_F32.pack(value))[0]
    check_scalar(kernel, name, value, dtype)
    return to_bits(convert(value, dtype), dtype)


def prepare(
    kernel: str,
    annotations: dict[str, Any],
    arguments: dict[str, Any],
    grid: Grid,
    settings: Settings,
    specialisations: Specialisations,
    has_addresses: bool = True,
) -> tuple[Prepared, Matcher]:
    """Match, choose the device, specialise, check.

    Without `has_addresses` those of the arguments are stand-ins, and nothing is promised of them.
    """
    matcher = Matcher(kernel, annotations)
    items = matcher.match(arguments)
    specialisations.check(kernel, matcher)
    device = choose_device(kernel, settings.device, matcher.memories)
    target, options = device.target, specialisations.options
    if not is_ahead():
        device.expect_launch()
    plane = options.plane_dim or target.plane_dim
    width = line_width(matcher.tensors, target, options.line_size)
    dim = default_cube_dim(grid, plane)
    checked, attributes = options.is_checked, options.attributes_on(target)
    alignment = specialisations.alignment(target)
    args = finish(items, matcher, width, alignment, False)
    signature = Signature(args, dim, plane, True, checked, attributes)
    facts = specialisations.facts(signature, target)
    collapsed: bool | None = False  # None: it could, but where lines begin matters
    if _can_collapse(matcher, width) and _asks_for_flat(facts):
        collapsed = None
    if collapsed is None and _covers_lines(grid, matcher):
        flat = replace(signature, args=finish(items, matcher, width, alignment, True))
        flat_facts = specialisations.facts(flat, target)
        collapsed = flat_facts.lanewise or None
        signature, facts = (flat, flat_facts) if collapsed else (signature, facts)
    check_written(kernel, facts.written, matcher.memories)
    report_written(facts.written, matcher.memories)
    if check_overlaps(kernel, facts.written, matcher.memories):
        signature = replace(signature, noalias=False)
    rule = grid_rule(grid, signature, facts, matcher, target, options.clusters)
    count = _cube_count(kernel, grid, rule, matcher, width, bool(collapsed))
    check_limits(kernel, Fixed(count, dim), target)
    check_clusters(kernel, count, options.clusters, target)
    if checked:
        check_sizes(kernel, matcher, prod(count) * prod(dim))
    signature = promised(signature, matcher, facts, count, alignment)
    if not has_addresses:
        signature = replace(signature, aligned=frozenset())
    compiled = specialisations.get(signature, device)
    if not compiled.facts.demands_the_same(facts):  # another thread changed what it captures
        given = kernel, annotations, arguments, grid, settings, specialisations, has_addresses
        return prepare(*given)
    slots = compiled.artifact.slots
    plan = plan_of(matcher, signature, compiled.facts, slots, rule, width, collapsed)
    if settings.queue is not None:
        check_queues(device)
    return _fill(plan, compiled, device, matcher, count, settings.queue), matcher


def check_sizes(kernel: str, matcher: Matcher, units: int) -> None:
    """`LaunchError` E419 for sizes from which checked index arithmetic might leave 64 bits."""
    sizes = {"it has units:": units}
    for name, memory in matcher.memories.items():
        sizes[f"`{name}` has an extent of"] = max(memory.shape, default=0)
        sizes[f"`{name}` has elements:"] = prod(memory.shape)
    for what, given in sizes.items():
        if given > CHECKED_LIMIT:
            raise fail("E419", kernel=kernel, what=what, given=given, limit=CHECKED_LIMIT)


def _can_collapse(matcher: Matcher, width: int) -> bool:
    """Contiguous line tensors of one shape, whose rows do not end on whole lines."""
    lines = [lay for lay, a in matcher.tensors.values() if a.is_line]
    if width == 1 or not lines or len(lines[0].shape) < 2:
        return False
    first = lines[0]
    same = all(lay.shape == first.shape and lay.is_linear for lay in lines)
    return same and None not in first.shape and first.axis == len(first.shape) - 1


def _covers_lines(grid: Grid, matcher: Matcher) -> bool:
    """Whether there is a unit for each line, however these are cut: a grid over a line tensor."""
    if isinstance(grid, Fixed) or grid.per != "unit" or isinstance(grid.what, int | tuple):
        return False
    name = matcher.name_of(grid.what)
    return name is not None and name in matcher.tensors and matcher.tensors[name][1].is_line


def _asks_for_flat(facts: Any) -> bool:
    """Whether neither shapes nor the axes of positions matter to the kernel."""
    return not facts.shaped and not facts.uses_axes


def check_written(kernel: str, written: Collection[str], memories: dict[str, Memory]) -> None:
    """E404 for outputs that are read-only or whose gradients torch records, E410 for outputs with
    several elements at one address."""
    for name in written:
        memory = memories.get(name)
        if memory is None:
            continue
        if not memory.is_writeable:
            hint = None
            if records_gradients(memory.owner):
                hint = _without_gradients(name, memory.owner)
            raise fail("E404", kernel=kernel, argument=name, hint=hint)
        if overlaps_itself(memory):
            raise fail("E410", kernel=kernel, argument=name, strides=memory.strides)


def _without_gradients(name: str, tensor: Any) -> str:
    """How a kernel may write to a tensor whose gradients torch computes."""
    if has_tangent(tensor):
        return f"`{name}` carries a tangent, and kernels compute none: pass its primal"
    how = "launch inside torch.no_grad(), or pass its .detach()"
    return f"`{name}` requires grad, and kernels record no gradients: {how}"


def overlaps_itself(memory: Memory) -> bool:
    """Whether two elements may share an address: axes by stride must nest."""
    if 0 in memory.shape:
        return False
    axes = sorted((abs(s), n) for s, n in zip(memory.strides, memory.shape, strict=True) if n > 1)
    reach = memory.dtype.itemsize
    for stride, n in axes:
        if stride < reach:
            return True
        reach += stride * (n - 1)
    return False


def check_overlaps(kernel: str, written: Collection[str], memories: dict[str, Memory]) -> bool:
    """E405 where a written argument partly overlaps another; True where one is given twice."""
    aliased = False
    for name in (n for n in memories if n in written):
        low, high = memories[name].extent()
        for other, memory in memories.items():
            if other == name or low == high:
                continue
            first, last = memory.extent()
            if first >= high or last <= low:
                continue
            if same_elements(memories[name], memory):
                aliased = True
            elif shares_memory(memories[name], memory):
                raise fail("E405", kernel=kernel, written=name, other=other)
    return aliased


def same_elements(a: Memory, b: Memory) -> bool:
    """Whether two arguments are the same array, element for element."""
    return (a.address, a.shape, a.strides, a.dtype) == (b.address, b.shape, b.strides, b.dtype)


def shares_memory(a: Memory, b: Memory) -> bool:
    """Whether two arrays have a byte in common; exact up to a bounded effort, then assumed."""
    try:
        return bool(np.shares_memory(raw_view(a), raw_view(b), max_work=EFFORT))
    except Exception:
        return True


def _cube_count(
    kernel: str,
    grid: Grid,
    rule: GridRule,
    matcher: Matcher,
    width: int,
    collapsed: bool,
) -> Dim3:
    if isinstance(grid, Fixed):
        return grid.count
    return rule.cover(_covered_shape(kernel, grid, matcher, width, collapsed))


def _covered_shape(
    kernel: str, grid: Over, matcher: Matcher, width: int, collapsed: bool
) -> tuple[int, ...]:
    """What `.over` counts: an int, a shape, or an array, which counts in lines if it is one."""
    what = grid.what
    if isinstance(what, int):
        return (what,)
    if isinstance(what, tuple):
        return what
    name = matcher.name_of(what)
    if name is not None:
        layout, annotation = matcher.tensors[name]
        return _lines_of(layout, annotation.is_line, width, collapsed)
    shape = getattr(what, "shape", None)
    if shape is None:
        raise fail(
            "E416",
            given=shown(what),
            reason="over() takes an array, an int or a shape",
            suggestion="",
        )
    is_line = any(a.is_line for _, a in matcher.tensors.values())
    if is_line and hasattr(what, "dtype"):
        memory = read_memory(what)
        if memory is not None:
            return _lines_of(layout_of(kernel, "over", memory), False, width, collapsed)
    return tuple(int(n) for n in shape)


def _lines_of(layout: Any, is_line: bool, width: int, collapsed: bool) -> tuple[int, ...]:
    if not is_line or width == 1:
        return layout.shape
    if collapsed:
        return (-(-prod(layout.shape) // width),)
    return tuple(-(-n // width) if k == layout.axis else n for k, n in enumerate(layout.shape))


def _fill(
    plan: LaunchPlan,
    compiled: Compiled,
    device: Any,
    matcher: Matcher,
    count: Dim3,
    queue: int | None,
) -> Prepared:
    """What a plan's slots hold for all launches of equal metadata."""
    block: list[int] = []
    addresses: list[tuple[int, str]] = []
    numbers: list[tuple[int, str, DType]] = []
    maps: list[tuple[int, str, Encoder]] = []
    known = _Metadata(matcher, bool(plan.collapses))
    for position, slot in enumerate(plan.slots):
        if slot.kind.is_address:
            addresses.append((position, slot.argument))
        elif slot.kind.is_copied:
            maps.append(
                (position, slot.argument, encoder(plan.kernel, slot.argument, matcher, device))
            )
        elif slot.kind.varies:
            numbers.append((position, slot.argument, _dtype(slot.dtype)))
        block.append(0 if slot.kind.varies else slot.bind(known) & (2**64 - 1))
    block += count
    if compiled.artifact.scratch_bytes:
        block.append(0)  # how much memory the kernel asked for in vain
    if compiled.artifact.faults:
        block.append(0)  # the address of the fault record
    total = prod(count)
    return Prepared(
        plan,
        compiled,
        device,
        tuple(block),
        tuple(addresses),
        tuple(numbers),
        total,
        max(total * prod(plan.cube_dim) * plan.width, _elements(matcher)),
        queue,
        tuple(maps),
    )


def _elements(matcher: Matcher) -> int:
    """Elements of the largest array: cubes that loop over it do more than they have units."""
    return max((prod(memory.shape) for memory in matcher.memories.values()), default=0)


def _dtype(name: str) -> DType:
    found = find_dtype(name)
    assert found is not None
    return found


class _Metadata:
    """What parameters hold for all launches of equal metadata; see `artifact.Arguments`."""

    def __init__(self, matcher: Matcher, collapsed: bool) -> None:
        self._matcher = matcher
        self._collapsed = collapsed

    def extent(self, argument: str, axis: int) -> int:
        layout, annotation = self._matcher.tensors[argument]
        if self._collapsed and annotation.is_line:
            return prod(n or 0 for n in layout.shape)
        return layout.shape[axis] or 0

    def stride(self, argument: str, axis: int) -> int:
        layout, _ = self._matcher.tensors[argument]
        return layout.strides[axis]

    def address(self, argument: str) -> int:
        raise AssertionError("addresses are bound by each launch")

    def number(self, argument: str, dtype: str) -> int:
        raise AssertionError("numbers are bound by each launch")


def over(what: Any, per: str, cube_dim: Any) -> Over:
    """The grid of `kernel.over(...)`, checked as far as it can be without arguments."""
    if per not in ("unit", "plane", "cube"):
        reason = 'per is "unit", "plane" or "cube"'
        raise fail("E416", given=f"per={per!r}", reason=reason, suggestion="")
    if cube_dim is not None:
        cube_dim = dim3(cube_dim, "the cube dim", 1)
    return Over(_items(what), per, cube_dim)


def _items(what: Any) -> Any:
    """What `.over` counts: a number or a tuple of them, none negative. Arrays are kept."""
    if hasattr(what, "shape") and not isinstance(what, np.generic):
        return what
    extents: Any = what if isinstance(what, tuple | list) else (what,)
    try:
        numbers = tuple(operator.index(n) for n in extents)
    except TypeError:
        raise fail(
            "E416",
            given=shown(what),
            reason="over() takes an array, an int or a shape",
            suggestion=_of_counts(extents),
        ) from None
    if any(n < 0 for n in numbers):
        raise fail("E416", given=shown(what), reason="it counts no items", suggestion="")
    return numbers if isinstance(what, tuple | list) else numbers[0]


def _of_counts(extents: Any) -> str:
    """What to give to `.over` in place of extents that are no integers."""
    if any(isinstance(n, float) for n in extents):
        return "a count is an integer; use // for a division"
    return "give it the array, as in over(out), or a count, as in over(1024)"
