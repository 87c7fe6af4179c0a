"""What a launch costs the host on an OpenCL device: `python -m bench.opencl_launch`.

Microseconds of the launching thread's processor time for one launch of out = alpha * x + y on 1,024
elements, the median over rounds of a batch of launches, in turns with pyopencl: with arguments that
are set for each launch, and only put into the queue. Waits are outside of the measured time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import cubepy as cp
from bench.gpu_launch import ALPHA, UNITS, N, axpy
from bench.peers import find

BATCH, ROUNDS = 100, 30


def of_cubepy(device: str) -> tuple[dict[str, Callable[[], Any]], Any]:
    """Launches on CubePy's arrays, and the result."""
    x, y, out = (cp.asarray(np.full(N, v, np.float32), device=device) for v in (1, 2, 0))
    launcher = axpy.over(N)
    bound = launcher.bind(ALPHA, x, y, out)
    calls = {
        "cubepy": lambda: axpy.over(N)(ALPHA, x, y, out),
        "cubepy, a kept launcher": lambda: launcher(ALPHA, x, y, out),
        "cubepy, bound": bound,
    }
    return calls, out


def of_pyopencl(device: str) -> dict[str, Callable[[], Any]]:
    """The same kernel in OpenCL C by pyopencl, on the same device."""
    cl: Any = find("pyopencl")
    if cl is None:
        return {}
    found: Any = cp.device(device)
    queue, context = found._queue, found._context
    text = """kernel void axpy(float a, global const float* x, global const float* y,
                               global float* out, int n) {
        int i = get_global_id(0);
        if (i < n) out[i] = a * x[i] + y[i];
    }"""
    kernel = cl.Program(context, text).build().axpy
    flags = cl.mem_flags.READ_WRITE
    arrays = [cl.Buffer(context, flags, 4 * N) for _ in range(3)]
    arguments = np.float32(ALPHA), *arrays, np.int32(N)
    kernel.set_args(*arguments)
    units = (N,), (UNITS,)
    return {
        "pyopencl": lambda: kernel(queue, *units, *arguments),
        "pyopencl, arguments set before": lambda: cl.enqueue_nd_range_kernel(queue, kernel, *units),
    }


def main() -> None:
    """Time all in turns; print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="opencl:0")
    device = parser.parse_args().device
    calls, out = of_cubepy(device)
    calls |= of_pyopencl(device)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(4):
            call()
    if not (out.numpy() == ALPHA + 2).all():
        raise SystemExit("it computes something else")
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.thread_time()
            for _ in range(BATCH):
                call()
            times[name].append(1e6 * (time.thread_time() - start) / BATCH)
            cp.device(device).synchronize()
    print(cp.device(device).properties.name)
    for name, found in times.items():
        print(f"{name:32} {statistics.median(found):7.2f} us, best {min(found):7.2f}")


if __name__ == "__main__":
    main()
