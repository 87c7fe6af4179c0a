"""Rings and warpgroups of prebuilt kernels in random orders of planes; see `tests.rings`."""

from __future__ import annotations

from contextlib import nullcontext
from math import prod
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.core import Kernel
from cubepy.ir.parser import parse_kernel
from cubepy.kernels.calls.inspection import record
from cubepy.lang import pipelines
from cubepy.targets import cuda_target
from tests.kernels.test_resources_on_hopper import scaled, scaled_by_blocks
from tests.rings import Hang, Machine, Overlap

HOPPER = cuda_target("sm_90a")
PLANE = tuple(range(32))
SEEDS = range(2)


# What the machine finds


@cp.cube
def relay(
    x: cp.cuda.TensorMap, out: cp.cuda.TensorMap, found: cp.Tensor[cp.f32], way: cp.Comptime[str]
):
    """Four planes read stages of a ring that a fifth fills, in one of some ways."""
    unit, plane = cp.UNIT_POS, cp.UNIT_POS // 32
    tile = cp.shared((2, 8, 32), cp.f32)
    ring = pipelines.ring(2, 4 if way in ("each plane", "some planes") else 1)
    cp.sync_cube()
    place = ring.start()
    if plane == 4:
        if unit % 32 == 0:
            for step in range(6):
                ring.acquire(place, x.nbytes)
                cp.cuda.tensor_load(
                    tile, (place.stage, 0, 0), x, (8 * step, 0), ring.full, place.stage
                )
                place = ring.following(place)
    else:
        for step in range(6):
            ring.wait(place)
            found[step, unit] = tile[place.stage, unit // 32, unit % 32]
            if cp.comptime(way in ("each plane", "some planes")):
                cp.sync_plane()
                if unit % 32 == 0 and (plane < 3 or way == "each plane"):
                    ring.release(place.stage)
            else:
                if cp.comptime(way != "before others have read"):
                    cp.sync_units(1, 128)
                if unit == 0:
                    ring.release(place.stage)
                if cp.comptime(way == "asked twice"):
                    ring.wait(place)
            place = ring.following(place)


@cp.cube
def send(
    x: cp.cuda.TensorMap, out: cp.cuda.TensorMap, found: cp.Tensor[cp.f32], way: cp.Comptime[str]
):
    """Boxes leave memory that is stored to again, in one of some ways."""
    unit = cp.UNIT_POS
    tile = cp.shared((8, 32), cp.f32)
    if cp.comptime(way == "more arrive"):
        cp.cuda.ptx("bar.arrive %0, 256;", cp.i32(3))
    for step in range(3):
        if unit == 0 and way != "not waited for":
            cp.cuda.bulk_wait(0, read=True)
        if cp.comptime(way != "others go on"):
            cp.sync_cube()
        tile[unit // 32, unit % 32] = found[step, unit]
        if cp.comptime(way != "without a fence"):
            cp.cuda.fence_async()
        cp.sync_cube()
        if unit == 0:
            cp.cuda.tensor_store(out, (8 * step, 0), tile, (0, 0))
            cp.cuda.bulk_commit()
    if unit == 0 and way != "ends early":
        cp.cuda.bulk_wait(0, read=True)


@cp.cube
def exchange(
    x: cp.cuda.TensorMap, out: cp.cuda.TensorMap, found: cp.Tensor[cp.f32], way: cp.Comptime[str]
):
    """A cube reads the memory of another."""
    mine = cp.shared(32, cp.f32)
    mine[cp.UNIT_POS] = 1.0
    cp.cuda.cluster_sync()
    found[0, cp.UNIT_POS] = cp.cuda.cluster_load(mine, cp.UNIT_POS, 1 - cp.cuda.cluster_rank())
    if cp.comptime(way == "waits"):
        cp.cuda.cluster_sync()


WAYS: list[tuple[Any, str, Any]] = [
    (relay[1, 160], "each plane", None),
    (relay[1, 160], "behind a barrier", None),
    (relay[1, 160], "before others have read", (Hang, Overlap)),
    (relay[1, 160], "asked twice", Hang),
    (relay[1, 160], "some planes", Hang),
    (send[1, 128], "as it should be", None),
    (send[1, 128], "not waited for", Overlap),
    (send[1, 128], "others go on", Overlap),
    (send[1, 128], "without a fence", Overlap),
    (send[1, 128], "ends early", Overlap),
    (send[1, 128], "more arrive", Overlap),
    (exchange.configure(cluster=2)[2, 32], "waits", None),
    (exchange.configure(cluster=2)[2, 32], "ends early", Overlap),
]


@pytest.mark.parametrize("case", range(len(WAYS)))
def test_the_machine_finds_what_is_wrong(case: int):
    launcher, way, error = WAYS[case]
    boxes = cp.cuda.tensor_map("f32[64,32]", (8, 32))
    arguments = {"x": boxes, "out": boxes, "found": cp.spec("f32[6,128]")}
    options: Any = {"comptime": {"way": way}, "target": "cuda:sm_90a", "stage": "ir"}
    kernel = parse_kernel(launcher.inspect(**arguments, **options))
    with nullcontext() if error is None else pytest.raises(error):
        for seed in range(20):
            machine = Machine(kernel, arguments, cubes=2, cluster=cluster_of(kernel), seed=seed)
            machine.run()


def cluster_of(kernel: Kernel) -> int:
    return prod(kernel.attribute("cluster", (1,)))


# Prebuilt kernels


def heads(q: str, k: str, mask: str = "") -> dict[str, str]:
    return {"q": q, "k": k, "v": k} | ({"mask": mask} if mask else {})


def slopes(q: str, k: str) -> dict[str, str]:
    lse = f"f32[{q.partition('[')[2].rpartition(',')[0]}]"
    return {**heads(q, k), "result": q, "grad_output": q, "lse": lse}


def relu(v: Any, index: Any) -> Any:
    return max(v, 0.0)


def widened(x: Any, q: Any, s: Any) -> Any:
    weights = cp.kernels.Quantised(q, s, axis=1, block_size=128, packed="int4")
    return cp.kernels.matmul(x, weights.T)


K: Any = cp.kernels
BYTES = {"a": "f8e4m3[300,512]", "b": "f8e4m3[256,512]", "s": "f32[300,1]", "t": "f32[256,1]"}
BLOCKS = {**BYTES, "s": "f32[300,4]", "t": "f32[2,4]"}
SEQUENCES = {**heads("bf16[500,8,128]", "bf16[900,2,128]"), "q_offsets": "i32[5]"}
SEQUENCES |= {"k_offsets": "i32[5]"}
OFFSETS = {
    "marks.0.0": np.array([0, 100, 100, 400, 500]),
    "marks.1": np.array([0, 0, 300, 301, 900]),
}
PAGES = {
    **heads("f16[4,3,8,64]", "f16[20,16,2,64]"),
    "block_table": "i32[4,99]",
    "lengths": "i32[4]",
}
LENGTHS = {"marks.1": np.array([1500, 0, 33, 700]), "marks.2.0": np.arange(400) % 20}
ENDS = {"ends": np.array([0, 70, 70, 300])}
CALLS: dict[str, tuple[Any, dict[str, str], dict[str, Any], dict[str, Any]]] = {
    "matmul": (K.matmul, {"a": "bf16[500,512]", "b": "bf16[512,520]"}, {}, {}),
    "matmul of large tiles": (K.matmul, {"a": "f16[2048,256]", "b": "f16[256,4096]"}, {}, {}),
    "matmul and more": (
        K.matmul,
        {"a": "f16[3,72,320]", "b": "f16[3,320,264]"},
        {"epilogue": relu},
        {},
    ),
    "matmul in pairs": (K.matmul, {"a": "bf16[1000,1000]", "b": "bf16[1000,1000]"}, {}, {}),
    "matmul of few rows": (K.matmul, {"a": "bf16[40,1024]", "b": "bf16[1024,9000]"}, {}, {}),
    "matmul that shares k": (K.matmul, {"a": "bf16[4,2048]", "b": "bf16[2048,2560]"}, {}, {}),
    "f8": (scaled, BYTES, {}, {}),
    "f8 by blocks": (scaled_by_blocks, BLOCKS, {}, {}),
    "4 bits": (
        widened,
        {"x": "bf16[8,1024]", "q": "u8[8192,512]", "s": "f16[8192,8]"},
        {},
        {},
    ),
    "4 bits of more rows": (
        widened,
        {"x": "bf16[80,1024]", "q": "u8[4096,512]", "s": "f16[4096,8]"},
        {},
        {},
    ),
    "groups": (
        K.grouped_matmul,
        {"x": "bf16[320,256]", "weights": "bf16[4,256,512]", "ends": "i32[4]"},
        {},
        ENDS,
    ),
    "attention": (K.attention, heads("bf16[1,2,250,128]", "bf16[1,2,900,128]"), {}, {}),
    "attention of 64": (
        K.attention,
        heads("f16[1,2,250,64]", "f16[1,2,900,64]"),
        {"window": (300, 90)},
        {},
    ),
    "causal attention": (
        K.attention,
        heads("bf16[1,2,250,128]", "bf16[1,2,900,128]"),
        {"causal": True},
        {},
    ),
    "attention with a mask": (
        K.attention,
        heads("bf16[1,80,250,128]", "bf16[1,80,450,128]", "bool[250,450]"),
        {},
        {},
    ),
    "attention of 256": (K.attention, heads("f16[1,90,250,256]", "f16[1,90,300,256]"), {}, {}),
    "attention in clusters": (K.attention, heads("bf16[8,1,64]", "bf16[8,1100,64]"), {}, {}),
    "attention of 8 bits": (
        K.attention,
        heads("f8e4m3[1,2,250,128]", "f8e4m3[1,2,900,128]"),
        {"causal": True},
        {},
    ),
    "attention of sequences": (K.attention_ragged, SEQUENCES, {"causal": True}, OFFSETS),
    "attention of pages": (K.attention_paged, PAGES, {}, LENGTHS),
    "gradients of attention": (
        K.attention_grad,
        slopes("bf16[1,2,200,128]", "bf16[1,1,260,128]"),
        {},
        {},
    ),
    "gradients of attention of 256": (
        K.attention_grad,
        slopes("bf16[1,2,300,256]", "bf16[1,1,260,256]"),
        {},
        {},
    ),
    "convolution": (
        K.conv2d,
        {"x": "bf16[8,56,56,64]", "weight": "bf16[64,64,3,3]"},
        {"padding": 1, "layout": "NHWC"},
        {},
    ),
    "convolution of few channels": (
        K.conv2d,
        {"x": "bf16[4,16,30,30]", "weight": "bf16[200,16,3,3]"},
        {"padding": 2, "stride": 2, "dilation": 2},
        {},
    ),
    "gradients of convolution": (
        K.conv2d_weight_grad,
        {"x": "bf16[2,72,20,20]", "grad_output": "bf16[2,200,10,10]"},
        {"weight_size": (200, 72, 3, 3), "padding": 1, "stride": 2},
        {},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_planes_in_any_order(name: str):
    call, specs, options, arrays = CALLS[name]
    described = {key: cp.spec(text) for key, text in specs.items()}
    seen = 0
    for launch in record(call, described, options, HOPPER):
        text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ir")
        if "cuda_barrier_try_wait" not in text:
            continue
        kernel, seen = parse_kernel(text), seen + 1
        cluster = cluster_of(kernel)
        lanes = PLANE if "marks" in launch.arguments else (0, 1, 31)
        for seed in SEEDS:
            first = (launch.cubes // cluster - 1) * seed * cluster
            Machine(
                kernel,
                launch.arguments,
                cubes=launch.cubes,
                cluster=cluster,
                first=first,
                arrays=arrays,
                lanes=lanes,
                seed=seed,
            ).run()
    assert seen
