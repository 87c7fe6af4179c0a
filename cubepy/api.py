"""The public names: what `import cubepy as cp` offers as `cp.name`.

`cubepy` loads this module when the first name is asked for, so that importing it costs nothing. It
loads by itself what few programs use.
"""

from cubepy.array.array import Array
from cubepy.array.creation import arange, asarray, empty, full, ones, zeros
from cubepy.array.graphs import Graph
from cubepy.array.placement import release_memory, set_default_device, synchronize
from cubepy.array.streams import Event, Stream
from cubepy.autotune.session import tuning
from cubepy.autotune.space import anchor
from cubepy.config import settings
from cubepy.errors import (
    CheckError,
    CompileError,
    DeviceError,
    DeviceLostError,
    Error,
    LaunchError,
    LaunchTypeError,
    OutOfBoundsError,
    UnsupportedError,
)
from cubepy.jit.kernel import cube
from cubepy.jit.profiles import profile
from cubepy.lang import cuda
from cubepy.lang.annotations import Comptime, Lines, Spec, Tensor, spec
from cubepy.lang.builtins import *  # noqa: F403
from cubepy.lang.builtins import print_ as print
from cubepy.runtimes.base import Occupancy
from cubepy.runtimes.registry import devices
from cubepy.runtimes.registry import find_device as device
