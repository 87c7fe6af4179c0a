"""Fresh processes: import and first launch of one kernel, beyond importing NumPy.

`python -m bench.cold_start [--rounds N] [--json]` starts processes in turn: without the cache, with
what the cache kept, and Numba with `cache=True`. Each prints its own wall and processor time.
With `--cuda` on the first GPU of NVIDIA, beside CuPy without and with what it kept, and a process
that only opens the driver and makes the context, which the others do as well. `--parts` says what a
process does that finds its kernel kept. `--prebuilt` times the first call of prebuilt functions on
the CPU, nothing kept, NumPy and CubePy imported, and what its phases take; `--against REV` in turns
with another commit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from bench.children.first_calls import CALLS
from bench.compile import checkouts

HEAD = """
import ctypes, sys, time
import numpy as np
x = np.ones(16, np.float32)
out = np.zeros_like(x)
wall, processor = time.perf_counter(), time.process_time()
"""
TAIL = """
print(1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - processor))
assert (out == 3).all()
"""
CUBEPY = """
import cubepy as cp
@cp.cube
def axpy(x, y, out, a: cp.f32):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = a * x.flat[i] + y.flat[i]
axpy.over(out)(x, x, out, 2.0)
"""
NUMBA = """
import numba
@numba.njit({options})
def axpy(x, y, out, a):
    for i in range(out.size):
        out[i] = a * x[i] + y[i]
axpy(x, x, out, np.float32(2))
"""
CUDA_CUBEPY = """
import cubepy as cp
@cp.cube
def axpy(x, y, out, a: cp.f32):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = a * x.flat[i] + y.flat[i]
given, result = cp.asarray(x, device="cuda:0"), cp.zeros(16, device="cuda:0")
axpy.over(result)(given, given, result, 2.0)
out = result.numpy()
"""
CUDA_CUPY = """
import cupy
axpy = cupy.RawKernel('''extern "C" __global__
void axpy(float a, const float* x, const float* y, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}''', "axpy")
given, result = cupy.asarray(x), cupy.zeros(16, np.float32)
axpy((1,), (256,), (np.float32(2), given, given, result, np.int32(16)))
out = result.get()
"""
CONTEXT = """
from cuda.bindings import driver
driver.cuInit(0)
_, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
driver.cuMemAlloc(64)
out[:] = 3
"""
PARTS = """
import json
from collections import defaultdict
import cubepy as cp
cp.cube  # which imports the language
spent, imported = defaultdict(float), time.process_time()
def timed(owner, name, part):
    inner = getattr(owner, name)
    def run(*args, **kwargs):
        began = time.process_time()
        try:
            return inner(*args, **kwargs)
        finally:
            spent[part] += time.process_time() - began
    setattr(owner, name, run)
from cubepy.jit import compile, launch
from cubepy.runtimes.cpu import device
from cubepy.runtimes.native import host, pool
timed(host, "host_cpu", "importing llvmlite, the CPU's features")
device.host_cpu = host.host_cpu
timed(compile, "kept_forms", "hash of the kernel's closure")
timed(compile.Kept, "facts", "reading the facts")
timed(compile.Kept, "artifact", "reading the code")
timed(launch, "plan_of", "making the plan")
timed(launch, "_fill", "making the plan")
timed(device, "link", "linking the code")
timed(device, "get_pool", "the thread pool")
@cp.cube
def axpy(x, y, out, a: cp.f32):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = a * x.flat[i] + y.flat[i]
axpy.over(out)(x, x, out, 2.0)
total = time.process_time() - imported
parts = {"import": imported - processor, **spent}
parts["the rest of the launch"] = total - sum(spent.values())
heads = "cubepy.frontend.tracer", "cubepy.passes.", "cubepy.compilers."
modules = sorted(name for name in sys.modules if name.startswith(heads))
print(json.dumps({"ms": {k: 1e3 * v for k, v in parts.items()}, "modules": modules}))
assert (out == 3).all()
"""
Variants = dict[str, tuple[str, dict[str, str]]]
"""The text of a process, and what its environment adds."""
CPU: Variants = {
    "cubepy, cold": (CUBEPY, {"CUBEPY_CACHE": "0"}),
    "cubepy, kept": (CUBEPY, {}),
    "numba, cold": (NUMBA.format(options=""), {}),
    "numba, cache=True": (NUMBA.format(options="cache=True"), {}),
}
CUDA: Variants = {
    "cubepy, cold": (CUDA_CUBEPY, {"CUBEPY_CACHE": "0"}),
    "cubepy, kept": (CUDA_CUBEPY, {}),
    "cupy, cold": (CUDA_CUPY, {"CUPY_CACHE_IN_MEMORY": "1"}),
    "cupy, kept": (CUDA_CUPY, {}),
    "the context alone": (CONTEXT, {}),
}


def main(lock: Callable[[], AbstractContextManager[Any]] = nullcontext) -> None:
    """Time all variants in turn; print medians and the best of each.

    `lock`: what each process holds, where others work on the same GPU."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("--prebuilt", action="store_true")
    parser.add_argument("--against", help="a commit to compare prebuilt functions with")
    given = parser.parse_args()
    if given.prebuilt:
        show_prebuilt(given.rounds, given.against)
        return
    if given.parts:
        show_parts(given.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        times = measure(Path(folder), given.rounds, CUDA if given.cuda else CPU, lock)
    found = {name: summary(rows) for name, rows in times.items()}
    if given.json:
        print(json.dumps(found, indent=2))
        return
    for name, row in found.items():
        text = f"median {row['median_ms']:6.0f} ms, best {row['best_ms']:6.0f} ms"
        print(f"{name:20} {text}, processor {row['processor_ms']:6.0f} ms")


def show_parts(rounds: int) -> None:
    """Print processor time of what a process does that finds its kernel kept, and which modules of
    the tracer, the passes and the compilers it imports."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(HEAD + PARTS)
        for turn in range(rounds + 2):
            done = subprocess.run(
                [sys.executable, str(script)],
                env=environment(Path(folder)),
                capture_output=True,
                text=True,
                check=True,
            )
            if turn > 1:  # the first compiles, and Python's own caches are full by the second
                found.append(json.loads(done.stdout))
    for name in found[0]["ms"]:
        median = statistics.median(row["ms"].get(name, 0.0) for row in found)
        print(f"{name:40} {median:8.2f} ms")
    modules = sorted({name for row in found for name in row["modules"]})
    print("modules of tracer, passes and compilers:", ", ".join(modules) or "none")


def show_prebuilt(rounds: int, against: str | None) -> None:
    """Print milliseconds of the first call of each prebuilt function, here and at another commit;
    then the processor time of its phases here."""
    with checkouts(against) as sides, tempfile.TemporaryDirectory() as folder:
        for name in CALLS:
            texts = [f"{name:20}"]
            for side in sides:
                first_call(Path(folder), side.root, name)  # fills Python's caches
            turns = [
                [first_call(Path(folder), side.root, name) for side in sides] for _ in range(rounds)
            ]
            for side, rows in zip(sides, zip(*turns, strict=True), strict=True):
                walls, spent = ([row[key] for row in rows] for key in ("wall", "processor"))
                median = statistics.median(spent)
                best = f"best {min(walls):4.0f} ms, processor {min(spent):4.0f}"
                texts.append(f"{side.name}: {best}, median {median:4.0f}")
            print("  ".join(texts), flush=True)
            phases = first_call(Path(folder), sides[0].root, name, "phases")
            for key in ("wall", "processor"):
                del phases[key]
            print(" " * 20, ", ".join(f"{key} {ms:.0f}" for key, ms in phases.items()), flush=True)


def first_call(folder: Path, root: Path, name: str, *more: str) -> dict[str, float]:
    """What `children/first_calls.py` measures of the CubePy at `root`."""
    child = Path(__file__).parent / "children" / "first_calls.py"
    done = subprocess.run(
        [sys.executable, str(child), name, *more],
        env=environment(folder) | {"PYTHONPATH": str(root), "CUBEPY_CACHE": "0"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def environment(folder: Path) -> dict[str, str]:
    """That of processes with caches of their own."""
    base = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONDONT", "CUBEPY_"))}
    return base | {
        "PYTHONPYCACHEPREFIX": str(folder / "pyc"),
        "CUBEPY_CACHE_DIR": str(folder / "cubepy"),
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "CUPY_CACHE_DIR": str(folder / "cupy"),
        "CUDA_CACHE_DISABLE": "1",
        "PYTHONPATH": str(Path(__file__).parents[1]),
    }


def measure(
    folder: Path,
    rounds: int,
    variants: Variants,
    lock: Callable[[], AbstractContextManager[Any]],
) -> dict[str, list[tuple[float, float]]]:
    """Wall and processor time in ms of each process, by variant."""
    base = environment(folder)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    for turn in range(rounds + 1):
        for number, (name, (text, more)) in enumerate(variants.items()):
            script = folder / f"script{number}.py"
            script.write_text(HEAD + text + TAIL)
            command = [sys.executable, str(script)]
            with lock():
                done = subprocess.run(
                    command, env=base | more, capture_output=True, text=True, check=True
                )
            wall, processor = map(float, done.stdout.split())
            if turn:  # the first fills the caches, those of Python too
                times[name].append((wall, processor))
    return times


def summary(rows: list[tuple[float, float]]) -> dict[str, float]:
    """The median and the best wall time, and the median of processor time."""
    walls, processors = zip(*rows, strict=True)
    return {
        "median_ms": statistics.median(walls),
        "best_ms": min(walls),
        "processor_ms": statistics.median(processors),
    }


if __name__ == "__main__":
    main()
