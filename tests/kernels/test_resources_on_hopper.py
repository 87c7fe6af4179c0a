"""The machine code of kernels that use wgmma: little spills, and ptxas serialises no products."""

from __future__ import annotations

import re
from typing import Any

import pytest

import cubepy as cp
from cubepy.compilers.cuda import toolchain
from cubepy.kernels.calls.inspection import record
from cubepy.targets import cuda_target
from tests.devices import cuda_tiles as tiles

HOPPER = cuda_target("sm_90a")
MOST_SPILLED = 64
"""Bytes of a unit, which a store and a load outside of the loops cost nothing to speak of."""
HEADS = {name: "bf16[2,8,1024,128]" for name in "qkv"}
SEQUENCES = {"q": "bf16[1000,8,128]", "q_offsets": "i32[5]"}
SEQUENCES |= dict.fromkeys(("k", "v"), "bf16[2000,2,128]")
PAGES = {"q": "bf16[4,3,8,128]", "block_table": "i32[4,10]", "lengths": "i32[4]"}
PAGES |= dict.fromkeys(("k", "v"), "bf16[20,16,2,128]")
SLOPES = {**HEADS, **dict.fromkeys(("result", "grad_output"), HEADS["q"]), "lse": "f32[2,8,1024]"}
WIDE_SLOPES = {name: spec.replace("1024,128", "1024,256") for name, spec in SLOPES.items()}
BYTES = {"a": "f8e4m3[512,1024]", "b": "f8e4m3[768,1024]", "s": "f32[512,1]", "t": "f32[768,1]"}
BLOCKS = {**BYTES, "s": "f32[512,8]", "t": "f32[6,8]"}
GROUPS = {"x": "bf16[1024,512]", "weights": "bf16[8,512,1024]", "ends": "i32[8]"}


def scaled(a: Any, b: Any, s: Any, t: Any) -> Any:
    return cp.kernels.matmul(cp.kernels.Quantised(a, s), cp.kernels.Quantised(b, t).T, dtype="bf16")


def scaled_by_blocks(a: Any, b: Any, s: Any, t: Any) -> Any:
    left = cp.kernels.Quantised(a, s, block_size=(1, 128))
    right = cp.kernels.Quantised(b, t, block_size=(128, 128))
    return cp.kernels.matmul(left, right.T, dtype="bf16")


CALLS: dict[str, tuple[Any, dict[str, str], dict[str, Any]]] = {
    "bf16": (cp.kernels.matmul, {"a": "bf16[4096,4096]", "b": "bf16[4096,4096]"}, {}),
    "f16 in f32": (cp.kernels.matmul, {"a": "f16[512,1024]", "b": "f16[1024,520]"}, {}),
    "f8 in f32": (scaled, BYTES, {}),
    "f8 by blocks": (scaled_by_blocks, BLOCKS, {}),
    "i8 by blocks": (
        scaled_by_blocks,
        {name: spec.replace("f8e4m3", "i8") for name, spec in BLOCKS.items()},
        {},
    ),
    "groups": (cp.kernels.grouped_matmul, GROUPS, {}),
    "causal attention": (cp.kernels.attention, HEADS, {"causal": True}),
    "attention_grad": (cp.kernels.attention_grad, SLOPES, {}),
    "causal attention_grad": (cp.kernels.attention_grad, WIDE_SLOPES, {"causal": True}),
    "attention within windows": (cp.kernels.attention, HEADS, {"window": (100, 20)}),
    "ragged attention": (cp.kernels.attention_ragged, SEQUENCES, {}),
    "causal ragged attention": (cp.kernels.attention_ragged, SEQUENCES, {"causal": True}),
    "paged attention": (cp.kernels.attention_paged, PAGES, {}),
    "convolution": (
        cp.kernels.conv2d,
        {"x": "bf16[32,56,56,64]", "weight": "bf16[64,64,3,3]"},
        {"padding": 1, "layout": "NHWC"},
    ),
    "gradient by the input": (
        cp.kernels.conv2d_input_grad,
        {"weight": "bf16[128,128,3,3]", "grad_output": "bf16[32,128,28,28]"},
        {"input_size": (32, 128, 56, 56), "padding": 1, "stride": 2},
    ),
    "gradient by the weights": (
        cp.kernels.conv2d_weight_grad,
        {"x": "bf16[32,512,7,7]", "grad_output": "bf16[32,512,7,7]"},
        {"weight_size": (512, 512, 3, 3), "padding": 1},
    ),
}


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("name", CALLS)
def test_products_are_not_serialised(name: str, monkeypatch: pytest.MonkeyPatch):
    call, specs, options = CALLS[name]
    resources, sources = toolchain.resources, []

    def noted(source: str, *others: Any) -> Any:
        sources.append(source)
        return resources(source, *others)

    monkeypatch.setattr(toolchain, "resources", noted)
    for launch in record(call, {k: cp.spec(v) for k, v in specs.items()}, options, HOPPER):
        arguments = launch.arguments
        text = launch.launcher.inspect(**arguments, target="cuda:sm_90a", stage="resources")
        assert "ptxas" not in text, text
        stored = re.search(r"spills +(\d+) bytes stored", text)
        assert stored is not None and int(stored.group(1)) <= MOST_SPILLED, text
    assert any("wgmma" in source for source in sources)


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("mask", ["bool", "bf16"])
def test_masks_of_gradients_are_read_without_branches(mask: str):
    """Behind a branch each element waits for its own mask: that took twice the time."""
    if toolchain.find_nvdisasm() is None:
        pytest.skip("package absent: nvidia-cuda-nvdisasm")
    specs = {k: cp.spec(v) for k, v in {**SLOPES, "mask": f"{mask}[1024,1024]"}.items()}
    launches = record(cp.kernels.attention_grad, specs, {}, HOPPER)
    sums = next(x for x in launches if x.launcher.kernel.__name__ == "sum_gradients_by_warpgroups")
    sass = sums.launcher.inspect(**sums.arguments, target="cuda:sm_90a", stage="sass")
    assert "HGMMA" in sass
    assert len(re.findall(r"\bBSSY\b", sass)) < 20


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(("name", "elements", "columns", "spec", "way"), tiles.WORDS)
def test_tiles_of_the_tests_of_devices(name: str, elements: Any, columns: int, spec: str, way: str):
    text = tiles.tile_of_words.inspect(
        *("u32[64,32]", f"u32[{columns},32]", spec),
        comptime={"elements": elements, "columns": columns, "way": way},
        target="cuda:sm_90a",
        stage="resources",
    )
    assert "ptxas" not in text, text
