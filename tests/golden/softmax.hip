#pragma clang fp contract(off)

extern "C" __global__ void __launch_bounds__(256)
softmax(
    const float* __restrict__ x,
    int x_shape0,
    int x_shape1,
    int x_stride0,
    float* __restrict__ out,
    int out_stride0) {
    // kernels.py:111: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const int unit_x = (int)threadIdx.x;
    const int absolute_pos = (int)blockIdx.x * 256 + unit_x;
    const int row = absolute_pos >> 6;
    // kernels.py:112: if row < x.shape[0]
    if (row < x_shape0) {
        // kernels.py:113: largest = x[row, 0]
        const int v1 = row * x_stride0;
        const float largest = x[v1];
        // kernels.py:114: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const int v2 = unit_x & 63;
        float largest_1 = largest;
        for (int k = v2; k < x_shape1; k += 64) {
            // kernels.py:115: largest = max(largest, x[row, k])
            const float x1 = x[v1 + k];
            const float v3 = largest_1 == x1 ? (__float_as_int(largest_1) < 0 ? x1 : largest_1)
                    : (largest_1 > x1 ? largest_1 : x1);
            largest_1 = largest_1 != largest_1 ? largest_1 : v3;
        }
        // kernels.py:116: largest = cp.plane_max(largest)
        const float v4 = __shfl_xor(largest_1, (int)32);
        const float v5 = largest_1 == v4 ? (__float_as_int(largest_1) < 0 ? v4 : largest_1)
                : (largest_1 > v4 ? largest_1 : v4);
        const float v6 = largest_1 != largest_1 ? largest_1 : v5;
        const float v7 = __shfl_xor(v6, (int)16);
        const float v8 = v6 != v6 ? v6 : (v6 == v7 ? (__float_as_int(v6) < 0 ? v7 : v6)
                : (v6 > v7 ? v6 : v7));
        const float v9 = __shfl_xor(v8, (int)8);
        const float v10 = v8 != v8 ? v8 : (v8 == v9 ? (__float_as_int(v8) < 0 ? v9 : v8)
                : (v8 > v9 ? v8 : v9));
        const float v11 = __shfl_xor(v10, (int)4);
        const float v12 = v10 != v10 ? v10 : (v10 == v11 ? (__float_as_int(v10) < 0 ? v11 : v10)
                : (v10 > v11 ? v10 : v11));
        const float v13 = __shfl_xor(v12, (int)2);
        const float v14 = v12 != v12 ? v12 : (v12 == v13 ? (__float_as_int(v12) < 0 ? v13 : v12)
                : (v12 > v13 ? v12 : v13));
        const float v15 = __shfl_xor(v14, (int)1);
        const float largest_2 = v14 != v14 ? v14 : (v14 == v15
                ? (__float_as_int(v14) < 0 ? v15 : v14) : (v14 > v15 ? v14 : v15));
        // kernels.py:118: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        for (int k1 = v2; k1 < x_shape1; k1 += 64) {
            // kernels.py:119: total += cp.exp(x[row, k] - largest)
            const float v16 = x[v1 + k1] - largest_2;
            const float v17 = v16 > 89.0f ? 89.0f : v16;
            const bool v18 = v17 < 0.0f;
            const float v19 = v18 ? 12583103.0f : 12582975.0f;
            const float v20 = fmaf(v17, 1.442695f, v19);
            const float v21 = v20 - v19;
            const float v22 = fmaf(v21, 1.9046542e-09f, fmaf(v21, -0.6931472f, v17));
            const float v23 = fmaf(fmaf(fmaf(v22, 0.0013818947f, 0.008368704f), v22, 0.04166829f),
                    v22, 0.16666521f);
            const float v24 = fmaf(v22, fmaf(fmaf(v23, v22, 0.49999994f), v22, 1.0f), 1.0f)
                    * __uint_as_float(__float_as_uint(v20) << 23u);
            total += (v17 < -104.0f ? 0.0f : v24) * (v18 ? 5.421011e-20f : 1.8446744e+19f);
        }
        // kernels.py:120: scale = 1 / cp.plane_sum(total)
        const float v25 = __shfl_xor(total, (int)32);
        const float v26 = total + v25;
        const float v27 = __shfl_xor(v26, (int)16);
        const float v28 = v26 + v27;
        const float v29 = __shfl_xor(v28, (int)8);
        const float v30 = v28 + v29;
        const float v31 = __shfl_xor(v30, (int)4);
        const float v32 = v30 + v31;
        const float v33 = __shfl_xor(v32, (int)2);
        const float v34 = v32 + v33;
        const float v35 = __shfl_xor(v34, (int)1);
        const float scale = 1.0f / (v34 + v35);
        // kernels.py:121: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const unsigned int v36 = (unsigned int)row * (unsigned int)out_stride0;
        for (int k2 = v2; k2 < x_shape1; k2 += 64) {
            // kernels.py:122: out[row, k] = cp.exp(x[row, k] - largest) * scale
            const float v37 = x[v1 + k2] - largest_2;
            const float v38 = v37 > 89.0f ? 89.0f : v37;
            const bool v39 = v38 < 0.0f;
            const float v40 = v39 ? 12583103.0f : 12582975.0f;
            const float v41 = fmaf(v38, 1.442695f, v40);
            const float v42 = v41 - v40;
            const float v43 = fmaf(v42, 1.9046542e-09f, fmaf(v42, -0.6931472f, v38));
            const float v44 = fmaf(fmaf(fmaf(v43, 0.0013818947f, 0.008368704f), v43, 0.04166829f),
                    v43, 0.16666521f);
            const float v45 = fmaf(v43, fmaf(fmaf(v44, v43, 0.49999994f), v43, 1.0f), 1.0f)
                    * __uint_as_float(__float_as_uint(v41) << 23u);
            out[(int)(v36 + (unsigned int)k2)] = (v38 < -104.0f ? 0.0f : v45)
                    * (v39 ? 5.421011e-20f : 1.8446744e+19f) * scale;
        }
    }
}
