"""What a launch costs the host, beside peers on the same GPU arrays: `python -m bench.gpu_launch`.

Microseconds for one launch of y = alpha * x + y on 1,024 elements: the median over rounds of a
batch of launches, interleaved with the peers, that are waited for outside of the measured time.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cubepy as cp

N, BATCH, ROUNDS = 1024, 100, 30
UNITS = 256
ALPHA = 2.0


@cp.cube
def axpy(alpha: cp.f32, x: cp.Tensor[cp.f32], y: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < y.size:
        y[i] = alpha * x[i] + y[i]


def of_cubepy(x: Any, y: Any) -> dict[str, Callable[[], Any]]:
    """On torch's arrays and on its own; bound arguments are checked and read once."""
    own_x, own_y = (cp.asarray(v, copy=True) for v in (x, y))
    launcher = axpy.over(N)
    bound = launcher.bind(ALPHA, x, y)
    return {
        "cubepy, torch's arrays": lambda: launcher(ALPHA, x, y),
        "cubepy, its own arrays": lambda: launcher(ALPHA, own_x, own_y),
        "cubepy, bound": bound,
    }


def of_triton(x: Any, y: Any) -> dict[str, Callable[[], Any]]:
    from bench.children.triton_axpy import axpy

    kernel: Any = axpy
    return {"triton": lambda: kernel[(N // UNITS,)](ALPHA, x, y, N, UNITS)}


def of_numba(x: Any, y: Any) -> dict[str, Callable[[], Any]]:
    from numba import cuda

    def kernel(alpha: Any, x: Any, y: Any) -> None:
        i = cuda.grid(1)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
        if i < y.size:
            y[i] = alpha * x[i] + y[i]

    left, right = (cuda.as_cuda_array(v) for v in (x, y))
    jit: Any = cuda.jit
    launcher = jit(kernel)[N // UNITS, UNITS]
    return {"numba.cuda": lambda: launcher(ALPHA, left, right)}


def of_cupy(x: Any, y: Any) -> dict[str, Callable[[], Any]]:
    import cupy
    import numpy as np

    text = """extern "C" __global__ void axpy(float alpha, const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = alpha * x[i] + y[i];
    }"""
    kernel = cupy.RawKernel(text, "axpy")
    left, right = (cupy.asarray(v) for v in (x, y))
    numbers = np.float32(ALPHA), np.int32(N)
    blocks = (N // UNITS,), (UNITS,)
    return {"cupy.RawKernel": lambda: kernel(*blocks, (numbers[0], left, right, numbers[1]))}


PEERS = {"triton": of_triton, "numba_cuda": of_numba, "cupy": of_cupy}


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    x, y = torch.randn(N, device="cuda"), torch.zeros(N, device="cuda")
    calls = of_cubepy(x, y) | {"torch.add_": lambda: y.add_(x, alpha=ALPHA)}
    for module, make in PEERS.items():
        try:
            made = make(x, y)
            for call in made.values():
                call()  # numba imports what it needs at the first launch
            calls |= made
        except (ImportError, AttributeError) as error:  # numba-cuda does not fit every NumPy
            print(f"no {module} here: {error}")
    for name, call in calls.items():
        check(name, call, x, y)
    found = {name: statistics.median(times) for name, times in measure(calls).items()}
    for name, us in found.items():
        print(f"{name:26} {us:7.2f} us")
    if options.json:
        report = {"device": torch.cuda.get_device_name(), "launch_us": found}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def check(name: str, call: Callable[[], Any], x: Any, y: Any) -> None:
    """It does the work, on the arrays that it was given."""
    import torch

    y.zero_()
    call()
    torch.cuda.synchronize()
    if "own" not in name and not torch.equal(y, ALPHA * x):
        raise SystemExit(f"{name} computes something else")


def measure(calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Microseconds for a launch, in each round."""
    import torch

    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(BATCH):
                call()
            times[name].append(1e6 * (time.perf_counter() - start) / BATCH)
            torch.cuda.synchronize()
    return times


if __name__ == "__main__":
    main()
