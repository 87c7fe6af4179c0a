"""Tuned calls without Python: what was picked for a signature is guarded by it natively."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cubepy import config
from cubepy.autotune import session
from cubepy.autotune.session import current, is_searching
from cubepy.jit.guards import Guard, Guarded, guard_calls, see

MOST = 16
"""Signatures of an object that native code knows; others are looked up in Python."""
MOST_TIMES = 256
"""How often an object's guards are written, so that nobody does nothing else."""


class TunedCall(Guarded):
    """A callable with a pick for each signature. Subclasses call `learn` when they have one."""

    _state: Any = None
    _times = 0

    def learn(self, key: Any, args: tuple[Any, ...], target: Any, added: Mapping[str, Any]) -> None:
        """Let native code pass on calls like this one to `target`, with the keywords `added`, as
        long as picks, tuning and settings are those of now."""
        if is_searching() or self._times >= MOST_TIMES:
            return
        state = session.changes[0], current.get(), config.overrides.get()
        if self._state is None or any(a is not b for a, b in zip(state, self._state, strict=True)):
            self._known = dict[Any, Guard]()
            self._state = state  # behind it: another thread may look at both
        known = self._known
        if key in known or len(known) >= MOST:
            return
        self._times += 1
        seen = see(args)
        if seen is None:
            return
        changes, tuning, overrides = state
        words = ((session.changes.buffer_info()[0], changes),)
        variables = ((current, tuning), (config.overrides, overrides))
        guard = Guard(target, added, seen, words, variables)
        if guard_calls(self, [guard, *known.values()]):
            known[key] = guard
