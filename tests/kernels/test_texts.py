"""Prebuilt functions as the text of devices that are not here: NVRTC compiles CUDA's, clang HIP's,
and the others are written without a refusal."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import pytest

import cubepy as cp
from cubepy import kernels
from cubepy.jit.kernel import resolve_target
from cubepy.kernels.calls.inspection import record
from tests.compilers.c import hip_text

IMAGE = {"x": "f32[2,5,19,23]"}
ROW = "f32[6]"
HEADS = {"q": "bf16[2,8,70,64]", "k": "bf16[2,2,90,64]", "v": "bf16[2,2,90,64]"}
SLOPES = {**HEADS, "result": "bf16[2,8,70,64]", "grad_output": "bf16[2,8,70,64]"}
SLOPES["lse"] = "f32[2,8,70]"
SEQUENCES = {"q": "bf16[70,8,64]", "k": "bf16[90,2,64]", "v": "bf16[90,2,40]"}
SEQUENCES |= dict.fromkeys(("q_offsets", "k_offsets"), "i32[4]")
PAGES = {"q": "f16[3,2,8,64]", "k": "f16[9,16,2,64]", "v": "f16[9,16,2,64]"}
PAGES |= {"block_table": "i32[3,4]", "lengths": "i64[3]"}
CHANNELS = {"x": "bf16[4,6,9]", "running_mean": ROW, "running_var": ROW, "weight": ROW}
TRANSPOSED = {"x": "f32[2,4,7,6]", "weight": "f32[4,3,3,3]", "bias": ROW}
GRADIENT = {"x": "f16[2,3,7,6]", "grad_output": "f16[2,4,4,3]"}
ROWS = {"x": "f32[40,768]", "index": "i64[12]", "values": "f32[12,768]"}
CALLS: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("max_pool2d", {"x": "f16[2,5,19,23]"}, {"kernel_size": 3, "return_indices": True}),
    ("avg_pool2d", IMAGE, {"kernel_size": 3, "stride": 2, "padding": 1}),
    ("adaptive_avg_pool2d", IMAGE, {"output_size": (4, 5)}),
    ("avg_pool3d", {"x": "bf16[2,5,9,19,24]"}, {"kernel_size": 3, "padding": 1}),
    ("softmax", {"x": "bf16[40,512]"}, {}),
    ("softmax", {"x": "f32[4,100000]"}, {}),
    ("rms_norm", {"x": "f16[4,4096]", "residual": "f16[4,4096]"}, {"normalized_shape": 4096}),
    ("cross_entropy", {"x": "f16[40,512]", "target": "i64[40]"}, {}),
    ("cross_entropy", {"x": "f32[40,5000]", "target": "i64[40]"}, {"reduction": "none"}),
    ("cumsum", {"x": "f32[3,300000]"}, {"axis": 1}),
    ("cumprod", {"x": "i16[300000,3]"}, {"axis": 0}),
    ("sort", {"x": "f16[3,5000]"}, {}),
    ("topk", {"x": "f16[3,300]"}, {"k": 4}),
    ("topk", {"x": "f32[3,30000]"}, {"k": 40}),
    ("transpose", {"x": "f16[4,200,300]"}, {"axes": (0, 2, 1)}),
    ("where", {"condition": "bool[64,1]", "a": "f32[64,128]", "b": "f32[128]"}, {}),
    ("gather", {"x": "f32[40,768]", "index": "i64[3,4]"}, {"mode": "slices"}),
    ("scatter", ROWS, {"update": "add"}),
    ("scatter", ROWS, {"update": "max", "deterministic": False}),
    ("random.uniform", {"out": "bf16[1000]"}, {"seed": 1}),
    ("random.normal", {"out": "f32[1000]"}, {"seed": 1}),
    (
        "quantize",
        {"x": "f32[40,64]", "scale": "f32[40,2]"},
        {"dtype": "int4", "axis": 1, "block_size": 32},
    ),
    ("attention", {**HEADS, "mask": "bool[70,90]"}, {"causal": True}),
    ("attention_grad", SLOPES, {"window": (5, 70)}),
    ("attention", HEADS, {"window": (5, 70)}),
    ("attention_ragged", SEQUENCES, {"causal": True}),
    ("attention_paged", PAGES, {}),
    ("batch_norm", CHANNELS, {"training": True}),
    ("group_norm", {"x": "f32[4,6,9]", "bias": ROW}, {"num_groups": 2}),
    ("layer_norm", {"x": "f16[4,6]", "weight": ROW}, {"normalized_shape": 6}),
    ("conv_transpose2d", TRANSPOSED, {"stride": 2, "groups": 2}),
    ("conv2d_weight_grad", GRADIENT, {"weight_size": (4, 3, 3, 3), "stride": 2, "padding": 1}),
    ("dequantize", {"q": "i8[40,64]", "scale": "f32[40]"}, {"axis": 0}),
]


def written(call: Any, target: str, stage: str) -> list[str]:
    """The stage of each launch."""
    name, specs, options = call
    arrays = {name: cp.spec(spec) for name, spec in specs.items()}
    launches = record(attrgetter(name)(kernels), arrays, options, resolve_target(target))
    assert launches
    return [
        str(each.launcher.inspect(target=target, stage=stage, comptime=dict(each.arguments)))
        for each in launches
    ]


def ids(call: tuple[str, dict[str, str], dict[str, Any]]) -> str:
    return call[0]


@pytest.mark.optional("cuda.bindings")
@pytest.mark.parametrize("call", CALLS, ids=ids)
def test_nvrtc(require_package: Any, call: Any):
    require_package("cuda.bindings")
    assert all(".entry" in text for text in written(call, "cuda:sm_80", "ptx"))


@pytest.mark.parametrize("call", [CALLS[0], CALLS[3], CALLS[5]], ids=ids)
def test_hip(call: Any):
    hip_text.find_clang()
    for text in written(call, "hip:gfx942", "source"):
        assert hip_text.build(text, "gfx942")


@pytest.mark.parametrize("call", CALLS, ids=ids)
def test_other_texts(call: Any):
    for target, word in (("hip:gfx942", "__global__"), ("metal", "kernel"), ("opencl", "__kernel")):
        assert all(word in text for text in written(call, target, "source"))
