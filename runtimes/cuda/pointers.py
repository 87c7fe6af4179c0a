"""Which GPU memory belongs to.

The driver itself is asked: `cuPointerGetAttribute` of cuda-bindings 13.3 answers 0 for the memory
of every GPU, whatever the driver answers.
"""

from __future__ import annotations

import ctypes

from cubepy.errors import fail
from cubepy.runtimes.cuda.driver import INSTALL, address_of, check, driver

_FUNCTION = "cuPointerGetAttribute"
_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64)
_DEVICE_ORDINAL = 9
"""`CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL` of the driver API."""


def gpu_of(address: int) -> int:
    """The ordinal of the GPU whose memory an address is in; a context must be current."""
    place, found = address_of(_FUNCTION), ctypes.c_int()
    if not place:
        reason, suggestion = "the bindings do not find it", f"{INSTALL} --upgrade"
        raise fail("E508", device="cuda", call=_FUNCTION, reason=reason, suggestion=suggestion)
    status = _PROTOTYPE(place)(ctypes.addressof(found), _DEVICE_ORDINAL, address)
    check(_FUNCTION, (driver().CUresult(status),))
    return found.value
