#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int image_shape1;
    alignas(8) int image_stride0;
    alignas(8) int out_shape0;
    alignas(8) int out_shape1;
    alignas(8) int out_stride0;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void blur_rows(
    device const float* image [[buffer(0)]],
    device float* out [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    // kernels.py:41: row, column = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    const int row = (int)cube_position.y * 8 + (int)unit_position.y;
    const int column = (int)cube_position.x * 32 + (int)unit_position.x;
    // kernels.py:42: if row < out.shape[0] and column < out.shape[1]
    if (row < arguments.out_shape0 && column < arguments.out_shape1) {
        // kernels.py:43: left = image[row, max(column - 1, 0)]
        const int v1 = column - 1;
        const uint v2 = (uint)row * (uint)arguments.image_stride0;
        const float left = image[(int)(v2 + (uint)(v1 > 0 ? v1 : 0))];
        // kernels.py:44: right = image[row, min(column + 1, image.shape[1] - 1)]
        const int v3 = column + 1;
        const int v4 = arguments.image_shape1 - 1;
        const float right = image[(int)(v2 + (uint)(v3 < v4 ? v3 : v4))];
        // kernels.py:45: out[row, column] = (left + 2 * image[row, column] + right) * 0.25
        out[row * arguments.out_stride0 + column] =
                (fma(2.0f, image[(int)(v2 + (uint)column)], left) + right) * 0.25f;
    }
}
