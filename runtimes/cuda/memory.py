"""Memory of a CUDA device from a stream-ordered pool of its own, which keeps what is freed, and
page-locked memory of the host."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from cubepy.errors import DeviceError, fail
from cubepy.runtimes.base import Pinned, Queued
from cubepy.runtimes.cuda.contexts import Contexts
from cubepy.runtimes.cuda.driver import check, driver, is_usable
from cubepy.runtimes.cuda.queues import DEFAULT_STREAM, Queues


class Owner(Queues):
    """The queues of a device that frees memory."""

    def free(self, address: int, nbytes: int) -> None:
        """Take memory back behind all that is in the device's own queue by now."""
        raise NotImplementedError


class Allocation(Queued):
    """Device memory; goes back to its device when it dies, behind the last work on it."""

    __slots__ = ("address", "nbytes", "queues")
    is_usable = staticmethod(is_usable)

    def __init__(self, address: int, nbytes: int, queues: Owner) -> None:
        super().__init__()
        self.address = address
        self.nbytes = nbytes
        self.write = queues.own.mark  # where it was allocated
        self.queues = queues

    def __del__(self) -> None:
        if not self.address or not self.is_usable():
            return
        queues = self.queues
        with suppress(DeviceError):  # raised where one waits
            queues.come_after(None, self, is_written=True)
            if self.is_shared:
                with queues.contexts.enter(is_own=True):  # each context has a default stream
                    queues.join(None, DEFAULT_STREAM)
            queues.free(self.address, self.nbytes)


class PinnedAllocation(Pinned):
    """Page-locked host memory; freed when it dies, once the last work on it is done."""

    __slots__ = ("_contexts", "address")
    is_usable = staticmethod(is_usable)

    def __init__(self, address: int, contexts: Contexts) -> None:
        super().__init__()
        self.address = address
        self._contexts = contexts

    def __del__(self) -> None:
        if not self.is_usable():
            return
        with suppress(DeviceError), self._contexts.enter():  # raised where one waits
            self.wait()
            driver().cuMemFreeHost(self.address)


def allocate_pinned(nbytes: int, contexts: Contexts) -> PinnedAllocation:
    """Host memory, aligned to a page, that is page-locked for all devices; E504 without room."""
    api = driver()
    with contexts.enter():
        status, address = api.cuMemHostAlloc(max(nbytes, 1), api.CU_MEMHOSTALLOC_PORTABLE)
    if status == api.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise fail("E504", nbytes=nbytes, device="pinned host memory")
    check("cuMemHostAlloc", (status, address))
    return PinnedAllocation(int(address), contexts)


def new_pool(ordinal: int) -> Any:
    """A pool that keeps all that is freed until it is trimmed; the device's default pool, which
    other libraries use, is left as it is."""
    api = driver()
    location, wanted = api.CUmemLocation(), api.CUmemPoolProps()
    location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    location.id = ordinal
    wanted.allocType = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    wanted.handleTypes = api.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_NONE
    wanted.location = location
    pool = check("cuMemPoolCreate", api.cuMemPoolCreate(wanted))
    threshold = api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    most = api.cuuint64_t(2**64 - 1)
    check("cuMemPoolSetAttribute", api.cuMemPoolSetAttribute(pool, threshold, most))
    return pool
