"""Kernels that multiply tiles by `cp.cuda.wgmma`; `cuda_kernels` lists them."""

from __future__ import annotations

from typing import Any

import cubepy as cp

WORDS: tuple[tuple[str, Any, int, str, str], ...] = (
    ("f16", cp.f16, 256, "f32[64,256]", "registers"),
    ("bf16", cp.bf16, 40, "f32[64,40]", "registers"),
    ("bf16", cp.bf16, 8, "f32[64,8]", "runtime"),
    ("tf32", "tf32", 64, "f32[64,64]", "descriptor"),
    ("tf32", "tf32", 64, "f32[64,64]", "registers"),
    ("f8e4m3", cp.f8e4m3, 256, "f32[64,256]", "descriptor"),
    ("f8e5m2", cp.f8e5m2, 24, "f32[64,24]", "registers"),
    ("f8e4m3_f8e5m2", (cp.f8e4m3, cp.f8e5m2), 128, "f32[64,128]", "runtime"),
    ("f8e5m2_f8e4m3", (cp.f8e5m2, cp.f8e4m3), 128, "f32[64,128]", "registers"),
    ("i8", cp.i8, 256, "i32[64,256]", "descriptor"),
    ("u8", cp.u8, 24, "i32[64,24]", "runtime"),
    ("i8_u8", (cp.i8, cp.u8), 48, "i32[64,48]", "registers"),
    ("u8_i8", (cp.u8, cp.i8), 48, "i32[64,48]", "descriptor"),
    ("sum_f16", cp.f16, 128, "u32[64,64]", "descriptor"),
    ("sum_f16", cp.f16, 256, "u32[64,128]", "registers"),
    ("sum_f8e4m3", cp.f8e4m3, 64, "u32[64,32]", "runtime"),
)
"""Elements, columns, sums (u32: pairs of f16), and the way that `tile_of_words` takes."""


def multiply_tile(a: Any, b: Any, out: Any, elements: Any, columns: int) -> None:
    """out = a @ b.T of 64x64 and columns x 64 by wgmma, from blocks of 8 rows x 16 bytes."""
    unit = cp.UNIT_POS
    left = cp.shared((8, 64, 8), elements)
    right = cp.shared((8, columns, 8), elements)
    for k in range(unit, 64 * 64, 128):
        left[k % 64 // 8, k // 64, k % 8] = a[k // 64, k % 64]
    for k in range(unit, columns * 64, 128):
        right[k % 64 // 8, k // 64, k % 8] = b[k // 64, k % 64]
    cp.cuda.fence_async()
    cp.sync_cube()
    sums = cp.Line[cp.f32, columns // 2](0.0)
    cp.cuda.wgmma_fence()
    for k in cp.unroll(range(4)):
        x = cp.cuda.wgmma_descriptor(left, (2 * k, 0, 0), 64 * 16, 128)
        y = cp.cuda.wgmma_descriptor(right, (2 * k, 0, 0), columns * 16, 128)
        sums = cp.cuda.wgmma(sums, x, y, elements)
    cp.cuda.wgmma_commit()
    sums = cp.cuda.wgmma_wait(sums)
    row = unit // 32 * 16 + unit % 32 // 4
    for j in cp.unroll(range(columns // 2)):
        out[row + j // 2 % 2 * 8, j // 4 * 8 + unit % 4 * 2 + j % 2] = sums[j]


@cp.cube
def tile_f16(a: cp.Tensor[cp.f16], b: cp.Tensor[cp.f16], out: cp.Tensor[cp.f32]):
    multiply_tile(a, b, out, cp.f16, 64)


@cp.cube
def tile_bf16(a: cp.Tensor[cp.bf16], b: cp.Tensor[cp.bf16], out: cp.Tensor[cp.f32]):
    multiply_tile(a, b, out, cp.bf16, 128)


@cp.cube
def tile_of_words(
    a: cp.Tensor[cp.u32],
    b: cp.Tensor[cp.u32],
    out: cp.Tensor[cp.Any],
    elements: cp.Comptime[Any],
    columns: cp.Comptime[int],
    way: cp.Comptime[str],
):
    """out = a @ b.T of rows of 128 bytes: any elements, which travel as words.

    `way`: "descriptor" and "registers" say where a is, and that all sums but the first accumulate;
    "runtime" that this is known in a loop alone.
    """
    unit = cp.UNIT_POS
    left, right = cp.shared((8, 64, 4), cp.u32), cp.shared((8, columns, 4), cp.u32)
    for k in range(unit, 64 * 32, 128):
        left[k % 32 // 4, k // 32, k % 4] = a[k // 32, k % 32]
    for k in range(unit, columns * 32, 128):
        right[k % 32 // 4, k // 32, k % 4] = b[k // 32, k % 32]
    cp.cuda.fence_async()
    cp.sync_cube()
    row = unit // 32 * 16 + unit % 32 // 4
    half = 2 if out.dtype == cp.u32 else 1
    sums = cp.Line[out.dtype, columns // 2 // half](5)
    x = cp.cuda.wgmma_descriptor(left, (0, 0, 0), 64 * 16, 128)
    y = cp.cuda.wgmma_descriptor(right, (0, 0, 0), columns * 16, 128)
    if cp.comptime(way == "runtime"):
        for k in range(out.shape[0] // 16):
            cp.cuda.wgmma_fence()
            left_k, right_k = x + 128 * cp.u64(k), y + 2 * columns * cp.u64(k)
            sums = cp.cuda.wgmma(sums, left_k, right_k, elements, accumulate=k > 0)
            cp.cuda.wgmma_commit()
            sums = cp.cuda.wgmma_wait(sums)
    else:
        held = cp.local(16, cp.u32)  # before the first product: between them ptxas would serialise
        if cp.comptime(way == "registers"):
            for i in cp.unroll(range(16)):
                held[i] = a[row + i % 2 * 8, 8 * (i // 4) + unit % 4 + i % 4 // 2 * 4]
        cp.cuda.wgmma_fence()
        for k in cp.unroll(range(4)):
            given = x + 128 * k
            if cp.comptime(way == "registers"):
                given = cp.load(held, 4 * k, line=4)
            sums = cp.cuda.wgmma(sums, given, y + 2 * columns * k, elements, accumulate=k > 0)
        cp.cuda.wgmma_commit()
        sums = cp.cuda.wgmma_wait(sums)
    if cp.comptime(half == 2):
        for j in cp.unroll(range(columns // 4)):
            out[row + j % 2 * 8, j // 2 * 4 + unit % 4] = sums[j]
    else:
        for j in cp.unroll(range(columns // 2)):
            out[row + j // 2 % 2 * 8, j // 4 * 8 + unit % 4 * 2 + j % 2] = sums[j]


@cp.cube
def tile_by_tma(a: cp.cuda.TensorMap, b: cp.cuda.TensorMap, out: cp.Tensor[cp.f32]):
    """out = a @ b.T of 64x64 halves: TMA with a swizzle of 128 bytes, wgmma from what it wrote."""
    unit = cp.UNIT_POS
    left = cp.shared((64, 64), cp.f16)
    right = cp.shared((64, 64), cp.f16)
    barrier = cp.shared(1, cp.u64)
    if unit == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.fence_barriers()
        cp.cuda.barrier_expect(barrier, 0, a.nbytes + b.nbytes)
        cp.cuda.tensor_load(left, (0, 0), a, (0, 0), barrier, 0)
        cp.cuda.tensor_load(right, (0, 0), b, (0, 0), barrier, 0)
    cp.sync_cube()
    cp.cuda.barrier_wait(barrier, 0, 0)
    sums = cp.Line[cp.f32, 32](0.0)
    cp.cuda.wgmma_fence()
    for k in cp.unroll(range(4)):
        x = cp.cuda.wgmma_descriptor(left, (0, 16 * k), 16, 1024, swizzle=128)
        y = cp.cuda.wgmma_descriptor(right, (0, 16 * k), 16, 1024, swizzle=128)
        sums = cp.cuda.wgmma(sums, x, y, cp.f16)
    cp.cuda.wgmma_commit()
    sums = cp.cuda.wgmma_wait(sums)
    row = unit // 32 * 16 + unit % 32 // 4
    for j in cp.unroll(range(32)):
        out[row + j // 2 % 2 * 8, j // 4 * 8 + unit % 4 * 2 + j % 2] = sums[j]


@cp.cube
def pipelined(a: cp.cuda.TensorMap, b: cp.cuda.TensorMap, out: cp.Tensor[cp.f32], steps: cp.i32):
    """out = a @ b.T, 64 halves along K a step: the next tiles are copied while these are used."""
    unit = cp.UNIT_POS
    left = cp.shared((2, 64, 64), cp.f16)
    right = cp.shared((2, 64, 64), cp.f16)
    barrier = cp.shared(2, cp.u64)
    if unit == 0:
        cp.cuda.barrier_init(barrier, 0, 1)
        cp.cuda.barrier_init(barrier, 1, 1)
        cp.cuda.fence_barriers()
    cp.sync_cube()
    sums = cp.Line[cp.f32, 32](0.0)
    for step in range(-1, steps):
        following = (step + 1) % 2
        if unit == 0 and step + 1 < steps:
            origin = (0, 64 * (step + 1))
            cp.cuda.barrier_expect(barrier, following, a.nbytes + b.nbytes)
            cp.cuda.tensor_load(left, (following, 0, 0), a, origin, barrier, following)
            cp.cuda.tensor_load(right, (following, 0, 0), b, origin, barrier, following)
        if step >= 0:
            stage = step % 2
            cp.cuda.barrier_wait(barrier, stage, step // 2 % 2)
            cp.cuda.wgmma_fence()
            for k in cp.unroll(range(0, 64, 16)):
                x = cp.cuda.wgmma_descriptor(left, (stage, 0, k), 16, 1024, swizzle=128)
                y = cp.cuda.wgmma_descriptor(right, (stage, 0, k), 16, 1024, swizzle=128)
                sums = cp.cuda.wgmma(sums, x, y, cp.f16)
            cp.cuda.wgmma_commit()
            sums = cp.cuda.wgmma_wait(sums)
        cp.sync_cube()
    row = unit // 32 * 16 + unit % 32 // 4
    for j in cp.unroll(range(32)):
        out[row + j // 2 % 2 * 8, j // 4 * 8 + unit % 4 * 2 + j % 2] = sums[j]
