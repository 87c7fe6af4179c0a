"""The interpreter as a device: kernels as Python on host memory, checked and debuggable."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from cubepy.artifact import Artifact
from cubepy.runtimes.base import Properties
from cubepy.runtimes.interpreter.launch import Launch
from cubepy.runtimes.interpreter.program import Program, load_program
from cubepy.targets import INTERPRETER, Target


@dataclass(frozen=True, slots=True)
class _Pool:
    """Cubes run in the thread that launches."""

    threads: int = 1


class InterpreterDevice:
    """See `runtimes.base.Device`."""

    name = "interpreter"
    pool = _Pool()

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

    def launch(self, loaded: Program, block: Any, count: int, grain: int) -> None:
        """Run all cubes, one after the other; raises what a check finds."""
        Launch(loaded, block).run(count)

    def synchronize(self) -> None:
        """Launches are synchronous; nothing is left to wait for."""


@lru_cache(maxsize=1)
def interpreter_device() -> InterpreterDevice:
    """The one interpreter of the process."""
    return InterpreterDevice()
