"""The first call of a prebuilt function in this process; prints JSON.

    python bench/children/first_calls.py NAME [phases]

Milliseconds from behind `import numpy` and `import cubepy` to the end of the call, on the clock and
of all threads on a core; with `phases` also those on a core that the phases of the compiler take,
each without the phases inside it. It imports the CubePy of PYTHONPATH, which may be another
commit's: functions that are not there are not measured.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

import cubepy

PHASES = {
    "imports": ("importlib._bootstrap", "_find_and_load"),
    "trace": ("cubepy.jit.compile:Specialisations", "trace"),
    "passes": ("cubepy.compilers.base", "optimise"),
    "legalise": ("cubepy.compilers.llvm.compiler", "legalise"),
    "emit": ("cubepy.compilers.llvm.compiler", "emit"),
    "parse": ("cubepy.compilers.llvm.toolchain", "_parsed"),
    "LLVM": ("cubepy.compilers.llvm.toolchain", "to_object"),
    "link": ("cubepy.runtimes.cpu.device", "link"),
    "pool": ("cubepy.runtimes.cpu.device", "get_pool"),
}
"""The function whose time is a phase, in the module or class that calls it."""
Calls = dict[str, tuple[Callable[[], tuple[Any, ...]], Callable[..., Any]]]


def ones(*shape: int) -> Any:
    """An array of f32, whose memory is there."""
    return np.ones(shape, np.float32)


def shuffled(n: int) -> Any:
    """The numbers below n in another order."""
    return (np.arange(n) * 7919 % n).astype(np.float32)


CALLS: Calls = {
    "matmul 512": (
        lambda: (ones(512, 512), ones(512, 512)),
        lambda a, b: cubepy.kernels.matmul(a, b),
    ),
    "matmul 1x4096x4096": (
        lambda: (ones(1, 4096), ones(4096, 4096)),
        lambda a, b: cubepy.kernels.matmul(a, b),
    ),
    "conv2d 3x3": (
        lambda: (ones(1, 64, 56, 56), ones(64, 64, 3, 3)),
        lambda x, w: cubepy.kernels.conv2d(x, w, padding=1),
    ),
    "prepack, conv2d 3x3": (
        lambda: (ones(1, 64, 56, 56), ones(64, 64, 3, 3)),
        lambda x, w: cubepy.kernels.conv2d(x, cubepy.kernels.prepack(w), padding=1),
    ),
    "attention 8x1024x64": (
        lambda: (ones(8, 1024, 64), ones(8, 1024, 64), ones(8, 1024, 64)),
        lambda q, k, v: cubepy.kernels.attention(q, k, v),
    ),
    "sum of rows": (lambda: (ones(1024, 1024),), lambda x: cubepy.kernels.sum(x, axis=1)),
    "softmax": (lambda: (ones(1024, 1024),), lambda x: cubepy.kernels.softmax(x)),
    "layer_norm": (
        lambda: (ones(1024, 1024), ones(1024), ones(1024)),
        lambda x, w, b: cubepy.kernels.layer_norm(x, 1024, w, b),
    ),
    "max_pool2d": (lambda: (ones(1, 64, 56, 56),), lambda x: cubepy.kernels.max_pool2d(x, 2)),
    "sort": (lambda: (shuffled(1 << 16),), lambda x: cubepy.kernels.sort(x)),
    "gather": (
        lambda: (ones(1 << 16, 16), np.arange(0, 1 << 16, 7)),
        lambda x, i: cubepy.kernels.gather(x, i, mode="slices"),
    ),
}
"""Arguments, and what is called with them."""


class Phases:
    """Seconds on a core of each phase, without those inside it."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PHASES, 0.0)
        self._inside = [0.0]
        """Of each open phase, the seconds of the phases in it."""
        for phase, (place, name) in PHASES.items():
            with suppress(ImportError, AttributeError):
                self._wrap(phase, place, name)

    def _wrap(self, phase: str, place: str, name: str) -> None:
        module, _, of_class = place.partition(":")
        owner = importlib.import_module(module)
        if of_class:
            owner = getattr(owner, of_class)
        inner = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = time.process_time()
            self._inside.append(0.0)
            try:
                return inner(*args, **kwargs)
            finally:
                took = time.process_time() - begin
                self.spent[phase] += took - self._inside.pop()
                self._inside[-1] += took

        setattr(owner, name, timed)


def first_call(name: str, has_phases: bool) -> dict[str, float]:
    """Milliseconds by what takes them."""
    make, call = CALLS[name]
    arguments = make()
    begun = time.perf_counter(), time.process_time()
    phases = Phases() if has_phases else None
    call(*arguments)
    spent = phases.spent if phases else {}
    spent["wall"], spent["processor"] = (
        time.perf_counter() - begun[0],
        time.process_time() - begun[1],
    )
    return {key: 1e3 * seconds for key, seconds in spent.items()}


if __name__ == "__main__":
    print(json.dumps(first_call(sys.argv[1], "phases" in sys.argv[2:])))
