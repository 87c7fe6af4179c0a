"""Runs IR kernels on the interpreter without a launch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cubepy.artifact import Extent
from cubepy.compilers.python.compiler import PythonCompiler
from cubepy.ir.core import Kernel, Param, Value
from cubepy.ir.numbers import Number, from_bits, to_bits
from cubepy.ir.types import Buffer, DType, element_of, index
from cubepy.options import Options
from cubepy.runtimes.interpreter.device import InterpreterDevice
from cubepy.targets import INTERPRETER

DEVICE = InterpreterDevice()
Cells = dict[Value, list[Number]]


def run_ir(
    kernel: Kernel,
    memory: Cells,
    numbers: Mapping[Value, Number] | None = None,
    count: int = 1,
) -> None:
    """Run a kernel; `memory` holds the elements of each buffer parameter and is changed."""
    shapes = {Value(index): p for p in kernel.params if p.value in memory}
    kernel = replace(
        kernel,
        params=(*kernel.params, *(Param(v, p.argument, Extent()) for v, p in shapes.items())),
    )
    known = {**(numbers or {}), **{v: len(memory[p.value]) for v, p in shapes.items()}}
    raw = {v: to_bytes(items, element_of(v.type)) for v, items in memory.items()}
    words = [_word(p.value, raw, known) for p in kernel.params]
    program = DEVICE.load(PythonCompiler().build(kernel, INTERPRETER, Options()))
    block = (ctypes.c_uint64 * (len(words) + 3))(*words, count, 1, 1)
    DEVICE.launch(program, block, count, 1)
    for v, array in raw.items():
        memory[v] = from_bytes(array, element_of(v.type))


def _word(value: Value, raw: dict[Value, np.ndarray], numbers: Mapping[Value, Number]) -> int:
    if isinstance(value.type, Buffer):
        return raw[value].ctypes.data
    return to_bits(numbers[value], element_of(value.type))


def to_bytes(items: Sequence[Number], dtype: DType) -> np.ndarray:
    """The memory of elements."""
    return np.array([to_bits(x, dtype) for x in items], np.dtype(f"u{dtype.itemsize}"))


def from_bytes(array: np.ndarray, dtype: DType) -> list[Number]:
    """The elements in memory."""
    return [from_bits(int(bits), dtype) for bits in array]
