"""The interpreter as a device: kernels as Python on host memory, checked and debuggable."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from cubepy.artifact import Artifact
from cubepy.lazy import cached
from cubepy.runtimes.base import HostMemory, MemoryUse, Properties
from cubepy.runtimes.interpreter.launch import Launch
from cubepy.runtimes.interpreter.program import Program, load_program
from cubepy.targets import INTERPRETER, Target


class Block:
    """Host memory, aligned to 256 bytes."""

    def __init__(self, nbytes: int) -> None:
        self._bytes = (ctypes.c_char * (nbytes + 255))()
        self.address = -(-ctypes.addressof(self._bytes) // 256) * 256


class InterpreterDevice(HostMemory):
    """See `runtimes.base.Device`."""

    name = "interpreter"

    @property
    def target(self) -> Target:
        """Python: planes of one unit unless a kernel is configured otherwise."""
        return INTERPRETER

    @property
    def properties(self) -> Properties:
        """Python's version; one core; memory is the host's."""
        version = ".".join(map(str, sys.version_info[:3]))
        return Properties(f"Python {version} interpreter", 1, 0)

    def load(self, artifact: Artifact) -> Program:
        """Compile the Python source."""
        return load_program(artifact)

    def launch(
        self, loaded: Program, block: Any, count: int, grain: int, queue: int | None = None
    ) -> None:
        """Run all cubes, one after the other; raises what a check finds."""
        Launch(loaded, block).run(count)

    def grain(self, count: int, work: int) -> int:
        """One thread takes all cubes."""
        return max(1, count)

    def allocate(self, nbytes: int) -> Block:
        """Zeroed host memory."""
        return Block(nbytes)

    def memory(self) -> MemoryUse:
        """Not reported: the memory is the host's."""
        return MemoryUse(0, 0)


@cached
def interpreter_device() -> InterpreterDevice:
    """The one interpreter of the process."""
    return InterpreterDevice()
