#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void softmax(
    __global const float* restrict x,
    int x_shape0,
    int x_shape1,
    int x_stride0,
    __global float* restrict out,
    int out_stride0) {
    // kernels.py:111: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const int absolute_pos = (int)get_group_id(0) * 256 + (int)get_local_id(0);
    // kernels.py:112: if row < x.shape[0]
    if (absolute_pos < x_shape0) {
        // kernels.py:113: largest = x[row, 0]
        const int v1 = absolute_pos * x_stride0;
        const float largest = x[v1];
        // kernels.py:114: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float largest_1 = largest;
        for (int k = 0; k < x_shape1; ++k) {
            // kernels.py:115: largest = max(largest, x[row, k])
            const float x1 = x[v1 + k];
            const float v2 = largest_1 == x1 ? (as_int(largest_1) < 0 ? x1 : largest_1)
                    : (largest_1 > x1 ? largest_1 : x1);
            largest_1 = largest_1 != largest_1 ? largest_1 : v2;
        }
        // kernels.py:118: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        for (int k1 = 0; k1 < x_shape1; ++k1) {
            // kernels.py:119: total += cp.exp(x[row, k] - largest)
            const float v3 = x[v1 + k1] - largest_1;
            const float v4 = v3 > 89.0f ? 89.0f : v3;
            const bool v5 = v4 < 0.0f;
            const float v6 = v5 ? 12583103.0f : 12582975.0f;
            const float v7 = fma(v4, 1.442695f, v6);
            const float v8 = v7 - v6;
            const float v9 = fma(v8, 1.9046542e-09f, fma(v8, -0.6931472f, v4));
            const float v10 = fma(fma(fma(fma(v9, 0.0013818947f, 0.008368704f), v9, 0.04166829f),
                    v9, 0.16666521f), v9, 0.49999994f);
            const float v11 = v4 < -104.0f ? 0.0f : fma(v9, fma(v10, v9, 1.0f), 1.0f)
                    * as_float(as_uint(v7) << 23u);
            total += v11 * (v5 ? 5.421011e-20f : 1.8446744e+19f);
        }
        // kernels.py:120: scale = 1 / cp.plane_sum(total)
        const float scale = 1.0f / total;
        // kernels.py:121: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const uint v12 = (uint)absolute_pos * (uint)out_stride0;
        for (int k2 = 0; k2 < x_shape1; ++k2) {
            // kernels.py:122: out[row, k] = cp.exp(x[row, k] - largest) * scale
            const float v13 = x[v1 + k2] - largest_1;
            const float v14 = v13 > 89.0f ? 89.0f : v13;
            const bool v15 = v14 < 0.0f;
            const float v16 = v15 ? 12583103.0f : 12582975.0f;
            const float v17 = fma(v14, 1.442695f, v16);
            const float v18 = v17 - v16;
            const float v19 = fma(v18, 1.9046542e-09f, fma(v18, -0.6931472f, v14));
            const float v20 = fma(fma(fma(v19, 0.0013818947f, 0.008368704f), v19, 0.04166829f), v19,
                    0.16666521f);
            const float v21 = fma(v19, fma(fma(v20, v19, 0.49999994f), v19, 1.0f), 1.0f)
                    * as_float(as_uint(v17) << 23u);
            out[(int)(v12 + (uint)k2)] = (v14 < -104.0f ? 0.0f : v21)
                    * (v15 ? 5.421011e-20f : 1.8446744e+19f) * scale;
        }
    }
}
