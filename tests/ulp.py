"""The errors of the elementary functions in ULP, as kernels compute them.

`python -m tests.ulp [NAME ...] [--step N] [--processes N]` sweeps every (or every N-th) of the
2**32 numbers of f32 through each function, on all cores, and prints a table in Markdown.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import cubepy as cp
from cubepy.ir.ops import TABLE
from tests.lang.test_math_expansions import BINARY, WIDE

CHUNK = 1 << 22
FUNCTIONS = {row.name: row for row in TABLE.values() if row.ulp}
LANGUAGE: dict[str, Callable[..., Any]] = {
    name: getattr(cp, name) for name in FUNCTIONS if name not in BINARY
}


@cp.cube
def unary(f: cp.Comptime, x: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = f(x.flat[i])


@cp.cube
def binary(f: cp.Comptime, x: cp.Lines, y: cp.Lines, out: cp.Lines):
    i = cp.ABSOLUTE_POS
    if i < out.size:
        out.flat[i] = f(x.flat[i], y.flat[i])


def compute(name: str, *arguments: Any, **options: Any) -> Any:
    """The function of the language on arrays of one type."""
    out = np.empty_like(arguments[0])
    kernel = (unary if len(arguments) == 1 else binary).configure(**options)
    kernel.over(out)(getattr(cp, name), *arguments, out)
    return out


def ulps(found: Any, exact: Any) -> Any:
    """|found - exact| in ULP of `found`'s type; `exact` has a wider one.

    NaN for NaN and equal infinities are 0, another mismatch of NaN is infinite. Infinities count as
    the power of two where the type ends.
    """
    info, wide = ml_dtypes.finfo(found.dtype), exact.dtype
    with np.errstate(all="ignore"):
        edge = np.ldexp(np.asarray(1, wide), int(info.maxexp))
        value = np.clip(found.astype(wide), -edge, edge)
        exact = np.clip(exact, -edge, edge)
        significand, exponent = np.frexp(exact)
        exponent = np.where(np.abs(significand) == 0.5, exponent - 1, exponent)
        exponent = np.maximum(exponent, int(info.minexp) + 1) - (int(info.nmant) + 1)
        error = np.abs(value - exact) / np.ldexp(np.ones((), wide), exponent)
    missing = np.isnan(value) | np.isnan(exact)
    both = np.isnan(value) & np.isnan(exact)
    return np.where(both, 0, np.where(missing, np.inf, error))


def in_f64(name: str, x: Any) -> Any:
    """The function in f64: NumPy's, or the kernel's own where NumPy has none."""
    if name in ("erf", "erfc"):
        return compute(name, x.astype(np.float64))
    with np.errstate(all="ignore"):
        return WIDE[name](x.astype(np.float64))


def sweep(name: str, step: int, chunk: int) -> tuple[float, int]:
    """The largest error in a chunk of the bit patterns, and where it is."""
    first = chunk * CHUNK * step
    bits = np.arange(first, min(2**32, first + CHUNK * step), step, dtype=np.uint64).astype(
        np.uint32
    )
    x = bits.view(np.float32)
    errors = ulps(compute(name, x), in_f64(name, x))
    worst = int(np.argmax(errors))
    return float(errors[worst]), int(bits[worst])


def largest(name: str, step: int, pool: Any) -> tuple[float, float]:
    """The largest error of a function over every `step`-th number, and the number."""
    chunks = range(-(-(2**32) // (CHUNK * step)))
    error, bits = max(pool.imap_unordered(functools.partial(sweep, name, step), chunks))
    return error, float(np.uint32(bits).view(np.float32))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.ulp")
    parser.add_argument("names", nargs="*", help="functions; default: all of one argument")
    parser.add_argument("--step", type=int, default=1, help="look at every STEP-th number only")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    os.environ["CUBEPY_NUM_THREADS"] = "1"
    count = -(-(2**32) // options.step)
    print(f"Largest errors over {count:,} numbers of f32\n")
    print("| function | max ULP | at | bound | seconds |\n|---|---|---|---|---|", flush=True)
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for name in options.names or LANGUAGE:
            start = time.perf_counter()
            error, place = largest(name, options.step, pool)
            seconds, bound = time.perf_counter() - start, FUNCTIONS[name].ulp
            print(f"| {name} | {error:.3f} | {place!r} | {bound:g} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
