#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int out_shape0;
};

static inline float4 select_f32x4_mask(bool4 a, float4 b, float4 c) {
    return float4(a.x ? b.x : c.x, a.y ? b.y : c.y, a.z ? b.z : c.z, a.w ? b.w : c.w);
}

[[max_total_threads_per_threadgroup(256)]]
kernel void gelu_lines(
    device const float* x [[buffer(0)]],
    device float* out [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    // kernels.py:20: i = cp.ABSOLUTE_POS
    const int i = (int)cube_position.x * 256 + (int)unit_position.x;
    // kernels.py:21: if i < out.size
    if (i < ((arguments.out_shape0 + 3) >> 2)) {
        // kernels.py:22: out.flat[i] = gelu(x.flat[i])
        const int v1 = i * 4;
        const float4 x1 = *(const device float4*)(x + v1);
        // kernels.py:15: return v * 0.5 * (1 + cp.tanh(0.7978845608 * (v + 0.044715 * v * v * v)))
        const float4 v2 = float4(0.7978846f) * fma(float4(0.044715f) * x1 * x1, x1, x1);
        const float4 v3 = fabs(v2);
        const float4 v4 = float4(9.1f);
        const float4 v5 = select_f32x4_mask(v3 > v4, v4, v3);
        const float4 v6 = v5 + v5;
        const float4 v7 = float4(12583039.0f);
        const float4 v8 = fma(v6, float4(1.442695f), v7);
        const float4 v9 = v8 - v7;
        const float4 v10 = fma(v9, float4(1.9046542e-09f), fma(v9, float4(-0.6931472f), v6));
        const float4 v11 = fma(fma(v10, float4(0.0013868089f), float4(0.008366431f)), v10,
                float4(0.041667465f));
        const float4 v12 = fma(v10 * v10, fma(fma(v11, v10, float4(0.16666545f)), v10,
                float4(0.49999997f)), v10);
        const float4 v13 = as_type<float4>(as_type<uint4>(v8) << uint4(23u));
        const float4 v14 = float4(1.0f);
        const float4 v15 = fma(v13, v12, v13 - v14);
        // kernels.py:22: out.flat[i] = gelu(x.flat[i])
        *(device float4*)(out + v1) = x1 * float4(0.5f)
                * (v14 + copysign(v15 / (v15 + float4(2.0f)), v2));
    }
}
