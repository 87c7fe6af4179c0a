"""Runs a kernel of `lanes` with its units as lanes, and compares memory bit for bit.

Memory in front of and behind each array is out of reach, so that an access for a unit that is off
ends the process. `python -m tests.fuzz.units_as_lanes --count 500` says how many kernels the pass
took, why it did not take the others, and what kernels have in them.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import cubepy as cp
from cubepy.compilers import base
from cubepy.frontend import specialise as frontend
from cubepy.options import Options
from cubepy.passes import jam_units
from cubepy.passes import pipeline as passes
from cubepy.passes import vectorise as units
from cubepy.passes.vectorise import Vectorised
from tests.fuzz.chooser import Seeded
from tests.fuzz.differential import NUMPY, Arrays, compare, load_kernel, random_input
from tests.fuzz.generator import SLOTS
from tests.fuzz.guarded import Guarded
from tests.fuzz.lanes import CONSTRUCTS, OWN, LanesGenerator, LanesProgram

INPUTS = ("x", "k", "y")
"""Letters of arrays that no unit writes."""
PLACES, PLACE = 16, 32768
"""Arrays of a kernel, and most bytes of one."""


def generate(seed: int) -> LanesProgram:
    """The kernel of a seed."""
    return LanesGenerator(Seeded(seed)).program()


def arguments(program: LanesProgram, seed: int) -> Arrays:
    """Inputs with some special values, places that mostly lie outside, and poisoned outputs."""
    rng = np.random.default_rng(seed)
    units = program.cube_dim * program.cubes
    places = rng.integers(-3, program.extent + 3, units, dtype=np.int32)
    places[rng.integers(units)] = rng.choice([-(2**31), 2**31 - 1])
    arrays: Arrays = {"k_i32": places}
    arrays["y_i32"] = random_input(rng, np.dtype(np.int32), units + 2)
    for t in program.types:
        dtype = np.dtype(NUMPY[t])
        arrays[f"x_{t}"] = random_input(rng, dtype, program.extent)
        arrays[f"w_{t}"] = random_input(rng, dtype, units * (OWN + 1))
        arrays[f"out_{t}"] = np.full(units * SLOTS, 77, dtype)
    return arrays | {name: np.zeros(4, np.int32) for name in ("sums", "tops", "bits")}


@cache
def _guarded() -> Guarded:
    return Guarded(PLACES, PLACE)


def run(kernel: Any, program: LanesProgram, arrays: Arrays, at_end: bool) -> Arrays:
    """The arrays after a launch on copies of them, between pages without access."""
    places = {name: _guarded().copy(k, a, at_end) for k, (name, a) in enumerate(arrays.items())}
    launcher = kernel.configure(plane_dim=program.plane_dim)
    launcher[program.cubes, program.shape](**places, n=program.cube_dim % 4)
    cp.synchronize()
    return {name: places[name].copy() for name in arrays if name[0] not in INPUTS}


@contextmanager
def replaced(module: Any, **functions: Any) -> Iterator[None]:
    """A module that has other functions meanwhile."""
    originals = {name: getattr(module, name) for name in functions}
    for name, function in functions.items():
        setattr(module, name, function)
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(module, name, function)


@contextmanager
def watched() -> Iterator[list[Vectorised]]:
    """What the pass makes of the kernels that are compiled meanwhile."""
    found: list[Vectorised] = []
    original = units.vectorise

    def spy(*given: Any) -> Vectorised:
        found.append(original(*given))
        return found[-1]

    with replaced(units, vectorise=spy):
        yield found


@contextmanager
def _blocks(always: bool) -> Iterator[None]:
    """Meanwhile blocks of units are made even if they save no loads, where `always` says so."""
    gain = jam_units.GAIN
    jam_units.GAIN = 9.0 if always else gain
    try:
        yield
    finally:
        jam_units.GAIN = gain


@contextmanager
def made_once() -> Iterator[None]:
    """Meanwhile one kernel is traced and optimised once for all ways of a target to run it, which
    is a third of the work."""
    trace, optimise = frontend.specialise, base.optimise
    traced: dict[Any, Any] = {}
    optimised: dict[Any, Any] = {}

    def traced_once(function: Any, signature: Any, target: Any) -> Any:
        key = function, signature, target
        if key not in traced:
            traced[key] = trace(function, signature, target)
        return traced[key]

    def optimised_once(kernel: Any, target: Any, options: Options) -> Any:
        key = target, replace(options, vectorise="auto")
        if key not in optimised:
            optimised[key] = optimise(kernel, target, options)
        return optimised[key]

    with replaced(frontend, specialise=traced_once), replaced(base, optimise=optimised_once):
        yield


def check(seed: int) -> bool:
    """`Mismatch` where lanes differ from units one by one; whether the pass took the kernel.

    Every fourth kernel is compared with the interpreter, the others with scalar code; every eighth
    with both. LLVM optimises a third of the lanes, where what a line holds for units that are off
    may come to light; every 64th kernel is checked at each access as well.
    """
    program = generate(seed)
    kernel, arrays = load_kernel(program), arguments(program, seed)
    scalar, lanes = kernel.configure(vectorise=False), kernel.configure(vectorise=True)
    at_end = seed % 4 != 3
    ways = [(kernel.configure(device="interpreter"), "interpreter", seed % 4 == 0)]
    ways.append((scalar, "units one by one", seed % 4 != 0 or seed % 8 == 0))
    levels = [2] if seed % 3 == 0 else [0]
    with cp.settings(cache=False), made_once():
        with cp.settings(opt_level=0), replaced(passes, verify=lambda kernel, *_: kernel):
            references = [(run(k, program, arrays, at_end), way) for k, way, on in ways if on]
        expected = references[0][0]
        for other, way in references[1:]:
            compare(program, way, expected, other)
        with watched() as found, _blocks(seed % 2 == 0):
            for level in levels:
                with cp.settings(opt_level=level):
                    held = run(lanes, program, arrays, at_end)
                compare(program, f"units as lanes, O{level}", expected, held)
            if seed % 64 == 5:
                _check_checked(program, arrays, expected, lanes, scalar)
    return any(made.lanes > 1 for made in found)


def _check_checked(
    program: LanesProgram, arrays: Arrays, expected: Arrays, lanes: Any, scalar: Any
) -> None:
    """Checked mode finds the same, or a fault where units one by one have one too."""
    with cp.settings(opt_level=0):
        try:
            held = run(lanes.configure(checked=True), program, arrays, True)
        except cp.Error:
            try:
                run(scalar.configure(checked=True), program, arrays, True)
            except cp.Error:
                return
            raise
    compare(program, "units as lanes, checked", expected, held)


def census(seeds: Sequence[int]) -> tuple[Counter[str], Counter[str], Counter[int]]:
    """What kernels have in them, why the pass did not take some, and how many lanes others have."""
    constructs, refusals, lanes = Counter[str](), Counter[str](), Counter[int]()
    for seed in seeds:
        program = generate(seed)
        constructs.update(program.constructs())
        kernel, arrays = load_kernel(program), arguments(program, seed)
        launcher = kernel.configure(vectorise=True, plane_dim=program.plane_dim)
        with cp.settings(opt_level=0, cache=False), watched() as found:
            launcher[program.cubes, program.shape].inspect(
                **arrays, n=program.cube_dim % 4, stage="llvm"
            )
        made = found[-1]
        if made.lanes > 1:
            lanes[made.lanes] += 1
        else:
            refusals[made.remarks[0].text] += 1
    return constructs, refusals, lanes


def main() -> None:
    """Print the census of some seeds."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.units_as_lanes")
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--start", type=int, default=0)
    options = parser.parse_args()
    seeds = range(options.start, options.start + options.count)
    constructs, refusals, lanes = census(seeds)
    taken = sum(lanes.values())
    print(f"{taken} of {len(seeds)} kernels have their units as lanes: {dict(lanes)}")
    for text, count in refusals.most_common():
        print(f"{count:6} {text}")
    print("kernels that have")
    for name in CONSTRUCTS:
        print(f"{constructs[name]:6} {name}")


if __name__ == "__main__":
    main()
