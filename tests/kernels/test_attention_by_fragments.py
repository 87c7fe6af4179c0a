"""Which attention is made by the tensor cores of planes, and how; no GPU is needed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.types import bf16, f16, f32
from cubepy.kernels.attention.problem import Fragments, Problem, Squares
from cubepy.kernels.attention.strategies import (
    choose,
    fragments_of_sequences,
    order_of_fragments,
)
from cubepy.kernels.attention.tiles import tile_at, turns
from cubepy.kernels.calls.inspection import record
from cubepy.targets import cuda_target

LARGE = Problem(64, 4096, 4096, 128, 128, f32, False, bf16)
ARCHES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
HEADS = {name: "bf16[4,32,2048,128]" for name in "qkv"}
WIDE = {name: "f16[2,8,1024,256]" for name in "qkv"}
DECODED = {"q": "bf16[1,32,1,128]"} | dict.fromkeys(("k", "v"), "bf16[1,8,8192,128]")
PAGES = {"q": "bf16[4,1,32,128]", "block_table": "i32[4,128]", "lengths": "i32[4]"}
PAGES |= dict.fromkeys(("k", "v"), "bf16[700,16,8,128]")
CALLS: dict[str, tuple[Any, dict[str, str], dict[str, Any]]] = {
    "many queries": (cp.kernels.attention, HEADS, {}),
    "causal": (cp.kernels.attention, HEADS, {"causal": True}),
    "wide": (cp.kernels.attention, WIDE, {"window": (100, 20)}),
    "few queries": (cp.kernels.attention, DECODED, {}),
    "pages": (cp.kernels.attention_paged, PAGES, {}),
}
MOST_SPILLED = 128
"""Bytes of a unit, outside of the loop over keys; what is in it fills all registers."""


def chosen(arch: str, p: Problem) -> Fragments:
    found = choose(cuda_target(arch), p)
    assert isinstance(found, Fragments)
    return found


def test_where_they_are_chosen():
    for arch in ARCHES:
        assert isinstance(choose(cuda_target(arch), LARGE), Fragments)
    assert isinstance(choose(cuda_target("sm_75"), LARGE), Squares)
    for changes in ({"elements": None}, {"elements": f32}, {"size": 264}, {"width": 100}):
        assert isinstance(choose(cuda_target("sm_80"), replace(LARGE, **changes)), Squares)


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("queries", [1, 5, 16, 17, 64, 65, 4096])
def test_shared_memory_and_registers_suffice(arch: str, queries: int):
    target = cuda_target(arch)
    for size in (8, 64, 72, 128, 136, 256):
        for width in (8, 64, size):
            t = chosen(arch, replace(LARGE, size=size, width=width, queries=queries, elements=f16))
            assert t.shared_bytes <= target.shared_bytes
            assert t.rows * (t.wide // 2 + t.of_plane.keys // 2) <= 192
            assert t.of_plane.keys % 16 == 0
            assert min(queries, t.height) <= t.noted or t.across == 1


@cp.cube
def deal(counts: cp.Tensor, extents: Any, order: Any, t: cp.Comptime[Fragments]):
    """Count the steps of each tile that a cube makes."""
    for turn in range(turns(order, t)):
        where, first, begin, end = tile_at(cp.u32(turn), extents, order, (), t)
        for step in range(begin, end):
            cp.atomic.add(counts, (where[1], first // t.height, step), 1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sizes", [(8, 1, 4096), (5, 300, 700), (40, 1000, 4096), (3, 1, 7)])
def test_each_step_has_one_cube(sizes: tuple[int, int, int], causal: bool):
    heads, queries, keys = sizes
    p = replace(LARGE, heads=heads, queries=queries, keys=keys, is_causal=causal)
    t = chosen("sm_80", p)
    dealt = order_of_fragments(cuda_target("sm_80"), p, t)
    assert t.is_split == (dealt.sharers > 0)
    tiles, steps = -(-queries // t.height), -(-keys // t.keys)
    counts = np.zeros((heads, tiles, steps), np.int32)
    extents = tuple(map(np.uint32, (1, heads, queries, keys)))
    cubes = dealt.cubes
    deal[cubes, 1](counts, extents, tuple(map(np.uint32, dealt.numbers)), t)
    last = -(-np.minimum(np.arange(1, tiles + 1) * t.height, keys) // t.keys)
    wanted = np.arange(steps) < (last[:, None] if causal else steps)
    np.testing.assert_array_equal(counts, np.broadcast_to(wanted, counts.shape))


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("is_even", [False, True])
def test_shared_memory_of_sequences_suffices(arch: str, is_even: bool):
    target = cuda_target(arch)
    for size in range(8, 257, 8):
        for width in (8, 200, 232, 256, size):
            for queries in (1, 4, 16, 17, 65):
                p = replace(LARGE, size=size, width=width, queries=queries)
                t = fragments_of_sequences(target, p, is_even)
                assert t is not None and t.shared_bytes <= target.shared_bytes
                assert is_even or t.noted >= min(16, t.height)


@pytest.mark.usefixtures("nvrtc")
def test_nvrtc_takes_as_much_shared_memory_as_is_counted():
    specs = {"q": "f16[4,8,2,200]", "block_table": "i32[4,128]", "lengths": "i32[4]"}
    specs |= {"k": "f16[700,12,2,200]", "v": "f16[700,12,2,256]"}
    given = {k: cp.spec(v) for k, v in specs.items()}
    first = record(cp.kernels.attention_paged, given, {}, cuda_target("sm_86"))[0]
    assert first.kernel.__name__ == "attend_ragged_fragments"
    text = first.launcher.inspect(**first.arguments, target="cuda:sm_86", stage="resources")
    found = re.search(r"shared memory +(\d+) bytes", text)
    assert found is not None and int(found.group(1)) <= first.arguments["t"].shared_bytes


def test_tables_without_pages_are_not_read():
    for pages, kernel in ((128, "attend_ragged_fragments"), (0, "attend_ragged_squares")):
        specs = {k: cp.spec(v) for k, v in {**PAGES, "block_table": f"i32[4,{pages}]"}.items()}
        found = record(cp.kernels.attention_paged, specs, {}, cuda_target("sm_80"))
        assert found[0].kernel.__name__ == kernel


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize(
    ("name", "arch"), [*((name, "sm_80") for name in CALLS), ("many queries", "sm_120")]
)
def test_nvrtc_keeps_them_in_registers(name: str, arch: str):
    call, specs, options = CALLS[name]
    given = {k: cp.spec(v) for k, v in specs.items()}
    launches = record(call, given, options, cuda_target(arch))
    assert "fragments" in launches[0].kernel.__name__
    for launch in launches:
        text = launch.launcher.inspect(**launch.arguments, target=f"cuda:{arch}", stage="resources")
        stored = re.search(r"spills +(\d+) bytes stored", text)
        assert stored is not None and int(stored.group(1)) <= MOST_SPILLED, text
