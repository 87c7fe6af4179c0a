"""Random kernels of the IR as OpenCL C, Metal and CUDA C: they leave the same memory, bit by bit.

Many kernels go into one build. A kernel that a target refuses is counted, not dropped in silence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from cubepy.compilers.cstyle.compiler import Source
from cubepy.compilers.cuda import toolchain
from cubepy.compilers.registry import find_compiler
from cubepy.errors import UnsupportedError
from cubepy.ir.core import Kernel
from cubepy.ir.types import Buffer, element_of
from cubepy.targets import parse_target
from tests.compilers.c import hip_text, metal_text, text_devices
from tests.compilers.c.random_kernels import (
    Unfenced,
    as_array,
    as_bits,
    exact_kernel,
    expected_memory,
    numbers_of,
)
from tests.optional import require_package

CHUNK, CHUNKS = 25, int(os.environ.get("CUBEPY_FUZZ_CHUNKS", "4"))
"""Kernels of one build, and builds of one run."""
Run = Callable[[list[np.ndarray], list[int]], None]


def source_of(kernel: Kernel, target: str) -> Source:
    found = parse_target(target)
    compiler: Any = find_compiler(found.kind)
    return Source(kernel, compiler.dialect(found))


def programs(chunk: int, target: str) -> Iterator[tuple[int, Kernel, Source]]:
    """The kernels of a chunk that the target does not refuse; every refusal names the reason."""
    refused = 0
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        kernel = replace(exact_kernel(seed), name=f"k{seed}")
        kernel = Unfenced().run(kernel) if target == "metal" else kernel
        try:
            yield seed, kernel, source_of(kernel, target)
        except UnsupportedError as error:
            assert "f64" in str(error) or "bits" in str(error), (seed, error)
            refused += 1
    assert refused <= (CHUNK * 3 // 5 if target == "metal" else CHUNK // 5), refused


def build_opencl(made: list[tuple[int, Kernel, Source]]) -> list[Run]:
    """One program: what several preludes declare alike stands in it once."""
    import pyopencl as cl

    parts = dict.fromkeys(part for _, _, source in made for part in source.text.split("\n\n"))
    program = cl.Program(text_devices.pocl_queue().context, "\n\n".join(parts))
    program = program.build(options=["-cl-std=CL1.2", "-w"])
    return [_opencl_run(cl.Kernel(program, source.entry), kernel) for _, kernel, source in made]


def _opencl_run(function: Any, kernel: Kernel) -> Run:
    import pyopencl as cl

    def run(buffers: list[np.ndarray], numbers: list[int]) -> None:
        held, rest = iter(buffers), iter(numbers)
        passed = [
            cl.SVM(next(held).view(np.uint8))
            if isinstance(p.value.type, Buffer)
            else np.array([next(rest)], np.uint64).view(f"u{element_of(p.value.type).itemsize}")[0]
            for p in kernel.params
        ]
        function.set_args(*passed)
        cl.enqueue_nd_range_kernel(text_devices.pocl_queue(), function, (1,), (1,))
        text_devices.pocl_queue().finish()

    return run


def build_metal(made: list[tuple[int, Kernel, Source]]) -> list[Run]:
    texts = [metal_text.as_cpp(s.text, s.entry, f"run_{seed}") for seed, _, s in made]
    library = metal_text.build(*texts)
    return [_metal_run(getattr(library, f"run_{seed}")) for seed, _, _ in made]


def _metal_run(function: Any) -> Run:
    def run(buffers: list[np.ndarray], numbers: list[int]) -> None:
        block = np.array([*numbers, 0], np.uint64)
        addresses = [b.ctypes.data for b in buffers]
        pointers = [*addresses, block.ctypes.data] if numbers else addresses
        metal_text.launch(function, pointers, (1, 1, 1), (1, 1, 1))

    return run


BUILDS = {"pocl": ("opencl", build_opencl), "metal_text": ("metal", build_metal)}


def memory_after(kernel: Kernel, run: Run) -> list[list[int]]:
    """The bits of all buffers after a run."""
    buffers: list[np.ndarray] = []
    numbers: list[int] = []
    dtypes = [element_of(p.value.type) for p in kernel.params]
    for dtype, held in zip(dtypes, numbers_of(kernel), strict=True):
        if isinstance(held, list):
            buffers.append(as_array(held, dtype))
        else:
            numbers.append(int(as_array([held], dtype)[0]))
    run(buffers, numbers)
    kinds = [t for p, t in zip(kernel.params, dtypes, strict=True) if _is_buffer(p)]
    return [as_bits(b, t) for b, t in zip(buffers, kinds, strict=True)]


def _is_buffer(param: Any) -> bool:
    return isinstance(param.value.type, Buffer)


@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("device", BUILDS)
def test_same_memory(device: str, chunk: int, require_text_device: Any):
    require_text_device(device)
    target, build = BUILDS[device]
    made = list(programs(chunk, target))
    for (seed, kernel, source), run in zip(made, build(made), strict=True):
        assert memory_after(kernel, run) == expected_memory(kernel), f"seed {seed}\n{source.text}"


@pytest.mark.parametrize("device", BUILDS)
def test_the_comparison_can_fail(device: str, require_text_device: Any):
    """Wrong operators in the text are found out."""
    require_text_device(device)
    target, build = BUILDS[device]
    wrong: list[tuple[int, Kernel, Source]] = []
    for seed, kernel, source in programs(0, target):
        head, brace, body = source.text.partition(f"{source.entry}(")
        if "indexx" not in body:  # lines of indices have only the operators that the text uses
            for right, other in ((" ^ ", " | "), (" & ", " | "), (" < ", " >= "), (" == ", " != ")):
                body = body.replace(right, other)
        source.text = type(source.text)(head + brace + body)
        wrong.append((seed, kernel, source))
    runs = zip(wrong, build(wrong), strict=True)
    assert any(memory_after(k, run) != expected_memory(k) for (_, k, _), run in runs)


@lru_cache(maxsize=1)
def _nvrtc() -> None:
    require_package("cuda.bindings")
    if toolchain._nvrtc() is None:
        pytest.skip("package absent: nvidia-cuda-nvrtc")


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100a"])
def test_nvrtc_takes_them(arch: str):
    """CUDA C compiles to machine code for the exact architecture; nothing runs."""
    _nvrtc()
    target = f"cuda:{arch}"
    for seed, _, source in programs(0, target):
        assert toolchain.to_cubin(source.text, parse_target(target)), seed


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_clang_takes_them_as_hip(arch: str):
    """HIP compiles to the architecture's code; nothing runs."""
    for seed, _, source in programs(0, f"hip:{arch}"):
        assert hip_text.build(source.text, arch), seed
