"""What units do together, and what kernels print: on the text of OpenCL C and of Metal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.errors import OutOfBoundsError, UnsupportedError
from tests.compilers.c import metal_text, text_devices

OPENCL = ("pocl", "oclgrind")


@pytest.fixture(params=text_devices.DEVICES)
def device(request: pytest.FixtureRequest, require_text_device: Any) -> Any:
    require_text_device(request.param)
    return request.param


@cp.cube
def planes(x, sums, products, largest, scans, turned, ballots, first):
    i = cp.ABSOLUTE_POS
    v = x[i]
    sums[i] = cp.plane_sum(v)
    products[i] = cp.plane_prod(v % 3 + 1)
    largest[i] = cp.plane_max(v)
    scans[i] = cp.plane_exclusive_sum(v)
    turned[i] = cp.plane_shuffle_xor(v, 5) + cp.plane_shuffle_up(v, 1)
    ballots[i] = cp.plane_ballot(v > 0)
    sevens = cp.plane_any(v == 7)
    first[i] = cp.plane_elect() and sevens


def check_planes(device: str, dtype: Any, plane: int) -> None:
    x = np.random.default_rng(5).integers(0, 9, 128).astype(dtype)
    rows = x.reshape(-1, plane)
    names = ("sums", "products", "largest", "scans", "turned")
    outs = {name: np.zeros(128, dtype) for name in names}
    ballots, first = np.zeros(128, np.uint64), np.zeros(128, np.bool_)
    chosen = planes.configure(device=device, plane_dim=plane)
    chosen[2, 64](x, *outs.values(), ballots, first)
    lanes = np.arange(plane)
    bits = ((rows > 0) * (1 << lanes.astype(np.uint64))).sum(1)
    up = rows[:, np.maximum(lanes - 1, 0)]
    expected = {
        "sums": np.repeat(rows.sum(1), plane),
        "products": np.repeat((rows % 3 + 1).prod(1, dtype=dtype), plane),
        "largest": np.repeat(rows.max(1), plane),
        "scans": (rows.cumsum(1) - rows).ravel(),
        "turned": (rows[:, lanes ^ 5] + up).ravel(),
    }
    for name, out in outs.items():
        np.testing.assert_array_equal(out, expected[name].astype(dtype), err_msg=name)
    np.testing.assert_array_equal(ballots, np.repeat(bits, plane))
    np.testing.assert_array_equal(first, ((lanes == 0) & (rows == 7).any(1)[:, None]).ravel())


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.float32, np.int64])
def test_planes_of_32(device: str, dtype: Any):
    """Shuffles of Metal; memory and barriers on PoCL, which has no sub-groups."""
    check_planes(device, dtype, 32)


@pytest.mark.parametrize("plane", [8, 16])
@pytest.mark.parametrize("opencl", OPENCL)
def test_emulated_planes_of_other_sizes(require_text_device: Any, opencl: str, plane: int):
    require_text_device(opencl)
    check_planes(opencl, np.int32, plane)


def test_planes_of_other_sizes_are_refused_by_metal():
    with pytest.raises(UnsupportedError, match=r"metal.*32 units, not 16"):
        planes.configure(plane_dim=16).inspect(
            *["i32[128]"] * 6, "u64[128]", "bool_[128]", target="metal"
        )


@cp.cube
def atomics(x, counts, least, most, last):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        cp.atomic.add(counts, x[i] % 7, 1)
        cp.atomic.min(least, 0, x[i])
        cp.atomic.max(most, 0, x[i])
        old = cp.atomic.load(last, 0)
        while cp.atomic.cas(last, 0, old, old + x[i]) != old:
            old = cp.atomic.load(last, 0)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_atomics(device: str, dtype: Any):
    x = np.random.default_rng(6).integers(3, 1000, 700).astype(dtype)
    counts, last = np.zeros(7, dtype), np.zeros(1, dtype)
    least, most = np.full(1, 5000, dtype), np.zeros(1, dtype)
    atomics.configure(device=device).over(x)(x, counts, least, most, last)
    np.testing.assert_array_equal(counts, np.bincount(x % 7, minlength=7))
    assert (least[0], most[0], last[0]) == (x.min(), x.max(), x.sum())


@cp.cube
def add_floats(x, total):
    i = cp.ABSOLUTE_POS
    if i < x.size:
        cp.atomic.add(total, 0, x[i])
        cp.atomic.max(total, 1, x[i])


def test_float_atomics_by_compare_and_swap(device: str):
    x = np.arange(1, 500, dtype=np.float32)
    total = np.zeros(2, np.float32)
    add_floats.configure(device=device).over(x)(x, total)
    assert total.tolist() == [x.sum(), x.max()]


@cp.cube
def wide_atomics(x, total):
    cp.atomic.add(total, 0, x[cp.ABSOLUTE_POS])


def test_atomics_of_64_bits_are_refused_by_metal():
    with pytest.raises(UnsupportedError, match="no compare-and-swap of 64 bits"):
        wide_atomics.inspect("i64[9]", "i64[1]", target="metal")


@pytest.mark.parametrize("opencl", OPENCL)
def test_atomics_of_64_bits(require_text_device: Any, opencl: str):
    require_text_device(opencl)
    x, total = np.arange(9) << 40, np.zeros(1, np.int64)
    wide_atomics.configure(device=opencl)[3, 3](x, total)
    assert total[0] == x.sum()


@cp.cube
def past_the_end(x, out):
    i = cp.ABSOLUTE_POS
    out[i] = x[i + 3]


def test_the_fault_record(device: str):
    x = np.arange(64, dtype=np.float32)
    out = np.full(64, -1, np.float32)
    with pytest.raises(OutOfBoundsError) as caught:
        past_the_end.configure(device=device, checked=True)[4, 16](x, out)
    error: Any = caught.value
    assert (error.argument, error.axis, error.kernel) == ("x", 0, "past_the_end")
    assert error.index in (64, 65, 66)
    np.testing.assert_array_equal(out[:61], x[3:])
    assert (out[61:] == -1).all(), "units that fail a check write nothing"


@cp.cube
def past_the_end_and_on(x, sums, steps):
    """Some units fail before barriers, in a loop around them, and where planes add."""
    t = cp.UNIT_POS
    tile = cp.shared(64, cp.f32)
    tile[t] = x[cp.ABSOLUTE_POS]
    cp.sync_cube()
    rounds = 0
    while tile[0] > rounds:
        cp.sync_cube()
        if t > 0:
            tile[t] += x[cp.ABSOLUTE_POS + rounds]
        rounds += 1
        cp.sync_cube()
    total = cp.plane_sum(tile[t])
    sums[cp.ABSOLUTE_POS] = total
    if t == 0:
        steps[cp.CUBE_POS] = rounds


def test_units_that_fail_before_others_meet(device: str):
    """The others finish, with the identity from the units that failed."""
    plane = 32 if device == "metal_text" else 8
    x = np.full(160, 3, np.float32)
    sums, steps = np.full(192, -1, np.float32), np.zeros(3, np.int32)
    chosen = past_the_end_and_on.configure(device=device, checked=True, plane_dim=plane)
    with pytest.raises(OutOfBoundsError) as caught:
        chosen[3, 64](x, sums, steps)
    error: Any = caught.value
    assert error.argument == "x" and error.index >= 160
    assert steps.tolist() == [3, 3, 3]
    whole = np.full(192, 12 * plane, np.float32)
    whole[:plane] = whole[64 : 64 + plane] = whole[128 : 128 + plane] = 12 * (plane - 1) + 3
    failed = np.arange(192) + 2 >= 160
    alive = np.where(failed, 0, 12).reshape(-1, plane)
    alive[[0, 64 // plane, 128 // plane], 0] = 3
    expected = np.where(failed, -1, np.repeat(alive.sum(1), plane))
    np.testing.assert_array_equal(sums, expected)


@cp.cube
def rounds_by_cube(x, starts, out, far: int):
    """Cubes without work return; the others read how often to meet."""
    i = cp.ABSOLUTE_POS
    if i >= x.size:
        return
    tile = cp.shared(16, cp.i32)
    tile[cp.UNIT_POS] = x[i]
    for _ in range(starts[cp.CUBE_POS * far]):
        cp.sync_cube()
        other = tile[(cp.UNIT_POS + 1) % 2]
        cp.sync_cube()
        tile[cp.UNIT_POS] = other
    out[i] = tile[cp.UNIT_POS]


def test_units_that_returned_read_nothing(device: str):
    """What decides how often units meet is read by a cube only where one of its units lives."""
    x, out = np.arange(6, dtype=np.int32), np.zeros(6, np.int32)
    starts = np.array([2, 0, 1], np.int32)
    rounds_by_cube.configure(device=device)[2, 4](x, starts, out, 2)
    expected = np.zeros(6, np.int32)
    rounds_by_cube.configure(device="interpreter")[2, 4](x, starts, expected, 2)
    np.testing.assert_array_equal(out, expected)
    far = 1 << 44  # of a cube that returned as a whole
    rounds_by_cube.configure(device=device)[3, 16](x, starts, out, far)
    assert out[:2].tolist() == [0, 1], "exchanged twice"


@cp.cube
def say(x):
    i = cp.ABSOLUTE_POS
    if x[i] > 2:
        cp.print(f"x[{i}] is {x[i]}, 100%")


def test_print(require_text_device: Any, capfd: pytest.CaptureFixture[str]):
    require_text_device("pocl")
    say.configure(device="pocl")[1, 4](np.array([1.0, 2.5, 3.0, 0.0], np.float32))
    assert sorted(capfd.readouterr().out.splitlines()) == ["x[1] is 2.5, 100%", "x[2] is 3, 100%"]


def test_print_is_refused_by_metal():
    with pytest.raises(UnsupportedError, match=r"`cp.print` is not available on metal.*printf"):
        say.inspect("f32[4]", target="metal")


@cp.cube
def big(out):
    """More shared memory than is declared one by one on CUDA."""
    tile = cp.shared(5000, cp.f32)
    for k in range(cp.UNIT_POS, 5000, cp.CUBE_DIM):
        tile[k] = k * 0.5
    cp.sync_cube()
    for k in range(cp.UNIT_POS, 5000, cp.CUBE_DIM):
        out[k] = tile[4999 - k]


def test_shared_memory(device: str):
    out = np.zeros(5000, np.float32)
    big.configure(device=device)[1, 64](out)
    np.testing.assert_array_equal(out, np.arange(5000)[::-1] * 0.5)


@cp.cube
def copy_from_the_first_whole_line(x, out):
    i = cp.ABSOLUTE_POS * 4 - cp.misalignment(out, 0, line=4)
    if 0 <= i and i + 4 <= out.shape[0]:
        cp.store(out, i, cp.load(x, i, line=4))


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f8e4m3", "f32"])
@pytest.mark.parametrize("target", ["cuda:sm_75", "cuda:sm_90a", "opencl", "metal", "hip:gfx942"])
def test_addresses_of_small_floats(target: str, dtype: str):
    """What looks at an address computes with no element: it once was converted to f32."""
    text = copy_from_the_first_whole_line.inspect(*[f"{dtype}[?]"] * 2, target=target)
    assert "& 7)" in text or "& 15)" in text or "& 3)" in text, "the bytes of a line"


DIVERGENT = """
#include <metal_stdlib>
using namespace metal;
kernel void f(device int* x [[buffer(0)]], uint3 unit_position [[thread_position_in_threadgroup]]) {
    if (unit_position.x < 3) threadgroup_barrier(mem_flags::mem_threadgroup);
    else simdgroup_barrier(mem_flags::mem_threadgroup);
    x[unit_position.x] = 1;
}
"""


def test_the_shim_finds_divergent_barriers(require_text_device: Any):
    require_text_device("metal_text")
    library = metal_text.build(metal_text.as_cpp(DIVERGENT, "f"))
    x = np.zeros(4, np.int32)
    with pytest.raises(AssertionError, match="wait for each other at different places"):
        metal_text.launch(library.launch, [x.ctypes.data], (1, 1, 1), (4, 1, 1))
