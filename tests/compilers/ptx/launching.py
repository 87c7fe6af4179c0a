"""Launches of kernels by the interpreter of PTX."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubepy.compilers.cuda import toolchain
from tests.compilers.ptx.machine import Machine
from tests.optional import leave_out, require_package

TARGET = "cuda:sm_90a"


def require() -> None:
    """Skip the test where NVRTC is absent."""
    require_package("cuda.bindings")
    if not toolchain.version():
        leave_out("nvidia-cuda-nvrtc")


def compiled(
    kernel: Any, units: int, arrays: list[np.ndarray], target: str = TARGET, cubes: int = 1
) -> Machine:
    """What NVVM makes of a kernel; `Unknown` for an instruction that the machine lacks."""
    return Machine(kernel[cubes, units].inspect(*arrays, target=target, stage="ptx"))


def launch(
    kernel: Any, units: int, arrays: list[np.ndarray], target: str = TARGET, cubes: int = 1
) -> None:
    """Run cubes on arrays, which are all parameters of the kernel."""
    machine = compiled(kernel, units, arrays, target, cubes)
    machine.launch([array.ctypes.data for array in arrays], (cubes, 1, 1), (units, 1, 1))
