"""What `cp.cuda` computes on a GPU, against NumPy; each kernel is compiled elsewhere too."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import cubepy as cp
from cubepy.array.memory import numpy_dtype
from tests.devices import cuda_kernels as kernels
from tests.devices import cuda_tiles as tiles
from tests.devices.cuda_kernels import CASES


@pytest.fixture
def ampere(cuda: str) -> str:
    """A GPU with cp.async and mma."""
    return _from(cuda, 80)


@pytest.fixture
def hopper(cuda: str) -> str:
    """A GPU with barriers in shared memory, bulk copies and clusters."""
    return _from(cuda, 90)


@pytest.fixture
def warpgroups(hopper: str) -> str:
    """A GPU with wgmma."""
    if cp.device(hopper).target.arch != "sm_90a":
        pytest.skip("wgmma is of sm_90a alone")
    return hopper


def _from(name: str, least: int) -> str:
    arch = cp.device(name).target.arch
    if int("".join(c for c in arch if c.isdigit())) < least:
        pytest.skip(f"{arch} is older than sm_{least}")
    return name


def random(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    """Small multiples of 1/8: products and sums of them are exact in f32."""
    numbers = np.random.default_rng(seed).integers(-16, 17, shape) / 8
    return numbers.astype(numpy_dtype(dtype))


def on(device: str, x: np.ndarray) -> cp.Array:
    return cp.asarray(x, device=device)


def poisoned(device: str, shape: tuple[int, ...], dtype: Any = np.float32) -> cp.Array:
    """An output full of a number that no kernel gives."""
    return on(device, np.full(shape, 77, dtype))


def test_ptx_has_registers_of_lines_and_special_ones(cuda: str):
    out, sums = poisoned(cuda, (32,), np.uint32), poisoned(cuda, (64,))
    CASES["ptx"].launcher(out, sums)
    i = np.arange(32)
    np.testing.assert_array_equal(out.numpy(), 3 * i + 7)
    expected = np.stack([2 * i + 1, 2 * i - 1], axis=1).reshape(-1)
    np.testing.assert_array_equal(sums.numpy(), expected.astype(np.float32))


def test_addresses_of_shared_and_global_memory(cuda: str):
    out = poisoned(cuda, (32,), np.uint32)
    CASES["address"].launcher(out)
    np.testing.assert_array_equal(out.numpy(), 5 * np.arange(32)[::-1])


def test_async_copies_of_every_size_in_groups(ampere: str):
    x = np.random.default_rng(1).normal(size=192).astype(np.float32)
    out = poisoned(ampere, (192,))
    CASES["async_copy"].launcher(on(ampere, x), out)
    expected = np.concatenate([x[:32][::-1], x[32:64][::-1], x[64:][::-1]])
    np.testing.assert_array_equal(out.numpy(), expected)


def test_async_copies_of_what_exists_and_words_by_ldmatrix(ampere: str):
    x = np.random.default_rng(2).normal(size=(5, 4)).astype(np.float32)
    out = poisoned(ampere, (2, 32))
    CASES["async_copy_present"].launcher(on(ampere, x), out)
    expected = np.concatenate([x.reshape(-1), np.zeros(12, np.float32)])
    np.testing.assert_array_equal(out.numpy(), [expected, expected])


@pytest.mark.parametrize("dtype", [cp.f16, cp.bf16])
def test_matmul_by_mma_of_halves(ampere: str, dtype: Any):
    a, b = random((64, 64), dtype, 2), random((64, 64), dtype, 3)
    out = poisoned(ampere, (64, 64))
    CASES[f"mma_{dtype.name}"].launcher(on(ampere, a), on(ampere, b), out)
    np.testing.assert_array_equal(out.numpy(), a.astype(np.float32) @ b.astype(np.float32))


def test_product_by_mma_of_tf32(ampere: str):
    a, b = random((16, 8), cp.f32, 4), random((8, 8), cp.f32, 5)
    out = poisoned(ampere, (16, 8))
    CASES["mma_tf32"].launcher(on(ampere, a.view(np.uint32)), on(ampere, b.view(np.uint32)), out)
    np.testing.assert_array_equal(out.numpy(), a @ b)


def test_product_by_mma_of_bytes(ampere: str):
    source = np.random.default_rng(6)
    a = source.integers(-128, 128, (16, 32)).astype(np.int8)
    b = source.integers(-128, 128, (32, 8)).astype(np.int8)
    columns = np.ascontiguousarray(b.T).view(np.uint32)
    out = poisoned(ampere, (16, 8), np.int32)
    CASES["mma_i8"].launcher(on(ampere, a.view(np.uint32)), on(ampere, columns), out)
    np.testing.assert_array_equal(out.numpy(), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_product_by_mma_of_f64(hopper: str, parts: int):
    _product_f64(hopper, (16, 4 * parts), f"mma_f64_{4 * parts}", {"parts": parts})


def test_square_product_by_mma_of_f64(ampere: str):
    _product_f64(ampere, (8, 4), "mma_f64_square", {})


def _product_f64(device: str, extents: tuple[int, int], name: str, comptime: dict[str, Any]):
    """Sums beside what is there, of integers of which f32 would lose the last bits."""
    source = np.random.default_rng()
    (m, k), far = extents, 1 << 24
    a, b = (source.integers(-far, far, s).astype(float) for s in ((m, k), (k, 8)))
    before = source.integers(-far, far, (m, 8)).astype(float)
    out = on(device, before)
    CASES[name].launcher(on(device, a), on(device, b), out, **comptime)
    np.testing.assert_array_equal(out.numpy(), a @ b + before)


def test_ldmatrix_and_stmatrix_transpose(hopper: str):
    x = np.arange(256, dtype=np.uint16).reshape(32, 8)
    out = poisoned(hopper, (32, 8), np.uint16)
    CASES["stmatrix"].launcher(on(hopper, x), out)
    expected = x.reshape(4, 8, 8).transpose(0, 2, 1).reshape(32, 8)
    np.testing.assert_array_equal(out.numpy(), expected)


def test_bulk_copies_through_one_barrier_of_alternating_parity(hopper: str):
    x = np.random.default_rng(7).normal(size=1024).astype(np.float32)
    out = poisoned(hopper, (1024,))
    CASES["bulk"].launcher(on(hopper, x), out)
    np.testing.assert_array_equal(out.numpy(), x.reshape(4, 256)[:, ::-1].reshape(-1))


def test_barrier_counts_the_arrivals_of_all_units(hopper: str):
    out = poisoned(hopper, (64,), np.int32)
    CASES["arrivals"].launcher(out)
    np.testing.assert_array_equal(out.numpy(), 3 * np.arange(64)[::-1])


@pytest.mark.parametrize("dtype", [cp.f32, cp.f16, cp.bf16, cp.u8, cp.i64])
def test_tiles_by_tma_with_borders(hopper: str, dtype: Any):
    x = np.random.default_rng(8).integers(0, 100, (50, 96)).astype(numpy_dtype(dtype))
    out = poisoned(hopper, (50, 96), x.dtype)
    maps = [cp.cuda.tensor_map(array, (32, 32)) for array in (on(hopper, x), out)]
    kernels.add_one_by_tiles[(3, 2), 128](*maps)
    np.testing.assert_array_equal(out.numpy(), x + x.dtype.type(1))


def test_tma_leaves_what_lies_between_rows(hopper: str):
    x, whole = on(hopper, random((20, 40), cp.f32, 9)), poisoned(hopper, (20, 40))
    held = x.numpy()
    maps = [cp.cuda.tensor_map(array[:, :36], (32, 32)) for array in (x, whole)]
    kernels.add_one_by_tiles[(2, 1), 128](*maps)
    np.testing.assert_array_equal(whole.numpy()[:, :36], held[:, :36] + 1)
    np.testing.assert_array_equal(whole.numpy()[:, 36:], np.full((20, 4), 77, np.float32))


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_boxes_of_one_to_five_axes(hopper: str, rank: int):
    shape, box, origin = (3, 4, 5, 6, 8), (1, 2, 2, 3, 4), (1, 1, 2, 2, 4)
    shape, box, origin = shape[5 - rank :], box[5 - rank :], origin[5 - rank :]
    x = np.random.default_rng(rank).integers(0, 1000, shape).astype(np.int32)
    out = poisoned(hopper, (int(np.prod(box)),), np.int32)
    tensor = cp.cuda.tensor_map(on(hopper, x), box)
    kernels.boxes_of_any_rank[1, 32](tensor, out, origin)
    part = x[tuple(slice(o, o + n) for o, n in zip(origin, box, strict=True))]
    np.testing.assert_array_equal(out.numpy(), part.reshape(-1))


def test_box_partly_outside_is_filled_with_zeros(hopper: str):
    x = np.arange(1, 65, dtype=np.int32).reshape(8, 8)
    out = poisoned(hopper, (32,), np.int32)
    tensor = cp.cuda.tensor_map(on(hopper, x), (4, 8))
    kernels.boxes_of_any_rank[1, 32](tensor, out, (-1, 4))
    expected = np.zeros((4, 8), np.int32)
    expected[1:, :4] = x[:3, 4:]
    np.testing.assert_array_equal(out.numpy(), expected.reshape(-1))


WINDOWS = [
    ((2, 5, 7, 8), (-1, -2), (-1, 0), (1, 1), (20, 8), (0, -1, -2, 0), (0, 0)),
    ((2, 5, 7, 8), (-1, -2), (-1, 0), (1, 1), (20, 8), (0, 1, 3, 0), (2, 1)),
    ((2, 5, 7, 8), (-1, -2), (0, 1), (1, 1), (20, 4), (1, 2, 3, 4), (0, 0)),
    ((2, 9, 7, 8), (-1, -1), (-1, -1), (2, 3), (9, 8), (0, 1, -1, 0), (1, 2)),
    ((2, 9, 8), (-1,), (0,), (2,), (9, 8), (0, 3, 0), (1,)),
    ((2, 3, 4, 5, 8), (-1, 0, -1), (0, 0, -1), (1, 1, 1), (16, 8), (0, 0, 2, 1, 0), (1, 0, 1)),
]


def pixels_of(
    shape: tuple[int, ...], lower: Any, upper: Any, strides: Any
) -> list[tuple[int, ...]]:
    """Image and place of all pixels of a map in im2col mode, in their order."""
    corners = zip(shape[1:-1], lower, upper, strides, strict=True)
    axes = [range(first, n + last, step) for n, first, last, step in corners]
    return list(itertools.product(range(shape[0]), *axes))


@pytest.mark.parametrize(
    ("shape", "lower", "upper", "strides", "box", "origin", "offsets"), WINDOWS
)
def test_pixels_of_a_window(
    hopper: str,
    shape: Any,
    lower: Any,
    upper: Any,
    strides: Any,
    box: Any,
    origin: Any,
    offsets: Any,
):
    x = np.random.default_rng(len(shape)).integers(1, 1000, shape).astype(np.int32)
    out = poisoned(hopper, (box[0] * box[1],), np.int32)
    tensor = cp.cuda.tensor_map_im2col(on(hopper, x), box[0], box[1], lower, upper, strides)
    kernels.pixels_of_a_window[1, 32](tensor, out, origin, offsets)
    places = pixels_of(shape, lower, upper, strides)
    expected = np.zeros(box, np.int32)
    for row, (image, *place) in enumerate(places[places.index(origin[:-1]) :][: box[0]]):
        seen = [p + o for p, o in zip(place, offsets, strict=True)]
        if all(0 <= p < n for p, n in zip(seen, shape[1:-1], strict=True)):
            channels = x[(image, *seen)][origin[-1] : origin[-1] + box[1]]
            expected[row, : len(channels)] = channels
    np.testing.assert_array_equal(out.numpy().reshape(box), expected)


def test_a_run_of_pixels_for_two_cubes(hopper: str):
    x = np.random.default_rng(2).integers(1, 1000, (2, 5, 5, 8)).astype(np.int32)
    out = poisoned(hopper, (512,), np.int32)
    tensor = cp.cuda.tensor_map_im2col(on(hopper, x), 16, 8, (0, 0), (-1, -1))
    CASES["im2col_multicast"].launcher(tensor, out)
    runs = x[:, 1:, 1:].reshape(2, 1, 16, 8)
    np.testing.assert_array_equal(out.numpy().reshape(2, 2, 16, 8), np.repeat(runs, 2, axis=1))


def test_tensor_map_of_the_host_is_refused(hopper: str):
    x = cp.cuda.tensor_map(np.zeros((8, 8), np.int32), (4, 4))
    with pytest.raises(cp.LaunchError, match=r"E421.*on cpu"):
        kernels.boxes_of_any_rank.configure(device=hopper)[1, 32](
            x, poisoned(hopper, (16,), np.int32), (0, 0)
        )


def test_tensor_map_of_odd_strides_is_refused(hopper: str):
    x = cp.cuda.tensor_map(on(hopper, np.zeros((8, 7), np.int32)), (4, 4))
    with pytest.raises(cp.LaunchError, match=r"E421.*multiples of 16"):
        kernels.boxes_of_any_rank[1, 32](x, poisoned(hopper, (16,), np.int32), (0, 0))


def test_two_cubes_of_a_cluster_exchange(hopper: str):
    out, ranks = poisoned(hopper, (128,), np.int32), poisoned(hopper, (4,), np.int32)
    CASES["cluster"].launcher(out, ranks)
    np.testing.assert_array_equal(ranks.numpy(), [0, 1, 0, 1])
    cube, i = np.divmod(np.arange(128), 32)
    np.testing.assert_array_equal(out.numpy(), 100 * cube + 31 - i + 1000)


def test_one_copy_for_all_cubes_of_a_cluster(hopper: str):
    x = np.random.default_rng(16).integers(0, 1000, 128).astype(np.int32)
    out = poisoned(hopper, (256,), np.int32)
    CASES["multicast"].launcher(cp.cuda.tensor_map(on(hopper, x), (64,)), out)
    parts = x.reshape(2, 1, 64)[:, :, ::-1]
    np.testing.assert_array_equal(out.numpy(), np.broadcast_to(parts, (2, 2, 64)).reshape(-1))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
def test_boxes_are_added_to_one(hopper: str, dtype: Any):
    x = np.random.default_rng(18).integers(-9, 9, (40, 16)).astype(dtype)
    out = poisoned(hopper, (8, 16), dtype)
    maps = [cp.cuda.tensor_map(y, (8, 16)) for y in (on(hopper, x), out)]
    CASES["reduce"].launcher(*maps)
    np.testing.assert_array_equal(out.numpy(), 77 + x.reshape(5, 8, 16).sum(0))


def test_registers_that_ptx_updates(cuda: str):
    x = np.random.default_rng(19).integers(-9, 9, 64).astype(np.float32)
    out = poisoned(cuda, (64,))
    CASES["ptx_update"].launcher(on(cuda, x), out)
    pairs = x.reshape(32, 2)
    wanted = np.stack([pairs[:, 0] + 3 * pairs[:, 1], pairs[:, 1]], axis=1)
    np.testing.assert_array_equal(out.numpy(), wanted.reshape(-1))


def test_grid_that_is_not_made_of_clusters_is_refused(hopper: str):
    kernel = kernels.exchange_in_cluster.configure(cluster=2)
    out, ranks = poisoned(hopper, (96,), np.int32), poisoned(hopper, (3,), np.int32)
    with pytest.raises(cp.LaunchError, match="E408.*cluster"):
        kernel[3, 32](out, ranks)


@pytest.mark.parametrize(("dtype", "columns"), [(cp.f16, 64), (cp.bf16, 128)])
def test_tile_product_by_wgmma(warpgroups: str, dtype: Any, columns: int):
    a, b = random((64, 64), dtype, 10), random((columns, 64), dtype, 11)
    out = poisoned(warpgroups, (64, columns))
    CASES[f"wgmma_{dtype.name}"].launcher(on(warpgroups, a), on(warpgroups, b), out)
    np.testing.assert_array_equal(out.numpy(), a.astype(np.float32) @ b.astype(np.float32).T)


def numbers(kind: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random numbers [rows, k] that `kind` holds exactly, and their words: 32 in a row."""
    rng, k = np.random.default_rng(seed), 128 * 8 // BITS[kind]
    if kind in ("i8", "u8"):
        held = rng.integers(0, 256, (rows, k)).astype(np.dtype(kind.replace("8", "1")))
        return held.astype(np.float64), held.view(np.uint32)
    x = (rng.integers(-4, 5, (rows, k)) / 2).astype(np.float32)
    bits = x.view(np.uint32)
    near = np.where(x == 0, 0, (bits >> 20 & 0x7FF) - 960)  # f8e4m3 has another bias
    codes = {
        "tf32": bits,
        "bf16": (bits >> 16).astype(np.uint16),
        "f16": x.astype(np.float16).view(np.uint16),
        "f8e5m2": (x.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8),
        "f8e4m3": (near | bits >> 31 << 7).astype(np.uint8),
    }
    return x.astype(np.float64), codes[kind].view(np.uint32)


BITS = {"tf32": 32, "bf16": 16, "f16": 16, "f8e4m3": 8, "f8e5m2": 8, "i8": 8, "u8": 8}


@pytest.mark.parametrize(("name", "elements", "columns", "spec", "way"), tiles.WORDS)
def test_tile_products_of_all_kinds(
    warpgroups: str, name: str, elements: Any, columns: int, spec: str, way: str
):
    both = elements if isinstance(elements, tuple) else (elements, elements)
    kinds = [x if isinstance(x, str) else x.name for x in both]
    a, left = numbers(kinds[0], 64, 20)
    b, right = numbers(kinds[1], columns, 21)
    dtype = np.dtype({"f": np.float32, "i": np.int32, "u": np.uint32}[spec[0]])
    packed = 2 if spec[0] == "u" else 1
    out = poisoned(warpgroups, (64, columns // packed), dtype)
    tiles.tile_of_words[1, 128](
        on(warpgroups, left), on(warpgroups, right), out, elements, columns, way
    )
    found = out.numpy().view(np.float16) if packed == 2 else out.numpy()
    np.testing.assert_array_equal(found.astype(np.float64), a @ b.T)


def test_tile_product_by_tma_with_swizzle_and_wgmma(warpgroups: str):
    a, b = random((64, 64), cp.f16, 12), random((64, 64), cp.f16, 13)
    maps = [cp.cuda.tensor_map(on(warpgroups, x), (64, 64), swizzle=128) for x in (a, b)]
    out = poisoned(warpgroups, (64, 64))
    CASES["wgmma_tma"].launcher(*maps, out)
    np.testing.assert_array_equal(out.numpy(), a.astype(np.float32) @ b.astype(np.float32).T)


def test_pipeline_of_two_stages_through_a_loop(warpgroups: str):
    a, b = random((64, 320), cp.f16, 14), random((64, 320), cp.f16, 15)
    maps = [cp.cuda.tensor_map(on(warpgroups, x), (64, 64), swizzle=128) for x in (a, b)]
    out = poisoned(warpgroups, (64, 64))
    CASES["pipeline"].launcher(*maps, out, 5)
    np.testing.assert_array_equal(out.numpy(), a.astype(np.float32) @ b.astype(np.float32).T)


def test_warpgroups_pass_registers_on(warpgroups: str):
    out = poisoned(warpgroups, (384,))
    CASES["registers"].launcher(out)
    np.testing.assert_array_equal(out.numpy(), np.repeat([1, 2, 2], 128).astype(np.float32))
