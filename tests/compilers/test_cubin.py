"""What is read from cubins, against what ptxas says."""

from __future__ import annotations

import re

import pytest

import cubepy as cp
from cubepy.compilers.cuda import toolchain
from cubepy.compilers.cuda.cubin import registers_of
from cubepy.targets import parse_target
from tests.optional import require_package


@cp.cube
def many(x, out, n: cp.Comptime):
    held = cp.local(n, cp.f32)
    for k in cp.unroll(range(n)):
        held[k] = x[cp.ABSOLUTE_POS, k]
    total = 0.0
    for k in cp.unroll(range(n)):
        for j in cp.unroll(range(k)):
            total += held[k] * held[j]
    out[cp.ABSOLUTE_POS] = total


@pytest.mark.optional("cuda.bindings")
@pytest.mark.parametrize("n", [1, 8, 40])
@pytest.mark.parametrize("target", ["cuda:sm_90a", "cuda:sm_80"])
def test_registers_are_those_that_ptxas_reports(n: int, target: str):
    require_package("cuda.bindings")
    if toolchain._nvrtc() is None:
        pytest.skip("package absent: nvidia-cuda-nvrtc")
    options = {"target": target, "comptime": {"n": n}}
    source = many.inspect("f32[1024,40]", "f32[1024]", stage="source", **options)
    cubin = toolchain.to_cubin(source, parse_target(target))
    shown = many.inspect("f32[1024,40]", "f32[1024]", stage="resources", **options)
    (registers,) = re.findall(r"registers +(\d+)", shown)
    assert registers_of(cubin) == int(registers) > 0


@pytest.mark.parametrize("text", [b"", b"\x7fELF", b"\x7fELF" + bytes(200), b"nothing of the kind"])
def test_what_is_no_cubin_says_nothing(text: bytes):
    assert registers_of(text) == 0
