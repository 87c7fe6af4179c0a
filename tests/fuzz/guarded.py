"""Memory between pages without access: what reads or writes beyond an array ends the process."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np


class Guarded:
    """Places for arrays, which end where a page without access begins, or begin where one ends."""

    def __init__(self, places: int, size: int) -> None:
        page = mmap.PAGESIZE
        self._inner = -(-size // page) * page
        self._memory = [mmap.mmap(-1, self._inner + 2 * page) for _ in range(places)]
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for memory in self._memory:
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            for start in (address, address + page + self._inner):
                if protect(ctypes.c_void_p(start), page, 0):
                    raise OSError(ctypes.get_errno(), "mprotect")

    def copy(self, place: int, array: np.ndarray, at_end: bool) -> np.ndarray:
        """The array in a place, which what was there before loses."""
        start = mmap.PAGESIZE + (self._inner - array.nbytes if at_end else 0)
        view: np.ndarray[Any, Any] = np.frombuffer(
            self._memory[place], array.dtype, array.size, start
        )
        view[...] = array
        return view
