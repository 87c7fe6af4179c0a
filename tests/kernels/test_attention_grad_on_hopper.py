"""Which gradients of attention Hopper's warpgroups make, and how; no GPU is needed."""

from __future__ import annotations

from typing import Any

import pytest

import cubepy as cp
from cubepy.kernels.attention.problem import GradientWarpgroups
from cubepy.kernels.calls.inspection import record
from cubepy.targets import cuda_target
from tests.optional import require_package

HOPPER = cuda_target("sm_90a")
ON_WARPGROUPS = ["prepare_gradients", "sum_gradients_by_warpgroups", "finish_gradients"]
WIDE = [*ON_WARPGROUPS[:2], *ON_WARPGROUPS[1:]]
BY_FRAGMENTS = ["prepare_gradients", *["sum_gradients_by_fragments"] * 2]
ELSEWHERE = ["multiply_rows", "sum_gradients", "sum_gradients"]


def launches(q: str, k: str, target: Any = HOPPER, **options: Any) -> Any:
    name, extents = q.rstrip("]").split("[")
    dtype = "f64" if name == "f64" else "f32"
    shapes = {"q": q, "k": k, "v": k, "result": q, "grad_output": q}
    shapes["lse"] = f"{dtype}[{extents.rsplit(',', 1)[0]}]"
    mask = options.pop("mask", None)
    if mask is not None:
        shapes["mask"] = mask
    specs = {key: cp.spec(shape) for key, shape in shapes.items()}
    return record(cp.kernels.attention_grad, specs, options, target)


def names(*args: Any, **options: Any) -> list[str]:
    return [launch.kernel.__name__ for launch in launches(*args, **options)]


@pytest.mark.parametrize("size", [8, 64, 72, 128, 136, 256])
def test_warpgroups_are_for_hopper(size: int):
    q, k = f"bf16[2,8,500,{size}]", f"bf16[2,2,700,{size}]"
    wanted = ON_WARPGROUPS if size <= 128 else WIDE
    assert names(q, k) == names(q, k, causal=True, scale=-1.0) == wanted
    assert names(q, k, window=(9, 5), mask="bool[8,1,700]") == wanted
    for arch in ("sm_80", "sm_90", "sm_100a"):
        assert names(q, k, cuda_target(arch))[:3] == BY_FRAGMENTS
    assert names(q, k, cuda_target("sm_75")) == ELSEWHERE


@pytest.mark.parametrize(
    ("q", "k", "options"),
    [
        ("f16[2,8,70,100]", "f16[2,8,70,100]", {}),
        ("f32[2,8,70,96]", "f32[2,8,70,96]", {}),
        ("f16[2,8,70,264]", "f16[2,8,70,264]", {}),
        ("f16[1,70,64]", "f16[8,70,64]", {}),
    ],
)
def test_what_takes_another_way(q: str, k: str, options: Any):
    if q.startswith("f16[1,"):
        specs = {"q": q, "k": k, "v": k, "result": k, "grad_output": k, "lse": "f32[8,70]"}
        made = {key: cp.spec(shape) for key, shape in specs.items()}
        found = record(cp.kernels.attention_grad, made, {}, HOPPER)
        assert [launch.kernel.__name__ for launch in found] == ELSEWHERE
    else:
        assert names(q, k, **options) == ELSEWHERE


@pytest.mark.parametrize(
    ("q", "k", "extents", "shared"),
    [
        ("f16[2,32,77,64]", "f16[2,8,300,64]", (1, 64, 77, 300), (1, 4)),
        ("f16[2,3,4,70,64]", "f16[7,64]", (1, 24, 70, 7), (1, 24)),
        ("f16[2,8,70,96]", "f16[8,64,96]", (2, 8, 70, 64), (2, 1)),
        ("f16[70,96]", "f16[64,96]", (1, 1, 70, 64), (1, 1)),
    ],
)
def test_axes_are_joined(q: str, k: str, extents: Any, shared: Any):
    launch = launches(q, k, causal=True)[1]
    assert (launch.arguments["extents"], launch.arguments["shared"]) == (extents, shared)
    for made in launch.arguments["outs"]:
        batches, heads, keys, _ = made.array.shape
        assert (batches * shared[0], heads * shared[1], keys) == (*extents[:2], extents[3])
        assert launch.cubes == batches * heads * -(-keys // 128)


@pytest.mark.parametrize(
    ("size", "options"), [(64, {}), (128, {"window": (90, 7), "mask": "f32[512,512]"}), (256, {})]
)
def test_its_text_is_compiled(size: int, options: Any):
    require_package("cuda.bindings")
    prepare, *passes, finish = launches(*[f"bf16[2,8,512,{size}]"] * 2, **options)
    for launch in (prepare, finish):
        launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
    loops = 1 if options else 2
    for launch in passes:
        t = launch.arguments["t"]
        assert isinstance(t, GradientWarpgroups)
        assert t.shared_bytes <= HOPPER.shared_bytes
        text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
        each = t.size // 16 * (1 + t.is_of_keys)
        each += t.rows // 16 * (t.is_of_keys + t.is_of_values) + t.is_of_keys * 8 * t.parts
        adds = t.is_of_keys * t.parts * (t.columns // 8)
        assert text.count("wgmma.mma_async") == loops * each
        assert text.count("red.global.add.v4.f32") == loops * adds
