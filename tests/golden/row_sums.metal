#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) long x_shape0;
    alignas(8) long x_shape1;
    alignas(8) long x_stride0;
    alignas(8) long out_shape0;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void row_sums(
    device const float* x [[buffer(0)]],
    device float* out [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]],
    uint3 cube_counts [[threadgroups_per_grid]]) {
    // kernels.py:86: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const long cube_pos = ((long)cube_position.z * cube_counts.y + cube_position.y) * cube_counts.x
            + cube_position.x;
    const long unit_x = (long)unit_position.x;
    const long absolute_pos = cube_pos * 256 + unit_x;
    const long row = absolute_pos / 32;
    // kernels.py:87: if row < x.shape[0]
    if (row < arguments.x_shape0) {
        // kernels.py:89: for column in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const long v1 = unit_x % 32;
        float total = 0.0f;
        const long v2 = row * arguments.x_stride0;
        for (long column = v1; column < arguments.x_shape1; column += 32) {
            // kernels.py:90: total += x[row, column]
            total += x[v2 + column];
        }
        // kernels.py:91: total = cp.plane_sum(total)
        const float v3 = simd_shuffle_xor(total, (ushort)16);
        const float v4 = total + v3;
        const float v5 = simd_shuffle_xor(v4, (ushort)8);
        const float v6 = v4 + v5;
        const float v7 = simd_shuffle_xor(v6, (ushort)4);
        const float v8 = v6 + v7;
        const float v9 = simd_shuffle_xor(v8, (ushort)2);
        const float v10 = v8 + v9;
        const float v11 = simd_shuffle_xor(v10, (ushort)1);
        const float total_1 = v10 + v11;
        // kernels.py:92: if cp.plane_elect()
        if (v1 == 0) {
            // kernels.py:93: out[row] = total
            out[row] = total_1;
        }
    }
}
