#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int x_shape0;
    alignas(8) int x_shape1;
    alignas(8) int x_stride0;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void row_sums(
    device const float* x [[buffer(0)]],
    device float* out [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    // kernels.py:86: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const int unit_x = (int)unit_position.x;
    const int absolute_pos = (int)cube_position.x * 256 + unit_x;
    const int row = absolute_pos >> 5;
    // kernels.py:87: if row < x.shape[0]
    if (row < arguments.x_shape0) {
        // kernels.py:89: for column in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        const int v1 = row * arguments.x_stride0;
        for (int column = unit_x & 31; column < arguments.x_shape1; column += 32) {
            // kernels.py:90: total += x[row, column]
            total += x[v1 + column];
        }
        // kernels.py:91: total = cp.plane_sum(total)
        const float v2 = simd_shuffle_xor(total, (ushort)16);
        const float v3 = total + v2;
        const float v4 = simd_shuffle_xor(v3, (ushort)8);
        const float v5 = v3 + v4;
        const float v6 = simd_shuffle_xor(v5, (ushort)4);
        const float v7 = v5 + v6;
        const float v8 = simd_shuffle_xor(v7, (ushort)2);
        const float v9 = v7 + v8;
        const float v10 = simd_shuffle_xor(v9, (ushort)1);
        const float total_1 = v9 + v10;
        // kernels.py:92: if cp.plane_elect()
        if (((long)unit_position.x & 31l) == 0) {
            // kernels.py:93: out[row] = total
            out[row] = total_1;
        }
    }
}
