"""Launches that native code runs: which it may learn, and the launchers that go there.

A launch whose plan is not known goes through Python, which adds it. Nothing native is imported or
compiled before a kernel was launched twice.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from typing import TYPE_CHECKING, Any

from cubepy import config
from cubepy.array.memory import HOST
from cubepy.forks import at_fork
from cubepy.jit.ahead import is_ahead
from cubepy.jit.arguments import Matcher
from cubepy.jit.bounded import make_room
from cubepy.jit.grid import Fixed, Grid, Over
from cubepy.jit.launch import Prepared
from cubepy.options import SETTINGS
from cubepy.runtimes.native.launching import state

if TYPE_CHECKING:
    from cubepy.jit.bound import Bound
    from cubepy.jit.encoding import Learned
    from cubepy.jit.kernel import CubeKernel, Launcher
    from cubepy.jit.tables import Table

_JOINING = threading.Lock()
at_fork(_JOINING)
MAX_TABLES = 64
"""Tables of one kernel."""
LAUNCHES = 2
"""Launches of a kernel through Python until native code is asked for."""
_PLAIN = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


Header = tuple[Any, Any, Any]


def header_of(function: Any) -> Header:
    """What a function's code, and its parameters with their defaults, are kept in; reloaders put
    others there."""
    return function.__code__, function.__defaults__, function.__kwdefaults__


class NativeLaunches:
    """The tables of one kernel, and what puts its launchers in front of them. It does not hold the
    kernel, so that one which is launched once dies when nobody holds it any more."""

    def __init__(self, kernel: CubeKernel, header: Header | None = None) -> None:
        """`header`: of the kernel's function, whose parameters were read by it."""
        self._header = header_of(kernel.function) if header is None else header
        self._tables: dict[Any, Table] = {}
        self._launches = 0
        parameters = kernel.signature.parameters.values()
        self.is_enabled = all(p.kind in _PLAIN for p in parameters)

    @property
    def has_launched(self) -> bool:
        """Whether the kernel was launched before."""
        return self._launches > 0

    def attach(self, launcher: Launcher) -> None:
        """Let native code run a new launcher, if it runs others with such a grid."""
        if self._tables and launcher.grid is not None:
            table = self._tables.get(_key(launcher))
            if table is not None:
                self._join(launcher, table)

    def learn(
        self, launcher: Launcher, prepared: Prepared, matcher: Matcher, took: int = 0
    ) -> bool:
        """Note a launch that went through Python; whether native code runs the next one like it.

        The first launch of a kernel is not noted: most programs launch some only once. `took`: ns;
        a long kernel is launched without the GIL from the beginning.
        """
        if is_ahead():
            return True
        self._launches += 1
        grid = launcher.grid
        if self._launches < LAUNCHES or not self.is_enabled or grid is None:
            return self.is_enabled and self._launches < LAUNCHES
        is_native = prepared.device.name == HOST or hasattr(prepared.device, "native_code")
        if not is_native or prepared.is_staged(matcher.memories):
            return False
        learned = self._learned(launcher.kernel, grid, prepared, matcher)
        if learned is None:
            return False
        from cubepy.jit.tables import Table

        key = _key(launcher)
        table = self._tables.get(key)
        if table is None:
            make_room(self._tables, MAX_TABLES)
            table = self._tables[key] = Table(launcher.kernel, self._header)
        state.note_time(prepared.compiled.marks, prepared.count, took)
        is_learned = table.learn(learned)
        self._join(launcher, table)
        return is_learned

    def _learned(
        self, kernel: CubeKernel, grid: Grid, prepared: Prepared, matcher: Matcher
    ) -> Learned | None:
        """The launch's plan, if native code may run it."""
        from cubepy.jit.encoding import Unknown, learned_of
        from cubepy.jit.tables import native_executor
        from cubepy.runtimes.native.launching.tables import MAX_PARAMETERS

        chosen, known = config.overrides.get() or {}, native_executor()
        if known is None or len(kernel.parameters) > MAX_PARAMETERS:
            self.is_enabled = False
            return None
        if not chosen.keys().isdisjoint(SETTINGS):
            return None
        try:
            return learned_of(known, kernel.function, self._header, grid, prepared, matcher)
        except Unknown:
            return None

    def join_bound(
        self, bound: Bound, launcher: Launcher, prepared: Prepared, matcher: Matcher, took: int
    ) -> None:
        """Let native code run a bound launch, if it runs its launcher's."""
        self._launches = max(self._launches, LAUNCHES)
        if self.learn(launcher, prepared, matcher, took):
            from cubepy.jit.tables import native_executor
            from cubepy.runtimes.native.launching.tables import MEMO_WORDS

            found = native_executor()
            assert found is not None
            with _JOINING:
                if type(bound) is found.bound:  # another thread was here
                    return
                bound._memo = (ctypes.c_int64 * MEMO_WORDS)()
                bound._words = ctypes.addressof(bound._memo)
                bound._entry = found.bound_entry
                bound.__class__ = found.bound

    def _join(self, launcher: Launcher, table: Table) -> None:
        from cubepy.jit.tables import cells_of, native_executor

        executor, grid = native_executor(), launcher.grid
        assert executor is not None and grid is not None
        launcher._cells = cells_of(grid)
        launcher._what = None if isinstance(grid, Fixed) else grid.what
        if kind_of(grid) == PLAIN_COVER:
            launcher.kernel._table = table
        covers_array = isinstance(grid, Over) and not isinstance(grid.what, int | tuple)
        launcher._table = table if covers_array or launcher._cells is not None else None
        if type(launcher) is not executor.launcher:
            launcher._entry = executor.entry
            launcher.__class__ = executor.launcher


def _key(launcher: Launcher) -> Any:
    return kind_of(launcher.grid), launcher.kernel.options.by_settings()


PLAIN_COVER = (False, "unit", None)
"""The kind of `kernel.over(array)`."""


def kind_of(grid: Grid | None) -> Any:
    """What plans depend on of a grid."""
    assert grid is not None
    if isinstance(grid, Fixed):
        return grid.dim
    what = grid.what
    return isinstance(what, int | tuple), grid.per, grid.cube_dim
