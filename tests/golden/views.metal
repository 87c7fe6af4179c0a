#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int image_stride0;
    alignas(8) int out_shape0;
    alignas(8) int out_shape1;
    alignas(8) int out_stride0;
    alignas(8) float gain;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void views(
    device const float* image [[buffer(0)]],
    device float* out [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    // kernels.py:167: i = cp.ABSOLUTE_POS
    const int i = (int)cube_position.x * 256 + (int)unit_position.x;
    // kernels.py:168: if i < out.shape[0]
    if (i < arguments.out_shape0) {
        // kernels.py:169: row = image[i][1:]
        const uint row = (uint)i * (uint)arguments.image_stride0 + 1u;
        // kernels.py:170: for k in range(out.shape[1])
        const int v1 = i * arguments.out_stride0;
        for (int k = 0; k < arguments.out_shape1; ++k) {
            // kernels.py:161: total += row[k + j] * (j + 1)
            const float v2 = fma(image[(int)(row + (uint)(k + 1))], 2.0f,
                    fma(image[(int)(row + (uint)k)], 1.0f, 0.0f));
            // kernels.py:162: return clamp(total * gain, 0.0, 1.0)
            const float v3 = fma(image[(int)(row + (uint)(k + 2))], 3.0f, v2) * arguments.gain;
            // kernels.py:154: return min(max(v, low), high)
            const float v4 = v3 != v3 ? v3 : (v3 == 0.0f ? (as_type<int>(v3) < 0 ? 0.0f : v3)
                    : (v3 > 0.0f ? v3 : 0.0f));
            const float v5 = v4 != v4 ? v4 : (v4 == 1.0f ? (as_type<int>(v4) < 0 ? v4 : 1.0f)
                    : (v4 < 1.0f ? v4 : 1.0f));
            // kernels.py:171: out[i][k] = shade(row, k, gain)
            out[v1 + k] = v5;
        }
    }
}
