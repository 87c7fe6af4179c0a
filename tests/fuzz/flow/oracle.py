"""Runs a program on a device, and as Python runs it, and compares what it returns."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cp
from tests.compilers.ptx import launching
from tests.compilers.ptx.machine import Unknown
from tests.fuzz.chooser import Seeded
from tests.fuzz.flow import model
from tests.fuzz.flow.expressions import TYPES
from tests.fuzz.flow.prelude import HEAD
from tests.fuzz.flow.programs import Flow, write
from tests.fuzz.typed.oracle import LANES, NUMPY, same
from tests.fuzz.typed.rules import FLOATS, INTEGERS, SIGNED, Number

UNITS = 16
CHECKED = "cpu, checked"
WAYS: dict[str, dict[str, Any]] = {
    "cpu": {},
    LANES: {"vectorise": True},
    CHECKED: {"checked": True},
}
"""Ways to run a kernel on this machine's CPU; other words are devices."""
PTX = "ptx"
"""What NVVM makes of CUDA C, run by an interpreter."""
Results = list[tuple[Number, ...]]
"""What a program returns, for each unit."""


@dataclass
class Wrong(Exception):
    """A program whose results are not those of Python."""

    seed: int
    way: str
    unit: int
    found: Any
    expected: Any
    source: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed} on {self.way}: unit {self.unit} gives {self.found}, "
            f"Python {self.expected}\n{self.source}"
        )


def program(seed: int, has_f64: bool = True) -> Flow:
    """The program of a seed."""
    return write(Seeded(seed), tuple(t for t in TYPES if has_f64 or t != "f64"))


def inputs(flow: Flow, seed: int) -> dict[str, np.ndarray]:
    """Two arrays of each type: small numbers, so that units take many ways, and a few edges."""
    names = [f"{a}_{t}" for t in flow.types for a in "xy"]
    return {name: _numbers(Seeded(seed ^ k << 40), name[2:]) for k, name in enumerate(names)}


def _numbers(c: Seeded, t: str) -> np.ndarray:
    if t in FLOATS:
        return np.array([c.number(-20, 20) / 4 for _ in range(UNITS)], NUMPY[t])
    high = 2 ** (INTEGERS[t] - (t in SIGNED)) - 1
    low = -high - 1 if t in SIGNED else 0
    small = [c.number(max(low, -9), 9) for _ in range(UNITS)]
    return np.array([c.choose((v, v, v, v, c.choose((low, high)))) for v in small], NUMPY[t])


def in_python(flow: Flow, arrays: dict[str, np.ndarray]) -> Results:
    """What Python returns."""
    names = model.namespace()
    exec(compile(HEAD + flow.source, "<flow in Python>", "exec"), names)
    results: Results = []
    for unit in range(UNITS):
        given = [model.Num(name[2:], array[unit].item()) for name, array in arrays.items()]
        found = names["program"](model.Num("index", unit), *given)
        results.append(tuple(number.value for number in found))
    return results


def source(flow: Flow) -> str:
    """The text of a kernel whose units call the program."""
    arrays = [f"{a}_{t}" for t in flow.types for a in "xy"]
    outputs = [f"out_{k}" for k in range(len(flow.results))]
    call = f"program({', '.join(['i', *(f'{name}[i]' for name in arrays)])})"
    body = ["i = cp.UNIT_POS", f"r = {call}"]
    body += [f"{name}[i] = r[{k}]" for k, name in enumerate(outputs)]
    head = f"def kernel({', '.join([*arrays, *outputs])}):"
    return HEAD + flow.source + "\n    ".join([head, *body]) + "\n"


def load(text: str) -> Any:
    """The kernel as if it stood in a file."""
    name = f"<flow {hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    namespace: dict[str, Any] = {"cp": cp, "__name__": __name__}
    exec(compile(text, name, "exec"), namespace)
    return cp.cube(namespace["kernel"])


def run(flow: Flow, arrays: dict[str, np.ndarray], way: str) -> Results:
    """What the program returns on a device."""
    outputs = [np.full(UNITS, 77, NUMPY[t]) for t in flow.results]
    kernel, given = load(source(flow)).configure(contract=False), list(arrays.values())
    if way == PTX:
        launching.launch(kernel, UNITS, [*(array.copy() for array in given), *outputs])
    else:
        kernel = kernel.configure(**WAYS.get(way, {"device": way}))
        kernel[1, UNITS](*(array.copy() for array in given), *outputs)
    return list(zip(*(array.tolist() for array in outputs), strict=True))


def compare(seed: int, flow: Flow, expected: Results, found: Results, way: str) -> None:
    """`Wrong` where a unit returned something else than in Python."""
    for unit, (a, b) in enumerate(zip(expected, found, strict=True)):
        if not all(map(same, a, b, flow.results)):
            raise Wrong(seed, way, unit, b, a, flow.source)


def check(seed: int, ways: Sequence[str], has_f64: bool = True) -> None:
    """`Wrong`, or the product's error, where a device does not give what Python returns."""
    flow = program(seed, has_f64)
    arrays = inputs(flow, seed)
    expected = in_python(flow, arrays)
    for way in ways:
        compare(seed, flow, expected, run(flow, arrays, way), way)


def check_device(seed: int, device: str, has_f64: bool) -> bool:
    """`check` on one device, of the types that it has; False if it cannot run the kernel."""
    try:
        check(seed, (device,), has_f64)
    except (cp.UnsupportedError, Unknown):
        return False
    return True
