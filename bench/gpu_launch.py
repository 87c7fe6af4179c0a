"""What a launch costs the host, beside peers on the same GPU arrays: `python -m bench.gpu_launch`.

Microseconds for one launch of out = alpha * x + y on 1,024 elements: the median over rounds of a
batch of launches, interleaved with the peers, that are waited for outside of the measured time.
The floor is the driver's function in a compiled loop, and beside it an empty native function in the
loop of Python that all others are called in; `bench.gpu_launch_parts` shows what lies between. Then
kernels with tensor maps, and prebuilt functions on small arrays beside torch's.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import cubepy as cp
from cubepy.runtimes.cuda.driver import driver
from cubepy.runtimes.native.linker import compile_text, link

N, BATCH, ROUNDS = 1024, 100, 30
UNITS = 256
ALPHA = 2.0
Calls = dict[str, Callable[..., Any]]
FLOOR = "cuLaunchKernel, compiled loop"
_LOOP = """
define i64 @loop(i64 %launch, i64 %function, i32 %cubes, i64 %stream, i64 %places, i64 %times) {
  %call = inttoptr i64 %launch to ptr
  br label %head
head:
  %k = phi i64 [0, %0], [%next, %head]
  %status = call i32 %call(i64 %function, i32 %cubes, i32 1, i32 1, i32 256, i32 1, i32 1, i32 0,
      i64 %stream, i64 %places, i64 0)
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %times
  br i1 %more, label %head, label %done
done:
  ret i64 0
}
"""


@cp.cube
def axpy(alpha: cp.f32, x: cp.Tensor[cp.f32], y: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = alpha * x[i] + y[i]


@cp.cube
def copy_box(x: cp.cuda.TensorMap, out: cp.Tensor[cp.f32]):
    tile, barrier = cp.shared(UNITS, cp.f32), cp.shared(1, cp.u64)
    if cp.UNIT_POS == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.fence_barriers()
        cp.cuda.barrier_expect(barrier, 0, x.nbytes)
        cp.cuda.tensor_load(tile, 0, x, (cp.CUBE_POS * UNITS,), barrier, 0)
    cp.sync_cube()
    cp.cuda.barrier_wait(barrier, 0, 0)
    out[cp.ABSOLUTE_POS] = tile[cp.UNIT_POS]


@cp.cube
def copy_plain(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    out[cp.ABSOLUTE_POS] = x[cp.ABSOLUTE_POS]


def of_cubepy(x: Any, y: Any, out: Any) -> Calls:
    """On torch's arrays and on its own; bound arguments are checked and read again."""
    own = [cp.asarray(v, copy=True) for v in (x, y, out)]
    launcher = axpy.over(N)
    bound = launcher.bind(ALPHA, x, y, out)
    return {
        "cubepy": lambda: axpy.over(N)(ALPHA, x, y, out),
        "cubepy, a kept launcher": lambda: launcher(ALPHA, x, y, out),
        "cubepy, bound": bound,
        "cubepy, its own arrays": lambda: launcher(ALPHA, *own),
    }


def of_driver(x: Any, y: Any, out: Any) -> Calls:
    """The same kernel by the driver's function: in a compiled loop, and by cuda-bindings."""
    import torch

    api = driver()
    prepared, matcher = axpy.over(N)._prepared((ALPHA, x, y, out), {})
    addresses = {name: memory.address for name, memory in matcher.memories.items()}
    block = prepared.filled(addresses, matcher.scalars, "axpy")
    code = prepared.compiled.loaded
    function, places = code.function(0), code.parameters(block)
    stream = torch.cuda.current_stream().cuda_stream
    loop = link(compile_text(_LOOP), ("loop",))
    call = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 6)(loop.address["loop"])
    _, launch, _ = api.cuGetProcAddress(b"cuLaunchKernel", 12_000, 0)
    at, kept = ctypes.addressof(places), (loop, block, places)

    def floor(times: int = 1) -> Any:
        return call(int(launch), int(function), N // UNITS, stream, at, times), kept

    grid = N // UNITS, 1, 1, UNITS, 1, 1, 0
    return {
        FLOOR: floor,
        "an empty native function": [].clear,
        "cuLaunchKernel, cuda-bindings": lambda: api.cuLaunchKernel(function, *grid, stream, at, 0),
    }


def of_triton(x: Any, y: Any, out: Any) -> Calls:
    from bench.children.triton_axpy import axpy

    kernel: Any = axpy
    return {"triton": lambda: kernel[(N // UNITS,)](ALPHA, x, y, out, N, UNITS)}


def of_numba(x: Any, y: Any, out: Any) -> Calls:
    from numba import cuda

    def kernel(alpha: Any, x: Any, y: Any, out: Any) -> None:
        i = cuda.grid(1)  # pyright: ignore[reportCallIssue, reportAttributeAccessIssue]
        if i < y.size:
            out[i] = alpha * x[i] + y[i]

    arrays = [cuda.as_cuda_array(v) for v in (x, y, out)]
    jit: Any = cuda.jit
    launcher = jit(kernel)[N // UNITS, UNITS]
    return {"numba.cuda": lambda: launcher(ALPHA, *arrays)}


def of_cupy(x: Any, y: Any, out: Any) -> Calls:
    import cupy
    import numpy as np

    text = """extern "C" __global__
    void axpy(float alpha, const float* x, const float* y, float* out, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) out[i] = alpha * x[i] + y[i];
    }"""
    kernel = cupy.RawKernel(text, "axpy")
    arrays = [cupy.asarray(v) for v in (x, y, out)]
    alpha, n = np.float32(ALPHA), np.int32(N)
    blocks, launcher = ((N // UNITS,), (UNITS,)), axpy.over(N)
    return {
        "cupy.RawKernel": lambda: kernel(*blocks, (alpha, *arrays, n)),
        "cubepy, CuPy's arrays": lambda: launcher(ALPHA, *arrays),
    }


PEERS = {"driver": of_driver, "triton": of_triton, "numba_cuda": of_numba, "cupy": of_cupy}


def with_maps(x: Any, out: Any) -> Calls:
    """A kernel that takes a tensor map, and one that takes an array."""
    tensor = cp.cuda.tensor_map(x, (UNITS,))
    mapped, plain = copy_box[N // UNITS, UNITS], copy_plain[N // UNITS, UNITS]
    return {
        "cubepy, a tensor map": lambda: mapped(tensor, out),
        "cubepy, a new tensor map": lambda: mapped(cp.cuda.tensor_map(x, (UNITS,)), out),
        "cubepy, an array": lambda: plain(x, out),
    }


def prebuilt() -> Calls:
    """Prebuilt functions on small arrays, and torch's."""
    import torch

    a, b = (torch.randn(64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
    c, rows = torch.empty_like(a), torch.randn(64, 1024, device="cuda")
    kernels = cp.kernels
    return of_other_libraries(rows) | {
        "cp.kernels.matmul": lambda: kernels.matmul(a, b),
        "torch.matmul": lambda: torch.matmul(a, b),
        "cp.kernels.matmul, out": lambda: kernels.matmul(a, b, out=c),
        "torch.matmul, out": lambda: torch.matmul(a, b, out=c),
        "cp.kernels.softmax": lambda: kernels.softmax(rows, axis=-1),
        "torch.softmax": lambda: torch.softmax(rows, -1),
        "cp.kernels.sum": lambda: kernels.sum(rows, axis=-1),
        "torch.sum": lambda: torch.sum(rows, -1),
    }


def of_other_libraries(rows: Any) -> Calls:
    """A prebuilt function on CubePy's own arrays and on CuPy's."""
    kernels, own = cp.kernels, cp.asarray(rows, copy=True)
    sums = cp.zeros(64, cp.f32, device=own.device)
    calls: Calls = {
        "cp.kernels.sum, own": lambda: kernels.sum(own, axis=-1),
        "cp.kernels.sum, own, out": lambda: kernels.sum(own, axis=-1, out=sums),
    }
    try:
        import cupy
    except ImportError:
        return calls
    theirs, out = cupy.asarray(rows), cupy.zeros(64, "float32")
    return calls | {
        "cp.kernels.sum, CuPy": lambda: kernels.sum(theirs, axis=-1),
        "cp.kernels.sum, CuPy, out": lambda: kernels.sum(theirs, axis=-1, out=out),
        "cupy.sum": lambda: cupy.sum(theirs, axis=-1),
        "cupy.sum, out": lambda: cupy.sum(theirs, axis=-1, out=out),
    }


def main(lock: Callable[[], AbstractContextManager[Any]] = nullcontext) -> None:
    """`lock`: what to hold while it is measured, where others measure on the same GPU."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    x, y, out = (torch.randn(N, device="cuda") for _ in range(3))
    calls = of_cubepy(x, y, out) | {"torch.add": lambda: torch.add(y, x, alpha=ALPHA, out=out)}
    for module, make in PEERS.items():
        try:
            made = make(x, y, out)
            for call in made.values():
                call()  # numba imports what it needs at the first launch
            calls |= made
        except (ImportError, AttributeError) as error:  # numba-cuda does not fit every NumPy
            print(f"no {module} here: {error}")
    for name, call in calls.items():
        check(name, call, ALPHA * x + y, out)
    mapped = with_maps(x, out)
    for name, call in mapped.items():
        check(name, call, x, out)
    calls |= mapped | prebuilt()
    found = {name: statistics.median(times) for name, times in measure(calls, lock).items()}
    for name, us in found.items():
        print(f"{name:30} {us:7.2f} us")
    if options.json:
        report = {"device": torch.cuda.get_device_name(), "launch_us": found}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


def check(name: str, call: Callable[[], Any], wanted: Any, out: Any) -> None:
    """It does the work, on the arrays that it was given."""
    import torch

    out.zero_()
    call()
    torch.cuda.synchronize()
    if "own" not in name and "empty" not in name and not torch.allclose(out, wanted, rtol=1e-6):
        raise SystemExit(f"{name} computes something else")


def measure(
    calls: Calls, lock: Callable[[], AbstractContextManager[Any]]
) -> dict[str, list[float]]:
    """Microseconds for a launch, in each round."""
    import torch

    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(4):
            call()
    torch.cuda.synchronize()
    with lock():
        for name in list(calls) * ROUNDS:
            call = calls[name]
            start = time.perf_counter()
            if name == FLOOR:
                call(BATCH)
            else:
                for _ in range(BATCH):
                    call()
            times[name].append(1e6 * (time.perf_counter() - start) / BATCH)
            torch.cuda.synchronize()
    return times


if __name__ == "__main__":
    main()
