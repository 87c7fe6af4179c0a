"""The native executor in this process: compiled once, with the addresses that it reads.

What it assumes of Python's and NumPy's objects is verified before it is used; where anything is
not as expected, launches go through Python.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from array import array
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from cubepy.ir.types import find_dtype
from cubepy.record import dataclass
from cubepy.runtimes.native import chosen, crash, interrupts
from cubepy.runtimes.native.launching import describing, frame, grids, tensors
from cubepy.runtimes.native.launching.callables import (
    function,
    native_class,
    place_of,
    set_method,
    set_subscript,
    word,
)
from cubepy.runtimes.native.launching.cupy_arrays import cupy_layout
from cubepy.runtimes.native.launching.module import text
from cubepy.runtimes.native.launching.process import made
from cubepy.runtimes.native.launching.reading import Reading
from cubepy.runtimes.native.launching.tables import Context, Kind
from cubepy.runtimes.native.linker import Library, compile_text, link, once
from cubepy.runtimes.native.pool import CANCEL, INLINE, RESUME, SHARE, address_of

DTYPES = (
    ("float32", 2),
    ("float64", 3),
    ("int32", 2),
    ("int64", 3),
    ("uint8", 0),
    ("bool", 0),
    ("float16", 1),
    ("int8", 0),
    ("int16", 1),
    ("uint16", 1),
    ("uint32", 2),
    ("uint64", 3),
    ("bfloat16", 1),
)
"""NumPy's names of the elements' types, with the logarithm of their size; an array's class begins
with its place here."""
_NUMBERS = (
    (np.float32, Kind.FLOAT, Reading.F32),
    (np.float64, Kind.FLOAT, Reading.F64),
    (np.int8, Kind.INT, Reading.I8),
    (np.int16, Kind.INT, Reading.I16),
    (np.int32, Kind.INT, Reading.I32),
    (np.int64, Kind.INT, Reading.I64),
    (np.uint8, Kind.INT, Reading.U8),
    (np.uint16, Kind.INT, Reading.U16),
    (np.uint32, Kind.INT, Reading.U32),
    (np.uint64, Kind.INT, Reading.U64),
    (np.bool_, Kind.BOOL, Reading.BOOL),
)


NUMBERS = tuple(row[0] for row in _NUMBERS)
"""The types of NumPy's scalars that are read."""


@dataclass(frozen=True, slots=True)
class Classes:
    """What the executor must know of the classes above it.

    `launcher` keeps `kernel`, `_grid`, `_table`, `_what` and `_cells`; `kernel` keeps `_launchers`,
    `_covers`, `_table`, `_recent_grid` and `_recent`, and has `__getitem__` and `over`; `table`
    keeps `data`; `array` keeps `_memory`, a `memory`; `bound` keeps `_launcher`, `_args`, `_names`
    and `_data`; `program` keeps `_data`; `tensor_map` keeps `array`, `box`, `swizzle` and `pixels`;
    `guarded` keeps `_guards`.
    `general` launches in Python; `rest` completes a launch; `overrides` is the context variable
    and `generation` the counter of the settings, of which code depends on `settings`.
    """

    launcher: Any
    kernel: Any
    bound: Any
    program: Any
    table: Any
    array: Any
    memory: Any
    tensor_map: Any
    guarded: Any
    general: Callable[..., Any]
    rest: Callable[[Any, int, int, int, int], None]
    overrides: Any
    settings: tuple[str, str]
    generation: array[int]


class Executor:
    """The compiled executor. `launcher`, `bound` and `program` are the classes of what it runs;
    `entry`, `bound_entry` and `program_entry` what their `_entry` is. `describe`,
    `describe_apart`: see `describing`."""

    def __init__(self, classes: Classes, library: Library, places: dict[Context, int]) -> None:
        self.launcher = native_class(classes.launcher)
        self.entry = library.address[frame.LAUNCH]
        self.bound = native_class(classes.bound)
        self.bound_entry = library.address[frame.BOUND]
        self.program = native_class(classes.program)
        self.program_entry = library.address[frame.PROGRAM]
        self.guarded_entry = library.address[frame.GUARDED]
        self._guarded: dict[type, Any] = {}
        self._library = library
        self._kept: list[Any] = [classes]
        self._stream = 0
        self._ordinals: dict[int, bool] = {}
        self._context = context = (ctypes.c_int64 * Context.SIZE).from_address(
            library.address[frame.CONTEXT]
        )
        for which, value in {**self._objects(classes), **places}.items():
            context[which] = value
        self.describe = function("describe", library.address[describing.DESCRIBE])
        self.describe_apart = function("describe", library.address[describing.DESCRIBE_APART])
        for name, symbol in (("__getitem__", grids.GETITEM), ("over", grids.OVER)):
            set_method(classes.kernel, name, library.address[symbol], symbol == grids.GETITEM)
        set_subscript(classes.kernel, library.address[grids.GETITEM])

    def _objects(self, classes: Classes) -> dict[Context, int]:
        dtypes = [_numpys_dtype(name) for name, _ in DTYPES]
        checked, level = classes.settings
        getitem, over = classes.kernel.__getitem__, classes.kernel.over
        self._kept += [dtypes, getitem, over, classes.bound.__call__, classes.program.__call__]
        rows = [
            word
            for (_, scale), dtype in zip(DTYPES, dtypes, strict=True)
            for word in (0 if dtype is None else id(dtype), scale)
        ]
        kinds = [word for cls, kind, reading in _NUMBERS for word in (id(cls), kind, reading)]
        slots = crash.slots()
        return {
            Context.NONE: id(None),
            Context.NDARRAY: id(np.ndarray),
            Context.FLOAT: id(float),
            Context.INT: id(int),
            Context.BOOL: id(bool),
            Context.TRUE: id(True),
            Context.FALSE: id(False),
            Context.CHECKED: id(checked),
            Context.OPT_LEVEL: id(level),
            Context.DLTYPES_AT: self._words([tensors.type_word(name) for name, _ in DTYPES]),
            Context.OWN_DTYPES_AT: self._words([id(find_dtype(name)) for name, _ in DTYPES]),
            Context.STR: id(str),
            Context.DTYPES: len(dtypes),
            Context.DTYPES_AT: self._words(rows),
            Context.NUMBERS: len(NUMBERS),
            Context.NUMBERS_AT: self._words(kinds),
            Context.OVERRIDES: id(classes.overrides),
            Context.GENERATION: classes.generation.buffer_info()[0],
            Context.GENERAL: id(classes.general),
            Context.REST: id(classes.rest),
            Context.CRASH_SLOT: ctypes.addressof(slots) + 8 * crash.HELD,
            Context.ARRAY: id(classes.array),
            Context.TENSOR_MAP: id(classes.tensor_map),
            Context.EXCEPTION: id(Exception),
            Context.INLINE: address_of(INLINE),
            Context.SHARE: address_of(SHARE),
            Context.RESUME: address_of(RESUME),
            Context.CANCEL: address_of(CANCEL),
            Context.LISTEN: address_of(interrupts.LISTEN),
            Context.INTERRUPTED: address_of(interrupts.RAISED),
            Context.KEYBOARD_INTERRUPT: id(KeyboardInterrupt),
            Context.CHOSEN: ctypes.addressof(chosen.words),
            Context.NUM_THREADS: id(chosen.SETTING),
            Context.LOOK: id(_nothing_to_do),
            Context.CRASH_SLOTS: ctypes.addressof(slots) + 8 * (crash.HELD + 1),
            Context.TUPLE: id(tuple),
            Context.MODULE: id(ModuleType),
            Context.DICT: id(dict),
            Context.LAUNCHER: id(self.launcher),
            Context.ENTRY: self.entry,
            Context.GETITEM: id(getitem),
            Context.OVER: id(over),
            Context.BOUND: id(classes.bound.__call__),
            Context.PROGRAM: id(classes.program.__call__),
        }

    def guarded(self, cls: type) -> Any:
        """The subclass of a class of guarded objects whose calls are native."""
        if cls in self._guarded.values():
            return cls
        if cls not in self._guarded:
            self._guarded[cls] = native_class(cls)
        return self._guarded[cls]

    def reads_tensors(self, cls: Any) -> bool:
        """Whether torch's tensors are read; `cls` is their class, or that of parameters."""
        if self._context[Context.TENSOR] == 0:
            torch = sys.modules["torch"]
            tensor, parameter = torch.Tensor, torch.nn.Parameter
            found = tensors.interface(tensor)
            name, requires = sys.intern("is_neg"), sys.intern("requires_grad")
            self._kept += [tensor, parameter, name, requires, torch.is_grad_enabled]
            self._context[Context.IS_NEG] = id(name)
            self._context[Context.REQUIRES_GRAD] = id(requires)
            if found is not None:
                self._context[Context.FILL] = found.fill
                self._context[Context.IMPL_AT] = found.impl_at
                self._context[Context.KEYS_AT] = found.keys_at
                self._context[Context.NEGATIVE] = found.negative
                self._context[Context.GRAD_AT] = found.grad_at
                self._context[Context.GRAD_MODE] = id(torch.is_grad_enabled)
                self._stream = found.stream
                self._knows_duals(torch.autograd.forward_ad)
                if parameter.__basicsize__ == tensor.__basicsize__:
                    self._context[Context.PARAMETER] = id(parameter)
            self._context[Context.TENSOR] = -1 if found is None else id(tensor)
        return id(cls) in (self._context[Context.TENSOR], self._context[Context.PARAMETER])

    def _knows_duals(self, module: Any) -> None:
        """Let native code ask whether torch makes dual tensors; `module`: its forward mode."""
        name, none = sys.intern("_current_level"), -1
        if isinstance(getattr(module, name, None), int):
            self._kept += [module, name, none]
            self._context[Context.FORWARD_MODE] = id(module)
            self._context[Context.DUAL_LEVEL] = id(name)
            self._context[Context.NO_LEVEL] = id(none)

    def reads_streams(self, ordinal: int, handle: int) -> bool:
        """Whether torch's current stream on a GPU is known; `handle`: any stream there.

        Asked when tensors are read.
        """
        known = self._ordinals.get(ordinal)
        if known is None:
            known = bool(self._stream) and tensors.gives_streams(self._stream, ordinal, handle)
            self._ordinals[ordinal] = known
            if known:
                self._context[Context.STREAM] = self._stream
        return known

    def reads_cupy(self, cls: Any) -> bool:
        """Whether CuPy's arrays and its current stream are read; `cls` is their class."""
        if self._context[Context.CUPY] == 0:
            found = cupy_layout()
            if found is not None:
                self._context[Context.CUPY_STREAM] = found.stream
                self._context[Context.CUPY_SHAPE] = found.shape_at
                self._context[Context.CUPY_STRIDES] = found.strides_at
                self._context[Context.CUPY_DTYPE] = found.dtype_at
                self._context[Context.CUPY_DATA] = found.data_at
                self._context[Context.CUPY_ADDRESS] = found.address_at
                self._context[Context.CUPY_DEVICE] = found.device_at
                self._kept.append(found.cls)
            self._context[Context.CUPY] = -1 if found is None else id(found.cls)
        return self._context[Context.CUPY] == id(cls)

    def reads_memory(self, owner: type, is_opencls: bool = False) -> bool:
        """Whether CubePy's own memory of a device is read whose owner is of this class."""
        known = Context.SHARED_MEMORY if is_opencls else Context.ALLOCATION
        if self._context[known] == 0:
            probe = object.__new__(type("Probe", (owner,), {"__slots__": (), "__del__": _nothing}))
            wanted = _OF_SHARED_MEMORY if is_opencls else _OF_ALLOCATION
            found = _attributes((which, probe, name) for which, name in wanted)
            for which, place in (found or {}).items():
                self._context[which] = place
            self._kept.append(owner)
            self._context[known] = -1 if found is None else id(owner)
        return self._context[known] == id(owner)

    def _words(self, values: Sequence[int]) -> int:
        held = (ctypes.c_int64 * len(values))(*values)
        self._kept.append(held)
        return ctypes.addressof(held)


def _numpys_dtype(name: str) -> Any:
    """NumPy's dtype; None for types of ml_dtypes that nobody imported yet."""
    if name == "bfloat16":
        found = sys.modules.get("ml_dtypes")
        return None if found is None else np.dtype(found.bfloat16)
    return np.dtype(name)


_lock = threading.Lock()


def _after_fork() -> None:
    """A thread that is lost may have held the lock."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def executor(classes: Callable[[], Classes]) -> Executor | None:
    """The process's executor, made now if there is none; None where launches go through Python."""
    if not made:
        with _lock:
            if not made:
                made.append(_make(classes()))
    return made[0]


def _make(classes: Classes) -> Executor | None:
    places = _places(classes)
    if places is None or native_class(classes.launcher) is None or not layouts_are_known():
        return None
    try:
        library = _library()
    except RuntimeError:  # such as a function that this Python lacks
        return None
    return Executor(classes, library, places)


@once
def _library() -> Library:
    calls = frame.LAUNCH, frame.BOUND, frame.PROGRAM, frame.GUARDED, grids.GETITEM, grids.OVER
    names = *calls, describing.DESCRIBE, describing.DESCRIBE_APART, frame.CONTEXT
    return link(compile_text(text(), level=1, has_locals=True), names)


def _places(classes: Classes) -> dict[Context, int] | None:
    """Where instances keep their attributes."""
    launcher, table = object.__new__(classes.launcher), object.__new__(classes.table)
    kernel, bound = object.__new__(classes.kernel), object.__new__(classes.bound)
    tensor_map, memory = object.__new__(classes.tensor_map), object.__new__(classes.memory)
    wanted = (
        (Context.TABLE, launcher, "_table"),
        (Context.WHAT, launcher, "_what"),
        (Context.CELLS, launcher, "_cells"),
        (Context.KERNEL, launcher, "kernel"),
        (Context.GRID, launcher, "_grid"),
        (Context.LAUNCHERS, kernel, "_launchers"),
        (Context.COVERS, kernel, "_covers"),
        (Context.KERNEL_TABLE, kernel, "_table"),
        (Context.RECENT_GRID, kernel, "_recent_grid"),
        (Context.RECENT, kernel, "_recent"),
        (Context.BOUND_LAUNCHER, bound, "_launcher"),
        (Context.BOUND_ARGS, bound, "_args"),
        (Context.BOUND_NAMES, bound, "_names"),
        (Context.BOUND_DATA, bound, "_data"),
        (Context.PROGRAM_DATA, object.__new__(classes.program), "_data"),
        (Context.DATA, table, "data"),
        (Context.MEMORY_OF, object.__new__(classes.array), "_memory"),
        *((which, memory, name) for which, name in _OF_MEMORY),
        (Context.GUARDS, object.__new__(classes.guarded), "_guards"),
        (Context.MAP_ARRAY, tensor_map, "array"),
        (Context.MAP_BOX, tensor_map, "box"),
        (Context.MAP_SWIZZLE, tensor_map, "swizzle"),
        (Context.MAP_PIXELS, tensor_map, "pixels"),
    )
    return _attributes(wanted)


_OF_MEMORY = (
    (Context.OWNER_OF, "owner"),
    (Context.ADDRESS_OF, "address"),
    (Context.DTYPE_OF, "dtype"),
    (Context.SHAPE_OF, "shape"),
    (Context.STRIDES_OF, "strides"),
    (Context.WRITEABLE_OF, "is_writeable"),
)
_OF_ALLOCATION = (
    (Context.QUEUES_OF, "queues"),
    (Context.WRITE_OF, "write"),
    (Context.READ_OF, "read"),
    (Context.SHARED_OF, "is_shared"),
)
_OF_SHARED_MEMORY = ((Context.DYING_OF, "dying"),)


def _attributes(wanted: Iterable[tuple[Context, Any, str]]) -> dict[Context, int] | None:
    """Where objects keep an attribute of a name, for each of them."""
    found: dict[Context, int] = {}
    for which, obj, name in wanted:
        mark = object()
        object.__setattr__(obj, name, mark)  # some are frozen
        place = place_of(obj, mark)
        if place is None:
            return None
        found[which] = place
    return found


def _nothing_to_do() -> None:
    """Python handles signals before it runs this."""


def _nothing(probe: Any) -> None:
    """Nothing is freed of an object that is only looked at."""


def layouts_are_known() -> bool:
    """Whether Python's and NumPy's objects are laid out as the executor reads them."""
    return _pythons() and _numpys() and _scalars()


def _pythons() -> bool:
    items, data, number = (object(), object()), b"12345678", 0.375
    types = (tuple, int, float, np.ndarray, np.float32)
    return (
        word(id(items) + frame.TYPE_OF) == id(tuple)
        and word(id(items) + frame.TUPLE_SIZE) == 2
        and word(id(items) + frame.TUPLE_ITEMS + 8) == id(items[1])
        and word(id(data) + frame.BYTES_ITEMS) == int.from_bytes(data, sys.byteorder)
        and ctypes.c_double.from_address(id(number) + frame.NUMBER_VALUE).value == number
        and all(word(id(t) + frame.TUPLE_FLAGS) == t.__flags__ for t in types)
    )


def _numpys() -> bool:
    whole = np.arange(48, dtype=np.int16).reshape(2, 4, 6)
    frozen = whole[1]
    frozen.flags.writeable = False
    probes = (whole, whole[:, 1:3, ::2], whole.T[::-1], frozen, np.float64(2) + np.zeros(()))
    return all(_is_as_read(np.asarray(probe)) for probe in probes)


def _is_as_read(array: np.ndarray) -> bool:
    at, rank = id(array), array.ndim
    shape, strides = (word(at + k) for k in (frame.ARRAY_SHAPE, frame.ARRAY_STRIDES))
    sizes = [ctypes.c_int64.from_address(shape + 8 * k).value for k in range(rank)]
    steps = [ctypes.c_int64.from_address(strides + 8 * k).value for k in range(rank)]
    flags = ctypes.c_int32.from_address(at + frame.ARRAY_FLAGS).value
    return (
        ctypes.c_int32.from_address(at + frame.ARRAY_RANK).value == rank
        and word(at + frame.ARRAY_DATA) == array.__array_interface__["data"][0]
        and tuple(sizes) == array.shape
        and tuple(steps) == array.strides
        and word(at + frame.ARRAY_DTYPE) == id(array.dtype)
        and bool(flags & frame.NUMPY_WRITEABLE) == array.flags.writeable
    )


def _scalars() -> bool:
    for cls, _, _ in _NUMBERS:
        value = cls(1) if cls is np.bool_ else cls(113)
        size = value.dtype.itemsize
        if ctypes.string_at(id(value) + frame.NUMBER_VALUE, size) != value.tobytes():
            return False
    return True
