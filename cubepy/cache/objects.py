"""Code that the runtimes compile, on disk: the thread pool, and the binaries of OpenCL's drivers.

The runtimes lie below this layer; they ask for code through `runtimes/remember`.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable

from cubepy.cache.entry import Entry
from cubepy.cache.store import find_store
from cubepy.cache.versions import FORMAT
from cubepy.hashing import sha256
from cubepy.runtimes import remember


def keep_objects() -> None:
    """From now on the runtimes find on disk what they compiled before."""
    remember.keeper = kept_object


def kept_object(name: str, text: str, make: Callable[[], bytes]) -> bytes:
    """See `runtimes.remember.remembered`."""
    store = find_store()
    if store is None:
        return make()
    machine = f"{FORMAT} {sys.platform} {platform.machine()}"
    key = sha256(f"{machine}\n{name}\n{text}".encode()).hexdigest()
    found = store.get(key)
    if found is not None:
        return found.body
    with store.lock(key):
        found = store.get(key)
        if found is not None:
            return found.body
        body = make()
        if body:
            store.put(Entry(key, {"kind": "object", "kernel": name, "parts": {}}, body))
    return body
