"""The short way of calls on torch's tensors: native code describes the arguments in bytes, which
find the plan that the general way made before.

A description holds all that a plan depends on: types, extents, strides, devices and the place of
addresses within 64 bytes. Tensors that record gradients or are negated lazily have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from cubepy import config
from cubepy.autotune import session
from cubepy.jit.programs import describer
from cubepy.kernels.calls.libraries import Library, TorchLibrary, TorchMaker, torch

if TYPE_CHECKING:
    from cubepy.kernels.calls.plans import Plan

LIMIT = 1024
"""Short calls kept for each function; the oldest go first."""


class ShortCall:
    """A plan, and what makes its results and scratch, each from one of the arguments."""

    __slots__ = ("_drops", "_makers", "_one", "_plan", "_program", "is_checked")

    def __init__(self, plan: Plan, arrays: Sequence[Any], given: int) -> None:
        """`arrays`: those of a call with `given` arguments, of which some may be None."""
        self._plan, self._program = plan, plan.program
        self._drops = len(arrays) < given
        self.is_checked = bool(plan.watched)
        self._makers = [_maker(make, arrays) for make in (*plan.results, *plan.scratch)]
        self._one = self._makers[0] if len(self._makers) == len(plan.results) == 1 else None

    def is_current(self) -> bool:
        """Whether no captured name of a launched kernel has changed."""
        return self._plan.is_current()

    def run(self, arrays: Sequence[Any], count: int) -> Any:
        """The result, or `count` of them as a tuple, of a call without `out`."""
        if self._drops:
            arrays = [x for x in arrays if x is not None]
        if self._one is not None and count == 1:
            make, k = self._one
            result = make(arrays[k])
            self._program(*arrays, result)
            return result
        made = [make(arrays[k]) for make, k in self._makers]
        self._program(*arrays, *made)
        return made[0] if count == 1 else tuple(made[: len(self._plan.results)])


class ShortCalls:
    """The short calls of one function, as soon as native code describes tensors."""

    __slots__ = ("_describe", "_made")

    def __init__(self) -> None:
        self._describe: Callable[..., bytes | None] | None = None
        self._made: dict[Any, ShortCall] = {}

    def key(self, function: str, names: Sequence[str], arrays: Sequence[Any], rest: Any) -> Any:
        """What finds a call; None where the general way is to be taken."""
        describe = self._describe
        if describe is None or config.overrides.get():
            return None
        if session.current.get() is not session.DEFAULT:
            return None
        found = describe(*arrays)
        if found is None:
            return None
        return function, found, rest, tuple(names), session.changes[0], config.generation[0]

    def find(self, key: Any) -> ShortCall | None:
        """The call of a key, unless a name that its kernels capture has changed."""
        found = self._made.get(key)
        return None if found is None or (found.is_checked and not found.is_current()) else found

    def keep(
        self, key: Any, library: Library, plan: Plan, arrays: Sequence[Any], given: int
    ) -> None:
        """Remember a call that went the general way, with a key or to have one next time."""
        if not isinstance(library, TorchLibrary) or plan.updated:
            return
        if self._describe is None:
            self._describe = describer()
        if key is None:
            return
        while len(self._made) >= LIMIT:
            self._made.pop(next(iter(self._made)), None)
        self._made[key] = ShortCall(plan, arrays, given)


def _maker(make: Callable[[], Any], arrays: Sequence[Any]) -> tuple[Callable[[Any], Any], int]:
    """What makes a result from one of the arguments, and which one it is."""
    if not isinstance(make, TorchMaker):
        return lambda _: make(), 0
    extents, dtype = make.extents, make.dtype
    fitting = [k for k, x in enumerate(arrays) if x.dtype == dtype]
    for k in fitting:
        if tuple(arrays[k].shape) == extents and arrays[k].stride() == _dense(extents):
            return torch().empty_like, k
    if fitting:
        return methodcaller("new_empty", extents), fitting[0]
    return lambda _: make(), 0


def _dense(extents: tuple[int, ...]) -> tuple[int, ...]:
    """torch's strides of a new tensor."""
    strides, step = [0] * len(extents), 1
    for k in reversed(range(len(extents))):
        strides[k] = step
        step *= max(1, extents[k])
    return tuple(strides)
