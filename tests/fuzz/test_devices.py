"""Generated kernels on OpenCL devices and as Metal: the interpreter's memory, bit for bit.

CI runs 200 kernels on each, other runs 50; `python -m tests.fuzz --device` runs as many as asked
for. A build takes a tenth of a second, so kernels need not share one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
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
    check_device,
    generate_for,
    load_kernel,
    run,
    same_bits,
)
from tests.fuzz.generator import SLOTS, Program
from tests.guarded import Guarded

KERNELS = 200 if os.environ.get("CI") else 50
CHUNK = 50
DRIVERS: dict[str, dict[int, str]] = {
    "Portable": {
        94: "PoCL 3.0 lets units that are not alive store, behind two barriers in branches"
    },
}
"""By a part of the device's name: seeds whose source is right, but whose driver is not. Intel's
runtime runs 94 right."""


@pytest.fixture(params=[*text_devices.DEVICES, "opencl:0"])
def device(request: pytest.FixtureRequest, require_text_device: Callable[[str], None]) -> str:
    if request.param in text_devices.DEVICES:
        require_text_device(request.param)
    elif "Portable" in cp.device(require(request.param)).properties.name:
        pytest.skip("opencl:0 is PoCL here, on which these kernels run as `pocl`")
    return request.param


def wrong_seeds(device: str) -> dict[int, str]:
    """The seeds that the device's driver gets wrong."""
    name = "Portable" if device == "pocl" else cp.device(device).properties.name
    return next((seeds for part, seeds in DRIVERS.items() if part in name), {})


@pytest.mark.parametrize("start", range(0, KERNELS, CHUNK))
def test_seeded_kernels(device: str, start: int) -> None:
    target = cp.device(device).target
    seeds = [seed for seed in range(start, start + CHUNK) if seed not in wrong_seeds(device)]
    ran = sum(check_device(generate_for(seed, target), seed, device) for seed in seeds)
    assert ran == len(seeds), "a kernel was refused"


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
