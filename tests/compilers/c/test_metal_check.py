"""The checker of Metal text takes what independent tools emit, and refuses 40 wrong programs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from tests.compilers.c.metal_check import problems
from tests.compilers.c.metal_text import find_clang

GOLDEN = sorted((Path(__file__).parents[2] / "golden").glob("*.metal"))
GLSL = sorted(Path(__file__).with_name("glsl").glob("*.comp"))
RIGHT = """
#include <metal_stdlib>
using namespace metal;

struct Arguments {
    alignas(8) long n;
};

static inline float twice(float v) { return v + v; }
static inline float first(const thread float* v) { return v[0]; }

[[max_total_threads_per_threadgroup(64)]]
kernel void f(device float* x [[buffer(0)]], const device float* y [[buffer(1)]],
        device int* counts [[buffer(2)]], constant Arguments& arguments [[buffer(3)]],
        uint3 at [[thread_position_in_threadgroup]]) {
    alignas(16) threadgroup float tile[64];
    thread float own[2];
    own[0] = y[at.x];
    tile[at.x] = first(own);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float4 v = float4(tile[at.x], 1.0f, 2.0f, 3.0f);
    const float total = simd_sum(v.x) + fma(v.x, v.y, v.z);
    const half h = (half)total * 2.0h;
    const float bits = as_type<float>(at.x);
    atomic_fetch_add_explicit((device atomic_int*)counts, 1, memory_order_relaxed);
    simdgroup_half8x8 factor;
    simdgroup_float8x8 sums;
    factor.thread_elements()[0] = h;
    sums.thread_elements()[1] = 1.0f;
    simdgroup_multiply_accumulate(sums, factor, factor, sums);
    if (at.x < arguments.n && simd_all(v.x > 0.0f)) x[at.x] = twice(bits) + (float)h;
}
"""
END = "    if (at.x <"
WRONG: dict[str, tuple[str, str]] = {
    "a buffer without an address space": ("device float* x", "float* x"),
    "a buffer in threadgroup memory": ("device float* x", "threadgroup float* x"),
    "a buffer by value": ("device float* x", "float x"),
    "a store to const memory": ("x[at.x] = twice", "y[at.x] = twice"),
    "a store to constant memory": (END, f"    arguments.n = 1;\n{END}"),
    "a pointer to device memory without a space": (END, f"    float* p = x;\n{END}"),
    "a threadgroup pointer to device memory": (END, f"    threadgroup float* p = x;\n{END}"),
    "a device pointer to threadgroup memory": (END, f"    device float* p = tile;\n{END}"),
    "a constant pointer to device memory": (END, f"    constant float* p = x;\n{END}"),
    "a device pointer to a local": (END, f"    device float* p = own;\n{END}"),
    "dropping const": (END, f"    device float* p = y;\n{END}"),
    "a device pointer for a thread pointer": ("first(own)", "first(y)"),
    "an unknown position": ("[[thread_position_in_threadgroup]]", "[[thread_position_in_block]]"),
    "a signed position": ("uint3 at", "int3 at"),
    "a position of four": ("uint3 at", "uint4 at"),
    "a slot given twice": ("buffer(1)", "buffer(0)"),
    "a slot beyond the last": ("buffer(3)", "buffer(31)"),
    "a parameter without an attribute": (" [[buffer(2)]]", ""),
    "an unknown attribute of a function": ("[[max_total_threads_per", "[[max_threads_per"),
    "a kernel with a result": ("kernel void", "kernel int"),
    "a result in a kernel": (END, f"    if (at.y) return 1;\n{END}"),
    "double": ("const float total", "const double total"),
    "an undeclared function": ("twice(bits)", "thrice(bits)"),
    "an undeclared name": ("twice(bits)", "twice(bit)"),
    "a vector of too few": ("1.0f, 2.0f, 3.0f)", "1.0f, 2.0f)"),
    "a vector of too many": ("2.0f, 3.0f)", "2.0f, 3.0f, 4.0f)"),
    "a lane that is not there": ("fma(v.x, v.y, v.z)", "fma(v.x, v.y, v.s)"),
    "vectors of two lengths": (END, f"    v = v + float2(1.0f, 2.0f);\n{END}"),
    "a vector as a scalar": ("const float total = ", "const float total = v + "),
    "simd_sum of 64 bits": ("simd_sum(v.x)", "simd_sum((long)v.x)"),
    "simd_sum of a bool": ("simd_sum(v.x)", "simd_sum(v.x > 0.0f)"),
    "simd_sum of a pointer": ("simd_sum(v.x)", "simd_sum(own)"),
    "simd_all of a vector": ("simd_all(v.x > 0.0f)", "simd_all(v)"),
    "a shuffle without a lane": ("simd_sum(v.x)", "simd_shuffle(v.x)"),
    "a barrier without a scope": ("mem_flags::mem_threadgroup", ""),
    "a barrier with a number": ("mem_flags::mem_threadgroup", "2"),
    "an atomic on a plain number": ("(device atomic_int*)counts", "counts"),
    "an atomic in thread memory": ("(device atomic_int*)counts", "(thread atomic_int*)own"),
    "an atomic in another order": ("memory_order_relaxed", "memory_order_seq_cst"),
    "an atomic that is read as a number": (END, f"    v.x += *(device atomic_int*)counts;\n{END}"),
    "bits of another size": ("as_type<float>(at.x)", "as_type<half>(at.x)"),
    "fma of integers": ("fma(v.x, v.y, v.z)", "fma(1, 2, 3)"),
    "fma of two": ("fma(v.x, v.y, v.z)", "fma(v.x, v.y)"),
    "popcount of a float": ("twice(bits)", "popcount(bits)"),
    "a matrix of 4x4": ("simdgroup_half8x8 factor", "simdgroup_matrix<half, 4, 4> factor"),
    "a matrix of integers": ("simdgroup_half8x8 factor", "simdgroup_matrix<int, 8, 8> factor"),
    "elements of another number": ("elements()[0] = h", "elements() = half2(h, h)"),
    "factors of two types": ("(sums, factor, factor,", "(sums, sums, factor,"),
    "a product that is added to nothing": ("factor, factor, sums)", "factor, factor)"),
    "goto": (END, f"    goto end;\nend:\n{END}"),
    "an exception": (END, f"    if (at.y) throw 1;\n{END}"),
    "memory from nowhere": (END, f"    thread float* p = new float[2];\n{END}"),
    "a missing semicolon": ("own[0] = y[at.x];", "own[0] = y[at.x]"),
}


@pytest.fixture(autouse=True)
def clang() -> None:
    find_clang()


def test_a_right_program():
    assert problems(RIGHT) == []


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_program(what: str):
    right, wrong = WRONG[what]
    assert RIGHT.count(right) >= 1
    assert problems(RIGHT.replace(right, wrong, 1))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_golden_files(path: Path):
    assert problems(path.read_text()) == []


@pytest.mark.parametrize("path", GLSL, ids=lambda p: p.stem)
def test_what_other_tools_emit(path: Path, tmp_path: Path):
    """GLSL by way of SPIR-V: an emitter that knows nothing of the header."""
    if not (shutil.which("glslangValidator") and shutil.which("spirv-cross")):
        pytest.skip("package absent: spirv-cross (apt-get install spirv-cross glslang-tools)")
    binary = str(tmp_path / "kernel.spv")
    to_spirv = ["glslangValidator", "--target-env", "vulkan1.1", "-o", binary, str(path)]
    subprocess.run(to_spirv, check=True, capture_output=True)
    to_metal = ["spirv-cross", binary, "--msl", "--msl-version", "30000"]
    text = subprocess.run(to_metal, check=True, capture_output=True, text=True).stdout
    assert "kernel void" in text
    assert problems(text) == [], text


@cp.cube
def fill_all(arrays: Any):
    for array in arrays:
        array[0] = 1.0


@pytest.mark.parametrize("count", [29, 30])
def test_arrays_are_as_many_as_metal_takes(count: int):
    """The numbers are one more, and the faults of a checked kernel."""
    arrays = tuple(np.zeros(8, np.float32) for _ in range(count))
    call = fill_all.configure(checked=True)[1, 1]
    if count < 30:
        assert f"[[buffer({count + 1})]]" in call.inspect(arrays, target="metal")
    else:
        with pytest.raises(cp.UnsupportedError, match="E310: a kernel of 30 arrays .* takes 30"):
            call.inspect(arrays, target="metal")
