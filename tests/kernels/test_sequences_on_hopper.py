"""Which tiles Hopper's warpgroups make of sequences of different lengths; no GPU is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.ir.types import bf16, f32
from cubepy.kernels.attention.dealing import LEAST_STEPS, after, first_of, note_makers, tile_at
from cubepy.kernels.attention.problem import Problem, Sequences, Warpgroups
from cubepy.kernels.attention.rows import slots
from cubepy.kernels.attention.strategies import warpgroups_of_sequences
from cubepy.kernels.calls.inspection import record
from cubepy.targets import cuda_target

HOPPER = cuda_target("sm_90a")
PROBLEM = Problem(64, 300, 4096, 128, 128, f32, False, bf16)
RAGGED = ("bf16[1000,8,128]", "bf16[2000,2,128]", "i32[5]", "i32[5]")
PAGED = ("bf16[4,3,8,128]", "bf16[20,16,2,128]", "i32[4,10]", "i32[4]")


def ragged(q: str, k: str, q_offsets: str, k_offsets: str, **options: Any) -> Any:
    specs = {"q": q, "k": k, "v": k, "q_offsets": q_offsets, "k_offsets": k_offsets}
    specs = {name: cp.spec(text) for name, text in specs.items()}
    return record(cp.kernels.attention_ragged, specs, options, HOPPER)


def paged(q: str, k: str, table: str, lengths: str, starts: str = "", **options: Any) -> Any:
    specs = {"q": q, "k": k, "v": k, "block_table": table, "lengths": lengths}
    specs |= {"q_offsets": starts} if starts else {}
    specs = {name: cp.spec(text) for name, text in specs.items()}
    return record(cp.kernels.attention_paged, specs, options, HOPPER)


@cp.cube
def deal(
    rows: cp.Tensor,
    keys: cp.Tensor,
    makers: cp.Tensor,
    parts: cp.Tensor,
    marks: Any,
    extents: Any,
    window: Any,
    t: cp.Comptime[Warpgroups],
    r: cp.Comptime[Sequences],
) -> None:
    """Count the steps of each token, and the queries of each key of the first head."""
    at = first_of(marks, extents, window, t, r)
    while at.now < at.end:
        tile = tile_at(at, marks, extents, window, t, r)
        if tile.is_there:
            count = min(t.height // r.packed, tile.queries - tile.first)
            for i in range(count):
                cp.atomic.add(rows, (tile.row + tile.first + i, tile.head), tile.end - tile.begin)
            if t.is_split:
                note_makers(makers, at, tile, extents[1])
                note_part(parts, at, tile, extents)
            begin, end = tile.begin * t.keys, min(tile.end * t.keys, tile.keys)
            if tile.head == 0:
                for j in range(begin, end):
                    cp.atomic.add(keys, (tile.sequence, j), count)
        at = after(at, tile, t)


def note_part(parts: Any, at: Any, tile: Any, extents: Any) -> None:
    """Which tile a part belongs to, and its steps."""
    if tile.part >= 0:
        parts[tile.part, 0] = at.slot * extents[1] + tile.head
        parts[tile.part, 1] = tile.end - tile.begin


@pytest.mark.parametrize("cubes", [None, 3, 132])
@pytest.mark.parametrize("packed", [1, 4])
@pytest.mark.parametrize("window", [(), (1 << 29, 0), (200, 50)])
def test_each_token_has_one_tile(window: tuple[int, ...], packed: int, cubes: int | None):
    """By turns, or dealt out to so many cubes."""
    queries, keys = (300, 0, 1, 64, 700), (300, 90, 700, 0, 800)
    starts, ends = (np.concatenate(([0], np.cumsum(n))).astype(np.int32) for n in (queries, keys))
    found = warpgroups_of_sequences(HOPPER, PROBLEM)
    assert found is not None
    t = replace(found, is_split=cubes is not None)
    bands, heads = slots(sum(queries), 5, t.height // packed), 3
    rows = np.zeros((sum(queries), heads), np.int32)
    counts = np.zeros((5, max(keys)), np.int32)
    cubes = cubes or min(HOPPER.multiprocessors, bands * heads)
    extents = tuple(map(np.int32, (bands, heads, 0)))
    reach = tuple(map(np.int32, window))
    marks = (starts,), ends, ()
    makers, parts = (np.full((n, 2), -9, np.int32) for n in (bands * heads, 2 * cubes))
    deal[cubes, 1](
        rows, counts, makers, parts, marks, extents, reach, t, Sequences(packed, packed, 0)
    )
    for s, (n, m) in enumerate(zip(queries, keys, strict=True)):
        before, behind = window or (1 << 29, 1 << 29)
        ahead = np.arange(m) - np.arange(n)[:, None] - (m - n)
        seen = ((ahead >= -before) & (ahead <= behind)).sum(0)
        assert (counts[s, :m] >= seen).all()
        assert window or (counts[s, :m] == n).all()
        made = rows[starts[s] : starts[s + 1]]
        assert (made == made[:, :1]).all() and (made >= 1).all()
        assert window or (made == max(1, -(-m // t.keys))).all()
    if t.is_split:
        check_parts(makers, parts, cubes, heads)


def check_parts(makers: np.ndarray, parts: np.ndarray, cubes: int, heads: int) -> None:
    """Parts lie where those that join them look, and only those do."""
    belongs = np.full(2 * cubes, -9)
    for tile, (begin, last) in enumerate(makers):
        if begin >= 0:
            cube = begin // 2
            assert last > cube // heads
            belongs[begin] = tile
            belongs[
                2 * np.arange(cube + heads, cubes // heads * heads, heads)[: last - cube // heads]
            ] = tile
    np.testing.assert_array_equal(belongs, parts[:, 0])


def test_heads_that_share_keys_are_rows_of_a_tile():
    (launch,) = ragged(*RAGGED, causal=True)
    assert launch.kernel.__name__ == "attend_ragged"
    assert launch.arguments["r"] == Sequences(4, 4, 0)
    t, q = launch.arguments["t"], launch.arguments["q"]
    assert q.box == (1, 1, t.height // 4, 4, 64)
    assert launch.arguments["out"].box == (1, 1, 16, 4, 64)
    assert launch.arguments["extents"] == (1000 // (t.height // 4) + 4, 2, 250)
    (launch,) = ragged("bf16[1000,6,128]", *RAGGED[1:])
    assert launch.arguments["r"] == Sequences(3, 1, 0)
    launch, _ = paged(*PAGED)
    assert launch.arguments["t"].consumers == 1
    assert launch.arguments["k"].box == (1, 1, 16, 1, 64)
    assert launch.arguments["k"].array.shape == (320, 2, 128)


@pytest.mark.parametrize("cubes", [2, 7, 132])
def test_cubes_make_equal_shares(cubes: int):
    keys, t = (300, 1, 0, 5000), warpgroups_of_sequences(HOPPER, replace(PROBLEM, queries=8))
    assert t is not None and t.consumers == 1
    t = replace(t, is_split=True)
    rows, counts = np.zeros((8, 2), np.int32), np.zeros((4, max(keys)), np.int32)
    makers, parts = (np.full((n, 2), -9, np.int32) for n in (8, 2 * cubes))
    extents = tuple(map(np.int32, (4, 2, 2)))
    marks = (), np.array(keys, np.int32), (np.zeros((4, 1), np.int32),)
    deal[cubes, 1](rows, counts, makers, parts, marks, extents, (), t, Sequences(4, 4, 16))
    steps = np.maximum(1, -(-np.array(keys) // t.keys))
    assert (rows == np.repeat(steps, 2)[:, None]).all()
    assert (counts == 2 * (np.arange(max(keys)) < np.array(keys)[:, None])).all()
    check_parts(makers, parts, cubes, 2)
    most = -(-steps.sum() // min(cubes // 2, max(1, steps.sum() // LEAST_STEPS)))
    assert parts[:, 1].max() <= most


def test_few_sequences_divide_their_keys():
    shapes = "bf16[2,1,8,128]", "bf16[400,64,2,128]", "i32[2,100]", "i32[2]"
    attend, join = paged(*shapes)
    assert attend.arguments["extents"] == (2, 2, 1)
    assert attend.arguments["parts"][0].shape == (2 * HOPPER.multiprocessors, 1, 64, 128)
    assert join.kernel.__name__ == "join_sequences"
    assert len(paged(*shapes[:2], "i32[2,2]", "i32[2]")) == 1
    assert len(paged("bf16[80,1,8,128]", shapes[1], "i32[80,100]", "i32[80]")) == 2
    assert len(paged("bf16[800,1,8,128]", shapes[1], "i32[800,100]", "i32[800]")) == 1
    assert len(ragged("bf16[7,8,128]", "bf16[9000,2,128]", "i32[8]", "i32[8]")) == 2


@pytest.mark.parametrize("page", [8, 16, 24, 64, 256, 1024])
def test_boxes_of_pages_fill_steps(page: int):
    for size in (64, 128, 192, 256):
        shapes = f"bf16[40,8,{size}]", f"bf16[20,{page},2,{size}]", *PAGED[2:]
        launch, *_ = paged(*shapes, "i32[5]")
        rows, t = launch.arguments["k"].box[2], launch.arguments["t"]
        assert t.keys % rows == 0 and page % rows == 0 and rows % 8 == 0
        assert t.shared_bytes <= HOPPER.shared_bytes


def test_what_takes_another_way():
    for changed in ("bf16[20,12,2,128]", "bf16[20,4,2,128]"):
        (launch,) = paged(PAGED[0], changed, *PAGED[2:])
        assert launch.kernel.__name__ == "attend_ragged_fragments"
    for size in (100, 264):
        (launch,) = ragged(f"bf16[1000,8,{size}]", f"bf16[2000,2,{size}]", *RAGGED[2:])
        assert launch.kernel.__name__ == "attend_ragged_squares"
    (launch,) = ragged(*(s.replace("bf16", "f32") for s in RAGGED))
    assert launch.kernel.__name__ == "attend_ragged_squares"
    assert warpgroups_of_sequences(HOPPER, replace(PROBLEM, elements=None)) is None
