"""The CPU as a device: cubes on the native thread pool, NumPy memory, synchronous launches."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from cubepy.artifact import Artifact
from cubepy.config import get
from cubepy.runtimes.base import Properties
from cubepy.runtimes.native.host import host_cpu
from cubepy.runtimes.native.linker import Library, link
from cubepy.runtimes.native.pool import Pool, get_pool, usable_cores
from cubepy.targets import Target, host_target


@dataclass(frozen=True, slots=True)
class Loaded:
    """Linked code: `address` is `void (ptr args, i64 begin, i64 end)`."""

    address: int
    library: Library


class CpuDevice:
    """See `runtimes.base.Device`."""

    name = "cpu"

    @cached_property
    def target(self) -> Target:
        """This host, with every feature that it has."""
        cpu, features = host_cpu()
        attributes = ",".join(
            f"{'+' if on else '-'}{name}" for name, on in sorted(features.items())
        )
        return host_target(cpu, attributes, frozenset(n for n, on in features.items() if on))

    @cached_property
    def properties(self) -> Properties:
        """The processor's name, the usable cores and the memory of the machine."""
        pages = os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in os.sysconf_names else 0
        return Properties(_processor_name(), usable_cores(), pages * os.sysconf("SC_PAGE_SIZE"))

    @cached_property
    def pool(self) -> Pool:
        """The thread pool; its size is CUBEPY_NUM_THREADS at first use, or the usable cores."""
        return get_pool(get("num_threads"))

    def load(self, artifact: Artifact) -> Loaded:
        """Link machine code into this process."""
        library = link(artifact.code, [artifact.entry])
        return Loaded(library.address[artifact.entry], library)

    def launch(self, loaded: Loaded, block: Any, count: int, grain: int) -> None:
        """Run all cubes; returns when they are done. The GIL is released meanwhile."""
        self.pool.run(loaded.address, ctypes.addressof(block), count, grain)

    def synchronize(self) -> None:
        """Launches are synchronous; nothing is left to wait for."""


def _processor_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    import platform

    return platform.processor() or platform.machine()


@lru_cache(maxsize=1)
def cpu_device() -> CpuDevice:
    """The one CPU device of the process."""
    return CpuDevice()
