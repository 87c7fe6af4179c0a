"""Runs one generated kernel everywhere and compares memory bit for bit."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import cubepy as cp
from cubepy.targets import Target
from tests.fuzz import wide
from tests.fuzz.barriers import BarrierGenerator, BarrierProgram
from tests.fuzz.chooser import Seeded
from tests.fuzz.generator import EXTENT, PLANES, SLOTS, TYPES, Generator, Program

_serial = itertools.count()
NUMPY = {
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "u16": np.uint16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bf16": np.float32,
}
"""The arrays of each type; those of bf16 hold f32."""
Arrays = dict[str, np.ndarray]


@dataclass
class Mismatch(Exception):
    """Two ways to run a kernel that do not agree."""

    program: Program
    way: str
    array: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        head = f"{self.way}: `{self.array}` is {self.found}, expected {self.expected}"
        p = self.program
        return (
            f"{head}\ncubes {p.cubes}, cube_dim {p.cube_dim}, plane_dim {p.plane_dim}\n{p.source}"
        )


def generate(seed: int) -> Program:
    """The kernel of a seed."""
    return Generator(Seeded(seed)).program()


def generate_wide(seed: int) -> Program:
    """The kernel of a seed, from the second generator."""
    return wide.WideGenerator(Seeded(seed)).program()


def has_f64(target: Target) -> bool:
    """Whether kernels for a target may use f64."""
    return target.kind != "metal" and (target.kind != "opencl" or "fp64" in target.features)


def generate_for(seed: int, target: Target, is_wide: bool = False) -> Program:
    """The kernel of a seed, of types and with planes that the target has."""
    planes = _planes(target)
    if is_wide:
        types = _types(wide.TYPES, target)
        return wide.WideGenerator(Seeded(seed), types, planes, _returns(target)).program()
    return Generator(Seeded(seed), _types(TYPES, target), planes).program()


def generate_barriers(
    seed: int, target: Target | None = None
) -> tuple[BarrierProgram, BarrierProgram]:
    """The kernel of a seed with barriers of units, and its twin without; of what a target has."""
    types = wide.TYPES if target is None else _types(wide.TYPES, target)
    planes = PLANES if target is None else _planes(target)
    returns = target is None or _returns(target)
    first, twin = (
        BarrierGenerator(Seeded(seed), types, planes, returns, twin).program()
        for twin in (False, True)
    )
    return first, twin


def _types(types: tuple[str, ...], target: Target) -> tuple[str, ...]:
    return types if has_f64(target) else tuple(t for t in types if t != "f64")


def _planes(target: Target) -> tuple[int, ...]:
    emulates = target.kind == "opencl" and "subgroups" not in target.features
    return PLANES if emulates else (1, target.plane_dim)


def _returns(target: Target) -> bool:
    """Whether units may end early: PoCL 3.0 lets them store behind barriers in branches."""
    return target.kind != "opencl"


def load_kernel(program: Program) -> Any:
    """The kernel as if it stood in a file."""
    name = f"<fuzz {next(_serial)}>"
    linecache.cache[name] = (len(program.source), None, program.source.splitlines(True), name)
    namespace: dict[str, Any] = {"cp": cp, "__name__": __name__}
    exec(compile(program.source, name, "exec"), namespace)
    return cp.cube(namespace["kernel"])


def arguments(program: Program, seed: int) -> dict[str, np.ndarray]:
    """Inputs with some special values, poisoned outputs, atomics' targets."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray] = {}
    units = program.cube_dim * program.cubes
    for t in program.types:
        arrays[f"x_{t}"] = random_input(rng, np.dtype(NUMPY[t]))
    for t in program.types:
        arrays[f"out_{t}"] = np.full(units * SLOTS, 77, NUMPY[t])
    arrays |= {name: _view(rng, name) for name in program.views}
    return arrays | {name: np.zeros(4, np.int32) for name in ("sums", "tops", "bits")}


def _view(rng: np.random.Generator, name: str) -> np.ndarray:
    """An input with strides of its own: reversed, of stride 0, or a transposed matrix."""
    kind, _, t = name.partition("_")
    values = random_input(rng, np.dtype(NUMPY[t]))
    if kind == "n":
        return values[::-1]
    return np.broadcast_to(values[:1], EXTENT) if kind == "z" else values.reshape(4, 4).T


def _copied(array: np.ndarray) -> np.ndarray:
    """A copy; inputs that are views are given as they are."""
    return array.copy() if array.flags.c_contiguous else array


def random_input(
    rng: np.random.Generator, dtype: np.dtype[Any], extent: int = EXTENT
) -> np.ndarray:
    """Numbers of a type, some of them at its edges."""
    if dtype.kind == "f":
        values = rng.normal(0, 100, extent).astype(dtype)
        values[rng.integers(extent)] = rng.choice([0.0, -0.0, 1.0, -1.0])
        return values
    info = np.iinfo(dtype)
    values = rng.integers(info.min, info.max, extent, dtype=dtype, endpoint=True)
    values[:4] = (0, 1, info.min, info.max)
    return rng.permutation(values)


def run(kernel: Any, program: Program, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays after a launch on copies of them."""
    copies = {name: _copied(array) for name, array in arrays.items()}
    kernel.configure(plane_dim=program.plane_dim)[program.cubes, program.cube_dim](**copies)
    return copies


def check(
    program: Program, seed: int, levels: Sequence[int] = (0, 2, 3), lanes: bool = True
) -> None:
    """`Mismatch` where LLVM, at a level or with units as `lanes`, differs from the interpreter."""
    kernel, arrays = load_kernel(program), arguments(program, seed)
    expected = run(kernel.configure(device="interpreter"), program, arrays)
    for level in levels:
        with cp.settings(opt_level=level):
            compare(program, f"LLVM O{level}", expected, run(kernel, program, arrays))
    if lanes and program.cube_dim > 1:
        found = run(kernel.configure(vectorise=True), program, arrays)
        compare(program, "units as lanes", expected, found)


def check_device(program: Program, seed: int, device: str) -> bool:
    """`Mismatch` where a device differs from the interpreter; False if it cannot run the kernel."""
    kernel, arrays = load_kernel(program), arguments(program, seed)
    try:
        found = run(kernel.configure(device=device), program, arrays)
    except cp.UnsupportedError:
        return False
    expected = run(kernel.configure(device="interpreter"), program, arrays)
    compare(program, device, expected, found)
    return True


def check_barriers(seed: int, levels: Sequence[int] = (0, 2, 3)) -> None:
    """`Mismatch` where a kernel with barriers of units differs from its twin or is not refused."""
    program, twin = generate_barriers(seed)
    arrays = arguments(program, seed)
    expected = run(load_kernel(twin).configure(device="interpreter"), twin, arrays)
    try:
        found = run(load_kernel(program).configure(device="interpreter"), program, arrays)
    except cp.CheckError as error:
        if not (program.lacks_units and error.code == "E713"):
            raise
    else:
        compare(program, "interpreter", expected, found)
    for level in levels:
        with cp.settings(opt_level=level):
            _check_barriers(program, twin, arrays, expected, "cpu")


def check_barriers_device(seed: int, device: str) -> bool:
    """The same for a device; False if it can run neither the kernel nor its twin."""
    target = cp.device(device).target
    program, twin = generate_barriers(seed, target)
    arrays = arguments(program, seed)
    expected = run(load_kernel(twin).configure(device="interpreter"), twin, arrays)
    if not (target.kind == "cuda" and program.plane_dim == target.plane_dim):
        return _check_barriers(program, twin, arrays, expected, device)
    if program.lacks_units:  # it would wait for ever
        return True
    found = run(load_kernel(program).configure(device=device), program, arrays)
    compare(program, device, expected, found)
    return True


def _check_barriers(
    program: BarrierProgram,
    twin: BarrierProgram,
    arrays: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    device: str,
) -> bool:
    """Check a device that has barriers of whole cubes alone; the twin is for what it refuses."""
    kernel = load_kernel(program).configure(device=device)
    try:
        found = run(kernel, program, arrays)
    except cp.UnsupportedError as error:
        if "sync_units" not in str(error):
            return False
        if not any(reason in str(error) for reason in program.refusals):
            raise
        found = run(load_kernel(twin).configure(device=device), twin, arrays)
    else:
        if program.refusals and _has_barrier_of_units(kernel, program, arrays, device):
            raise Mismatch(program, device, "sync_units", "a refusal", "none")
    compare(program, device, expected, found)
    return True


def _has_barrier_of_units(
    kernel: Any, program: Program, arrays: dict[str, np.ndarray], device: str
) -> bool:
    """Whether one is left where branches that never run are gone."""
    launch = kernel.configure(plane_dim=program.plane_dim)[program.cubes, program.cube_dim]
    text = launch.inspect(**arrays, target=str(cp.device(device).target), stage="ir")
    return "sync_units" in text


def compare(
    program: Program, way: str, expected: dict[str, np.ndarray], found: dict[str, np.ndarray]
) -> None:
    """`Mismatch` where an array differs."""
    for name, array in expected.items():
        if not same_bits(array, found[name]):
            raise Mismatch(program, way, name, array, found[name])


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit for bit; any NaN equals any other."""
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    bits = f"u{a.dtype.itemsize}"
    return bool(((a.view(bits) == b.view(bits)) | (np.isnan(a) & np.isnan(b))).all())
