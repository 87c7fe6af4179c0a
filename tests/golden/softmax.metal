#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int x_shape0;
    alignas(8) int x_shape1;
    alignas(8) int x_stride0;
    alignas(8) int out_stride0;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void softmax(
    device const float* x [[buffer(0)]],
    device float* out [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    // kernels.py:111: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const int unit_x = (int)unit_position.x;
    const int absolute_pos = (int)cube_position.x * 256 + unit_x;
    const int row = absolute_pos >> 5;
    // kernels.py:112: if row < x.shape[0]
    if (row < arguments.x_shape0) {
        // kernels.py:113: largest = x[row, 0]
        const int v1 = row * arguments.x_stride0;
        const float largest = x[v1];
        // kernels.py:114: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const int v2 = unit_x & 31;
        float largest_1 = largest;
        for (int k = v2; k < arguments.x_shape1; k += 32) {
            // kernels.py:115: largest = max(largest, x[row, k])
            const float x1 = x[v1 + k];
            const float v3 = largest_1 == x1 ? (as_type<int>(largest_1) < 0 ? x1 : largest_1)
                    : (largest_1 > x1 ? largest_1 : x1);
            largest_1 = largest_1 != largest_1 ? largest_1 : v3;
        }
        // kernels.py:116: largest = cp.plane_max(largest)
        const float v4 = simd_shuffle_xor(largest_1, (ushort)16);
        const float v5 = largest_1 == v4 ? (as_type<int>(largest_1) < 0 ? v4 : largest_1)
                : (largest_1 > v4 ? largest_1 : v4);
        const float v6 = largest_1 != largest_1 ? largest_1 : v5;
        const float v7 = simd_shuffle_xor(v6, (ushort)8);
        const float v8 = v6 != v6 ? v6 : (v6 == v7 ? (as_type<int>(v6) < 0 ? v7 : v6)
                : (v6 > v7 ? v6 : v7));
        const float v9 = simd_shuffle_xor(v8, (ushort)4);
        const float v10 = v8 != v8 ? v8 : (v8 == v9 ? (as_type<int>(v8) < 0 ? v9 : v8)
                : (v8 > v9 ? v8 : v9));
        const float v11 = simd_shuffle_xor(v10, (ushort)2);
        const float v12 = v10 != v10 ? v10 : (v10 == v11 ? (as_type<int>(v10) < 0 ? v11 : v10)
                : (v10 > v11 ? v10 : v11));
        const float v13 = simd_shuffle_xor(v12, (ushort)1);
        const float largest_2 = v12 != v12 ? v12 : (v12 == v13 ? (as_type<int>(v12) < 0 ? v13 : v12)
                : (v12 > v13 ? v12 : v13));
        // kernels.py:118: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        for (int k1 = v2; k1 < arguments.x_shape1; k1 += 32) {
            // kernels.py:119: total += cp.exp(x[row, k] - largest)
            const float v14 = x[v1 + k1] - largest_2;
            const float v15 = v14 > 89.0f ? 89.0f : v14;
            const bool v16 = v15 < 0.0f;
            const float v17 = v16 ? 12583103.0f : 12582975.0f;
            const float v18 = fma(v15, 1.442695f, v17);
            const float v19 = v18 - v17;
            const float v20 = fma(v19, 1.9046542e-09f, fma(v19, -0.6931472f, v15));
            const float v21 = fma(fma(fma(v20, 0.0013818947f, 0.008368704f), v20, 0.04166829f), v20,
                    0.16666521f);
            const float v22 = fma(v20, fma(fma(v21, v20, 0.49999994f), v20, 1.0f), 1.0f)
                    * as_type<float>(as_type<uint>(v18) << 23u);
            total += (v15 < -104.0f ? 0.0f : v22) * (v16 ? 5.421011e-20f : 1.8446744e+19f);
        }
        // kernels.py:120: scale = 1 / cp.plane_sum(total)
        const float v23 = simd_shuffle_xor(total, (ushort)16);
        const float v24 = total + v23;
        const float v25 = simd_shuffle_xor(v24, (ushort)8);
        const float v26 = v24 + v25;
        const float v27 = simd_shuffle_xor(v26, (ushort)4);
        const float v28 = v26 + v27;
        const float v29 = simd_shuffle_xor(v28, (ushort)2);
        const float v30 = v28 + v29;
        const float v31 = simd_shuffle_xor(v30, (ushort)1);
        const float scale = 1.0f / (v30 + v31);
        // kernels.py:121: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const uint v32 = (uint)row * (uint)arguments.out_stride0;
        for (int k2 = v2; k2 < arguments.x_shape1; k2 += 32) {
            // kernels.py:122: out[row, k] = cp.exp(x[row, k] - largest) * scale
            const float v33 = x[v1 + k2] - largest_2;
            const float v34 = v33 > 89.0f ? 89.0f : v33;
            const bool v35 = v34 < 0.0f;
            const float v36 = v35 ? 12583103.0f : 12582975.0f;
            const float v37 = fma(v34, 1.442695f, v36);
            const float v38 = v37 - v36;
            const float v39 = fma(v38, 1.9046542e-09f, fma(v38, -0.6931472f, v34));
            const float v40 = fma(fma(fma(v39, 0.0013818947f, 0.008368704f), v39, 0.04166829f), v39,
                    0.16666521f);
            const float v41 = fma(v39, fma(fma(v40, v39, 0.49999994f), v39, 1.0f), 1.0f)
                    * as_type<float>(as_type<uint>(v37) << 23u);
            out[(int)(v32 + (uint)k2)] = (v34 < -104.0f ? 0.0f : v41)
                    * (v35 ? 5.421011e-20f : 1.8446744e+19f) * scale;
        }
    }
}
