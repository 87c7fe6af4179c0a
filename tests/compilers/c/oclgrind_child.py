"""What runs under Oclgrind, in a process of its own: launches by stdin, memory by stdout.

Its stderr holds what Oclgrind reports; the environment says what it looks for. Oclgrind ends the
process where it meets what it cannot run.
"""

from __future__ import annotations

import os
import pickle
import sys
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np
import pyopencl as cl

NAME = "Oclgrind"
OPTIONS = ["-cl-std=CL1.2", "-cl-opt-disable", "-w"]
"""An optimiser leaves out what is read before it is written."""


@lru_cache(maxsize=1)
def queue() -> Any:
    """A queue on the simulated device; None where the loader finds no such driver."""
    try:
        named = [p for p in cl.get_platforms() if p.name.startswith(NAME)]
    except cl.LogicError:
        return None
    return cl.CommandQueue(cl.Context(named[0].get_devices()[:1])) if named else None


@lru_cache(maxsize=256)
def kernel_of(source: str, entry: str) -> Any:
    no_cache: Any = False  # its stubs know only paths
    program = cl.Program(queue().context, source).build(options=OPTIONS, cache_dir=no_cache)
    return cl.Kernel(program, entry)


def buffer_of(size: int, held: bytes | None) -> Any:
    """Memory of exactly this size. Only what comes with its creation counts as initialised."""
    if held is None:
        return cl.Buffer(queue().context, cl.mem_flags.READ_WRITE, size)
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    return cl.Buffer(queue().context, flags, hostbuf=bytearray(held))


def pointer(buffers: list[Any], place: tuple[int, int] | None) -> Any:
    """The memory of a buffer from an offset on; sub-buffers of this driver begin anywhere."""
    if place is None:
        return None
    number, offset = place
    whole = buffers[number]
    return whole.get_sub_region(offset, whole.size - offset) if offset else whole


def launch(
    source: str,
    entry: str,
    buffers: list[tuple[int, bytes | None]],
    arguments: list[Any],
    size: tuple[int, ...],
    cube_dim: tuple[int, ...],
) -> list[bytes]:
    """Run all cubes; what the buffers hold then. Arguments are bytes, or places in buffers."""
    held = [buffer_of(*buffer) for buffer in buffers]
    kernel = kernel_of(source, entry)
    passed = [a if isinstance(a, bytes) else pointer(held, a) for a in arguments]
    kernel.set_args(*passed)
    cl.enqueue_nd_range_kernel(queue(), kernel, size, cube_dim).wait()
    return [contents(buffer) for buffer in held]


def contents(buffer: Any) -> bytes:
    found = np.empty(buffer.size, np.uint8)
    cl.enqueue_copy(queue(), found, buffer)
    return found.tobytes()


def answer(replies: BinaryIO, given: Any) -> None:
    pickle.dump(given, replies)
    replies.flush()


def main() -> None:
    """Say whether the driver is here, then serve launches until stdin ends."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # kernels print there
    answer(replies, queue() is not None)
    while True:
        try:
            request = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer(replies, launch(**request))
        except Exception as error:
            answer(replies, f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
