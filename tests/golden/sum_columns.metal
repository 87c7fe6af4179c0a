#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int x_shape0;
    alignas(8) int x_shape1;
    alignas(8) int out_shape0;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void sum_columns(
    device const float* x [[buffer(0)]],
    device float* out [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    // kernels.py:176: column = cp.ABSOLUTE_POS
    const int column = (int)cube_position.x * 256 + (int)unit_position.x;
    // kernels.py:177: if column < out.size
    if (column < ((arguments.out_shape0 + 3) >> 2)) {
        // kernels.py:178: total = x[0, column]
        const int v1 = column * 4;
        const float4 total = *(const device float4*)(x + v1);
        // kernels.py:179: for row in range(1, x.shape[0])
        float4 total_1 = total;
        for (int row = 1; row < arguments.x_shape0; ++row) {
            // kernels.py:180: total += x[row, column]
            total_1 = total_1 + *(const device float4*)(x + (row * arguments.x_shape1 + v1));
        }
        // kernels.py:181: out[column] = total
        *(device float4*)(out + v1) = total_1;
    }
}
