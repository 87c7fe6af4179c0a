"""What LLVM knows of this machine's processor."""

from __future__ import annotations

import ctypes
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import RLock

from cubepy.forks import at_fork

_UNITS = {"K": 1 << 10, "M": 1 << 20}
_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA = 158, 0x1023, 18
"""From Linux's headers, for x86-64."""
_lock = RLock()
# A thread that is lost would hold the lock of llvmlite for ever.
at_fork(_lock)


@lru_cache(maxsize=1)
def host_cpu() -> tuple[str, dict[str, bool]]:
    """LLVM's name of the processor, and each of its features with whether it may be used."""
    with _lock:
        from llvmlite import binding

        features, name = dict(binding.get_host_cpu_features()), str(binding.get_host_cpu_name())
    if features.get("amx-tile") and not may_use_tiles():
        features = {f: on and not f.startswith("amx") for f, on in features.items()}
    return name, features


def may_use_tiles() -> bool:
    """Ask Linux to save the tiles of AMX for this process; whether it does.

    It refuses where it does not know them, and where a thread has a stack for signals that is too
    small for them. Threads and children have the permission too.
    """
    if not sys.platform.startswith("linux"):
        return False
    call = ctypes.CDLL(None).syscall
    call.restype, call.argtypes = ctypes.c_long, (ctypes.c_long,) * 3
    return call(_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0


def llvm_versions() -> dict[str, str]:
    """The versions of llvmlite and of the LLVM inside it."""
    import llvmlite
    from llvmlite import binding

    return {"llvmlite": llvmlite.__version__, "LLVM": ".".join(map(str, binding.llvm_version_info))}


@lru_cache(maxsize=1)
def data_caches(root: str = "/sys/devices/system/cpu/cpu0/cache") -> tuple[int, int]:
    """The bytes of a core's first and second cache for data; 0 where the system reports none."""
    found = {1: 0, 2: 0}
    for place in Path(root).glob("index*"):
        with suppress(OSError, ValueError, KeyError):
            level, kind = int(_word(place / "level")), _word(place / "type")
            size = _word(place / "size")
            if kind != "Instruction" and level in found:
                found[level] = int(size[:-1]) * _UNITS[size[-1]]
    return found[1], found[2]


def _word(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()
