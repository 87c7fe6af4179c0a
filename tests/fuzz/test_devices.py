"""Generated kernels on OpenCL devices and as Metal: the interpreter's memory, bit for bit.

`python -m tests.fuzz --device` runs as many as asked for. A build takes some tenths of a second,
so kernels need not share one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.errors import CheckError
from tests.compilers.c import text_devices
from tests.devices.conftest import require
from tests.fuzz.differential import (
    Mismatch,
    arguments,
    check_barriers_device,
    check_device,
    generate_for,
    has_f64,
    load_kernel,
    run,
    same_bits,
)
from tests.fuzz.finds import WIDE_FINDS
from tests.fuzz.generator import SLOTS, Program
from tests.fuzz.typed import oracle
from tests.guarded import Guarded

KERNELS = 24
CHUNK = 24
_BRANCHES = "PoCL 3.0 lets units store that are not alive, behind two barriers in branches"
DRIVERS: dict[str, dict[bool, dict[int, str]]] = {
    "Portable": {False: dict.fromkeys((26, 94), _BRANCHES), True: {71: _BRANCHES}}
}
"""By a part of the device's name, for plain kernels and for those of more forms: seeds whose source
is right, but whose driver is not. Intel's runtime and Oclgrind run them right."""


@pytest.fixture(params=[*text_devices.DEVICES, "opencl:0"])
def device(request: pytest.FixtureRequest, require_text_device: Callable[[str], None]) -> str:
    if request.param in text_devices.DEVICES:
        require_text_device(request.param)
    elif "Portable" in cp.device(require(request.param)).properties.name:
        pytest.skip("opencl:0 is PoCL here, on which these kernels run as `pocl`")
    return request.param


def right_seeds(device: str, seeds: Iterable[int], more_forms: bool = False) -> list[int]:
    """`seeds` without those that the device's driver gets wrong."""
    name = "Portable" if device == "pocl" else cp.device(device).properties.name
    wrong = next((lists[more_forms] for part, lists in DRIVERS.items() if part in name), {})
    return [seed for seed in seeds if seed not in wrong]


@pytest.mark.parametrize("start", range(0, KERNELS, CHUNK))
def test_seeded_kernels(device: str, start: int) -> None:
    target = cp.device(device).target
    seeds = right_seeds(device, range(start, start + CHUNK))
    ran = sum(check_device(generate_for(seed, target), seed, device) for seed in seeds)
    assert ran == len(seeds), "a kernel was refused"


def test_seeded_kernels_of_more_forms(device: str) -> None:
    target = cp.device(device).target
    seeds = right_seeds(device, (*WIDE_FINDS, *range(KERNELS // 2)), more_forms=True)
    ran = sum(check_device(generate_for(seed, target, True), seed, device) for seed in seeds)
    assert ran == len(seeds), "a kernel was refused"


def test_barriers_of_units(device: str) -> None:
    ran = sum(check_barriers_device(seed, device) for seed in range(KERNELS // 4))
    assert ran == KERNELS // 4, "a kernel was refused"


def test_typed_programs(device: str) -> None:
    """What the model says, which does not share the frontend with the interpreter."""
    has = has_f64(cp.device(device).target)
    for start in range(0, KERNELS, oracle.BATCH):
        batch = range(start, start + oracle.BATCH)
        assert oracle.check_device(batch, device, has), "a kernel was refused"


def outcome(kernel: Any, program: Program, arrays: dict[str, np.ndarray]) -> tuple[bool, Any]:
    """Whether a checked launch raises, and the memory after it; nothing around it may change."""
    guards = {name: Guarded(array.shape, array.dtype) for name, array in arrays.items()}
    for name, guard in guards.items():
        guard.array[...] = arrays[name]
    chosen = kernel.configure(plane_dim=program.plane_dim, checked=True)
    raised = False
    try:
        chosen[program.cubes, program.cube_dim](**{n: g.array for n, g in guards.items()})
    except (cp.OutOfBoundsError, CheckError):
        raised = True
    assert all(guard.is_fenced for guard in guards.values()), program.source
    return raised, {name: guard.array for name, guard in guards.items()}


def shortened(arrays: dict[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Some arrays end too early for the kernel."""
    names = list(arrays)
    short = {names[seed % len(names)], names[(seed // 7) % len(names)]}
    return {n: a[: -1 - seed % 3] if n in short else a for n, a in arrays.items()}


def test_faults(device: str) -> None:
    """Units that fail a check end alone: the launch ends, and nothing else is touched."""
    target, raised = cp.device(device).target, 0
    for seed in range(CHUNK):
        program = generate_for(seed, target)
        kernel, arrays = load_kernel(program), arguments(program, seed)
        if seed % 3:
            arrays = shortened(arrays, seed)
        faulty, expected = outcome(kernel.configure(device="interpreter"), program, arrays)
        also, found = outcome(kernel.configure(device=device), program, arrays)
        assert also == faulty, f"seed {seed}: {program.source}"
        raised += faulty
        for name, array in expected.items():
            if not faulty and not same_bits(array, found[name]):
                raise Mismatch(program, f"{device} checked", name, array, found[name])
    assert CHUNK // 4 < raised < CHUNK, "both must happen"


def test_the_comparison_can_fail(device: str) -> None:
    program = generate_for(3, cp.device(device).target)
    arrays = arguments(program, 3)
    expected = run(load_kernel(program).configure(device="interpreter"), program, arrays)
    name = f"out_{program.types[0]}"
    program.source += f"    {name}[p * {SLOTS}] = cp.{program.types[0]}(p % 2)\n"
    found = run(load_kernel(program).configure(device=device), program, arrays)
    assert not all(same_bits(expected[n], found[n]) for n in expected)
