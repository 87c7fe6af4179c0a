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
            const float v3 = largest_1 == x1
                    ? as_type<float>(as_type<uint>(largest_1) & as_type<uint>(x1))
                    : (largest_1 > x1 ? largest_1 : x1);
            largest_1 = largest_1 != largest_1 ? largest_1 : v3;
        }
        // kernels.py:116: largest = cp.plane_max(largest)
        const float v4 = simd_shuffle_xor(largest_1, (ushort)16);
        const float v5 = largest_1 == v4
                ? as_type<float>(as_type<uint>(largest_1) & as_type<uint>(v4))
                : (largest_1 > v4 ? largest_1 : v4);
        const float v6 = largest_1 != largest_1 ? largest_1 : v5;
        const float v7 = simd_shuffle_xor(v6, (ushort)8);
        const float v8 = v6 == v7 ? as_type<float>(as_type<uint>(v6) & as_type<uint>(v7))
                : (v6 > v7 ? v6 : v7);
        const float v9 = v6 != v6 ? v6 : v8;
        const float v10 = simd_shuffle_xor(v9, (ushort)4);
        const float v11 = v9 == v10 ? as_type<float>(as_type<uint>(v9) & as_type<uint>(v10))
                : (v9 > v10 ? v9 : v10);
        const float v12 = v9 != v9 ? v9 : v11;
        const float v13 = simd_shuffle_xor(v12, (ushort)2);
        const float v14 = v12 == v13 ? as_type<float>(as_type<uint>(v12) & as_type<uint>(v13))
                : (v12 > v13 ? v12 : v13);
        const float v15 = v12 != v12 ? v12 : v14;
        const float v16 = simd_shuffle_xor(v15, (ushort)1);
        const float v17 = v15 == v16 ? as_type<float>(as_type<uint>(v15) & as_type<uint>(v16))
                : (v15 > v16 ? v15 : v16);
        const float largest_2 = v15 != v15 ? v15 : v17;
        // kernels.py:118: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        for (int k1 = v2; k1 < arguments.x_shape1; k1 += 32) {
            // kernels.py:119: total += cp.exp(x[row, k] - largest)
            const float v18 = x[v1 + k1] - largest_2;
            const float v19 = v18 > 89.0f ? 89.0f : v18;
            const bool v20 = v19 < 0.0f;
            const float v21 = v20 ? 12583103.0f : 12582975.0f;
            const float v22 = fma(v19, 1.442695f, v21);
            const float v23 = v22 - v21;
            const float v24 = fma(v23, 1.9046542e-09f, fma(v23, -0.6931472f, v19));
            const float v25 = fma(fma(fma(v24, 0.0013818947f, 0.008368704f), v24, 0.04166829f), v24,
                    0.16666521f);
            const float v26 = fma(v24, fma(fma(v25, v24, 0.49999994f), v24, 1.0f), 1.0f)
                    * as_type<float>(as_type<uint>(v22) << 23u);
            total += (v19 < -104.0f ? 0.0f : v26) * (v20 ? 5.421011e-20f : 1.8446744e+19f);
        }
        // kernels.py:120: scale = 1 / cp.plane_sum(total)
        const float v27 = simd_shuffle_xor(total, (ushort)16);
        const float v28 = total + v27;
        const float v29 = simd_shuffle_xor(v28, (ushort)8);
        const float v30 = v28 + v29;
        const float v31 = simd_shuffle_xor(v30, (ushort)4);
        const float v32 = v30 + v31;
        const float v33 = simd_shuffle_xor(v32, (ushort)2);
        const float v34 = v32 + v33;
        const float v35 = simd_shuffle_xor(v34, (ushort)1);
        const float scale = 1.0f / (v34 + v35);
        // kernels.py:121: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const uint v36 = (uint)row * (uint)arguments.out_stride0;
        for (int k2 = v2; k2 < arguments.x_shape1; k2 += 32) {
            // kernels.py:122: out[row, k] = cp.exp(x[row, k] - largest) * scale
            const float v37 = x[v1 + k2] - largest_2;
            const float v38 = v37 > 89.0f ? 89.0f : v37;
            const bool v39 = v38 < 0.0f;
            const float v40 = v39 ? 12583103.0f : 12582975.0f;
            const float v41 = fma(v38, 1.442695f, v40);
            const float v42 = v41 - v40;
            const float v43 = fma(v42, 1.9046542e-09f, fma(v42, -0.6931472f, v38));
            const float v44 = fma(fma(fma(v43, 0.0013818947f, 0.008368704f), v43, 0.04166829f), v43,
                    0.16666521f);
            const float v45 = fma(v43, fma(fma(v44, v43, 0.49999994f), v43, 1.0f), 1.0f)
                    * as_type<float>(as_type<uint>(v41) << 23u);
            out[(int)(v36 + (uint)k2)] = (v38 < -104.0f ? 0.0f : v45)
                    * (v39 ? 5.421011e-20f : 1.8446744e+19f) * scale;
        }
    }
}
