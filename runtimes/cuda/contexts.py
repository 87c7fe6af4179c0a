"""The context that a thread works in: the device's primary one, or one that a guest made.

PyCUDA makes contexts of its own; memory of such a one is used in it, so code is loaded into every
context in which it is launched.
"""

from __future__ import annotations

from functools import cached_property

from cubepy.runtimes.cuda.driver import check, driver


class Contexts:
    """The contexts of one device."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._known: dict[int, bool] = {}

    @cached_property
    def device(self) -> int:
        """The driver's handle of the device."""
        return check("cuDeviceGet", driver().cuDeviceGet(self._ordinal))

    @cached_property
    def primary(self) -> int:
        """The context that the runtime API and most libraries share; kept until the end."""
        found = int(check("retain", driver().cuDevicePrimaryCtxRetain(self.device)))
        self._known[found] = True
        return found

    def enter(self) -> int:
        """Make a context of this device current, unless one is; gives its handle."""
        api = driver()
        current = int(check("cuCtxGetCurrent", api.cuCtxGetCurrent()))
        if current and self._is_ours(current):
            return current
        check("cuCtxSetCurrent", api.cuCtxSetCurrent(self.primary))
        return self.primary

    def _is_ours(self, context: int) -> bool:
        found = self._known.get(context)
        if found is None:
            owner = check("cuCtxGetDevice", driver().cuCtxGetDevice())
            found = self._known[context] = int(owner) == int(self.device)
        return found
