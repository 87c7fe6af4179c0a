"""Which products Hopper's tiles are chosen for, and how; no GPU is needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import cubepy as cp
from cubepy.array.memory import Memory
from cubepy.ir.types import bf16, f8e4m3, f8e5m2, f16, f32, i8, i32, u8
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.matmul.pipelined import Pipelined
from cubepy.kernels.matmul.problem import COLUMNS, MOST_PLACES, ROWS, Problem, has_boxes
from cubepy.kernels.matmul.strategies import choose
from cubepy.kernels.matmul.thin import Thin
from cubepy.kernels.matmul.waves import TILES, count, duration, tilings
from cubepy.targets import cuda_target
from tests.optional import require_package

HOPPER = cuda_target("sm_90a")


def problem(m: int, n: int, k: int, **changes: Any) -> Problem:
    made = Problem(m, n, k, (), f32, f32, bf16, ROWS, COLUMNS, elements=bf16, has_boxes=True)
    return replace(made, **changes)


def test_tiles_of_hopper_are_for_hopper():
    p = problem(4096, 4096, 4096)
    assert isinstance(choose(HOPPER, p), Pipelined)
    assert not isinstance(choose(cuda_target("sm_80"), p), Pipelined)
    assert not isinstance(choose(cuda_target("sm_90"), p), Pipelined)
    assert not isinstance(choose(HOPPER, replace(p, has_boxes=False)), Pipelined)
    assert not isinstance(choose(HOPPER, replace(p, elements=None)), Pipelined)


def test_large_products_take_large_tiles():
    chosen = choose(HOPPER, problem(8192, 8192, 8192))
    assert isinstance(chosen, Pipelined)
    assert chosen.height * chosen.width >= 128 * 192
    assert chosen.stages >= 3


def test_the_choice_is_the_shortest():
    p = problem(512, 10240, 8192)
    chosen = choose(HOPPER, p)
    assert isinstance(chosen, Pipelined)
    best = min(duration(HOPPER, p, t) for t in tilings(HOPPER, p))
    assert duration(HOPPER, p, chosen) == best
    assert count(p, chosen) == -(-512 // chosen.height) * -(-10240 // chosen.width)


def test_pairs_of_cubes_share_what_takes_long_to_copy():
    def cluster(m: int, n: int, k: int, **changes: Any) -> int:
        found = choose(HOPPER, problem(m, n, k, **changes))
        assert isinstance(found, Pipelined)
        return found.cluster

    assert cluster(1000, 1000, 1000) == 2
    assert cluster(1000, 1000, 1024) == 1  # rows begin with sectors
    assert cluster(130, 264, 8) == 1  # few bytes along k
    assert cluster(4000, 4000, 1000) == 1  # several waves
    assert cluster(1000, 1000, 1000, right=ROWS) == 1


def test_reduced_precision_is_asked_for():
    single = problem(512, 512, 512, factors=f32, elements=f32, result=f32)
    assert not isinstance(choose(HOPPER, single), Pipelined)
    rounded = choose(HOPPER, replace(single, precision="tf32"))
    assert isinstance(rounded, Pipelined)
    assert rounded.elements == "tf32"
    small = problem(512, 512, 512, factors=f8e4m3, elements=f8e4m3, result=f32)
    careful, fast = (choose(HOPPER, replace(small, precision=p)) for p in (None, "fast_accum"))
    assert isinstance(careful, Pipelined)
    assert isinstance(fast, Pipelined)
    assert careful.promotes
    assert not fast.promotes


def test_results_that_boxes_cannot_describe_leave_one_by_one():
    chosen = choose(HOPPER, problem(512, 512, 512, has_boxes=False, has_factor_boxes=True))
    assert isinstance(chosen, Pipelined)
    assert chosen.by_elements
    boxed = choose(HOPPER, problem(512, 512, 512))
    assert isinstance(boxed, Pipelined)
    assert not boxed.by_elements


def test_large_factors_are_copied_where_boxes_cannot_describe_them():
    def names(a: str, b: str) -> list[str]:
        return [launch.launcher.kernel.__name__ for launch in launches(a, b)]

    large = names("bf16[4095,4097]", "bf16[4097,4099]")
    assert large == ["align", "align", "multiply_by_elements"]
    assert names("bf16[4095,4096]", "bf16[4096,4099]") == ["align", "multiply_by_elements"]
    assert names("bf16[300,301]", "bf16[301,303]") == ["multiply_fragments"]


@pytest.mark.parametrize("elements", [f8e4m3, f8e5m2, i8, u8])
def test_bytes_are_taken_along_k_alone(elements: Any):
    p = problem(512, 512, 512, elements=elements, result=i32 if elements in (i8, u8) else f32)
    assert isinstance(choose(HOPPER, p), Pipelined)
    assert not isinstance(choose(HOPPER, replace(p, right=ROWS)), Pipelined)
    assert not isinstance(choose(HOPPER, replace(p, left=COLUMNS)), Pipelined)


@pytest.mark.parametrize("right", [ROWS, COLUMNS])
@pytest.mark.parametrize("result", [bf16, f16, f32])
def test_shared_memory_suffices(right: str, result: Any):
    found = tilings(HOPPER, problem(512, 512, 512, right=right, result=result))
    assert len(found) == (len(TILES) if right == COLUMNS else 9)
    for t in found:
        assert 3 <= t.stages
        assert t.shared_bytes <= HOPPER.shared_bytes
        assert t.width % (t.chunk * t.chunks) == 0
        assert t.out_swizzle in (64, 128)


def launches(a: str, b: str, **options: Any) -> Any:
    specs = {"a": cp.spec(a), "b": cp.spec(b)}
    return record(cp.kernels.matmul, specs, options, HOPPER)


ALIGNED = [("bf16[512,1024]", "bf16[1024,520]"), ("f16[3,72,64]", "f16[3,64,264]")]


def relu(v: Any, index: Any) -> Any:
    return max(v, 0.0)


@pytest.mark.parametrize("options", [{}, {"epilogue": relu}])
@pytest.mark.parametrize(
    ("a", "b"), [("bf16[512,1024]", "bf16[1024,520]"), ("f16[3,72,64]", "f16[3,64,264]")]
)
def test_its_text_is_compiled(a: str, b: str, options: Any):
    require_package("cuda.bindings")
    (launch,) = launches(a, b, **options)
    assert launch.kernel.__name__ == "multiply_pipelined"
    text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
    assert text.count("wgmma.mma_async") == 4
    assert "setmaxnreg.inc" in text or launch.arguments["t"].consumers == 1


@pytest.mark.parametrize(
    ("a", "b"), [("bf16[512,1020]", "bf16[1020,512]"), ("bf16[8,8]", "bf16[8,9]")]
)
def test_rows_that_end_within_16_bytes_take_another_way(a: str, b: str):
    assert all(launch.kernel.__name__ != "multiply_pipelined" for launch in launches(a, b))


@pytest.mark.parametrize("extents", [((1 << 31) + 256, 8, 16), (8, (1 << 32) + 8, 64)])
def test_extents_that_places_of_32_bits_do_not_reach(extents: tuple[int, int, int]):
    """The copy engine counts places by 32 bits, and so do the tiles: others make such products."""
    m, n, k = extents
    row = Memory(0, f16, (m, k), (2 * k, 2), True, True, None)
    column = Memory(0, f16, (n, k), (2 * k, 2), True, True, None)
    assert not has_boxes(row if m > n else column)
    assert has_boxes(replace(row, shape=(MOST_PLACES, k)))
    assert not has_boxes(replace(row, shape=(8, k), strides=(1 << 40, 2)))
    specs = {"a": cp.spec(f"f16[{m},{k}]"), "b": cp.spec(f"f16[{k},{n}]")}
    launches = record(cp.kernels.matmul, specs, {}, HOPPER)
    assert not any(isinstance(x.arguments.get("t"), Pipelined | Thin) for x in launches)
