"""The analytic model: how long a launch should take, from what it does and what a device can do.

A launch takes as long as the slowest of its parts: instructions that are issued, operations of the
arithmetic units, bytes that come from memory, from the cache and from shared memory, and the chain
of one unit, whose latency other units hide if enough of them fit on a core. Cubes run in waves, the
last of which may leave cores idle. After S. Williams, A. Waterman, D. Patterson, Roofline, 2009,
and V. Volkov, Understanding Latency Hiding on GPUs, 2016.

The model ranks candidates before they are measured, and bounds what can be reached. It is not used
to choose where there are measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cubepy.autotune.cost import Launch
from cubepy.record import dataclass
from cubepy.targets import Target


@dataclass(frozen=True, slots=True)
class Machine:
    """What a device can do, as rates of one core (a processor's, or a multiprocessor), in a second.

    `issued`: instructions of single units; `floats`, `integers`, `products`: operations; `near`,
    `cache`: bytes of shared memory (of the nearest cache) and of the last cache; `memory`: bytes of
    the memory for all cores together. `latency_s`: of a dependent instruction; `cube_s`: to begin a
    cube; `launch_s`: a launch. `units`, `registers`, `shared_bytes`, `cubes`: what a core holds.
    `cache_bytes`: of the last cache. `is_measured`: nothing was seen to be faster.
    """

    cores: int
    issued: float
    floats: float
    integers: float
    products: float
    near: float
    cache: float
    memory: float
    latency_s: float
    cube_s: float
    launch_s: float
    cache_bytes: int
    units: int = 1
    registers: int = 0
    shared_bytes: int = 0
    cubes: int = 1
    is_measured: bool = False


STREAMED = 16
"""Of arrays that are so many times as large as the last cache it keeps nothing that counts."""
_GHZ = 1e9

HOPPER = Machine(
    cores=132,
    issued=4 * 32 * 1.7 * _GHZ,
    floats=4 * 64 * 1.7 * _GHZ,
    integers=2 * 64 * 1.7 * _GHZ,
    products=6.3e12,
    near=128 * 1.7 * _GHZ,
    cache=64 * 1.7 * _GHZ,
    memory=4.6e12,
    latency_s=6 / (1.7 * _GHZ),
    cube_s=0.5e-6,
    launch_s=2e-6,
    cache_bytes=50 << 20,
    units=2048,
    registers=65536,
    shared_bytes=228 << 10,
    cubes=32,
    is_measured=True,
)
"""An H200 under load: clocks and widths by its data sheet, memory as the best reading kernel that
was measured, products as the fastest one (830 TFLOP/s in bf16), which is where power ends."""
GPU = replace(
    HOPPER,
    cores=64,
    products=1024 * _GHZ,
    memory=5e11,
    cache_bytes=4 << 20,
    is_measured=False,
)
"""A GPU of which nothing is known: rates of one core are alike in most."""


def machine_of(target: Target) -> Machine:
    """The machine that a target stands for."""
    if target.kind in ("cpu", "interpreter"):
        return _processor(target)
    if target.kind == "cuda" and target.version >= 90:
        known = target.version == 90  # later ones may be faster than what was measured
        return replace(HOPPER, cores=max(1, target.multiprocessors), is_measured=known)
    return replace(GPU, cores=max(GPU.cores, target.multiprocessors))


def _processor(target: Target) -> Machine:
    """Two fused multiplications of whole lines in a cycle, two loads, 3 GHz, and memory of 10 GB/s
    for each core. Instructions of units that follow each other become lines."""
    lanes, hertz = max(1, target.line_bytes // 4), 3 * _GHZ
    return Machine(
        cores=max(1, target.cores),
        issued=4 * lanes * hertz,
        floats=4 * lanes * hertz,
        integers=2 * lanes * hertz,
        products=64 * lanes * hertz,
        near=2 * target.line_bytes * hertz,
        cache=target.line_bytes / 2 * hertz,
        memory=1e10 * max(1, target.cores),
        latency_s=0.0,
        cube_s=0.1e-6,
        launch_s=0.2e-6,
        cache_bytes=target.cache_bytes * max(1, target.cores),
    )


def resident(machine: Machine, launch: Launch) -> int:
    """Cubes that a core holds at once: its occupancy, in cubes."""
    dim = max(1, launch.cube_dim)
    most = [machine.cubes, max(1, machine.units // dim)]
    if launch.registers and machine.registers:
        most.append(machine.registers // (launch.registers * dim))
    if launch.shared_bytes and machine.shared_bytes:
        most.append(machine.shared_bytes // (launch.shared_bytes + 1024))
    return max(1, min(most))


def seconds(machine: Machine, launches: Sequence[Launch], touched: int) -> float:
    """About how long launches take that follow each other and touch so many bytes of arrays."""
    return max(
        _from_memory(machine, touched), sum(_seconds(machine, launch) for launch in launches)
    )


def _seconds(machine: Machine, launch: Launch) -> float:
    if not launch.cubes:
        return machine.launch_s
    held = resident(machine, launch)
    waves = -(-launch.cubes // (machine.cores * held))
    cubes = min(held, -(-launch.cubes // machine.cores))  # that a core has in a wave
    unit, units = launch.unit, cubes * launch.cube_dim
    parts = (
        units * unit.issued / machine.issued,
        units * unit.floats / machine.floats,
        units * unit.integers / machine.integers,
        units * unit.products / machine.products,
        units * unit.near / machine.near,
        (units * (unit.loaded + unit.stored) + cubes * unit.copied) / machine.cache,
        unit.issued * machine.latency_s,
    )
    return machine.launch_s + waves * (max(parts) + machine.cube_s * cubes)


def bound(machine: Machine, launches: Sequence[Launch], touched: int) -> float:
    """Seconds that no candidate can be faster than: the least work of all, at the full rates of all
    cores; 0 where rates were not measured. `launches` are those of the candidate that does least;
    arrays that are touched are read or written whole."""
    if not machine.is_measured:
        return 0.0
    products = sum(launch.total.products for launch in launches)
    least = products / (machine.products * machine.cores)
    return max(least, _from_memory(machine, touched))


def _from_memory(machine: Machine, touched: int) -> float:
    """Seconds of the bytes that the last cache cannot keep from one launch to the next."""
    kept = machine.cache_bytes if touched < STREAMED * machine.cache_bytes else 0
    return max(0, touched - kept) / machine.memory


def rank(predicted: Sequence[float | None]) -> list[int]:
    """Candidates by what is predicted, the fastest first; those without keep their places."""
    known = iter(sorted((s, k) for k, s in enumerate(predicted) if s is not None))
    return [k if s is None else next(known)[1] for k, s in enumerate(predicted)]
