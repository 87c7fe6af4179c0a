"""Random kernels of the IR for one unit: what they leave in memory on the machine and elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cubepy.artifact import Extent
from cubepy.ir import ops
from cubepy.ir.core import NARROW_LIMIT, UNLIMITED, Kernel, Op
from cubepy.ir.numbers import from_bits, to_bits
from cubepy.ir.types import (
    Buffer,
    DType,
    bf16,
    element_of,
    f8e4m3,
    f8e5m2,
    index,
)
from cubepy.options import Options
from cubepy.passes.pipeline import run, standard_passes
from cubepy.passes.rewrite import Rewriter
from tests.compilers.normal import small_indices
from tests.ir.machine import POSITION, Machine, Memory, bits
from tests.ir.strategies import BUFFER_SIZE, random_kernel, special_numbers, stable

PASSES = standard_passes(Options(contract=False), narrows=True)
_POSITIONS = (ops.UNIT_POS, ops.CUBE_POS, ops.CUBE_COUNT, ops.ABSOLUTE_POS, ops.PLANE_POS)


class _Alone(Rewriter):
    """Positions become the machine's, so that one unit can run the kernel anywhere.

    Functions that are only approximated become sums, which are exact; so do the operations that
    are not exact on every type on every device (see `_is_exact`).
    """

    def visit(self, op: Op) -> None:
        if op.row in _POSITIONS:
            position = POSITION[str(op.attrs.get("axis", "x"))]
            self.replaced[op.result] = self.emit_const(index, position, op.span)
        elif op.row is ops.MISALIGNMENT:
            self.replaced[op.result] = self.emit_const(index, 0, op.span)
        elif not _is_exact(op):
            a, b = (*self.values(op.operands), *self.values(op.operands))[:2]
            self.replaced[op.result] = self.emit(ops.ADD, (a, b), {}, op.span)
        else:
            self.out.append(self.renew(op))


class Unfenced(Rewriter):
    """Without fences of all memory, which mean nothing to one unit and which Metal has not."""

    def visit(self, op: Op) -> None:
        if op.row is not ops.SYNC_STORAGE:
            self.out.append(self.renew(op))


def _is_exact(op: Op) -> bool:
    """Not fma of bf16 by way of f32."""
    dtype = element_of(op.results[0].type) if op.results else index
    if op.row is ops.FMA and dtype in (bf16, f8e4m3, f8e5m2):
        return False
    return op.row.exact


def exact_kernel(seed: int, size: int = 40) -> Kernel:
    """The kernel of a seed, optimised, with exact operations alone."""
    alone = small_indices(_Alone().run(random_kernel(seed, size)))
    alone = replace(alone, cube_dim=(1, 1, 1), limit=NARROW_LIMIT if seed % 2 else UNLIMITED)
    return run(alone, PASSES)


def numbers_of(kernel: Kernel) -> list[list[int | float | bool] | int | float | bool]:
    """What each parameter holds at the start: a list for buffers."""
    found = []
    for param in kernel.params:
        number = stable(param)
        special = special_numbers(element_of(param.value.type))
        if isinstance(param.value.type, Buffer):
            found.append([special[(3 * k + number) % len(special)] for k in range(BUFFER_SIZE)])
        else:
            found.append(3 if isinstance(param.kind, Extent) else special[number % len(special)])
    return found


def expected_memory(kernel: Kernel) -> list[list[int]]:
    """The bits of all buffers after a run on the machine."""
    memory: Memory = {}
    arguments = {}
    for param, held in zip(kernel.params, numbers_of(kernel), strict=True):
        if isinstance(held, list):
            memory[param.value] = held
        else:
            arguments[param.value] = held
    buffers = list(memory)
    Machine(memory).run(kernel, arguments)
    return [bits(memory[b], element_of(b.type)) for b in buffers]


def as_array(held: list[int | float | bool], dtype: DType) -> np.ndarray:
    """Numbers as the bit patterns that memory holds."""
    return np.array([to_bits(n, dtype) for n in held], f"u{dtype.itemsize}")


def as_bits(array: np.ndarray, dtype: DType) -> list[int]:
    """Bit patterns, with all NaN the same."""
    return bits([from_bits(int(word), dtype) for word in array], dtype)
