"""Which gradients of attention the tensor cores of planes make, and how; no GPU is needed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from cubepy.ir.types import bf16, f16, f32
from cubepy.kernels.attention.problem import Problem
from cubepy.kernels.attention.strategies import gradient_fragments
from cubepy.targets import cuda_target
from tests.kernels.test_attention_by_fragments import ARCHES, MOST_SPILLED
from tests.kernels.test_attention_grad_on_hopper import launches

LARGE = Problem(64, 4096, 4096, 128, 128, f32, False, bf16)


def test_where_they_are_chosen():
    for arch in ARCHES:
        assert gradient_fragments(cuda_target(arch), LARGE)
    assert not gradient_fragments(cuda_target("sm_75"), LARGE)
    for changes in ({"elements": None}, {"elements": f32}, {"size": 264}, {"width": 100}):
        assert not gradient_fragments(cuda_target("sm_80"), replace(LARGE, **changes))


@pytest.mark.parametrize("arch", ARCHES)
def test_shared_memory_suffices_and_all_is_summed(arch: str):
    target = cuda_target(arch)
    for size in range(8, 257, 8):
        for width in (8, 64, 136, 256, size):
            passes = gradient_fragments(target, replace(LARGE, size=size, width=width))
            assert passes
            for t in passes:
                assert t.shared_bytes <= target.shared_bytes
                assert t.is_of_queries != (t.is_of_keys or t.is_of_values)
            for of in ("is_of_queries", "is_of_keys", "is_of_values"):
                assert sum(getattr(t, of) for t in passes) == 1


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("dtype", "size", "options"),
    [
        (bf16, 64, {"mask": "f32[512,512]", "window": (100, 20)}),
        (f16, 128, {"causal": True}),
        (bf16, 128, {"mask": "bool[512,512]"}),
        (f16, 256, {}),
    ],
)
def test_nvrtc_keeps_them_in_registers(dtype: Any, size: int, options: Any):
    arch = "sm_80"
    q = f"{dtype.name}[2,8,512,{size}]"
    for launch in launches(q, q, cuda_target(arch), **options)[1:]:
        text = launch.launcher.inspect(**launch.arguments, target=f"cuda:{arch}", stage="resources")
        stored = re.search(r"spills +(\d+) bytes stored", text)
        assert stored is not None and int(stored.group(1)) <= MOST_SPILLED, text
        found = re.search(r"shared memory +(\d+) bytes", text)
        assert found is not None and int(found.group(1)) <= launch.arguments["t"].shared_bytes
