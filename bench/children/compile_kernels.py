"""Seconds to compile kernels in this process, and of the first launch of it; prints JSON.

All are seconds of the calling thread on a core, so that other work on the machine adds little.

    python bench/children/compile_kernels.py {kernels|first|NAME OF A STRESS} [ROUNDS]

It imports the CubePy of PYTHONPATH, which may be another commit's: names that are not there are
not measured.
"""

import importlib
import json
import linecache
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

SAXPY = """
def kernel(a: cp.f32, x, y, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out[i] = a * x[i] + y[i]
"""
MANDELBROT = """
def kernel(x, y, out):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        a, b = x[i], y[i]
        u, v, n = a, b, 0
        while u * u + v * v < 4 and n < 50:
            u, v = u * u - v * v + a, 2 * u * v + b
            n += 1
        out[i] = cp.f32(n)
"""
SOFTMAX = """
def kernel(x, out, n: int):
    s = cp.shared(64, cp.f32)
    t, row = cp.UNIT_POS, cp.CUBE_POS
    largest = x[row * n]
    for j in range(t, n, 64):
        largest = max(largest, x[row * n + j])
    s[t] = largest
    cp.sync_cube()
    for k in cp.unroll(range(6)):
        if t < 32 >> k:
            s[t] = max(s[t], s[t + (32 >> k)])
        cp.sync_cube()
    largest = s[0]
    cp.sync_cube()
    total = cp.f32(0)
    for j in range(t, n, 64):
        total += cp.exp(x[row * n + j] - largest)
    s[t] = total
    cp.sync_cube()
    for k in cp.unroll(range(6)):
        if t < 32 >> k:
            s[t] += s[t + (32 >> k)]
        cp.sync_cube()
    for j in range(t, n, 64):
        out[row * n + j] = cp.exp(x[row * n + j] - largest) / s[0]
"""
KERNELS: dict[str, tuple[str, Callable[[Any], tuple[Any, ...]], tuple[int, int]]] = {
    "saxpy": (SAXPY, lambda f: (2.0, f(), f(), f()), (1, 256)),
    "mandelbrot": (MANDELBROT, lambda f: (f(), f(), f()), (1, 256)),
    "softmax": (SOFTMAX, lambda f: (f(), f(), 64), (1, 64)),
}


def statements() -> str:
    """2,000 statements."""
    lines = [f"    v = v * {1 + k % 7 / 8} + x[i]" for k in range(2000)]
    return "\n".join(["def kernel(x, out):", "    i = cp.UNIT_POS", "    v = x[i]", *lines, END])


def unrolled() -> str:
    """A loop that is unrolled 1,024 times."""
    loop = "    for k in cp.unroll(range(1024)):\n        v = v * 0.5 + x[(i + k) % 64]"
    return f"def kernel(x, out):\n    i = cp.UNIT_POS\n    v = x[i]\n{loop}\n{END}"


def elifs() -> str:
    """400 `elif`s."""
    arms = [f"    elif x[i] < {k}:\n        v = v + {k}" for k in range(1, 400)]
    head = (
        "def kernel(x, out):\n    i = cp.UNIT_POS\n    v = x[i]\n    if x[i] < 0:\n        v = -v"
    )
    return "\n".join([head, *arms, END])


def calls() -> str:
    """260 calls of a helper with an early return."""
    helper = "def step(v):\n    if v > 4:\n        return v - 1\n    return v * 2\n\n"
    lines = ["    v = step(v)"] * 260
    return helper + "\n".join(
        ["def kernel(x, out):", "    i = cp.UNIT_POS", "    v = x[i]", *lines, END]
    )


END = "    out[i] = v\n"
STRESS = {
    "2000 statements": statements,
    "unrolled 1024": unrolled,
    "400 elifs": elifs,
    "260 calls": calls,
}
PHASES = {
    "trace": (
        ("cubepy.compilers.base", "specialise"),
        ("cubepy.jit.compile.Specialisations", "trace"),
    ),
    "passes": (("cubepy.compilers.base", "run"),),
    "emission": (("cubepy.compilers.llvm.compiler.LlvmCompiler", "_module"),),
    "LLVM": (("cubepy.compilers.llvm.toolchain", "to_object"),),
    "link": (("cubepy.runtimes.cpu.device", "link"),),
}
"""Functions whose time is a phase of a compilation. A commit that has none of these names has no
time for the phase."""


class Clock:
    """Adds up the time of the functions of each phase."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def wrap(self) -> None:
        """Put a clock around the functions of `PHASES` that exist."""
        for phase, places in PHASES.items():
            for place, name in places:
                self._wrap(phase, place, name)

    def _wrap(self, phase: str, place: str, name: str) -> None:
        try:
            owner = importlib.import_module(place)
        except ModuleNotFoundError:
            module, _, attribute = place.rpartition(".")
            owner = getattr(importlib.import_module(module), attribute, None)
        inner = getattr(owner, name, None)
        if inner is None:
            return

        def timed(*args: Any, **kw: Any) -> Any:
            begin = time.thread_time()
            try:
                return inner(*args, **kw)
            finally:
                self.spent[phase] = self.spent.get(phase, 0) + time.thread_time() - begin

        is_static = isinstance(vars(owner).get(name), staticmethod)
        setattr(owner, name, staticmethod(timed) if is_static else timed)


def fresh(source: str, serial: int) -> Any:
    """A kernel that was never compiled."""
    import cubepy as cp

    name = f"<bench {serial}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace: dict[str, Any] = {"cp": cp}
    exec(compile(source, name, "exec"), namespace)
    return cp.cube(namespace["kernel"])


def array() -> Any:
    """An argument."""
    import numpy as np

    return np.linspace(0.1, 1, 64, dtype=np.float32)


def compile_all(rounds: int) -> dict[str, dict[str, float]]:
    """Medians of each kernel's first launch, and of its phases, in seconds."""
    clock, found = Clock(), {name: [] for name in KERNELS}
    clock.wrap()
    launch("saxpy", 0)
    for serial in range(1, rounds + 1):
        for name in KERNELS:
            clock.spent.clear()
            seconds = launch(name, serial)
            found[name].append({"all": seconds, **clock.spent})
    return {
        name: {phase: statistics.median(r[phase] for r in rows) for phase in rows[0]}
        for name, rows in found.items()
    }


def launch(name: str, serial: int) -> float:
    """Seconds of the first launch of a kernel."""
    source, make, grid = KERNELS[name]
    kernel, arguments = fresh(source, serial), make(array)
    begin = time.thread_time()
    kernel[grid](*arguments)
    return time.thread_time() - begin


def compile_stress(name: str) -> float:
    """Seconds of the first launch of a large kernel, in a process that is warm."""
    launch("saxpy", 0)
    kernel, x, out = fresh(STRESS[name](), 1), array(), array()
    begin = time.thread_time()
    kernel[1, 64](x, out)
    return time.thread_time() - begin


def first_launch() -> float:
    """Seconds from importing CubePy to the end of the first launch, NumPy being there."""
    x = [array() for _ in range(3)]
    begin = time.thread_time()
    kernel = fresh(SAXPY, 0)
    kernel[1, 256](2.0, *x)
    return time.thread_time() - begin


if __name__ == "__main__":
    what, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5
    if what == "kernels":
        print(json.dumps(compile_all(rounds)))
    else:
        print(json.dumps(first_launch() if what == "first" else compile_stress(what)))
