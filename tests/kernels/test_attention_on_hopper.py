"""Which attention Hopper's warpgroups are chosen for, and how; no GPU is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.types import bf16, f16, f32
from cubepy.kernels.attention.problem import CLUSTER, Problem, Warpgroups
from cubepy.kernels.attention.strategies import TILES, choose, order
from cubepy.kernels.attention.tiles import tile_at, turns
from cubepy.kernels.calls.inspection import record
from cubepy.targets import cuda_target
from tests.optional import require_package

HOPPER = cuda_target("sm_90a")
LARGE = Problem(64, 4096, 4096, 128, 128, f32, False, bf16)


def chosen(p: Problem) -> Warpgroups:
    found = choose(HOPPER, p)
    assert isinstance(found, Warpgroups)
    return found


def launches(q: str, k: str, **options: Any) -> Any:
    specs = {"q": cp.spec(q), "k": cp.spec(k), "v": cp.spec(k)}
    return record(cp.kernels.attention, specs, options, HOPPER)


def test_warpgroups_are_for_hopper():
    assert isinstance(choose(HOPPER, LARGE), Warpgroups)
    for arch in ("sm_80", "sm_90", "sm_100a"):
        assert not isinstance(choose(cuda_target(arch), LARGE), Warpgroups)
    for changes in ({"elements": None}, {"elements": f32}, {"size": 264}):
        assert not isinstance(choose(HOPPER, replace(LARGE, **changes)), Warpgroups)


@pytest.mark.parametrize("queries", [1, 64, 65, 4096])
@pytest.mark.parametrize("size", [8, 64, 72, 128, 136, 192, 256])
def test_shared_memory_and_registers_suffice(size: int, queries: int):
    for width in (64, 128, 256, size):
        p = replace(LARGE, size=size, width=width, queries=queries, elements=f16)
        t = choose(HOPPER, p)
        if not isinstance(t, Warpgroups):
            assert {size, width} == {192, 256} or size < width
            continue
        assert t.shared_bytes <= HOPPER.shared_bytes
        assert not t.shares_memory or t.wide_pieces <= t.pieces
        held = t.width // 2 + t.keys // 2 + t.keys // 4
        assert held + 28 <= (t.registers[1] or 255)
        assert t.keys % 16 == 0


def test_few_queries_split_the_keys():
    few = replace(LARGE, heads=8, queries=4)
    t = chosen(few)
    assert (t.consumers, t.is_split, t.is_clustered) == (1, True, True)
    dealt = order(HOPPER, few, t)
    assert (dealt.tiles, dealt.sharers, dealt.steps) == (8, 8 * CLUSTER, 32)
    long = replace(few, keys=1 << 17)
    t = chosen(long)
    assert (t.is_split, t.is_clustered) == (True, False)
    assert order(HOPPER, long, t).sharers == 132
    assert not chosen(replace(few, keys=100)).is_split
    assert not chosen(replace(few, is_causal=True)).is_split
    assert set(TILES) == {64, 128, 192, 256}


def test_tiles_that_fill_the_gpu_are_whole():
    assert not chosen(LARGE).is_split
    assert not chosen(replace(LARGE, heads=256, queries=8, keys=8192)).is_split
    assert chosen(replace(LARGE, heads=66, queries=65)).is_split


@cp.cube
def deal(counts: cp.Tensor, parts: cp.Tensor, extents: Any, order: Any, t: cp.Comptime[Warpgroups]):
    """Count the steps of each tile that a cube makes, and note which part of a tile it makes."""
    for turn in range(turns(order, t)):
        where, first, begin, end = tile_at(cp.u32(turn), extents, order, (), t)
        head = where[0] * cp.i32(extents[1]) + where[1]
        for step in range(begin, end):
            cp.atomic.add(counts, (head, first // t.height, step), 1)
        if where[2] >= 0:
            parts[where[3], where[2]] = end - begin


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "sizes", [(8, 1, 4096), (1, 1, 131), (256, 8, 8192), (5, 300, 700), (40, 4096, 4096), (3, 1, 7)]
)
def test_each_step_has_one_cube(sizes: tuple[int, int, int], causal: bool):
    heads, queries, keys = sizes
    p = replace(LARGE, heads=heads, queries=queries, keys=keys, is_causal=causal)
    t = chosen(p)
    dealt = order(HOPPER, p, t)
    tiles, steps = -(-queries // t.height), -(-keys // t.keys)
    counts = np.zeros((heads, tiles, steps), np.int32)
    parts = np.zeros((dealt.tiles, dealt.sharers or 1), np.int32)
    cubes = min(HOPPER.multiprocessors, dealt.cubes)
    extents = tuple(map(np.uint32, (1, heads, queries, keys)))
    deal[cubes, 1](counts, parts, extents, tuple(map(np.uint32, dealt.numbers)), t)
    last = -(-np.minimum(np.arange(1, tiles + 1) * t.height, keys) // t.keys)
    wanted = np.arange(steps) < (last[:, None] if causal else steps)
    np.testing.assert_array_equal(counts, np.broadcast_to(wanted, counts.shape))
    if dealt.sharers:
        assert (parts.sum(1) == steps).all()


def test_heads_that_share_keys_are_queries_of_one():
    attend, join = launches("bf16[2,32,1,128]", "bf16[2,4,81920,128]")
    assert attend.kernel.__name__ == "attend_warpgroups"
    assert join.kernel.__name__ == "join_parts"
    assert attend.arguments["extents"] == (1, 8, 8, 81920)
    assert len(launches("bf16[2,32,1,128]", "bf16[2,4,8192,128]")) == 1
    assert attend.arguments["q"].array.strides == (16, 8 * 256, 256, 2)
    (attend,) = launches("bf16[2,32,1,128]", "bf16[2,4,8192,128]", causal=True)
    assert attend.arguments["extents"] == (1, 64, 1, 8192)
    assert attend.arguments["shared"] == (1, 8)


@pytest.mark.parametrize(
    ("q", "k", "extents", "shared"),
    [
        ("f16[2,32,77,64]", "f16[2,8,300,64]", (1, 64, 77, 300), (1, 4)),
        ("f16[2,3,4,70,64]", "f16[7,64]", (1, 24, 70, 7), (1, 24)),
        ("f16[2,8,70,96]", "f16[8,64,96]", (2, 8, 70, 64), (2, 1)),
        ("f16[2,1,8,70,96]", "f16[2,1,1,64,96]", (1, 16, 70, 64), (1, 8)),
        ("f16[70,96]", "f16[64,96]", (1, 1, 70, 64), (1, 1)),
    ],
)
def test_axes_are_joined(q: str, k: str, extents: Any, shared: Any):
    (launch,) = launches(q, k, causal=True)
    assert launch.arguments["extents"] == extents
    assert launch.arguments["shared"] == shared
    batches, heads = launch.arguments["k"].array.shape[:2]
    assert (batches * shared[0], heads * shared[1]) == extents[:2]


@pytest.mark.parametrize(
    ("q", "options"),
    [
        ("f16[2,8,70,100]", {}),
        ("f32[2,8,70,96]", {}),
        ("f16[2,8,70,96]", {"scale": -1.0}),
        ("f16[2,8,70,96]", {"scale": 0.0}),
        ("f16[2,8,70,320]", {}),
    ],
)
def test_what_takes_another_way(q: str, options: Any):
    (launch,) = launches(q, q, **options)
    assert launch.kernel.__name__ == "attend_squares"


def test_masks_keep_their_strides():
    specs = {"q": cp.spec("f16[2,8,70,64]"), "mask": cp.spec("bool_[2,1,1,90]")}
    specs |= dict.fromkeys(("k", "v"), cp.spec("f16[2,2,90,64]"))
    (launch,) = record(cp.kernels.attention, specs, {}, HOPPER)
    assert launch.kernel.__name__ == "attend_warpgroups"
    (mask,) = launch.arguments["masks"]
    assert mask.shape == (2, 8, 70, 90)
    assert mask.strides == (90, 0, 0, 1)


@pytest.mark.parametrize(("size", "causal"), [(64, True), (128, False), (192, True), (256, False)])
def test_its_text_is_compiled(size: int, causal: bool):
    require_package("cuda.bindings")
    (launch,) = launches(*[f"bf16[2,256,512,{size}]"] * 2, causal=causal)
    text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
    t = launch.arguments["t"]
    steps = 3 if t.is_causal and t.keys % t.height else 2
    each = size // 16 + t.keys // 16
    assert text.count("wgmma.mma_async") == steps * each
    assert "setmaxnreg.inc" in text
    used = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="resources")
    assert "0 bytes stored" in used and "ptxas" not in used


@pytest.mark.parametrize("size", [16, 64, 80, 128])
def test_tiles_of_8_bits(size: int):
    for kind in (None, "f16", "bf16", "f32"):
        for elements, queries in (("f8e4m3", 700), ("f8e5m2", 1)):
            q, k = (f"{elements}[2,8,{rows},{size}]" for rows in (queries, 900))
            attend = launches(q, k, dtype=kind)[0]
            assert attend.kernel.__name__ == "attend_warpgroups"
            t = attend.arguments["t"]
            assert t.shared_bytes <= HOPPER.shared_bytes and t.stages > 2
            assert t.size % 32 == 0 and t.keys % 32 == 0 and not t.shares_memory
            held = t.width + t.keys // 2 + t.keys // 8
            assert held + 20 <= (t.registers[1] or 255)
            assert bool(attend.arguments["wide"]) == (t.result == f32 or t.is_clustered)
    (attend,) = launches("f8e4m3[8,700,272]", "f8e4m3[8,700,272]")
    assert attend.kernel.__name__ == "attend_squares"


@pytest.mark.parametrize(("size", "width"), [(144, 144), (256, 256), (64, 400), (192, 208)])
@pytest.mark.parametrize("queries", [700, 1])
def test_wide_values_of_8_bits_take_several_launches(size: int, width: int, queries: int):
    specs = {"q": f"f8e4m3[2,3,{queries},{size}]", "k": f"f8e4m3[2,3,900,{size}]"}
    specs["v"] = f"f8e4m3[2,3,900,{width}]"
    made = record(
        cp.kernels.attention,
        {name: cp.spec(text) for name, text in specs.items()},
        {"dtype": "f16", "return_lse": True},
        HOPPER,
    )
    attends = [x for x in made if x.kernel.__name__ == "attend_warpgroups"]
    assert len(attends) == -(-width // 128)
    end = attends[0].arguments["v"].array.address
    for attend in attends:
        t, v, out = (attend.arguments[name] for name in ("t", "v", "out"))
        assert t.shared_bytes <= HOPPER.shared_bytes
        assert (v.array.address, out.array.shape[-1]) == (end, v.array.shape[-1])
        assert v.array.shape[-1] <= t.width <= 128
        assert bool(attend.arguments["logs"]) == (attend is attends[0])
        end += v.array.shape[-1]
    assert end == attends[0].arguments["v"].array.address + width


@pytest.mark.parametrize("size", [64, 128])
def test_text_of_8_bits_is_compiled(size: int):
    require_package("cuda.bindings")
    (launch,) = launches(*[f"f8e4m3[2,256,512,{size}]"] * 2, dtype="bf16")
    text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
    keys = launch.arguments["t"].keys
    assert text.count("wgmma.mma_async") == 2 * (size // 32) + 2 * (keys // 32)
    assert ".trans.shared" in text and "cvt.rn.satfinite.e4m3x2" in text


def test_results_of_f32_leave_registers_in_pieces_of_8_columns():
    for width in (20, 60, 100):
        p = replace(LARGE, size=128, width=width, result=f32)
        assert not isinstance(choose(HOPPER, p), Warpgroups)
        assert isinstance(choose(HOPPER, replace(p, width=width + 4)), Warpgroups)
        assert isinstance(choose(HOPPER, replace(p, result=None)), Warpgroups)


@pytest.mark.parametrize("count", [7, 16, 32, 78, 114, 132])
def test_clusters_have_a_cube_for_each_part(count: int):
    target = replace(HOPPER, multiprocessors=count)
    for heads in range(1, 18):
        p = replace(LARGE, heads=heads, queries=1, keys=8192)
        t = choose(target, p)
        assert isinstance(t, Warpgroups)
        if t.is_clustered:
            assert order(target, p, t).sharers == heads * CLUSTER <= count
