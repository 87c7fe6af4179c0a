"""Launches whose arguments are kept: `launcher.bind(...)`.

The arguments are kept, not what they were: an array may be given other memory, another shape or a
read-only flag, a field of a dataclass or a captured name another value, and torch another current
stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from cubepy.array.graphs import is_recording, record
from cubepy.array.interop import read_memory
from cubepy.array.memory import Memory, pointer
from cubepy.frontend.signature import Itself
from cubepy.jit.arguments import Matcher, is_struct, struct_items
from cubepy.jit.grid import Over
from cubepy.jit.launch import Prepared
from cubepy.runtimes.native.launching.callables import Base

if TYPE_CHECKING:
    from cubepy.jit.kernel import Launcher

Prepare = Callable[[tuple[Any, ...], dict[str, Any]], tuple[Prepared, Matcher]]


MAX_CALLS = 16
"""Calls through Python after which native code is not tried again."""


class Bound(Base):
    """A launch without arguments; see `Launcher.bind`.

    It launches what was prepared as long as that would be prepared again, else prepares anew. Once
    native code runs such launches, calls go there: it launches `_launcher` with `_args`, of which
    the last have `_names`, as if for the first time, or as the last time where nothing has changed
    since, by what stands in `_memo`; `_data` keeps what that refers to.
    """

    __slots__ = (
        "__weakref__",
        "_args",
        "_calls",
        "_changing",
        "_data",
        "_grid",
        "_kernel",
        "_launcher",
        "_memo",
        "_names",
        "_prepare",
        "_state",
    )

    def __init__(
        self, launcher: Launcher, prepare: Prepare, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._launcher, self._calls = launcher, 0
        self._args, self._names = (*args, *kwargs.values()), tuple(kwargs) or None
        self._changing = tuple([a for a in self._args if _may_change(a)])
        self._kernel = launcher.kernel
        self._grid = launcher.grid
        self._prepare = lambda: prepare(args, kwargs)
        self._state = self._prepared()

    def __call__(self) -> None:
        """Launch with the arguments as they are now; errors are those of a launch."""
        if is_recording():
            record(self)
            return
        facts, places, prepared, matcher = self._state
        memories = _unmoved(matcher, places)
        if memories is None or facts != self._facts() or not prepared.compiled.is_current():
            self._state = _, _, prepared, matcher = self._prepared()
            memories = matcher.memories
        began = perf_counter_ns()
        prepared.run(memories, matcher.scalars, self._kernel.__name__)
        self._learn(prepared, matcher, perf_counter_ns() - began)

    def _learn(self, prepared: Prepared, matcher: Matcher, took: int) -> None:
        """Let native code launch from now on, where it can; dataclasses may change meanwhile."""
        self._calls += 1
        native = self._kernel.native
        if native is not None and not self._changing and self._calls < MAX_CALLS:
            native.join_bound(self, self._launcher, prepared, matcher, took)

    def _prepared(self) -> tuple[Any, list[Any], Prepared, Matcher]:
        facts = self._facts()
        prepared, matcher = self._prepare()
        return facts, _places(matcher), prepared, matcher

    def _facts(self) -> Any:
        """What else counts: settings, the shape of the array that the grid covers, which need not
        be an argument, and what the fields of dataclasses are."""
        shape = getattr(self._grid.what, "shape", None) if isinstance(self._grid, Over) else None
        fields = [Itself(leaf) for value in self._changing for leaf in _leaves(value)]
        return self._kernel.options.by_settings(), shape, fields


def _may_change(value: Any) -> bool:
    """Whether an argument is passed as fields of which some may be assigned."""
    if isinstance(value, tuple):
        return any(map(_may_change, cast("tuple[Any, ...]", value)))
    return is_struct(value)


def _leaves(value: Any) -> Iterator[Any]:
    """The arrays and numbers that an argument is passed as."""
    if is_struct(value):
        for item in struct_items(value)[1]:
            yield from _leaves(item)
    else:
        yield value


def _places(matcher: Matcher) -> list[Any]:
    """Each argument's array, with all that a launch of it was prepared for."""
    return [
        (name, array, _of_numpy(array) if type(array) is np.ndarray else _of_memory(memory))
        for name, memory in matcher.memories.items()
        for array in (matcher.arrays[name],)
    ]


def _unmoved(matcher: Matcher, places: list[Any]) -> dict[str, Memory] | None:
    """The arguments' memory, if it is where it was and as it was; None if it is not."""
    memories: dict[str, Memory] = {}
    for name, array, place in places:
        if type(array) is np.ndarray:
            memories[name] = matcher.memories[name]
            if _of_numpy(array) != place:
                return None
            continue
        try:
            memory = read_memory(array)
        except Exception:  # preparing it raises the error of a launch
            return None
        if memory is None or _of_memory(memory) != place:
            return None
        memories[name] = memory
    return memories


def _of_numpy(array: np.ndarray) -> tuple[Any, ...]:
    return pointer(array), array.dtype, array.shape, array.strides, array.flags.num


def _of_memory(m: Memory) -> tuple[Any, ...]:
    """All but the queue, which is read for each launch."""
    return m.address, m.dtype, m.shape, m.strides, m.is_writeable, m.is_native, m.device
