"""A call of a prebuilt function in a graph, which each replay does again on the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cubepy import config
from cubepy.autotune import session
from cubepy.kernels.calls.libraries import Library, increment_versions
from cubepy.kernels.calls.plans import Plan

Found = tuple[Plan, list[Any] | None, list[int]]
"""A plan, the arrays that the caller brought for results, and the addresses of all arrays if there
are some."""


class RecordedCall:
    """The plan is found again where an array, a setting or a captured name is not as it was."""

    __slots__ = ("_arrays", "_facts", "_find", "_library", "_operands", "_plan", "results")

    def __init__(self, library: Library, arrays: Sequence[Any], find: Callable[[], Found]) -> None:
        """`find` checks the arrays, and finds or makes their plan, with arrays for the results."""
        self._library, self._arrays, self._find = library, arrays, find
        self._learn()

    def _learn(self) -> None:
        self._plan, given, addresses = self._find()
        self.results = given or []
        self._facts = self._facts_now()
        self._operands = self._plan.checked_operands(self._arrays, self.results, addresses)

    def _facts_now(self) -> Any:
        held, library = (*self._arrays, *self.results), self._library
        settings = config.generation[0], config.overrides.get()
        tuning = session.current.get(), session.changes[0]
        return settings, tuning, library.addresses(held), [library.key(x) for x in held]

    def __call__(self) -> None:
        """Do the call; it raises what the call would."""
        if self._facts != self._facts_now() or not self._plan.is_current():
            self._learn()
        self._plan.launch(self._library, self._operands)
        increment_versions(self._library, self._plan.written(self._arrays, self.results))
