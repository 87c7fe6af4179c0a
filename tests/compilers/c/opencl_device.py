"""Runs OpenCL C on the first OpenCL device, such as PoCL's, with NumPy arguments."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import numpy as np

from cubepy.artifact import FAULT_WORDS
from cubepy.compilers.opencl.dialect import BUILD_OPTIONS
from tests.compilers.c.launching import Launch, prepare
from tests.guests import require_guest


@lru_cache(maxsize=1)
def queue() -> Any:
    """A queue on the first device; the test is skipped where there is none."""
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")
    cl = require_guest("pyopencl")
    require_guest("pocl_binary_distribution")
    platforms = cl.get_platforms()
    return cl.CommandQueue(cl.Context(platforms[0].get_devices()[:1]))


def run(launcher: Any, target: str = "opencl", **arguments: Any) -> list[int]:
    """Launch on arrays, which are changed in place; gives the words of the fault record."""
    return launch(prepare(launcher, target, arguments))


def launch(made: Launch) -> list[int]:
    """Build the source, run it, and copy back what it wrote."""
    import pyopencl as cl

    q = queue()
    source = made.artifact.code.decode()
    program = cl.Program(q.context, source).build(options=[BUILD_OPTIONS[0], "-w"])
    kernel = getattr(program, made.artifact.entry)
    held: dict[int, Any] = {}
    passed = [_passed(q.context, slot, held) for slot in made.slots]
    faults = np.zeros(FAULT_WORDS, np.uint64)
    if made.artifact.faults:
        passed.append(_buffer(q.context, faults, held))
    dims = made.artifact.cube_dim
    size = [n * d for n, d in zip(made.grid, dims, strict=True)]
    kernel(q, size, list(dims), *passed)
    for array, buffer in held.values():
        cl.enqueue_copy(q, array, buffer)
    q.finish()
    return faults.tolist()


def _passed(context: Any, slot: Any, held: dict[int, Any]) -> Any:
    if isinstance(slot, np.ndarray):
        return _buffer(context, slot, held)
    return np.uint8(slot) if isinstance(slot, np.bool_) else slot


def _buffer(context: Any, array: np.ndarray, held: dict[int, Any]) -> Any:
    """One buffer for each array, also where it is given twice."""
    import pyopencl as cl

    if id(array) not in held:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        hostbuf = array if array.size else np.zeros(1, array.dtype)
        held[id(array)] = (array, cl.Buffer(context, flags, hostbuf=hostbuf))
    return held[id(array)][1]
