#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) long image_shape0;
    alignas(8) long image_shape1;
    alignas(8) long image_stride0;
    alignas(8) long out_shape0;
    alignas(8) long out_shape1;
    alignas(8) long out_stride0;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void blur_rows(
    device const float* image [[buffer(0)]],
    device float* out [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    // kernels.py:41: row, column = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    const long row = (long)cube_position.y * 8 + unit_position.y;
    const long column = (long)cube_position.x * 32 + unit_position.x;
    // kernels.py:42: if row < out.shape[0] and column < out.shape[1]
    if (row < arguments.out_shape0 && column < arguments.out_shape1) {
        // kernels.py:43: left = image[row, max(column - 1, 0)]
        const long v1 = row * arguments.image_stride0;
        const float left = image[v1 + max((long)(column - 1), (long)0l)];
        // kernels.py:44: right = image[row, min(column + 1, image.shape[1] - 1)]
        const float right = image[v1 + min((long)(column + 1), (long)(arguments.image_shape1 - 1))];
        // kernels.py:45: out[row, column] = (left + 2 * image[row, column] + right) * 0.25
        out[row * arguments.out_stride0 + column] = (fma(2.0f, image[v1 + column], left) + right)
                * 0.25f;
    }
}
