"""Runs a batch of programs on a device and compares its memory with the model's."""

from __future__ import annotations

import functools
import linecache
import math
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cp
from tests.fuzz.chooser import Seeded
from tests.fuzz.typed.expressions import INPUTS
from tests.fuzz.typed.nodes import Environment
from tests.fuzz.typed.numbers import Unspecified, rounded
from tests.fuzz.typed.programs import CHAIN, Piece, write
from tests.fuzz.typed.rules import FLOATS, INTEGERS, SIGNED, Number

UNITS = 16
LANES = "cpu, units as lanes"
"""A way to run that is no device."""
BATCH = 8
"""Seeds from a multiple of this on share a kernel, its inputs, and whether products contract."""
NUMPY = {**{t: t.replace("i", "int").replace("u", "uint") for t in SIGNED}}
NUMPY |= {t: t.replace("u", "uint") for t in INTEGERS if t not in SIGNED}
NUMPY |= {"f16": "float16", "f32": "float32", "f64": "float64", "bool": "bool"}


@dataclass
class Batch:
    """Programs in one kernel, its inputs, and what the model expects: None where it is open."""

    pieces: dict[int, Piece]
    source: str
    inputs: dict[str, np.ndarray]
    expected: dict[str, list[tuple[int, int, list[Number | None]]]]
    """By array: the seed, the place of the first element, and one value for each unit."""
    contract: bool


@dataclass
class Wrong(Exception):
    """A program whose memory is not what the model expects."""

    seed: int
    device: str
    array: str
    unit: int
    found: Any
    expected: Any
    source: str

    def __str__(self) -> str:
        return (
            f"seed {self.seed} on {self.device}: unit {self.unit} of {self.array} is "
            f"{self.found!r}, the model says {self.expected!r}\n{self.source}"
        )


def make(seeds: Sequence[int], has_f64: bool = True) -> Batch:
    """The kernel of some seeds of one batch."""
    contract = seeds[0] // BATCH % 2 == 0
    pieces = {s: _piece(s, contract, has_f64) for s in seeds}
    inputs = _inputs(seeds[0] // BATCH, has_f64)
    runs = [_environment(inputs, unit) for unit in range(UNITS)]
    expected: dict[str, list[tuple[int, int, list[Number | None]]]] = {}
    places: dict[str, int] = {}
    for seed, piece in pieces.items():
        for e in runs:
            for statement in piece.model:
                statement(e)
        for k, t in enumerate(piece.results):
            name = f"{piece.prefix}r{k}"
            held = expected.setdefault(f"out_{t}", [])
            places[name] = len(held) * UNITS
            values = [None if e[name] is Unspecified else e[name] for e in runs]
            held.append((seed, places[name], values))
    return Batch(pieces, _source(pieces, inputs, expected, places), inputs, expected, contract)


def _piece(seed: int, contract: bool, has_f64: bool) -> Piece:
    choosers = Seeded(seed), Seeded(seed ^ 0x7AB1E), Seeded(seed ^ 0xCA115)
    return write(*choosers, f"p{seed}_", contract, has_f64)


def _source(
    pieces: dict[int, Piece],
    inputs: dict[str, np.ndarray],
    expected: dict[str, Any],
    places: dict[str, int],
) -> str:
    helpers = [line for piece in pieces.values() for line in piece.helpers]
    body = ["    i = cp.ABSOLUTE_POS"]
    for piece in pieces.values():
        lines = (re.sub(r"@(\w+)@", lambda m: str(places[m[1]]), line) for line in piece.lines)
        body += ["    " + line for line in lines]
    head = f"def kernel({', '.join([*inputs, *expected])}):"
    return "\n".join([CHAIN, *helpers, head, *body, ""])


def _inputs(seed: int, has_f64: bool) -> dict[str, np.ndarray]:
    chooser = Seeded(seed ^ 0x5EED)
    kept = tuple(t for t in INPUTS if has_f64 or t != "f64")
    return {f"x_{t}": np.array([_number(chooser, t) for _ in range(UNITS)], NUMPY[t]) for t in kept}


def _number(c: Seeded, t: str) -> Number:
    """A number of a type, often at an edge, or between two neighbours of a narrower float."""
    if t == "bool":
        return bool(c.number(0, 1))
    if t in INTEGERS:
        bits, shift = INTEGERS[t], -(2 ** (INTEGERS[t] - 1)) if t in SIGNED else 0
        edge = c.choose((0, 1, 2**bits - 1, 2 ** (bits - 1), 2 ** (bits - 1) - 1)) + shift
        small = c.number(0, 9) if t not in SIGNED else c.number(-9, 9)
        return c.choose((edge, small, small, c.number(0, 2**bits - 1) + shift))
    if c.number(0, 2) == 0:
        digits = c.choose((4, 8, 9, 11, 12))  # half a step of a narrower type, and a bit more
        near = 1 + c.number(0, 2**digits - 1) / 2**digits + c.choose((0, 1, -1)) * 2.0**-40
        return rounded(near * 2.0 ** c.number(-6, 6) * c.choose((1, -1)), t)
    plain = (0.0, -0.0, 1.0, -1.5, 3.0, 0.1, c.number(-1000, 1000) / 7, c.number(-9, 9) * 1e3)
    return rounded(c.choose(plain), t)


def _environment(inputs: dict[str, np.ndarray], unit: int) -> Environment:
    found: Environment = {"i": unit}
    for name, array in inputs.items():
        values = array.tolist()
        found[f"{name}[i]"], found[f"{name}[15 - i]"] = values[unit], values[15 - unit]
    return found


def load(source: str) -> Any:
    """The kernel as if it stood in a file."""
    name = f"<typed {hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    modules = {"cp": cp, "np": np, "math": math, "operator": operator, "functools": functools}
    namespace: dict[str, Any] = {**modules, "__name__": __name__}
    exec(compile("from dataclasses import dataclass\n", name, "exec"), namespace)
    exec(compile(source, name, "exec"), namespace)
    return cp.cube(namespace["kernel"])


def run(batch: Batch, device: str) -> dict[str, np.ndarray]:
    """The results on a device."""
    outputs = {
        name: np.full(len(held) * UNITS, 77, NUMPY[name.removeprefix("out_")])
        for name, held in batch.expected.items()
    }
    ways: dict[str, dict[str, Any]] = {"cpu": {}, LANES: {"vectorise": True}}
    where = ways.get(device, {"device": device})
    kernel = load(batch.source).configure(contract=batch.contract, **where)
    kernel[1, UNITS](**{n: a.copy() for n, a in batch.inputs.items()}, **outputs)
    return outputs


def compare(batch: Batch, found: dict[str, np.ndarray], device: str) -> None:
    """`Wrong` where memory is not as the model says."""
    for name, held in batch.expected.items():
        for seed, start, values in held:
            pairs = zip(values, found[name][start : start + UNITS].tolist(), strict=True)
            for unit, (expected, value) in enumerate(pairs):
                if expected is not None and not same(expected, value, name.removeprefix("out_")):
                    raise Wrong(seed, device, name, unit, value, expected, batch.source)


def same(a: Number, b: Number, t: str) -> bool:
    """Whether two numbers of a type are the same, with the signs of zeros; any NaN is any other."""
    if t not in FLOATS:
        return a == b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b and math.copysign(1, a) == math.copysign(1, b)


def check_device(seeds: Sequence[int], device: str, has_f64: bool) -> int:
    """`check` on one device, of the types that it has; 0 if it cannot run the kernel."""
    batch = make(seeds, has_f64)
    try:
        compare(batch, run(batch, device), device)
    except cp.UnsupportedError:
        return 0
    return len(seeds)


def check(seeds: Sequence[int], devices: Sequence[str]) -> None:
    """`Wrong`, or the product's error, where a device does not give what the model says."""
    batch = make(seeds)
    for device in devices:
        compare(batch, run(batch, device), device)
