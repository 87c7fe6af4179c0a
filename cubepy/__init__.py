"""CubePy: a kernel language and JIT compiler in Python.

A kernel is written once as a decorated Python function and runs at the speed of the hardware::

    @cp.cube
    def add(x, y, out):
        i = cp.ABSOLUTE_POS
        if i < out.size:
            out.flat[i] = x.flat[i] + y.flat[i]

    add.over(out)(x, y, out)
"""

from cubepy.config import settings
from cubepy.errors import (
    CompileError,
    DeviceError,
    DeviceLostError,
    Error,
    LaunchError,
    OutOfBoundsError,
    UnsupportedError,
)
from cubepy.jit.kernel import cube
from cubepy.lang import atomic
from cubepy.lang.annotations import Comptime, Lines, Spec, Tensor, spec
from cubepy.lang.builtins import *  # noqa: F403
from cubepy.runtimes.registry import devices
from cubepy.runtimes.registry import find_device as device

__version__ = "0.1.0"
