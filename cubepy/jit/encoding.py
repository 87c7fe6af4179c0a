"""A launch plan as words that native code reads, with the objects of this process behind it."""

from __future__ import annotations

import builtins
import ctypes
from collections.abc import Iterable, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from cubepy.array.array import Array
from cubepy.array.interop import read_memory
from cubepy.array.memory import HOST, Memory
from cubepy.artifact import Extent, ParamKind, Stride
from cubepy.ir.numbers import limits
from cubepy.ir.types import DType, Line, bool_, f32, f64, find_dtype
from cubepy.jit.arguments import Matcher
from cubepy.jit.compile import Captured, Compiled
from cubepy.jit.grid import Grid, Over
from cubepy.jit.launch import Prepared
from cubepy.jit.plan import ArrayRule, LaunchPlan, MapRule, NumberRule, Rule, StructRule
from cubepy.jit.programs import Program, Step
from cubepy.lang.cuda import TensorMap
from cubepy.lang.function import ABSENT, Attributes, Captures, CubeFunction
from cubepy.record import dataclass
from cubepy.runtimes.base import EncodedMap, NativeCode
from cubepy.runtimes.cpu.device import INLINE_WORK
from cubepy.runtimes.native.launching import tables
from cubepy.runtimes.native.launching.executor import DTYPES, NUMBERS, Executor
from cubepy.runtimes.native.launching.tables import MAX_OPERANDS, Packed, Plan

if TYPE_CHECKING:
    from cubepy.jit.native import Header

_NUMBERS = (int, float, bool, *NUMBERS)
_CODES = {name: k for k, (name, _) in enumerate(DTYPES)}


class Unknown(Exception):
    """A launch that native code does not run."""


class Words:
    """Words of a table in the making; what they refer to is kept."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.kept: list[Any] = []

    def object(self, value: Any) -> int:
        """The address of an object that is kept."""
        self.kept.append(value)
        return id(value)

    def add(self, values: Iterable[int], size: int) -> int:
        """Add a row of `size` words; gives its place in bytes."""
        place, row = len(self.values) * 8, list(values)
        self.values += row + [0] * (size - len(row))
        return place


@dataclass(frozen=True, slots=True)
class Learned:
    """A plan in memory: its words, and what they refer to. `records`: the dataclasses it reads;
    `layouts`: extents and strides of the arrays of tensor maps, which are part of it; `place`:
    where its arrays are, and whose."""

    plan: LaunchPlan
    prepared: Prepared
    words: tuple[int, ...]
    kept: tuple[Any, ...]
    records: tuple[tuple[type, tuple[str, ...]], ...]
    layouts: tuple[tuple[int, ...], ...]
    place: int


def learned_of(
    known: Executor,
    function: Any,
    header: Header,
    grid: Grid,
    prepared: Prepared,
    matcher: Matcher,
) -> Learned:
    """The plan of a launch that was run, for native code; raises `Unknown` if that can't run it.

    `header`: what the function held when its parameters were read, as stands in the table.
    """
    compiled, plan = prepared.compiled, prepared.plan
    _require(prepared.queue is None and not compiled.artifact.faults)
    code = native_code(prepared)
    what = grid.what if isinstance(grid, Over) else None
    _require(plan.grid.kind != "array" or is_read(known, what))
    words = Words()
    words.add((), Plan.SIZE)
    head = [0] * Plan.SIZE
    records: dict[type, tuple[str, ...]] = {}
    place = 0 if code is None else _place(known, matcher, code)
    head[Plan.QUEUE] = _queue_of(place)
    _write_rules(known, words, head, plan, matcher, records, place)
    _write_slots(words, head, plan, matcher)
    _write_captures(words, head, compiled.captured, function, header)
    _write_numbers(head, plan)
    _write_code(words, head, compiled, code)
    maps = [(at, made.at(matcher.memories[name].address)) for at, name, made in prepared.maps]
    _write_maps(words, head, maps, 0)
    head[Plan.BYTES] = len(words.values) * 8
    words.values[: Plan.SIZE] = head
    layouts = tuple(_layout(matcher.memories[name]) for name in matcher.maps)
    return Learned(
        plan,
        prepared,
        tuple(words.values),
        tuple(words.kept),
        tuple(records.items()),
        layouts,
        place,
    )


def _layout(memory: Memory) -> tuple[int, ...]:
    return *memory.shape, *memory.strides


def _write_maps(
    words: Words, head: list[int], maps: Iterable[tuple[int, EncodedMap]], begin: int
) -> None:
    """Tensor maps, each with its word in the argument block; places are counted from `begin`."""
    rows = [(at, made.words()) for at, made in maps]
    _require(len(rows) <= tables.MAX_MAPS)
    _require(not rows or bool(head[Plan.GPU]))
    head[Plan.MAPS], head[Plan.MAPS_AT] = len(rows), len(words.values) * 8 - begin
    for at, values in rows:
        words.add((at, *values), 1 + tables.MAP_WORDS)


def native_code(prepared: Prepared) -> NativeCode | None:
    """What native code needs of a GPU, None on the CPU; raises `Unknown` on other devices."""
    device = prepared.device
    if device.name == HOST:
        return None
    of_device = getattr(device, "native_code", None)
    code = of_device and of_device(prepared.compiled.loaded)
    _require(code is not None)
    return code


def _queue_of(place: int) -> tables.Queue:
    if place < tables.CUPY_PLACE:
        return tables.Queue.TORCH
    own = {tables.OWN_PLACE: tables.Queue.OWN, tables.OPENCL_PLACE: tables.Queue.OPENCL}
    return own.get(place, tables.Queue.CUPY)


def _place(known: Executor, matcher: Matcher, code: NativeCode) -> int:
    """What distinguishes the arrays of a launch on a GPU: all are torch's tensors there, so that it
    is in torch's stream, or CuPy's, or all are CubePy's own, so that it is in the device's own
    queue."""
    return _place_of(known, list(matcher.arrays.values()), code)


def _place_of(known: Executor, arrays: Sequence[Any], code: NativeCode) -> int:
    _require(bool(arrays))
    is_opencls = bool(code.sizes)
    if is_opencls or all(type(x) is Array for x in arrays):
        memories = [read_memory(x) for x in arrays]
        _require(all(m is not None and type(m.owner) is code.memory for m in memories))
        _require(known.reads_memory(code.memory, is_opencls))
        return tables.OPENCL_PLACE if is_opencls else tables.OWN_PLACE
    _require(not any(isinstance(x, np.ndarray | Array) or not is_read(known, x) for x in arrays))
    if any(map(_is_cupys, arrays)):
        _require(all(map(_is_cupys, arrays)))
        return tables.CUPY_PLACE + code.ordinal
    _require(code.ordinal + 1 < tables.CUPY_PLACE)
    _require(known.reads_streams(code.ordinal, code.stream))
    return code.ordinal + 1


def program_words(
    known: Executor, program: Program, operands: Sequence[Any]
) -> tuple[bytes, tuple[Any, ...]] | None:
    """A program in memory: its words, and what they refer to; None where native code can't run it.
    `operands`: such as it is called with.

    Only code of this process's CPU or of one device is run, that checks nothing and waits for
    nobody.
    """
    words = Words()
    words.add((program.operands, len(program.steps)), tables.Program.SIZE)
    try:
        codes = [native_code(step.prepared) for step in program.steps]
        code = next(iter(codes), None)
        place = 0 if code is None else _place_of(known, operands, code)
        addresses = [_address(x) for x in operands]
        _require(program.operands <= MAX_OPERANDS and len({c and c.ordinal for c in codes}) <= 1)
        for step, code in zip(program.steps, codes, strict=True):
            prepared = step.prepared
            _require(prepared.queue is None and not prepared.compiled.artifact.faults)
            _require(len(step.template) <= tables.MAX_SLOTS)
            _write_step(words, step, code, addresses)
    except Unknown:
        return None
    if code is not None:
        words.values[tables.Program.DEVICE] = code.ordinal + 1
        words.values[tables.Program.QUEUE] = _queue_of(place)
        words.values[tables.Program.WRITTEN] = sum(1 << k for k in program.written)
    data = (ctypes.c_int64 * len(words.values))(*words.values)
    return bytes(data), tuple(words.kept)


def _address(operand: Any) -> int:
    memory = None if isinstance(operand, int) else read_memory(operand)
    return operand if memory is None else memory.address


def _write_step(
    words: Words, step: Step, code: NativeCode | None, addresses: Sequence[int]
) -> None:
    begin = words.add((), tables.Step.SIZE)
    head = [0] * tables.Step.SIZE
    compiled = step.prepared.compiled
    _write_code(words, head, compiled, code)
    head[Plan.SIZES_AT] -= begin if head[Plan.SIZES_AT] else 0
    head[Plan.SLOTS] = len(compiled.artifact.slots)
    block = [ctypes.c_int64(word).value for word in step.template]
    head[tables.Step.BLOCK] = len(block)
    head[tables.Step.BLOCK_AT] = words.add(block, len(block)) - begin
    holes = [*step.holes, *(hole for hole, _ in step.maps)]
    head[tables.Step.HOLES] = len(holes)
    head[tables.Step.HOLES_AT] = len(words.values) * 8 - begin
    for hole in holes:
        words.add(hole, tables.HOLE_WORDS)
    made = [(at, maps.at(addresses[n] + offset)) for (at, n, offset), maps in step.maps]
    _write_maps(words, head, made, begin)
    head[tables.Step.COUNT], head[tables.Step.WORK] = step.prepared.count, step.prepared.work
    head[Plan.BYTES] = len(words.values) * 8 - begin
    words.values[begin // 8 : begin // 8 + len(head)] = head


def _write_code(words: Words, head: list[int], compiled: Compiled, code: NativeCode | None) -> None:
    """What is run, and what native code notes of it."""
    words.object(compiled)
    head[Plan.STATE] = ctypes.addressof(compiled.marks)
    if code is not None:
        head[Plan.SIZES_AT] = words.add(code.sizes, len(code.sizes))
        head[Plan.GPU], head[Plan.ENTRY], head[Plan.NAME] = code.gpu, code.function, code.number
        head[Plan.LOADED], head[Plan.SHARED] = words.object(code.refuse), code.shared_bytes
        head[Plan.DIM_X : Plan.DIM_Z + 1] = code.dim
        return
    loaded = compiled.loaded
    head[Plan.ENTRY], head[Plan.NAME] = loaded.address, loaded.name.address
    head[Plan.LOADED] = words.object(loaded)
    head[Plan.INLINE_WORK] = INLINE_WORK
    head[Plan.LACKING_AT] = loaded.lacking_at


def _require(condition: bool) -> None:
    if not condition:
        raise Unknown


def _write_numbers(head: list[int], plan: LaunchPlan) -> None:
    grid, paths = plan.grid, [rule.path for rule in plan.rules]
    _require(grid.kind != "argument" or grid.argument in paths)
    head[Plan.NOALIAS], head[Plan.ABOVE], head[Plan.LIMIT] = plan.noalias, plan.above, plan.limit
    head[Plan.FLAT], head[Plan.WIDTH] = plan.is_flat, plan.width
    collapses = {None: "ANY", True: "SAME_SHAPES", False: "OTHER_SHAPES"}[plan.collapses]
    head[Plan.COLLAPSE] = tables.Collapse[collapses]
    head[Plan.GRID] = tables.Grid[grid.kind.upper()]
    head[Plan.GRID_LEAF] = paths.index(grid.argument) if grid.kind == "argument" else 0
    head[Plan.AXES] = grid.by_axes
    head[Plan.DIVISOR_X : Plan.DIVISOR_Z + 1] = grid.divisors
    head[Plan.MAX_X : Plan.MAX_Z + 1] = [min(n, tables.HUGE) for n in grid.most]
    head[Plan.CLUSTER_X : Plan.CLUSTER_Z + 1] = grid.cluster
    x, y, z = plan.cube_dim
    head[Plan.UNITS] = x * y * z


# Rules


def _write_rules(
    known: Executor,
    words: Words,
    head: list[int],
    plan: LaunchPlan,
    matcher: Matcher,
    records: dict[type, tuple[str, ...]],
    device: int,
) -> None:
    """`device`: 0 for arrays of the host, else one more than the number of their GPU."""
    _require(len(plan.rules) <= tables.MAX_LEAVES)
    head[Plan.LEAVES], head[Plan.LEAVES_AT] = len(plan.rules), len(words.values) * 8
    rows = [words.add((), tables.RULE_WORDS) for _ in plan.rules]
    for place, rule in zip(rows, plan.rules, strict=True):
        value = matcher.given[rule.path]
        _require(not isinstance(rule, ArrayRule) or is_read(known, value))
        row = _row(words, rule, value, records, device)
        k = place // 8
        words.values[k : k + len(row)] = row


def _row(
    words: Words, rule: Rule, value: Any, records: dict[type, tuple[str, ...]], device: int
) -> list[int]:
    if isinstance(rule, ArrayRule):
        return _array_row(rule, device)
    if isinstance(rule, NumberRule):
        _require(type(value) in _NUMBERS)
        small = 2 if rule.is_small is None else int(rule.is_small)
        return [tables.Rule.NUMBER, words.object(type(value)), small]
    if isinstance(rule, StructRule):
        return _struct_row(words, rule, value, records)
    if isinstance(rule, MapRule):
        return _map_row(words, rule, value, device)
    return _comptime_row(words, value)


def _array_row(rule: ArrayRule, device: int) -> list[int]:
    found = find_dtype(rule.dtype)
    assert found is not None
    code = _CODES.get(found.numpy_name)
    _require(code is not None and rule.rank <= tables.MAX_RANK)
    assert code is not None
    alignment = rule.alignment if rule.is_aligned else 0
    flags = rule.is_linear, alignment, rule.is_written
    wanted = tables.array_class(code, rule.rank, rule.axis, *flags, device)
    alignment = 0 if rule.is_aligned is None else rule.alignment
    flags = True, alignment, rule.is_written
    mask = tables.array_class(0xFF, 0xFF, 0xFE, *flags, tables.MAX_PLACE)
    whole = 2 if rule.is_whole is None else int(rule.is_whole)
    return [tables.Rule.ARRAY, wanted, mask, whole, 0, 0, 0, 0, rule.is_written, rule.is_line]


def _map_row(words: Words, rule: MapRule, value: TensorMap, device: int) -> list[int]:
    found, memory = find_dtype(rule.dtype), read_memory(value.array)
    assert found is not None and memory is not None
    code, rank = _CODES.get(found.numpy_name), len(memory.shape)
    _require(code is not None and type(value.box) is tuple and rank <= tables.MAX_RANK)
    assert code is not None
    wanted = tables.array_class(code, rank, None, False, 0, rule.is_written, device)
    flags = False, 0, rule.is_written
    mask = tables.array_class(0xFF, 0xFF, None, *flags, tables.MAX_PLACE)
    held = [words.object(v) for v in (value.box, value.swizzle, value.pixels)]
    place = words.add(_layout(memory), 2 * rank)
    return [tables.Rule.MAP, wanted, mask, *held, place, 0, rule.is_written, 0]


def is_read(known: Executor, array: Any) -> bool:
    """Whether native code reads arrays of this class."""
    cls: Any = type(array)
    if cls in (np.ndarray, Array):
        return True
    if _is_cupys(array):
        return known.reads_cupy(cls)
    is_torchs = cls.__module__.partition(".")[0] == "torch" and hasattr(array, "data_ptr")
    return is_torchs and known.reads_tensors(cls)


def _is_cupys(array: Any) -> bool:
    return type(array).__module__ == "cupy"


def _struct_row(
    words: Words, rule: StructRule, value: Any, records: dict[type, tuple[str, ...]]
) -> list[int]:
    cls = type(value)
    if isinstance(value, tuple):
        _require(cls.__iter__ is tuple.__iter__)
    else:
        records[cls] = rule.names
    return [tables.Rule.STRUCT, words.object(cls), len(rule.names)]


def _comptime_row(words: Words, value: Any) -> list[int]:
    cls = type(value)
    if cls is int:
        _require(-(1 << 63) <= value < 1 << 63)
        return [tables.Rule.VALUE, words.object(cls), value]
    if cls is float:
        bits = ctypes.c_int64.from_buffer(ctypes.c_double(value)).value
        return [tables.Rule.VALUE, words.object(cls), bits]
    if cls is str:
        return [tables.Rule.TEXT, words.object(value)]
    if cls is FunctionType:
        return _function_row(words, value)
    _require(is_constant(value) or isinstance(value, CubeFunction) or is_frozen(value))
    return [tables.Rule.SAME, words.object(value)]


def is_constant(value: Any) -> bool:
    """Whether a value is the same as long as it is the same object."""
    if type(value) is tuple:
        return all(is_constant(v) for v in value)
    plain = bool, int, float, complex, str, bytes, type(None), CodeType
    return type(value) in plain or isinstance(value, DType | Line | type)


def is_frozen(value: Any) -> bool:
    """Whether a value is a frozen dataclass of constants, whose fields cannot be assigned to.

    A class that only inherits from one lets other attributes change.
    """
    params = vars(type(value)).get("__dataclass_params__")
    if params is None or not params.frozen:
        return False
    fields = [getattr(value, name) for name in value.__dataclass_fields__]
    return all(is_constant(v) or is_frozen(v) for v in fields)


def _function_row(words: Words, function: Any) -> list[int]:
    """A function of this code, globals, defaults and captures, such as a lambda in a loop."""
    defaults = function.__defaults__ or ()
    closure = [cell.cell_contents for cell in function.__closure__ or ()]
    values = [*defaults, *closure]
    _require(function.__kwdefaults__ is None and all(is_constant(v) for v in values))
    place = words.add([words.object(v) for v in values], len(values))
    row = [type(function), function.__code__, function.__globals__]
    held = [words.object(v) for v in row]
    return [tables.Rule.FUNCTION, *held, len(defaults), len(closure), place]


# Slots


def _write_slots(words: Words, head: list[int], plan: LaunchPlan, matcher: Matcher) -> None:
    _require(len(plan.slots) <= tables.MAX_SLOTS)
    paths = {rule.path: k for k, rule in enumerate(plan.rules)}
    head[Plan.SLOTS], head[Plan.SLOTS_AT] = len(plan.slots), len(words.values) * 8
    for slot in plan.slots:
        leaf, kind = paths[slot.argument], slot.kind
        if kind.word == "value":
            row = [tables.Slot.NUMBER, leaf, *_packed(slot.dtype)]
        elif kind.word == "data" or kind.is_copied:
            row = [tables.Slot.ADDRESS, leaf]
        elif plan.collapses and matcher.tensors[slot.argument][1].is_line and kind.word == "shape":
            row = [tables.Slot.SIZE_OF, leaf]
        else:
            which = tables.Slot.EXTENT if kind.word == "shape" else tables.Slot.STRIDE
            row = [which, leaf, _axis(kind)]
        words.add(row, tables.SLOT_WORDS)


def _axis(kind: ParamKind) -> int:
    assert isinstance(kind, Extent | Stride)
    return kind.axis


def _packed(name: str) -> list[int]:
    dtype = find_dtype(name)
    assert dtype is not None
    if dtype is f32:
        return [Packed.F32]
    if dtype is f64:
        return [Packed.F64]
    if dtype is bool_:
        return [Packed.BOOL]
    _require(dtype.is_integer)
    low, high = limits(dtype)
    mask = (1 << 8 * dtype.itemsize) - 1
    return [Packed.INTEGER, low, min(high, (1 << 63) - 1), mask if mask < 1 << 63 else -1]


# Captures


def _write_captures(
    words: Words,
    head: list[int],
    captured: tuple[Captured, ...],
    function: Any,
    header: Header,
) -> None:
    """What the launched function itself consists of stands in the table already."""
    rows: list[list[int]] = []
    for c in captured:
        if _is_of(c, function):
            _require(c.was(header[_OF_FUNCTION.index(c.name)]))
        else:
            rows += _capture_rows(words, c)
    head[Plan.CAPTURES], head[Plan.CAPTURES_AT] = len(rows), len(words.values) * 8
    for row in rows:
        words.add(row, tables.CAPTURE_WORDS)


def _is_of(captured: Captured, function: Any) -> bool:
    reader: Any = getattr(captured.read, "__self__", None)
    is_held = captured.name in _OF_FUNCTION
    return isinstance(reader, Attributes) and reader.owner is function and is_held


_OF_FUNCTION = ("__code__", "__defaults__", "__kwdefaults__")
"""What headers hold, in their order."""


def _capture_rows(words: Words, captured: Captured) -> list[list[int]]:
    """How to read a captured name; raises `Unknown` where it is no longer what the code was made
    for, as another thread may have changed it since.

    Another object that is only equal, such as a function of the same text, is none to remember: the
    other rows report changes of the first.
    """
    reader: Any = getattr(captured.read, "__self__", None)
    name = captured.name
    value = captured.read(name)
    _require(captured.was(value))
    _require(value is captured.value or is_constant(value))
    items: dict[str, Any] = {}
    if name == "__kwdefaults__" and isinstance(value, dict):
        items = value
        _require(all(is_constant(v) or isinstance(v, CubeFunction) for v in value.values()))
    else:
        _require(not captured.is_container or is_constant(value))
    rows: list[list[int]] = []
    if isinstance(reader, Attributes):
        _require(value is not ABSENT and getattr(reader.owner, name) is value)
        is_plain = _is_in_module(reader.owner, name)
        kind = tables.Capture.MODULE if is_plain else tables.Capture.ATTRIBUTE
        row = [kind, words.object(reader.owner), words.object(name)]
    else:
        _require(isinstance(reader, Captures))
        *rows, row = _captured_rows(words, reader.function, name)
    return [
        *rows,
        [*row, words.object(value)],
        *(
            [tables.Capture.ITEM, words.object(value), words.object(k), words.object(v)]
            for k, v in items.items()
        ),
    ]


def _is_in_module(owner: Any, name: str) -> bool:
    """Whether an attribute is found in a module's dictionary, and nowhere before."""
    return type(owner) is ModuleType and name in vars(owner) and not hasattr(ModuleType, name)


def _captured_rows(words: Words, function: FunctionType, name: str) -> list[list[int]]:
    """Where a function finds a name; one of Python's own only while its module has none."""
    code, kind = function.__code__, tables.Capture
    if name in code.co_freevars and function.__closure__:
        cell = function.__closure__[code.co_freevars.index(name)]
        return [[kind.CELL, words.object(cell), 0]]
    found, item = words.object(function.__globals__), words.object(name)
    if name in function.__globals__:
        return [[kind.ITEM, found, item]]
    _require(name in vars(builtins))
    return [[kind.ABSENT, found, item, 0], [kind.ITEM, words.object(vars(builtins)), item]]
