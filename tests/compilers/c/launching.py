"""From a kernel and NumPy arguments to an artifact of any target, and the values of its slots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cubepy.artifact import Artifact
from cubepy.compilers.base import Options
from cubepy.compilers.registry import find_compiler
from cubepy.frontend.signature import Signature
from cubepy.ir.core import Kernel
from cubepy.ir.types import find_dtype
from cubepy.targets import Target, parse_target


@dataclass(frozen=True)
class Launch:
    """A built kernel with its arguments: `slots` holds arrays and NumPy numbers in order."""

    artifact: Artifact
    kernel: Kernel
    slots: list[Any]
    grid: tuple[int, int, int]


def prepare(launcher: Any, target: str | Target, arguments: dict[str, Any]) -> Launch:
    """Build a launcher over a fixed grid for a target, and gather what its slots want."""
    found = parse_target(target) if isinstance(target, str) else target
    kernel = launcher.kernel
    bound = kernel.bind_arguments((), arguments)
    signature: Signature = launcher._signature_of(bound, found)
    traced, _ = kernel.specialisations.trace(signature, found)
    artifact = find_compiler(found.kind).build(traced, found, Options())
    slots = [_slot(slot, bound[slot.argument]) for slot in artifact.slots]
    return Launch(artifact, traced, slots, launcher.grid.count)


def _slot(slot: Any, argument: Any) -> Any:
    if slot.role == "data":
        return argument
    if slot.role == "shape":
        return np.int64(argument.shape[slot.axis])
    if slot.role == "stride":
        return np.int64(argument.strides[slot.axis] // argument.itemsize)
    dtype = find_dtype(slot.dtype)
    assert dtype is not None
    return np.dtype(dtype.numpy_name or "int64").type(argument)
