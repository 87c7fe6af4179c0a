"""The short way of calls on arrays that native code reads: it describes the arguments in bytes,
which find the plan that the general way made before.

A description holds all that a plan depends on: types, extents, strides, devices, flags, and on
devices the place of addresses within 64 bytes. Tensors that record gradients or are negated lazily
have none, nor has a result that the caller brought and that shares memory with an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_, itemgetter, methodcaller
from typing import TYPE_CHECKING, Any

from cubepy import config
from cubepy.array.interop import NoMemory
from cubepy.array.memory import HOST
from cubepy.autotune import session
from cubepy.jit.bounded import make_room
from cubepy.jit.programs import Describe, describers
from cubepy.kernels.calls.arguments import exact
from cubepy.kernels.calls.libraries import (
    Library,
    NumpyLibrary,
    TorchLibrary,
    TorchMaker,
    incrementing,
    serving_numpy,
    torch,
    without_memory,
)

if TYPE_CHECKING:
    from cubepy.kernels.calls.plans import Plan

_OF_LAUNCHES = {"num_threads"}
"""Settings that a launch reads, and no plan."""
LIMIT = 1024
"""Short calls kept for each function; the oldest go first."""


class ShortCall:
    """A plan, and what makes its results and scratch, each from one of the arguments."""

    __slots__ = (
        "_increment",
        "_makers",
        "_meant",
        "_one",
        "_parameters",
        "_pick",
        "_plan",
        "_program",
        "_scalar",
        "_watched",
    )

    def __init__(
        self,
        library: Library,
        plan: Plan,
        arrays: Sequence[Any],
        parameters: tuple[Any, ...],
        given: Sequence[bool],
        has_result: bool,
    ) -> None:
        """`arrays`: those of a call, one for each argument that is `given`; others are None.
        `has_result`: the caller brings it."""
        self._parameters, self._meant = parameters, exact(plan.function, parameters)
        self._scalar = library.scalar if plan.has_scalars else None
        self._plan, self._program = plan, plan.program
        self._increment = incrementing(library)
        there = [k for k, is_there in enumerate(given) if is_there]
        self._pick = None if len(there) == len(given) else _picker(there)
        self._watched = bool(plan.watched)
        made = plan.scratch if has_result else (*plan.results, *plan.scratch)
        self._makers = [_maker(make, arrays) for make in made]
        is_one = len(self._makers) == len(plan.results) == 1 and not has_result
        self._one = self._makers[0] if is_one else None

    def means(self, parameters: tuple[Any, ...]) -> bool:
        """Whether equal parameters are the same, and not 2.0 where 2 was given."""
        if parameters is self._parameters or all(map(is_, self._parameters, parameters)):
            return True
        return exact(self._plan.function, parameters) == self._meant

    def is_current(self) -> bool:
        """Whether no captured name of a launched kernel has changed."""
        return not self._watched or self._plan.is_current()

    def run(self, arrays: Sequence[Any], count: int, out: Any = None) -> Any:
        """The result, or `count` of them as a tuple; `out`: the one that the caller brought."""
        if self._pick is not None:
            arrays = self._pick(arrays)
        try:
            if out is not None:
                if self._makers:
                    self._program(*arrays, out, *[make(arrays[k]) for make, k in self._makers])
                else:
                    self._program(*arrays, out)
                if self._increment is not None:
                    self._increment(out)
                return out
            if self._one is not None and count == 1:
                make, k = self._one
                result = make(arrays[k])
                self._program(*arrays, result)
                return result if self._scalar is None else self._scalar(result)
            made = [make(arrays[k]) for make, k in self._makers]
            self._program(*arrays, *made)
        except NoMemory:
            raise without_memory(self._plan.function) from None
        results = made[: len(self._plan.results)]
        if self._scalar is not None:
            results = map(self._scalar, results)
        return next(iter(results)) if count == 1 else tuple(results)


class ShortCalls:
    """The short calls of one function, as soon as native code describes arrays."""

    __slots__ = ("_describe", "_made", "_reads_tensors")

    def __init__(self) -> None:
        self._describe: tuple[Describe, Describe] | None = None
        self._reads_tensors = False
        self._made: dict[Any, ShortCall] = {}

    def look(
        self,
        function: str,
        names: tuple[str, ...],
        arrays: Sequence[Any],
        parameters: tuple[Any, ...],
        out: Any,
    ) -> tuple[Any, ShortCall | None]:
        """The key of a call, and the call if it is known; neither where the general way is to be
        taken. `out`: None, or the one result that the caller brought. `TypeError` for parameters
        without a hash."""
        describe, chosen = self._describe, config.overrides.get()
        if describe is None or (chosen and not chosen.keys() <= _OF_LAUNCHES):
            return None, None
        found = describe[0](*arrays) if out is None else describe[1](*arrays, out)
        if found is None:
            return None, None
        tuning, changed = session.current.get(), session.changes[0]  # hashed as an object
        serving, setting = serving_numpy(), config.generation[0]
        key = parameters, function, found, names, out is None, serving, tuning, changed, setting
        short = self._made.get(key)
        if short is None or not short.means(parameters) or not short.is_current():
            return key, None
        return key, short

    def known(self, *given: Any) -> tuple[Any, ShortCall | None]:
        """The same for what `look` is given, and neither for parameters without a hash."""
        try:
            return self.look(*given)
        except TypeError:
            return None, None

    def keep(
        self,
        key: Any,
        library: Library,
        plan: Plan,
        arrays: Sequence[Any],
        given: Sequence[bool],
        has_result: bool,
    ) -> None:
        """Remember a call that went the general way, with a key or to have one next time."""
        is_tensors = isinstance(library, TorchLibrary)
        is_described = is_tensors or isinstance(library, NumpyLibrary) or library.device != HOST
        if not is_described or plan.updated:
            return
        if self._describe is None or is_tensors > self._reads_tensors:
            self._describe, self._reads_tensors = describers(), is_tensors
        if key is None:
            return
        make_room(self._made, LIMIT)
        self._made[key] = ShortCall(library, plan, arrays, key[0], given, has_result)


def _picker(there: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What takes the items at these places, of which there is one at least."""
    if len(there) == 1:
        return itemgetter(slice(there[0], there[0] + 1))
    return itemgetter(*there)


def _maker(make: Callable[[], Any], arrays: Sequence[Any]) -> tuple[Callable[[Any], Any], int]:
    """What makes a result from one of the arguments, and which one it is."""
    if not isinstance(make, TorchMaker):
        return lambda _: make(), 0
    extents, strides = make.extents, make.strides
    fitting = [k for k, x in enumerate(arrays) if x.dtype == make.dtype]
    for k in fitting:
        if tuple(arrays[k].shape) == extents and arrays[k].stride() == strides:
            return torch().empty_like, k
    if fitting:
        return methodcaller("new_empty_strided", extents, strides), fitting[0]
    return lambda _: make(), 0
