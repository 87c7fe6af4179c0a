"""The pool that settings choose, which native launches take until it is to be looked up again."""

from __future__ import annotations

import ctypes
from typing import Any

from cubepy import config
from cubepy.runtimes.native.pool import Pool, find_pool

SETTING = "num_threads"

words = (ctypes.c_int64 * 4)()
"""See `launching.tables.Chosen`; all zero while nothing is known."""
_seen: dict[Any, Any] = {}
"""What blocks of settings said: native launches compare objects, which must not die."""


def chosen_pool() -> Pool:
    """The pool that this launch and native ones behind it use."""
    generation, block = config.generation[0], config.overrides.get() or {}
    pool, until = find_pool(config.get(SETTING))
    said = 0
    if SETTING in block:
        setting = block[SETTING]
        if _seen.setdefault(setting, setting) is not setting:
            return pool
        said = id(setting)
    words[:] = [pool.state_address, said, generation, round(until * 1e9)]  # all under the GIL
    return pool
