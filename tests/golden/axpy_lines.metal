#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) float alpha;
    alignas(8) int x_shape0;
    alignas(8) int y_shape0;
};

static inline bool4 lane_mask_4(long first, long end) {
    return bool4(first <= 0 && 0 < end, first <= 1 && 1 < end, first <= 2 && 2 < end,
            first <= 3 && 3 < end);
}

static inline float4 load_masked_f32x4_global(const device float* from, bool4 mask, float4 fill) {
    return float4(mask.x ? from[0] : fill.x, mask.y ? from[1] : fill.y, mask.z ? from[2] : fill.z,
            mask.w ? from[3] : fill.w);
}

static inline void store_masked_f32x4_global(device float* to, float4 value, bool4 mask) {
    if (mask.x) to[0] = value.x;
    if (mask.y) to[1] = value.y;
    if (mask.z) to[2] = value.z;
    if (mask.w) to[3] = value.w;
}

[[max_total_threads_per_threadgroup(256)]]
kernel void axpy_lines(
    device const float* x [[buffer(0)]],
    device float* y [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    // kernels.py:27: i = cp.ABSOLUTE_POS
    const int i = (int)cube_position.x * 256 + (int)unit_position.x;
    // kernels.py:28: if i < y.size
    if (i < ((arguments.y_shape0 + 3) >> 2)) {
        // kernels.py:29: y[i] = alpha * x[i] + y[i]
        const int v1 = i * 4;
        const int v2 = arguments.x_shape0 - v1;
        float4 x1;
        if (v2 >= 4) {
            x1 = *(const device float4*)(x + v1);
        } else {
            x1 = load_masked_f32x4_global(x + v1, lane_mask_4(0l, (long)v2), float4(0.0f));
        }
        const int v3 = arguments.y_shape0 - v1;
        const bool v4 = v3 >= 4;
        const float4 v5 = float4(arguments.alpha);
        float4 y2;
        if (v4) {
            y2 = *(const device float4*)(y + v1);
        } else {
            y2 = load_masked_f32x4_global(y + v1, lane_mask_4(0l, (long)v3), float4(0.0f));
        }
        const float4 v6 = fma(v5, x1, y2);
        if (v4) {
            *(device float4*)(y + v1) = v6;
        } else {
            store_masked_f32x4_global(y + v1, v6, lane_mask_4(0l, (long)v3));
        }
    }
}
