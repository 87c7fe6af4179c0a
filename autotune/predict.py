"""The model's prediction for code that was made ahead."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from cubepy.artifact import Artifact
from cubepy.autotune.cost import Launch, work_of
from cubepy.autotune.model import machine_of, seconds
from cubepy.compilers.cuda.cubin import registers_of
from cubepy.ir.core import Kernel
from cubepy.jit.ahead import Made
from cubepy.runtimes.registry import find_device


def predicted(device: str, made: Made, touched: int) -> float | None:
    """Seconds of the launches on a device, which touch so many bytes of arrays; None where a kernel
    is not known."""
    target = find_device(device).target
    launches: list[Launch] = []
    for found in made.launches:
        kernel = made.kernels.get(id(found.artifact))
        if kernel is None:
            return None
        launches.append(_launch(kernel, found.artifact, found.block, target.kind == "cuda"))
    return seconds(machine_of(target), launches, touched)


def _launch(kernel: Kernel, artifact: Artifact, block: Sequence[int], is_cuda: bool) -> Launch:
    x, y, z = block[len(artifact.slots) : len(artifact.slots) + 3]
    registers = registers_of(artifact.code) if is_cuda else 0
    work = work_of(kernel, block, (x, y, z))
    return Launch(work, x * y * z, prod(kernel.cube_dim), artifact.shared_bytes, registers)
