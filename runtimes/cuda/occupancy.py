"""How many cubes of a kernel a multiprocessor holds: the driver's count, and what bounds it.

The driver does not say which resource is the scarce one. That follows from how the hardware hands
them out (CUDA's `cuda_occupancy.h`): units and registers by whole planes, registers from the four
parts of a multiprocessor, shared memory in steps.
"""

from __future__ import annotations

from math import prod
from typing import Any

from cubepy.record import dataclass
from cubepy.runtimes.base import Occupancy
from cubepy.runtimes.cuda.code import Code
from cubepy.runtimes.cuda.driver import check, driver

PLANE = 32
PARTS = 4
"""Schedulers of a multiprocessor, each with its own registers."""
REGISTER_STEP = 256
"""Registers that a plane takes at once."""
SHARED_STEP = 128
"""Bytes of shared memory that a cube takes at once."""
ATTRIBUTES = (
    "MULTIPROCESSOR_COUNT",
    "MAX_THREADS_PER_MULTIPROCESSOR",
    "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "RESERVED_SHARED_MEMORY_PER_BLOCK",
)
"""What the driver calls the fields of `Multiprocessor`, in their order."""


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What the cubes on one of the `count` multiprocessors of a GPU share.

    `reserved_bytes`: shared memory of each cube that the driver keeps for itself.
    """

    count: int
    units: int
    cubes: int
    registers: int
    shared_bytes: int
    reserved_bytes: int


def occupancy(function: Any, code: Code, of: Multiprocessor) -> Occupancy:
    """The occupancy of a loaded function, whose context is current."""
    api, dynamic, units = driver(), code.shared_bytes, prod(code.dim)
    count = api.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, units, dynamic)
    cubes = check("cuOccupancyMaxActiveBlocksPerMultiprocessor", count)
    best = api.cuOccupancyMaxPotentialBlockSize(function, None, dynamic, 0)
    _, best_cube_dim = check("cuOccupancyMaxPotentialBlockSize", best)
    registers = _attribute(function, "NUM_REGS")
    shared_bytes = _attribute(function, "SHARED_SIZE_BYTES") + dynamic
    room = rooms(units, registers, shared_bytes, of)
    limited_by = min(room, key=lambda name: room[name])
    fraction = cubes * units / of.units
    size, clusters = _clusters(function, code)
    if size and clusters * size < cubes * of.count:
        limited_by, fraction = "clusters", clusters * size * units / (of.units * of.count)
    return Occupancy(
        cubes=cubes,
        units=cubes * units,
        fraction=fraction,
        registers=registers,
        local_bytes=_attribute(function, "LOCAL_SIZE_BYTES"),
        shared_bytes=shared_bytes,
        limited_by=limited_by,
        best_cube_dim=best_cube_dim,
        clusters=clusters,
    )


def rooms(units: int, registers: int, shared_bytes: int, of: Multiprocessor) -> dict[str, int]:
    """How many cubes each resource has room for; of equal ones the first is reported."""
    planes = -(-units // PLANE)
    per_plane = max(1, _stepped(registers * PLANE, REGISTER_STEP))
    per_cube = max(1, _stepped(shared_bytes + of.reserved_bytes, SHARED_STEP))
    return {
        "units": of.units // (planes * PLANE),
        "cubes": of.cubes,
        "registers": of.registers // PARTS // per_plane * PARTS // planes,
        "shared memory": of.shared_bytes // per_cube,
    }


def _stepped(amount: int, step: int) -> int:
    return -(-amount // step) * step


def _clusters(function: Any, code: Code) -> tuple[int, int]:
    """Cubes of a cluster, and clusters that the GPU holds at once; zeros for a kernel without."""
    axes = [_attribute(function, f"REQUIRED_CLUSTER_{axis}") for axis in _AXES]
    if prod(axes) <= 1:
        return 0, 0
    api = driver()
    found = api.cuOccupancyMaxActiveClusters(function, code.config(axes))
    return prod(axes), check("cuOccupancyMaxActiveClusters", found)


_AXES = "WIDTH", "HEIGHT", "DEPTH"


def _attribute(function: Any, name: str) -> int:
    api = driver()
    which = getattr(api.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
    return check(name, api.cuFuncGetAttribute(which, function))
