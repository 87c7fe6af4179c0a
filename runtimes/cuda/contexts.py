"""The context that a call of the driver works in: the device's primary one, or one that another
library made and entered.

PyCUDA makes contexts of its own; memory of such a one is used in it, so code is loaded into every
context in which it is launched. The device's own queue is the primary context's.
"""

from __future__ import annotations

from typing import Any

from cubepy.lazy import cached_property
from cubepy.runtimes.cuda.driver import check, driver

PRIMARY = 0
"""The key of the primary context; no other context has this number."""


class Entered:
    """A current context, for a `with` block; the thread has its own again afterwards.

    `key`: what distinguishes the context from all that there ever were, as handles are used again.
    """

    __slots__ = ("_previous", "key")

    def __init__(self, key: int, previous: int | None) -> None:
        self.key = key
        self._previous = previous

    def __enter__(self) -> int:
        return self.key

    def __exit__(self, *raised: object) -> None:
        if self._previous is not None:
            driver().cuCtxSetCurrent(self._previous)


class Contexts:
    """The contexts of one device."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self._is_ours: dict[int, bool] = {}

    @cached_property
    def device(self) -> int:
        """The driver's handle of the device."""
        return check("cuDeviceGet", driver().cuDeviceGet(self.ordinal))

    @cached_property
    def primary(self) -> int:
        """The context that the runtime API and most libraries share; kept until the end."""
        return int(check("retain", driver().cuDevicePrimaryCtxRetain(self.device)))

    def enter(self, is_own: bool = False) -> Entered:
        """A context of this device: the current one, unless it is another device's, or the
        device's `is_own` queue is used; else the primary one."""
        api = driver()
        current = int(check("cuCtxGetCurrent", api.cuCtxGetCurrent()))
        if current == self.primary:
            return Entered(PRIMARY, None)
        if current and not is_own:
            key = int(check("cuCtxGetId", api.cuCtxGetId(current)))
            if self._is_of_device(key):
                return Entered(key, None)
        check("cuCtxSetCurrent", api.cuCtxSetCurrent(self.primary))
        return Entered(PRIMARY, current)

    def _is_of_device(self, key: int) -> bool:
        """Whether the current context is one of this device."""
        found = self._is_ours.get(key)
        if found is None:
            owner: Any = check("cuCtxGetDevice", driver().cuCtxGetDevice())
            found = self._is_ours[key] = int(owner) == int(self.device)
        return found
