#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) float alpha;
    alignas(8) long x_shape0;
    alignas(8) long y_shape0;
    alignas(8) long out_shape0;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void saxpy(
    device const float* x [[buffer(0)]],
    device const float* y [[buffer(1)]],
    device float* out [[buffer(2)]],
    constant Arguments& arguments [[buffer(3)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]],
    uint3 cube_counts [[threadgroups_per_grid]]) {
    // kernels.py:34: i = cp.ABSOLUTE_POS
    const long cube_pos = ((long)cube_position.z * cube_counts.y + cube_position.y) * cube_counts.x
            + cube_position.x;
    const long i = cube_pos * 256 + unit_position.x;
    // kernels.py:35: if i < out.size
    if (i < arguments.out_shape0) {
        // kernels.py:36: out.flat[i] = alpha * x.flat[i] + y.flat[i]
        out[i] = fma(arguments.alpha, x[i], y[i]);
    }
}
