"""Prebuilt kernels as text for devices that need not be here."""

from __future__ import annotations

from typing import Any

import pytest

from cubepy import kernels
from cubepy.compilers.cuda import toolchain
from cubepy.jit.kernel import resolve_target
from cubepy.kernels.calls.inspection import record
from cubepy.lang.annotations import spec

TARGETS = ("cuda:sm_90a", "opencl", "metal", "hip:gfx942")
ROW = "f32[6]"
HEADS = "bf16[2,8,70,64]"
CASES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "attention": (
        {"q": HEADS, "k": "bf16[2,2,90,64]", "v": "bf16[2,2,90,64]", "mask": "bool[70,90]"},
        {"causal": True},
    ),
    "batch_norm": (
        {"x": "bf16[4,6,9]", "running_mean": ROW, "running_var": ROW, "weight": ROW},
        {"training": True},
    ),
    "conv2d_weight_grad": (
        {"x": "f16[2,3,7,6]", "grad_output": "f16[2,4,4,3]"},
        {"weight_size": (4, 3, 3, 3), "stride": 2, "padding": 1},
    ),
    "conv_transpose2d": (
        {"x": "f32[2,4,7,6]", "weight": "f32[4,3,3,3]", "bias": ROW},
        {"stride": 2, "groups": 2},
    ),
    "group_norm": ({"x": "f32[4,6,9]", "bias": ROW}, {"num_groups": 2}),
    "layer_norm": ({"x": "f16[4,6]", "weight": "f32[6]"}, {"normalized_shape": 6}),
}
"""Arguments of each function: arrays, and all else."""


def launches(name: str, target: str) -> list[Any]:
    arrays, options = CASES[name]
    specs = {key: spec(text) for key, text in arrays.items()}
    return record(getattr(kernels, name), specs, options, resolve_target(target))


@pytest.mark.parametrize("name", CASES)
def test_every_target_has_its_text(name):
    for target in TARGETS:
        for launch in launches(name, target):
            shown = launch.launcher.inspect(target=target, comptime=dict(launch.arguments))
            assert "kernel" in str(shown) or "__global__" in str(shown)


@pytest.mark.optional("cuda")
@pytest.mark.parametrize("name", CASES)
def test_nvrtc_takes_it(name, require_package):
    require_package("cuda.bindings")
    if toolchain._nvrtc() is None:
        pytest.skip("package absent: nvidia-cuda-nvrtc")
    for launch in launches(name, "cuda:sm_90a"):
        arguments = dict(launch.arguments)
        shown = launch.launcher.inspect(target="cuda:sm_90a", stage="ptx", comptime=arguments)
        assert ".visible .entry" in str(shown)
