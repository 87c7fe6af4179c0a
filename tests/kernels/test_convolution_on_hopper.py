"""Which convolutions Hopper's tensor cores take, and how; no GPU is needed."""

from __future__ import annotations

from typing import Any

import pytest

import cubepy as cp
from cubepy.ir.types import bf16, f16, f32
from cubepy.kernels.calls.inspection import record
from cubepy.kernels.convolution import waves
from cubepy.kernels.convolution.problem import Problem, make_window, result_extents
from cubepy.kernels.convolution.tensor_cores import UNROLLED, shift_of
from cubepy.targets import cuda_target
from tests.optional import require_package

HOPPER = cuda_target("sm_90a")


def problem(
    extents: tuple[int, ...],
    kernel: tuple[int, ...],
    stride: int = 1,
    padding: Any = 1,
    dilation: int = 1,
    *,
    batch: int = 32,
    channels: int = 64,
    filters: int = 64,
    groups: int = 1,
) -> Problem:
    axes = len(kernel)
    window = make_window("conv", axes, kernel, stride, padding, dilation)
    a, b, c = (*[1] * (3 - axes), *extents)
    results = result_extents("conv", window, (a, b, c))
    sizes = (batch, channels, filters, groups, (a, b, c), results)
    return Problem(window, *sizes, f32, True, True, True)


SQUARE = problem((56, 56), (3, 3))


def test_tensor_cores_take_what_they_have_the_types_for():
    assert waves.tilings(HOPPER, SQUARE, bf16)
    assert waves.tilings(HOPPER, SQUARE, f16)
    assert not waves.tilings(HOPPER, SQUARE, f32)
    assert not waves.tilings(cuda_target("sm_90"), SQUARE, bf16)
    assert not waves.tilings(cuda_target("sm_80"), SQUARE, bf16)


@pytest.mark.parametrize(
    "p",
    [
        problem((56, 56), (3, 3), channels=12),
        problem((56, 56), (3, 3), channels=128, groups=2),
        problem((56, 56), (3, 3), stride=9, padding=4),
        problem((300, 300), (3, 3), padding=130, dilation=130),
        problem((40, 40, 40), (3, 3, 3), padding=17, dilation=17),
    ],
)
def test_other_convolutions_keep_their_way(p: Problem):
    assert waves.tilings(HOPPER, p, bf16) == []


@pytest.mark.parametrize("filters", [1, 3, 20, 91])
def test_filters_need_not_be_in_eights(filters: int):
    require_package("cuda.bindings")
    p = problem((56, 56), (3, 3), filters=filters)
    assert waves.tilings(HOPPER, p, bf16)
    assert waves.divisions(HOPPER, p, bf16) == []  # but those of gradients
    given = "bf16[2,20,20,64]", f"bf16[{filters},64,3,3]"
    *_, launch = launches(*given, layout="NHWC", padding=1)
    assert launch.kernel.__name__ == "convolve_tiles"
    launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
    *_, point = launches(given[0], f"bf16[{filters},64,1,1]", layout="NHWC")
    assert point.kernel.__name__ != "convolve_tiles"


def test_few_tiles_are_made_by_parts():
    def planned(x: str, weight: str) -> list[Any]:
        found = launches(x, weight, layout="NHWC", padding=1)
        return [r for r in found if r.kernel.__name__ in ("convolve_tiles", "join_tiles")]

    one, join = planned("bf16[1,14,14,512]", "bf16[512,512,3,3]")
    t = one.arguments["t"]
    assert t.parts > 1 and not t.is_resident
    assert one.arguments["tiles"] == join.cubes * t.parts
    shape = one.arguments["partial"][0].shape
    assert shape == (join.cubes * t.parts, t.consumers, t.pixels // 2, 128)
    assert (t.parts - 1) * t.share < t.chunks <= t.parts * t.share
    require_package("cuda.bindings")
    for launch in (one, join):
        text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
        assert "st.local" not in text
    (many,) = planned("bf16[32,56,56,64]", "bf16[64,64,3,3]")
    assert many.arguments["t"].parts == 1


def test_a_row_goes_on_to_the_padding_of_the_next():
    run = waves.run_of(problem((5, 7), (3, 3), padding=((1, 1), (2, 1))), 2)
    assert run.extents == (6, 9)
    assert (run.lower, run.upper) == ((-1, -2), (0, 0))
    run = waves.run_of(problem((5, 7), (3, 3), padding=((1, 1), (2, 1))), 1)
    assert run.extents == (5, 9)
    assert (run.lower, run.upper) == ((-1, -2), (-1, 0))
    run = waves.run_of(problem((5, 7), (3, 3), padding=3), 2)
    assert run.extents == (9, 11)  # the results are more than the rows with one padding


@pytest.mark.parametrize("stride", [1, 2])
def test_shared_memory_suffices(stride: int):
    for p in (SQUARE, problem((14, 14), (5, 3), stride, 2, channels=24, filters=200)):
        for t in waves.tilings(HOPPER, p, bf16):
            stages = t.loads * t.rows * t.swizzle + t.steps * 64 * t.down * t.swizzle
            assert stages + t.consumers * t.pixels * 128 < HOPPER.shared_bytes
            assert t.loads >= 2
            assert t.run <= 1024
            assert t.shared == 0 or p.window.stride[2] == 1


def test_shifts_are_those_of_the_taps():
    t = next(t for t in waves.tilings(HOPPER, SQUARE, bf16) if t.shared == 2)
    assert t.extents == (57, 57)
    assert [shift_of(k, t) for k in range(9)] == [0, 1, 2, 57, 58, 59, 114, 115, 116]
    assert t.run == t.pixels * t.across + 116


def launches(x: str, weight: str, *more: str, **options: Any) -> Any:
    names = ("x", "weight", "bias")
    specs = {name: cp.spec(s) for name, s in zip(names, (x, weight, *more), strict=False)}
    return record(cp.kernels.conv2d, specs, options, HOPPER)


def scaled(v: Any, index: Any) -> Any:
    return max(v, 0.0) * index[1]


@pytest.mark.parametrize(
    ("arrays", "options"),
    [
        (("bf16[2,20,20,64]", "bf16[64,64,3,3]"), {"padding": 1}),
        (("f16[2,20,20,32]", "f16[200,32,3,3]", "f16[200]"), {"padding": 1, "stride": 2}),
        (("bf16[20,20,64]", "bf16[64,64,1,1]"), {"epilogue": scaled}),
        (("bf16[2,20,20,64]", "bf16[24,64,5,5]", "bf16[24]"), {"epilogue": scaled, "dilation": 2}),
    ],
)
def test_its_text_is_compiled(arrays: Any, options: Any):
    require_package("cuda.bindings")
    found = launches(*arrays, layout="NHWC", **options)
    assert [launch.kernel.__name__ for launch in found][-1] == "convolve_tiles"
    launch = found[-1]
    t = launch.arguments["t"]
    text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
    assert text.count("wgmma.mma_async") % (t.shifts * t.depth // 16) == 0
    assert ".im2col.mbarrier" in text
    assert "st.local" not in text


def test_many_taps_of_a_load_are_no_long_text():
    require_package("cuda.bindings")
    specs = {"x": cp.spec("bf16[2,3000,64]"), "weight": cp.spec("bf16[64,64,400]")}
    launch = record(cp.kernels.conv1d, specs, {"layout": "NLC", "padding": 200}, HOPPER)[-1]
    t = launch.arguments["t"]
    assert t.shifts > UNROLLED
    text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
    assert text.count("wgmma.mma_async") <= 2 * t.depth // 16
    assert "st.local" not in text


def test_other_layouts_are_copied():
    found = launches("bf16[2,64,20,20]", "bf16[64,64,3,3]")
    names = [launch.kernel.__name__ for launch in found]
    assert names.index("convolve_tiles") == len(names) - 2


def test_points_of_dense_rows_are_products():
    (launch,) = launches("bf16[2,64,20,20]", "bf16[64,64,1,1]")
    assert launch.kernel.__name__.startswith("multiply_")
    names = [r.kernel.__name__ for r in launches("bf16[2,64,7,7]", "bf16[64,64,1,1]")]
    assert "convolve_tiles" in names  # rows of 98 bytes


def test_weight_gradients_of_nothing():
    specs = {"x": cp.spec("bf16[0,72,20,20]"), "grad_output": cp.spec("bf16[0,200,20,20]")}
    options = {"weight_size": (200, 72, 1, 1)}
    found = record(cp.kernels.conv2d_weight_grad, specs, options, HOPPER)
    assert "sum_products" not in [launch.kernel.__name__ for launch in found]


def test_weight_gradients_are_compiled():
    require_package("cuda.bindings")
    specs = {"x": cp.spec("bf16[2,72,20,20]"), "grad_output": cp.spec("bf16[2,200,10,10]")}
    options = {"weight_size": (200, 72, 3, 3), "padding": 1, "stride": 2}
    *_, products, added = record(cp.kernels.conv2d_weight_grad, specs, options, HOPPER)
    t = products.arguments["t"]
    assert (products.kernel.__name__, added.kernel.__name__) == ("sum_products", "add_parts")
    assert t.columns == 9 * 2
    assert t.steps == -(-2 * 100 // 64)
    text = products.launcher.inspect(**products.arguments, target="cuda:sm_90a", stage="ptx")
    assert text.count("wgmma.mma_async") % 4 == 0
    assert "1, 1, 1, 1, 1;" in text  # both operands are turned
    added.launcher.inspect(**added.arguments, target="cuda:sm_90a", stage="ptx")


@pytest.mark.parametrize("channels", [64, 72, 512])
def test_parts_of_weight_gradients_cover_all_pixels(channels: int):
    p = problem((14, 14), (3, 3), channels=channels)
    for t in waves.divisions(HOPPER, p, bf16):
        assert 1 <= t.parts <= t.steps
        assert t.stages * (t.down + t.width) * 8192 < HOPPER.shared_bytes
        assert t.rows * t.down * 64 >= p.filters


@pytest.mark.parametrize(
    ("weight", "options", "turned"),
    [
        ("bf16[64,72,3,3]", {"padding": 1}, [(True, True)]),
        ("bf16[64,72,1,1]", {}, [(True, False)]),
        ("f16[64,72,3,3]", {"padding": 1, "stride": 2}, [(True, False), *[(True, True)] * 3]),
    ],
)
def test_input_gradients_read_weights_as_they_are(weight: str, options: Any, turned: Any):
    require_package("cuda.bindings")
    side = 20 // options.get("stride", 1)
    dtype = weight.partition("[")[0]
    specs = {"weight": cp.spec(weight), "grad_output": cp.spec(f"{dtype}[2,64,{side},{side}]")}
    sizes = {"input_size": (2, 72, 20, 20), **options}
    found = record(cp.kernels.conv2d_input_grad, specs, sizes, HOPPER)
    products = [launch for launch in found if launch.kernel.__name__ == "convolve_tiles"]
    tiles = [launch.arguments["t"] for launch in products]
    assert [(t.is_turned, t.is_reversed) for t in tiles] == turned
    assert len(found) == len(products) + (3 if "3,3" in weight else 2)  # layouts change once
    for launch in products:
        text = launch.launcher.inspect(**launch.arguments, target="cuda:sm_90a", stage="ptx")
        assert "1, 1, 1, 1, 0;" in text  # weights are turned
