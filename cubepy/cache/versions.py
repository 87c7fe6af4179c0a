"""The versions that compiled code depends on, besides what it was compiled from."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from cubepy.hashing import sha256
from cubepy.runtimes.native.host import llvm_versions

FORMAT = 1
"""To be raised when what is kept of a kernel changes its meaning."""
_LEFT_OUT = {"__pycache__", "cli", "explanations", "autotune", "demo"}


@cache
def versions(kind: str) -> dict[str, str]:
    """What code for a kind of target depends on, by name."""
    found = {
        "format": str(FORMAT),
        "cubepy": f"{_own_version()} {SOURCES}",
        "python": f"{sys.implementation.cache_tag} {platform.python_version()}",
        "optimize": str(sys.flags.optimize),
        "machine": f"{sys.platform} {platform.machine()} {sys.maxsize:x}",
    }
    found["numpy"] = str(np.__version__)
    if kind == "cpu":
        found |= llvm_versions()
    if kind == "cuda":
        found["NVRTC"] = _nvrtc()
    return found


def _nvrtc() -> str:
    """The version of NVRTC that compiles, with its patch where its package names it."""
    from importlib.metadata import PackageNotFoundError, version  # takes as long as a warm start

    from cubepy.compilers.cuda import toolchain

    found = [toolchain.version()]
    for package in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "nvidia-cuda-nvrtc-cu13"):
        with suppress(PackageNotFoundError):
            found.append(version(package))
    return " ".join(found)


def _own_version() -> str:
    return str(sys.modules["cubepy"].__version__)


def sources() -> str:
    """A hash of CubePy's own files: their sizes, and when each was last changed in any way.

    The time of change (`ctime`) of a file cannot be set; reading all files would take longer than
    some kernels to compile.
    """
    folder = os.path.dirname(os.path.dirname(__file__))
    found = sorted(_stamps(folder, ""))
    return sha256("\n".join(found).encode()).hexdigest()[:16]


def _stamps(folder: str, inside: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in _LEFT_OUT:
                continue
            if entry.is_dir():  # links too
                yield from _stamps(entry.path, f"{inside}{entry.name}/")
            elif entry.name.endswith(".py"):
                s = entry.stat()
                yield f"{inside}{entry.name} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_ino}"


SOURCES = sources()
"""The files that this process runs; they may change while it does."""


def are_current() -> bool:
    """Whether the files are still those that the process began with, so that all of it comes from
    one version. They are not where they cannot be looked at, as in the middle of an update."""
    try:
        return sources() == SOURCES
    except OSError:
        return False


def text_of(found: dict[str, Any]) -> str:
    """Versions as one text."""
    return "\n".join(f"{name}={value}" for name, value in sorted(found.items()))
