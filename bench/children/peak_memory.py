"""The most memory that a prebuilt kernel takes while it runs, as a share of its argument.

    python -m bench.children.peak_memory OPERATION ELEMENTS

The second call with `out=` is measured, with nothing left in the pool: by the high water of the
resident set, which sees native code too, and by tracemalloc, whichever is more.
"""

import gc
import resource
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import cubepy as cp
from cubepy import kernels
from cubepy.runtimes.cpu.memory import get_memory

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@cp.cube
def _square(v):
    return v * v


def make_call(operation: str, elements: int) -> tuple[Callable[[], Any], int]:
    """A call with `out=` given, and the bytes of the argument."""
    function = getattr(kernels, operation)
    side = max(8, round((elements / 4) ** 0.5))
    if operation == "max_pool1d":
        x, rest = np.ones((1, 4, side * side), np.float32), (3, 1, 1)
    elif operation == "max_pool2d":
        x, rest = np.ones((1, 4, side, side), np.float32), (3, 1, 1)
    elif operation == "map":
        x, rest = np.ones(elements, np.float32), ()
        out = np.ones_like(x)
        return lambda: function(_square, x, out=out), x.nbytes
    else:
        x, rest = np.ones((side * 2, side * 2), np.float32), (0,)
    out = np.ones_like(function(x, *rest))
    return lambda: function(x, *rest, out=out), x.nbytes


def read_status(name: str) -> int:
    """A figure of this process in bytes: VmRSS, VmHWM."""
    line = next(text for text in STATUS.read_text().splitlines() if text.startswith(name))
    return int(line.split()[1]) * 1024


def measure_peak(call: Callable[[], Any]) -> int:
    """Bytes that the process grows by during `call`."""
    gc.collect()
    get_memory().release()
    tracemalloc.start()
    if STATUS.exists() and CLEAR.exists():
        CLEAR.write_text("5")  # resets the high water
        before, high = read_status("VmRSS"), lambda: read_status("VmHWM")
    else:
        before, high = _most(), _most
    call()
    grown, traced = high() - before, tracemalloc.get_traced_memory()[1]
    return max(grown, traced)


def _most() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    call, nbytes = make_call(sys.argv[1], int(sys.argv[2]))
    call()
    print(measure_peak(call) / nbytes, 0)
