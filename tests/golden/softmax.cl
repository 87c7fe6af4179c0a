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
            const float v2 = largest_1 == x1 ? as_float(as_uint(largest_1) & as_uint(x1))
                    : (largest_1 > x1 ? largest_1 : x1);
            largest_1 = largest_1 != largest_1 ? largest_1 : v2;
        }
        // kernels.py:118: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        for (int k1 = 0; k1 < x_shape1; ++k1) {
            // kernels.py:119: total += cp.exp(x[row, k] - largest)
            const float v3 = x[v1 + k1] - largest_1;
            const float v4 = v3 < -104.0f ? -104.0f : v3;
            const float v5 = v4 > 89.0f ? 89.0f : v4;
            const bool v6 = v5 < 0.0f;
            const float v7 = v6 ? 12583103.0f : 12582975.0f;
            const float v8 = fma(v5, 1.442695f, v7);
            const float v9 = v8 - v7;
            const float v10 = fma(v9, 1.9046542e-09f, fma(v9, -0.6931472f, v5));
            const float v11 = fma(fma(fma(v10, 0.0013818947f, 0.008368704f), v10, 0.04166829f), v10,
                    0.16666521f);
            const float v12 = fma(v10, fma(fma(v11, v10, 0.49999994f), v10, 1.0f), 1.0f)
                    * as_float(as_uint(v8) << 23u);
            total += v12 * (v6 ? 5.421011e-20f : 1.8446744e+19f);
        }
        // kernels.py:120: scale = 1 / cp.plane_sum(total)
        const float scale = 1.0f / total;
        // kernels.py:121: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const uint v13 = (uint)absolute_pos * (uint)out_stride0;
        for (int k2 = 0; k2 < x_shape1; ++k2) {
            // kernels.py:122: out[row, k] = cp.exp(x[row, k] - largest) * scale
            const float v14 = x[v1 + k2] - largest_1;
            const float v15 = v14 < -104.0f ? -104.0f : v14;
            const float v16 = v15 > 89.0f ? 89.0f : v15;
            const bool v17 = v16 < 0.0f;
            const float v18 = v17 ? 12583103.0f : 12582975.0f;
            const float v19 = fma(v16, 1.442695f, v18);
            const float v20 = v19 - v18;
            const float v21 = fma(v20, 1.9046542e-09f, fma(v20, -0.6931472f, v16));
            const float v22 = fma(fma(fma(v21, 0.0013818947f, 0.008368704f), v21, 0.04166829f), v21,
                    0.16666521f);
            const float v23 = fma(v21, fma(fma(v22, v21, 0.49999994f), v21, 1.0f), 1.0f)
                    * as_float(as_uint(v19) << 23u);
            out[(int)(v13 + (uint)k2)] = v23 * (v17 ? 5.421011e-20f : 1.8446744e+19f) * scale;
        }
    }
}
