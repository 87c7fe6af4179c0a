"""Every verified random kernel compiles with LLVM, at every level, and leaves the same memory."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import cubepy as cp
from cubepy.artifact import Extent
from cubepy.compilers.llvm.compiler import LlvmCompiler
from cubepy.ir.core import Kernel, Value
from cubepy.ir.numbers import Number, to_bits
from cubepy.ir.types import Buffer, DType, element_of, index
from cubepy.options import Options
from cubepy.passes.expand import expand
from cubepy.passes.pipeline import Pass, run, standard_passes
from cubepy.runtimes.cpu.device import cpu_device
from tests.compilers.normal import normal
from tests.conformance.operations import arrays, bits_of
from tests.ir.machine import Machine, Memory
from tests.ir.strategies import BUFFER_SIZE, kernels, random_kernel, special_numbers, stable

EXPAND = Pass("expand", expand())
KERNELS, CHUNK = 75, 25


def start(kernel: Kernel) -> tuple[Memory, dict[Value, Number]]:
    """Buffers and arguments before a launch; indices are small."""
    memory: Memory = {}
    arguments: dict[Value, Number] = {}
    for param in kernel.params:
        number = stable(param)
        dtype = element_of(param.value.type)
        special = special_numbers(dtype)
        if isinstance(param.value.type, Buffer):
            memory[param.value] = [special[k % len(special)] for k in range(BUFFER_SIZE)]
        else:
            arguments[param.value] = (
                3 if isinstance(param.kind, Extent) else special[number % len(special)]
            )
    return memory, arguments


def as_array(numbers: list[Number], dtype: DType) -> np.ndarray:
    if dtype is index:
        return np.array(numbers, np.int64)
    return arrays(dtype, [(v,) for v in numbers])[0]


def expected_memory(kernel: Kernel) -> list[np.ndarray]:
    memory, arguments = start(kernel)
    buffers = list(memory)
    Machine(memory).run(kernel, arguments)
    return [as_array(memory[b], element_of(b.type)) for b in buffers]


def llvm_memory(kernel: Kernel, level: int) -> list[np.ndarray]:
    """What compiled code leaves, of one unit."""
    memory, arguments = start(kernel)
    device = cpu_device()
    with cp.settings(opt_level=level):
        artifact = LlvmCompiler().build(kernel, device.target, Options(contract=False))
    given = {b: as_array(memory[b], element_of(b.type)) for b in memory}
    words = [
        given[p.value].ctypes.data
        if p.value in given
        else to_bits(arguments[p.value], element_of(p.value.type))
        for p in kernel.params
    ]
    block = (ctypes.c_uint64 * (len(words) + 8))(*words, 1, 1, 1)
    loaded = device.load(artifact)
    device.launch(loaded, block, 1, 1)
    return list(given.values())


def check(kernel: Kernel) -> None:
    kernel = normal(kernel)
    expected = expected_memory(kernel)
    for fold in (True, False):
        passes = standard_passes(Options(contract=False), EXPAND)
        chosen = passes if fold else [passes[0]]
        lowered = run(kernel, chosen)
        for level in (0, 3):
            for wanted, found in zip(expected, llvm_memory(lowered, level), strict=True):
                assert (as_bits(wanted) == as_bits(found)).all(), (level, fold, wanted, found)


def as_bits(array: np.ndarray) -> Any:
    return bits_of(array) if array.dtype != np.bool_ else array.astype(np.uint64)


@pytest.mark.parametrize("first", range(0, KERNELS, CHUNK))
def test_random_kernels(first: int):
    for seed in range(first, first + CHUNK):
        try:
            check(random_kernel(seed, 25))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))  # pyright: ignore[reportArgumentType]
@given(kernels(10))
def test_kernels_of_hypothesis(kernel: Kernel):
    check(kernel)


def test_the_comparison_can_fail():
    """Code that does something else than the kernel is found out."""
    from cubepy.compilers.llvm import ops as spell
    from cubepy.ir import ops

    with pytest.MonkeyPatch.context() as patch:
        for row, word in ((ops.SUB, "add"), (ops.XOR, "or"), (ops.MUL, "sub")):
            patch.setitem(spell.INTEGER_BINARY, row, word)
        with pytest.raises(AssertionError):
            for seed in range(100):
                check(random_kernel(seed, 25))
