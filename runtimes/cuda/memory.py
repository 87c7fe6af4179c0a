"""Memory of a CUDA device from the driver's stream-ordered pool, which keeps what is freed, and
page-locked memory of the host."""

from __future__ import annotations

import sys
from typing import Any

from cubepy.errors import fail
from cubepy.runtimes.base import Pinned, Queued
from cubepy.runtimes.cuda.driver import check, driver


class Allocation(Queued):
    """Device memory; goes back to the pool when it dies, behind the last work on it."""

    def __init__(self, address: int, nbytes: int, contexts: Any) -> None:
        self.address = address
        self.nbytes = nbytes
        self._contexts = contexts

    def __del__(self) -> None:
        if self.address and not sys.is_finalizing():
            self._contexts.enter()
            if self.used is not None:
                driver().cuStreamWaitEvent(0, self.used.handle, 0)
            driver().cuMemFreeAsync(self.address, 0)


def allocate(nbytes: int, contexts: Any, device: str) -> Allocation:
    """Memory aligned to 256 bytes; E504 where the device has no more."""
    api = driver()
    status, address = api.cuMemAllocAsync(max(nbytes, 1), 0)
    if status == api.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise fail("E504", nbytes=nbytes, device=device)
    check("cuMemAllocAsync", (status, address))
    return Allocation(int(address), nbytes, contexts)


class PinnedAllocation(Pinned):
    """Page-locked host memory; freed when it dies, once the last work on it is done."""

    def __init__(self, address: int, contexts: Any) -> None:
        self.address = address
        self._contexts = contexts

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self._contexts.enter()
            if self.used is not None:
                driver().cuEventSynchronize(self.used.handle)
            driver().cuMemFreeHost(self.address)


def allocate_pinned(nbytes: int, contexts: Any) -> PinnedAllocation:
    """Host memory, aligned to a page, that is page-locked for all devices; E504 without room."""
    api = driver()
    contexts.enter()
    status, address = api.cuMemHostAlloc(max(nbytes, 1), api.CU_MEMHOSTALLOC_PORTABLE)
    if status == api.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise fail("E504", nbytes=nbytes, device="pinned host memory")
    check("cuMemHostAlloc", (status, address))
    return PinnedAllocation(int(address), contexts)


def keep_freed_memory(device: Any) -> None:
    """Let the pool keep all that is freed until `release_freed_memory`."""
    api = driver()
    pool = check("pool", api.cuDeviceGetDefaultMemPool(device))
    threshold = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    most = api.cuuint64_t(2**64 - 1)
    check("cuMemPoolSetAttribute", api.cuMemPoolSetAttribute(pool, threshold, most))


def release_freed_memory(device: Any) -> None:
    """Give what the pool keeps back to the device."""
    api = driver()
    pool = check("pool", api.cuDeviceGetDefaultMemPool(device))
    check("cuMemPoolTrimTo", api.cuMemPoolTrimTo(pool, 0))
