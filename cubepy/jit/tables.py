"""The plans of a kernel's launchers in memory, which native code reads, and what runs them."""

from __future__ import annotations

import ctypes
import inspect
from typing import TYPE_CHECKING, Any

from cubepy import config
from cubepy.array.array import Array
from cubepy.array.memory import Memory
from cubepy.jit.bound import Bound
from cubepy.jit.encoding import Learned, Words
from cubepy.jit.grid import Fixed, Grid
from cubepy.jit.guards import Guarded
from cubepy.jit.programs import Program
from cubepy.lang.annotations import is_comptime_annotation
from cubepy.lang.cuda import TensorMap
from cubepy.options import SETTINGS
from cubepy.runtimes.cpu.device import cpu_device
from cubepy.runtimes.native.launching import tables
from cubepy.runtimes.native.launching.executor import Classes, Executor, executor
from cubepy.runtimes.native.launching.tables import Head

if TYPE_CHECKING:
    from cubepy.jit.kernel import CubeKernel
    from cubepy.jit.native import Header

MAX_PLANS = 64
"""Plans of one table; the oldest are dropped first."""
MAX_AGAIN = 64
"""Launches that Python ran although the table had their plan, after which no more is learned."""


class Table:
    """The plans of the launchers of one kernel with one kind of grid, under some settings.

    `data`: a tuple of the words as bytes, and of what they refer to.
    """

    __slots__ = ("_again", "_header", "_kernel", "_learned", "data")

    data: tuple[bytes, Any]

    def __init__(self, kernel: CubeKernel, header: Header) -> None:
        """`header`: what the kernel's function held when its parameters were read; of no other
        function are plans found here."""
        self._kernel, self._header = kernel, header
        self._learned: dict[Any, Learned] = {}
        self._again = 0
        self._write()

    def learn(self, learned: Learned) -> bool:
        """Add a plan, in front of the others; False if native code keeps refusing it, as where
        arrays meet in memory without sharing any."""
        key = learned.plan, id(learned.prepared.compiled), learned.layouts, learned.place
        self._again += key in self._learned
        if self._again > MAX_AGAIN and key in self._learned:
            return False
        kept = {
            k: v
            for k, v in self._learned.items()
            if k != key and not v.prepared.compiled.is_retired
        }
        for old in list(kept)[MAX_PLANS - 1 :]:
            del kept[old]
        self._learned = {key: learned, **kept}
        self._write()
        return True

    def _write(self) -> None:
        words = Words()
        learned = tuple(self._learned.values())
        words.add((), Head.SIZE)
        head = [0] * Head.SIZE
        head[Head.GENERATION] = config.generation[0]
        self._write_parameters(words, head)
        self._write_records(words, head, learned)
        head[Head.PLANS], head[Head.PLANS_AT] = len(learned), len(words.values) * 8
        for one in learned:
            words.values += one.words
        words.values[: Head.SIZE] = head
        data = (ctypes.c_int64 * len(words.values))(*words.values)
        self.data = (bytes(data), (words.kept, learned))

    def _write_parameters(self, words: Words, head: list[int]) -> None:
        kernel = self._kernel
        parameters = list(kernel.signature.parameters.values())
        positional = [p for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        head[Head.PARAMETERS], head[Head.POSITIONAL] = len(parameters), len(positional)
        head[Head.NAMES_AT] = len(words.values) * 8
        for p in parameters:
            by_name = p.kind is not inspect.Parameter.POSITIONAL_ONLY
            is_comptime = is_comptime_annotation(kernel.annotations.get(p.name))
            name = words.object(p.name) if by_name else 0
            default = 0 if p.default is inspect.Parameter.empty else words.object(p.default)
            words.add((name, default, is_comptime), tables.PARAMETER_WORDS)
        function = getattr(kernel, "function", None)
        if function is not None:
            head[Head.FUNCTION] = words.object(function)
            places = Head.CODE, Head.DEFAULTS, Head.KWDEFAULTS
            for place, value in zip(places, self._header, strict=True):
                head[place] = 0 if value is None else words.object(value)

    def _write_records(self, words: Words, head: list[int], learned: tuple[Learned, ...]) -> None:
        records = dict(record for one in learned for record in one.records)
        places = [
            words.add([words.object(name) for name in names], len(names))
            for names in records.values()
        ]
        head[Head.RECORDS], head[Head.RECORDS_AT] = len(records), len(words.values) * 8
        for (cls, names), place in zip(records.items(), places, strict=True):
            words.add((words.object(cls), len(names), place), tables.RECORD_WORDS)


def native_executor() -> Executor | None:
    """The process's executor of launchers; None where there is none."""
    return executor(_classes)


def _classes() -> Classes:
    from cubepy.jit.kernel import CubeKernel, Launcher

    return Classes(
        Launcher,
        CubeKernel,
        Bound,
        Program,
        Table,
        Array,
        Memory,
        TensorMap,
        Guarded,
        Launcher.__call__,
        complete,
        config.overrides,
        SETTINGS,
        config.generation,
    )


def complete(loaded: Any, block: int, first: int, count: int, work: int) -> None:
    """What is left of a native launch: the cubes from `first` on, without the GIL."""
    cpu_device().complete(loaded, block, first, count, work)


def cells_of(grid: Grid) -> bytes | None:
    """The numbers of a grid that plans do not contain."""
    if isinstance(grid, Fixed):
        numbers: tuple[int, ...] = grid.count
    elif isinstance(grid.what, int):
        numbers = 1, grid.what
    elif isinstance(grid.what, tuple) and len(grid.what) <= tables.MAX_RANK:
        numbers = len(grid.what), *grid.what
    else:
        return None
    if max(numbers, default=0) > tables.HUGE:
        return None
    return bytes((ctypes.c_int64 * len(numbers))(*numbers))
