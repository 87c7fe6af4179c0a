"""Metal by pyobjc, found when first asked for; never imported on other systems than macOS.

Reference: https://developer.apple.com/documentation/metal; pyobjc writes the colons of a selector
as underscores, and returns (result, error) where the last argument is an error pointer.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from typing import Any

from cubepy.errors import fail

INSTALL = "pip install 'cubepy-jit[metal]'"


@lru_cache(maxsize=1)
def api() -> Any:
    """The bindings; `DeviceError` E507 where they are missing, or the system is not Apple's."""
    if sys.platform != "darwin":
        raise fail("E507", device="metal", what="macOS", suggestion="")
    try:
        return import_module("Metal")
    except ImportError:
        what = "pyobjc-framework-Metal"
        raise fail("E507", device="metal", what=what, suggestion=INSTALL) from None


@lru_cache(maxsize=1)
def found_devices() -> tuple[Any, ...]:
    """All GPUs, the system's default one first; E507 where there is none."""
    metal = api()
    default = metal.MTLCreateSystemDefaultDevice()
    if default is None:
        raise fail("E507", device="metal", what="a GPU that knows Metal", suggestion="")
    own = default.registryID()
    others = [d for d in metal.MTLCopyAllDevices() or () if d.registryID() != own]
    return (default, *others)


def failed(device: str, call: str, error: Any) -> Exception:
    """`DeviceError` E508 with the words of an NSError."""
    reason = str(error.localizedDescription()) if error is not None else "it gives no reason"
    return fail("E508", device=device, call=call, reason=reason, suggestion="")
