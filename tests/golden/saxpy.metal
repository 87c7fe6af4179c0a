#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) float alpha;
    alignas(8) int out_shape0;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void saxpy(
    device const float* x [[buffer(0)]],
    device const float* y [[buffer(1)]],
    device float* out [[buffer(2)]],
    constant Arguments& arguments [[buffer(3)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    // kernels.py:34: i = cp.ABSOLUTE_POS
    const int i = (int)cube_position.x * 256 + (int)unit_position.x;
    // kernels.py:35: if i < out.size
    if (i < arguments.out_shape0) {
        // kernels.py:36: out.flat[i] = alpha * x.flat[i] + y.flat[i]
        out[i] = fma(arguments.alpha, x[i], y[i]);
    }
}
