#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void softmax(
    __global const float* restrict x,
    long x_shape0,
    long x_shape1,
    long x_stride0,
    __global float* restrict out,
    long out_shape0,
    long out_shape1,
    long out_stride0) {
    // kernels.py:111: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const long v1 = ((long)get_group_id(2) * (long)get_num_groups(1) + (long)get_group_id(1))
            * (long)get_num_groups(0);
    const long cube_pos = v1 + (long)get_group_id(0);
    const long absolute_pos = cube_pos * 256 + (long)get_local_id(0);
    // kernels.py:112: if row < x.shape[0]
    if (absolute_pos < x_shape0) {
        // kernels.py:113: largest = x[row, 0]
        const long v2 = absolute_pos * x_stride0;
        const float largest = x[v2];
        // kernels.py:114: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float largest_1 = largest;
        for (long k = 0; k < x_shape1; ++k) {
            // kernels.py:115: largest = max(largest, x[row, k])
            const float x1 = x[v2 + k];
            const float v3 = largest_1 == x1 ? as_float(as_uint(largest_1) & as_uint(x1))
                    : (largest_1 > x1 ? largest_1 : x1);
            largest_1 = largest_1 != largest_1 ? largest_1 : v3;
        }
        // kernels.py:118: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        for (long k1 = 0; k1 < x_shape1; ++k1) {
            // kernels.py:119: total += cp.exp(x[row, k] - largest)
            const float v4 = x[v2 + k1] - largest_1;
            const float v5 = v4 < -104.0f ? -104.0f : v4;
            const float v6 = v5 > 89.0f ? 89.0f : v5;
            const bool v7 = v6 < 0.0f;
            const float v8 = v7 ? 12583103.0f : 12582975.0f;
            const float v9 = fma(v6, 1.442695f, v8);
            const float v10 = v9 - v8;
            const float v11 = fma(v10, 1.9046542e-09f, fma(v10, -0.6931472f, v6));
            const float v12 = fma(fma(fma(v11, 0.0013818947f, 0.008368704f), v11, 0.04166829f), v11,
                    0.16666521f);
            const float v13 = fma(v11, fma(fma(v12, v11, 0.49999994f), v11, 1.0f), 1.0f)
                    * as_float(as_uint(v9) << 23u);
            total += v13 * (v7 ? 5.421011e-20f : 1.8446744e+19f);
        }
        // kernels.py:120: scale = 1 / cp.plane_sum(total)
        const float scale = 1.0f / total;
        // kernels.py:121: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const long v14 = absolute_pos * out_stride0;
        for (long k2 = 0; k2 < x_shape1; ++k2) {
            // kernels.py:122: out[row, k] = cp.exp(x[row, k] - largest) * scale
            const float v15 = x[v2 + k2] - largest_1;
            const float v16 = v15 < -104.0f ? -104.0f : v15;
            const float v17 = v16 > 89.0f ? 89.0f : v16;
            const bool v18 = v17 < 0.0f;
            const float v19 = v18 ? 12583103.0f : 12582975.0f;
            const float v20 = fma(v17, 1.442695f, v19);
            const float v21 = v20 - v19;
            const float v22 = fma(v21, 1.9046542e-09f, fma(v21, -0.6931472f, v17));
            const float v23 = fma(fma(fma(v22, 0.0013818947f, 0.008368704f), v22, 0.04166829f), v22,
                    0.16666521f);
            const float v24 = fma(v22, fma(fma(v23, v22, 0.49999994f), v22, 1.0f), 1.0f)
                    * as_float(as_uint(v20) << 23u);
            out[v14 + k2] = v24 * (v18 ? 5.421011e-20f : 1.8446744e+19f) * scale;
        }
    }
}
