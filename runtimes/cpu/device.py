"""The CPU as a device: cubes on the native thread pool, NumPy memory, synchronous launches."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

from cubepy.artifact import Artifact, host_symbol
from cubepy.config import get
from cubepy.errors import fail
from cubepy.lazy import cached, cached_property
from cubepy.record import dataclass
from cubepy.runtimes.base import HostMemory, MemoryUse, Properties
from cubepy.runtimes.cpu.memory import Block, get_memory
from cubepy.runtimes.native import crash, scratch
from cubepy.runtimes.native.chosen import chosen_pool
from cubepy.runtimes.native.host import data_caches, host_cpu
from cubepy.runtimes.native.linker import Library, link
from cubepy.runtimes.native.pool import Pool, get_pool, symbols, usable_cores
from cubepy.targets import Target, host_target

INLINE_WORK = 1 << 14
"""Elements below which a launch runs in the calling thread: waking others takes longer."""
CHUNKS = 8
"""Chunks of cubes for each thread, so that uneven cubes balance."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Linked code: `address` is `void (ptr args, i64 begin, i64 end)`.

    `lacking_at`: it asks for scratch memory; where it gets none it runs no cube, and says there in
    its argument block how much it asked for. 0 where it needs none.
    """

    address: int
    library: Library
    lacking_at: int
    name: crash.Name


class CpuDevice(HostMemory):
    """See `runtimes.base.Device`."""

    name = "cpu"

    @cached_property
    def target(self) -> Target:
        """This host, with every feature that it has."""
        cpu, features = host_cpu()
        attributes = ",".join(
            f"{'+' if on else '-'}{name}" for name, on in sorted(features.items())
        )
        there = frozenset(n for n, on in features.items() if on)
        return host_target(cpu, attributes, there, data_caches(), usable_cores())

    @cached_property
    def properties(self) -> Properties:
        """The processor's name, the usable cores and the memory of the machine."""
        pages = os.sysconf("SC_PHYS_PAGES") if "SC_PHYS_PAGES" in os.sysconf_names else 0
        return Properties(_processor_name(), usable_cores(), pages * os.sysconf("SC_PAGE_SIZE"))

    @property
    def pool(self) -> Pool:
        """The thread pool; its size is that of CUBEPY_NUM_THREADS, or the cores usable now."""
        return get_pool(get("num_threads"))

    def expect_launch(self) -> None:
        """Begin to compile or find the runtime's own code, while the caller traces."""
        _begin_native_code()

    def load(self, artifact: Artifact) -> Loaded:
        """Link machine code into this process."""
        given = symbols() | (scratch.symbols() if artifact.scratch_bytes else {})
        symbol = host_symbol(artifact.entry)
        library = link(artifact.code, [symbol], given)
        name = crash.Name(artifact.entry)
        return Loaded(library.address[symbol], library, artifact.lacking_at, name)

    def launch(
        self, loaded: Loaded, block: Any, count: int, grain: int, queue: int | None = None
    ) -> None:
        """Run all cubes; returns when they are done. The GIL is released meanwhile."""
        self._run(loaded, self.pool.run, ctypes.addressof(block), count, grain)

    def complete(self, loaded: Loaded, block: int, first: int, count: int, work: int) -> None:
        """Run the cubes from `first` on of a launch that began natively; else as `launch`.

        `block`: the address of the argument block; `work`: as `grain` takes it.
        """
        pool = chosen_pool()
        grain = _grain(pool, count, work)
        if first:
            finish = pool.finish
            self._run(loaded, lambda e, a, n, g: finish(e, a, first, n, g), block, count, grain)
        else:
            self._run(loaded, pool.run, block, count, grain)

    def _run(
        self, loaded: Loaded, run: Callable[..., None], block: int, count: int, grain: int
    ) -> None:
        """Run cubes, under the kernel's name if the process crashes."""
        names, slot = crash.slots(), crash.slot()
        before, names[slot] = names[slot], loaded.name.address
        try:
            run(loaded.address, block, count, grain)
        finally:
            names[slot] = before
        if loaded.lacking_at:
            lacking = ctypes.c_int64.from_address(block + loaded.lacking_at)
            if lacking.value:
                raise fail("E504", nbytes=lacking.value, device=self.name)

    def grain(self, count: int, work: int) -> int:
        """All cubes where the launch is small, else so many that uneven ones balance."""
        return _grain(self.pool, count, work)

    def allocate(self, nbytes: int) -> Block:
        """A block of the pool that results come from too."""
        return get_memory().empty(nbytes)

    def memory(self) -> MemoryUse:
        """The machine's memory, and what the system could give away now."""
        return MemoryUse(self.properties.memory_bytes, _available_bytes())


@cached
def _begin_native_code() -> None:
    """Make it in a thread; where none is to be had the launch itself does."""
    with suppress(RuntimeError):
        Thread(target=_make_native_code, name="cubepy-native").start()


def _make_native_code() -> None:
    """What launches share. What fails here does so again in the launch that needs it."""
    with suppress(Exception):
        symbols()
        scratch.symbols()
        crash.slots()


def _grain(pool: Pool, count: int, work: int) -> int:
    """As `CpuDevice.grain`, for the threads of a pool."""
    if work < INLINE_WORK:
        return max(1, count)
    return max(1, count // (CHUNKS * pool.threads))


def _available_bytes() -> int:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            found = next(line for line in lines if line.startswith("MemAvailable:"))
            return int(found.split()[1]) << 10
    except (OSError, StopIteration):
        pages = os.sysconf("SC_AVPHYS_PAGES") if "SC_AVPHYS_PAGES" in os.sysconf_names else 0
        return pages * os.sysconf("SC_PAGE_SIZE")


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


@cached
def cpu_device() -> CpuDevice:
    """The one CPU device of the process."""
    return CpuDevice()
