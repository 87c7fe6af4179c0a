"""Kernels that use NVIDIA's hardware by `cp.cuda`: small, deterministic, checked against NumPy.

`CASES` lists each with its grid, descriptions of its arguments, and the first architecture that has
it; the compiler's tests build them, the device's tests run them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cubepy as cp
from tests.devices.cuda_tiles import (
    WORDS,
    pipelined,
    tile_bf16,
    tile_by_tma,
    tile_f16,
    tile_of_words,
)

N = 64


@cp.cube
def lanes_by_ptx(out: cp.Tensor[cp.u32], sums: cp.Tensor[cp.f32]):
    """Inline PTX: a special register, and a sum of the lanes of a line."""
    i = cp.UNIT_POS
    lane = cp.cuda.ptx("mov.u32 %0, %%laneid;", result=cp.u32)
    out[i] = cp.cuda.ptx("mad.lo.u32 %0, %1, %2, 7;", lane, cp.u32(3), result=cp.u32)
    pair = cp.cuda.ptx(
        "{ .reg .f32 t; mul.f32 t, %2, %3; add.f32 %0, t, 1.0; sub.f32 %1, t, 1.0; }",
        cp.f32(i),
        cp.Line[cp.f32, 2](2.0)[0],
        result=cp.Line[cp.f32, 2],
    )
    sums[2 * i] = pair[0]
    sums[2 * i + 1] = pair[1]


@cp.cube
def shared_by_address(out: cp.Tensor[cp.u32]):
    """Addresses of shared and global memory, given to inline PTX."""
    i = cp.UNIT_POS
    words = cp.shared(32, cp.u32)
    cp.cuda.ptx("st.shared.u32 [%0], %1;", cp.cuda.address(words, i), cp.u32(i) * 5)
    cp.sync_cube()
    found = cp.cuda.ptx("ld.shared.u32 %0, [%1];", cp.cuda.address(words, 31 - i), result=cp.u32)
    cp.cuda.ptx("st.u32 [%0], %1;", cp.cuda.address(out, i), found)


@cp.cube
def copy_in_pieces(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    """cp.async of 4, 8 and 16 bytes in two groups, the second of which is still under way."""
    i = cp.UNIT_POS
    first = cp.shared(64, cp.f32)
    second = cp.shared(128, cp.f32)
    cp.cuda.async_copy(first, i, x, i, 1)
    cp.cuda.async_copy(first, 32 + i, x, 32 + i, 1)
    cp.cuda.async_commit()
    cp.cuda.async_copy(second, 2 * i, x, 64 + 2 * i, 2)
    if i < 16:
        cp.cuda.async_copy(second, 64 + 4 * i, x, 128 + 4 * i, 4)
    cp.cuda.async_commit()
    cp.cuda.async_wait(1)
    cp.sync_cube()
    out[i] = first[31 - i]
    out[32 + i] = first[63 - i]
    cp.cuda.async_wait(0)
    cp.sync_cube()
    for k in range(4):
        out[64 + 32 * k + i] = second[127 - (32 * k + i)]


@cp.cube
def copy_what_exists(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    """Rows of a matrix by words and by lines of four, with zeros behind its last row; each unit
    then reads a word of the lines as `ldmatrix` spreads them."""
    lane = cp.UNIT_POS
    words, lines = cp.shared((8, 4), cp.f32), cp.shared((8, 4), cp.f32)
    row, rows = lane // 4, x.shape[0]
    cp.cuda.async_copy(words, (row, lane % 4), x, (row, lane % 4), 1, row < rows)
    if lane < 8:
        cp.cuda.async_copy(lines, (lane, 0), x, (lane, 0), 4, present=lane < rows)
    cp.cuda.async_commit()
    cp.cuda.async_wait()
    cp.sync_cube()
    out[0, lane] = words[row, lane % 4]
    found = cp.cuda.ldmatrix(lines, (lane % 8, 0), count=1)
    out[1, lane] = cp.bitcast(found[0], cp.f32)


def matmul_halves(a: Any, b: Any, out: Any, elements: Any) -> None:
    """out = a @ b of 64 x 64 halves: each of 4 planes has 16 rows, in tiles of 8 columns."""
    unit = cp.UNIT_POS
    lane, row = unit % 32, unit // 32 * 16
    left = cp.shared((64, 64), elements)
    right = cp.shared((64, 64), elements)
    for k in range(4):
        piece = unit + 128 * k
        place = (piece // 8, piece % 8 * 8)
        cp.cuda.async_copy(left, place, a, place, 8)
        cp.cuda.async_copy(right, place, b, place, 8)
    cp.cuda.async_commit()
    cp.cuda.async_wait()
    cp.sync_cube()
    for column in range(0, 64, 8):
        sums = cp.Line[cp.f32, 4](0.0)
        for k in range(0, 64, 16):
            x = cp.cuda.ldmatrix(left, (row + lane % 16, k + lane // 16 * 8))
            y = cp.cuda.ldmatrix(right, (k + lane % 16, column), count=2, transposed=True)
            sums = cp.cuda.mma(x, y, sums, elements)
        for j in cp.unroll(range(4)):
            out[row + lane // 4 + j // 2 * 8, column + lane % 4 * 2 + j % 2] = sums[j]


@cp.cube
def matmul_f16(a: cp.Tensor[cp.f16], b: cp.Tensor[cp.f16], out: cp.Tensor[cp.f32]):
    matmul_halves(a, b, out, cp.f16)


@cp.cube
def matmul_bf16(a: cp.Tensor[cp.bf16], b: cp.Tensor[cp.bf16], out: cp.Tensor[cp.f32]):
    matmul_halves(a, b, out, cp.bf16)


@cp.cube
def product_tf32(a: cp.Tensor[cp.u32], b: cp.Tensor[cp.u32], out: cp.Tensor[cp.f32]):
    """16x8 times 8x8 of f32 by their bits; the words of a unit by the PTX ISA."""
    lane = cp.UNIT_POS
    g, t = lane // 4, lane % 4
    x = cp.local(4, cp.u32)
    y = cp.local(2, cp.u32)
    for k in cp.unroll(range(4)):
        x[k] = a[g + k % 2 * 8, t + k // 2 * 4]
    for k in cp.unroll(range(2)):
        y[k] = b[t + k * 4, g]
    left, right = cp.load(x, 0, line=4), cp.load(y, 0, line=2)
    sums = cp.cuda.mma(left, right, cp.Line[cp.f32, 4](0.0), "tf32")
    for k in cp.unroll(range(4)):
        out[g + k // 2 * 8, 2 * t + k % 2] = sums[k]


@cp.cube
def product_i8(a: cp.Tensor[cp.u32], b: cp.Tensor[cp.u32], out: cp.Tensor[cp.i32]):
    """16x32 times 32x8 of i8, four in a word along k; b is given column by column."""
    lane = cp.UNIT_POS
    g, t = lane // 4, lane % 4
    x = cp.local(4, cp.u32)
    y = cp.local(2, cp.u32)
    for k in cp.unroll(range(4)):
        x[k] = a[g + k % 2 * 8, t + k // 2 * 4]
    for k in cp.unroll(range(2)):
        y[k] = b[g, t + k * 4]
    left, right = cp.load(x, 0, line=4), cp.load(y, 0, line=2)
    sums = cp.cuda.mma(left, right, cp.Line[cp.i32, 4](0), cp.i8)
    for k in cp.unroll(range(4)):
        out[g + k // 2 * 8, 2 * t + k % 2] = sums[k]


@cp.cube
def product_f64(
    a: cp.Tensor[cp.f64], b: cp.Tensor[cp.f64], out: cp.Tensor[cp.f64], parts: cp.Comptime[int]
):
    """16xk times kx8 of f64 added to what `out` holds; k is 4 `parts`."""
    lane = cp.UNIT_POS
    g, t = lane // 4, lane % 4
    x, y, z = cp.local(2 * parts, cp.f64), cp.local(parts, cp.f64), cp.local(4, cp.f64)
    for k in cp.unroll(range(2 * parts)):
        x[k] = a[g + k % 2 * 8, t + k // 2 * 4]
    for k in cp.unroll(range(parts)):
        y[k] = b[t + k * 4, g]
    for k in cp.unroll(range(4)):
        z[k] = out[g + k // 2 * 8, 2 * t + k % 2]
    left, right = cp.load(x, 0, line=2 * parts), cp.load(y, 0, line=parts)
    sums = cp.cuda.mma(left, right, cp.load(z, 0, line=4), cp.f64)
    for k in cp.unroll(range(4)):
        out[g + k // 2 * 8, 2 * t + k % 2] = sums[k]


@cp.cube
def square_product_f64(a: cp.Tensor[cp.f64], b: cp.Tensor[cp.f64], out: cp.Tensor[cp.f64]):
    """8x4 times 4x8 of f64 added to what `out` holds."""
    lane = cp.UNIT_POS
    g, t = lane // 4, lane % 4
    sums = cp.load(out, (g, 2 * t), line=2)
    cp.store(out, (g, 2 * t), cp.cuda.mma(a[g, t], b[t, g], sums, cp.f64))


@cp.cube
def transpose_matrices(x: cp.Tensor[cp.u16], out: cp.Tensor[cp.u16]):
    """Four 8x8 matrices by ldmatrix, each transposed by stmatrix."""
    lane = cp.UNIT_POS
    tile = cp.shared((32, 8), cp.u16)
    for k in range(8):
        tile[lane, k] = x[lane, k]
    cp.sync_cube()
    words = cp.cuda.ldmatrix(tile, (lane, 0))
    cp.sync_cube()
    cp.cuda.stmatrix(tile, (lane, 0), words, transposed=True)
    cp.sync_cube()
    for k in range(8):
        out[lane, k] = tile[lane, k]


@cp.cube
def reverse_by_bulk(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    """cp.async.bulk in and out, with hints; four rounds by one barrier, whose parity alternates."""
    i = cp.UNIT_POS
    source = cp.shared(256, cp.f32)
    target = cp.shared(256, cp.f32)
    barrier = cp.shared(1, cp.u64)
    if i == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.fence_barriers()
    cp.sync_cube()
    for k in range(4):
        if i == 0:
            cp.cuda.barrier_expect(barrier, 0, 1024)
            cp.cuda.bulk_load(source, 0, x, 256 * k, 256, barrier, 0, hint="evict_last")
        cp.cuda.barrier_wait(barrier, 0, k % 2)
        target[255 - i] = source[i]
        cp.cuda.fence_async()
        cp.sync_cube()
        if i == 0:
            cp.cuda.bulk_store(out, 256 * k, target, 0, 256, hint="evict_first")
            cp.cuda.bulk_commit()
            cp.cuda.bulk_wait(0, read=True)
        cp.sync_cube()
    if i == 0:
        cp.cuda.bulk_wait(0)


@cp.cube
def count_arrivals(out: cp.Tensor[cp.i32]):
    """Every unit arrives, none waits at a barrier of the cube."""
    i = cp.UNIT_POS
    values = cp.shared(64, cp.i32)
    barrier = cp.shared(2, cp.u64)
    if i == 0:
        cp.cuda.barrier_init(barrier, 1, cp.CUBE_DIM)
        cp.cuda.fence_barriers()
    cp.sync_cube()
    values[i] = cp.i32(i) * 3
    cp.cuda.barrier_arrive(barrier, 1)
    while not cp.cuda.barrier_try_wait(barrier, 1, 0):
        pass
    out[i] = values[63 - i]


@cp.cube
def add_one_by_tiles(x: cp.cuda.TensorMap, out: cp.cuda.TensorMap):
    """Boxes by TMA in and out; borders are filled with zeros and dropped."""
    i = cp.UNIT_POS
    rows, columns = x.box
    tile = cp.shared((rows, columns), x.dtype)
    barrier = cp.shared(1, cp.u64)
    origin = (cp.CUBE_POS_Y * rows, cp.CUBE_POS_X * columns)
    if i == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.fence_barriers()
        cp.cuda.barrier_expect(barrier, 0, x.nbytes)
        cp.cuda.tensor_load(tile, (0, 0), x, origin, barrier, 0)
    cp.sync_cube()
    cp.cuda.barrier_wait(barrier, 0, 0)
    for k in range(i, rows * columns, cp.CUBE_DIM):
        tile.flat[k] += 1
    cp.cuda.fence_async()
    cp.sync_cube()
    if i == 0:
        cp.cuda.tensor_store(out, origin, tile, (0, 0))
        cp.cuda.bulk_commit()
        cp.cuda.bulk_wait(0)


@cp.cube
def boxes_of_any_rank(x: cp.cuda.TensorMap, out: cp.Tensor[cp.i32], origin: cp.Comptime[tuple]):
    """One box of a tensor of 1 to 5 axes, as it lies in shared memory."""
    i = cp.UNIT_POS
    size = x.nbytes // 4
    tile = cp.shared(size, cp.i32)
    barrier = cp.shared(1, cp.u64)
    if i == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.fence_barriers()
        cp.cuda.barrier_expect(barrier, 0, x.nbytes)
        cp.cuda.tensor_load(tile, 0, x, origin, barrier, 0)
    cp.sync_cube()
    cp.cuda.barrier_wait(barrier, 0, 0)
    for k in range(i, size, cp.CUBE_DIM):
        out[k] = tile[k]


@cp.cube
def pixels_of_a_window(
    x: cp.cuda.TensorMap,
    out: cp.Tensor[cp.i32],
    origin: cp.Comptime[tuple],
    offsets: cp.Comptime[tuple],
):
    """Pixels by channels in im2col mode, as they lie in shared memory."""
    i = cp.UNIT_POS
    size = x.nbytes // 4
    tile = cp.shared(size, cp.i32)
    barrier = cp.shared(1, cp.u64)
    if i == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.fence_barriers()
        cp.cuda.barrier_expect(barrier, 0, x.nbytes)
        cp.cuda.tensor_load(tile, 0, x, origin, barrier, 0, offsets=offsets)
    cp.sync_cube()
    cp.cuda.barrier_wait(barrier, 0, 0)
    for k in range(i, size, cp.CUBE_DIM):
        out[k] = tile[k]


@cp.cube
def window_for_both(x: cp.cuda.TensorMap, out: cp.Tensor[cp.i32]):
    """One run of pixels for two cubes."""
    i, rank = cp.UNIT_POS, cp.cuda.cluster_rank()
    tile = cp.shared(x.box, cp.i32)
    barrier = cp.shared(1, cp.u64)
    if i == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.fence_barriers()
        cp.cuda.barrier_expect(barrier, 0, x.nbytes)
    cp.cuda.cluster_sync()
    if i == 0 and rank == 0:
        origin = (cp.CUBE_POS // 2, 0, 0, 0)
        cp.cuda.tensor_load(tile, (0, 0), x, origin, barrier, 0, multicast=3, offsets=(1, 1))
    cp.cuda.barrier_wait(barrier, 0, 0)
    for k in range(i, x.nbytes // 4, cp.CUBE_DIM):
        out[cp.CUBE_POS * (x.nbytes // 4) + k] = tile.flat[k]
    cp.cuda.cluster_sync()


@cp.cube
def exchange_in_cluster(out: cp.Tensor[cp.i32], ranks: cp.Tensor[cp.i32]):
    """Each cube reads what the other one of its cluster wrote, and writes to it."""
    i = cp.UNIT_POS
    mine = cp.shared(32, cp.i32)
    given = cp.shared(32, cp.i32)
    rank = cp.cuda.cluster_rank()
    mine[i] = cp.i32(100 * cp.CUBE_POS + i)
    cp.cuda.cluster_sync()
    other = cp.cuda.cluster_load(mine, 31 - i, 1 - rank)
    cp.cuda.cluster_store(given, i, 1 - rank, other + 1000)
    cp.cuda.cluster_sync()
    out[cp.CUBE_POS * 32 + i] = given[i]
    if i == 0:
        ranks[cp.CUBE_POS] = cp.i32(rank)


@cp.cube
def copy_to_both(x: cp.cuda.TensorMap, out: cp.Tensor[cp.i32]):
    """One copy for two cubes; the one that started it ends when both have their tile."""
    i, rank = cp.UNIT_POS, cp.cuda.cluster_rank()
    tile = cp.shared(64, cp.i32)
    barrier = cp.shared(2, cp.u64)
    if i == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.barrier_init(barrier, 1, 2)
        cp.cuda.fence_barriers()
        cp.cuda.barrier_expect(barrier, 0, x.nbytes)
    cp.cuda.cluster_sync()
    if i == 0 and rank == 0:
        origin = cp.CUBE_POS // 2 * 64
        cp.cuda.tensor_load(tile, 0, x, origin, barrier, 0, multicast=3)
    cp.cuda.barrier_wait(barrier, 0, 0)
    out[cp.CUBE_POS * 64 + i] = tile[63 - i]
    if i == 0:
        cp.cuda.cluster_arrive(barrier, 1, 0, fence=False)
        if rank == 0:
            cp.cuda.barrier_wait(barrier, 1, 0)


@cp.cube
def reduce_tiles(x: cp.cuda.TensorMap, out: cp.cuda.TensorMap):
    """Each cube adds its box of `x` to the one box of `out`, by the copy engine with hints."""
    tile = cp.shared(x.box, x.dtype)
    barrier = cp.shared(1, cp.u64)
    if cp.UNIT_POS == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.fence_barriers()
        cp.cuda.barrier_expect(barrier, 0, x.nbytes)
        origin = (cp.CUBE_POS * x.box[0], 0)
        cp.cuda.tensor_load(tile, (0, 0), x, origin, barrier, 0, hint="evict_first")
        cp.cuda.barrier_wait(barrier, 0, 0)
        cp.cuda.tensor_reduce(out, (0, 0), tile, (0, 0), hint="evict_last")
        cp.cuda.bulk_commit()
        cp.cuda.bulk_wait()


@cp.cube
def updates_by_ptx(x: cp.Tensor[cp.f32], out: cp.Tensor[cp.f32]):
    """A line whose registers PTX reads and writes."""
    i = cp.UNIT_POS
    pair = cp.Line[cp.f32, 2](x[2 * i], x[2 * i + 1])
    pair = cp.cuda.ptx("fma.rn.f32 %0, %1, %2, %0;", cp.f32(3.0), update=pair)
    out[2 * i], out[2 * i + 1] = pair[0], pair[1]


@cp.cube
def give_registers_away(out: cp.Tensor[cp.f32]):
    """One warpgroup of three gives registers up, the others take them: 384 units begin with 168."""
    unit = cp.UNIT_POS
    if unit // 128 == 0:
        cp.cuda.decrease_registers(40)
        out[unit] = 1.0
    else:
        cp.cuda.increase_registers(232)
        out[unit] = 2.0


@dataclass(frozen=True)
class Case:
    """How a kernel is launched, and from which architecture on."""

    launcher: Any
    specs: tuple[Any, ...]
    least: str
    comptime: dict[str, Any] = field(default_factory=dict[str, Any])


def _map(text: str, box: tuple[int, ...], swizzle: int = 0) -> Any:
    return cp.cuda.tensor_map(text, box, swizzle)


SQUARE = ("{}[64,64]", "{}[64,64]", "f32[64,64]")
CASES: dict[str, Case] = {
    "ptx": Case(lanes_by_ptx[1, 32], ("u32[32]", "f32[64]"), "sm_75"),
    "address": Case(shared_by_address[1, 32], ("u32[32]",), "sm_75"),
    "async_copy": Case(copy_in_pieces[1, 32], ("f32[192]", "f32[192]"), "sm_80"),
    "async_copy_present": Case(copy_what_exists[1, 32], ("f32[5,4]", "f32[2,32]"), "sm_80"),
    "mma_f16": Case(matmul_f16[1, 128], tuple(s.format("f16") for s in SQUARE), "sm_80"),
    "mma_bf16": Case(matmul_bf16[1, 128], tuple(s.format("bf16") for s in SQUARE), "sm_80"),
    "mma_tf32": Case(product_tf32[1, 32], ("u32[16,8]", "u32[8,8]", "f32[16,8]"), "sm_80"),
    "mma_i8": Case(product_i8[1, 32], ("u32[16,8]", "u32[8,8]", "i32[16,8]"), "sm_80"),
    **{
        f"mma_f64_{4 * parts}": Case(
            product_f64[1, 32],
            (f"f64[16,{4 * parts}]", f"f64[{4 * parts},8]", "f64[16,8]"),
            "sm_90",
            {"parts": parts},
        )
        for parts in (1, 2, 4)
    },
    "mma_f64_square": Case(
        square_product_f64[1, 32], ("f64[8,4]", "f64[4,8]", "f64[8,8]"), "sm_80"
    ),
    "stmatrix": Case(transpose_matrices[1, 32], ("u16[32,8]", "u16[32,8]"), "sm_90a"),
    "bulk": Case(reverse_by_bulk[1, 256], ("f32[1024]", "f32[1024]"), "sm_90a"),
    "arrivals": Case(count_arrivals[1, 64], ("i32[64]",), "sm_90a"),
    "tensor": Case(
        add_one_by_tiles[(3, 2), 128],
        (_map("f32[50,72]", (32, 32)), _map("f32[50,72]", (32, 32))),
        "sm_90a",
    ),
    "tensor_5d": Case(
        boxes_of_any_rank[1, 32],
        (_map("i32[3,4,5,6,8]", (1, 2, 2, 3, 4)), "i32[48]"),
        "sm_90a",
        {"origin": (1, 1, 2, 3, 4)},
    ),
    "im2col": Case(
        pixels_of_a_window[1, 32],
        (cp.cuda.tensor_map_im2col("i32[2,5,7,8]", 20, 8, (-1, -2), (-1, 0)), "i32[160]"),
        "sm_90a",
        {"origin": (0, 1, 3, 0), "offsets": (2, 1)},
    ),
    "im2col_5d": Case(
        pixels_of_a_window[1, 32],
        (cp.cuda.tensor_map_im2col("i32[2,3,4,5,8]", 16, 8, (-1, 0, 0), (0, 0, 0)), "i32[128]"),
        "sm_90a",
        {"origin": (0, 0, 2, 1, 0), "offsets": (1, 0, 1)},
    ),
    "im2col_multicast": Case(
        window_for_both.configure(cluster=2)[4, 32],
        (cp.cuda.tensor_map_im2col("i32[2,5,5,8]", 16, 8, (0, 0), (-1, -1)), "i32[512]"),
        "sm_90a",
    ),
    "cluster": Case(
        exchange_in_cluster.configure(cluster=2)[4, 32], ("i32[128]", "i32[4]"), "sm_90a"
    ),
    "wgmma_f16": Case(tile_f16[1, 128], tuple(s.format("f16") for s in SQUARE), "sm_90a"),
    "wgmma_bf16": Case(tile_bf16[1, 128], ("bf16[64,64]", "bf16[128,64]", "f32[64,128]"), "sm_90a"),
    **{
        f"wgmma_{name}_{way}": Case(
            tile_of_words[1, 128],
            ("u32[64,32]", f"u32[{n},32]", out),
            "sm_90a",
            {"elements": elements, "columns": n, "way": way},
        )
        for name, elements, n, out, way in WORDS
    },
    "wgmma_tma": Case(
        tile_by_tma[1, 128],
        (_map("f16[64,64]", (64, 64), 128), _map("f16[64,64]", (64, 64), 128), "f32[64,64]"),
        "sm_90a",
    ),
    "pipeline": Case(
        pipelined[1, 128],
        (
            _map("f16[64,320]", (64, 64), 128),
            _map("f16[64,320]", (64, 64), 128),
            "f32[64,64]",
            "i32",
        ),
        "sm_90a",
    ),
    "multicast": Case(
        copy_to_both.configure(cluster=2)[4, 64], (_map("i32[128]", (64,)), "i32[256]"), "sm_90a"
    ),
    "reduce": Case(
        reduce_tiles[5, 32], (_map("f32[40,16]", (8, 16)), _map("f32[8,16]", (8, 16))), "sm_90a"
    ),
    "ptx_update": Case(updates_by_ptx[1, 32], ("f32[64]", "f32[64]"), "sm_75"),
    "registers": Case(give_registers_away[1, 384], ("f32[384]",), "sm_90a"),
}
