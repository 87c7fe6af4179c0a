#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int x_shape0;
    alignas(8) int x_shape1;
    alignas(8) int x_stride0;
    alignas(8) int out_stride0;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void transpose_1(
    device const float* x [[buffer(0)]],
    device float* out [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    alignas(16) threadgroup float tile[1056];
    // kernels.py:54: tx, ty = cp.UNIT_POS_X, cp.UNIT_POS_Y
    const int tx = (int)unit_position.x;
    const int ty = (int)unit_position.y;
    // kernels.py:55: row, column = cp.CUBE_POS_Y * TILE, cp.CUBE_POS_X * TILE
    const int row = (int)cube_position.y * 32;
    const int column = (int)cube_position.x * 32;
    // kernels.py:57: if row + k < x.shape[0] and column + tx < x.shape[1]
    const int v1 = column + tx;
    // kernels.py:56: for k in range(ty, TILE, cp.CUBE_DIM_Y)
    const bool v2 = v1 < arguments.x_shape1;
    for (int k = ty; k < 32; k += 8) {
        // kernels.py:57: if row + k < x.shape[0] and column + tx < x.shape[1]
        const int v3 = row + k;
        if (v3 < arguments.x_shape0 && v2) {
            // kernels.py:58: tile[k, tx] = x[row + k, column + tx]
            tile[k * 33 + tx] = x[v3 * arguments.x_stride0 + v1];
        }
    }
    // kernels.py:59: cp.sync_cube()
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    // kernels.py:61: if column + k < x.shape[1] and row + tx < x.shape[0]
    const int v4 = row + tx;
    // kernels.py:60: for k in range(ty, TILE, cp.CUBE_DIM_Y)
    const bool v5 = v4 < arguments.x_shape0;
    const int v6 = tx * 33;
    for (int k1 = ty; k1 < 32; k1 += 8) {
        // kernels.py:61: if column + k < x.shape[1] and row + tx < x.shape[0]
        const int v7 = column + k1;
        if (v7 < arguments.x_shape1 && v5) {
            // kernels.py:62: out[column + k, row + tx] = tile[tx, k]
            out[(int)((uint)v7 * (uint)arguments.out_stride0 + (uint)v4)] = tile[v6 + k1];
        }
    }
}
