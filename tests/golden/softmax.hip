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
            const float v3 = largest_1 == x1
                    ? __uint_as_float(__float_as_uint(largest_1) & __float_as_uint(x1))
                    : (largest_1 > x1 ? largest_1 : x1);
            largest_1 = largest_1 != largest_1 ? largest_1 : v3;
        }
        // kernels.py:116: largest = cp.plane_max(largest)
        const float v4 = __shfl_xor(largest_1, (int)32);
        const float v5 = largest_1 == v4
                ? __uint_as_float(__float_as_uint(largest_1) & __float_as_uint(v4))
                : (largest_1 > v4 ? largest_1 : v4);
        const float v6 = largest_1 != largest_1 ? largest_1 : v5;
        const float v7 = __shfl_xor(v6, (int)16);
        const float v8 = v6 == v7 ? __uint_as_float(__float_as_uint(v6) & __float_as_uint(v7))
                : (v6 > v7 ? v6 : v7);
        const float v9 = v6 != v6 ? v6 : v8;
        const float v10 = __shfl_xor(v9, (int)8);
        const float v11 = v9 == v10 ? __uint_as_float(__float_as_uint(v9) & __float_as_uint(v10))
                : (v9 > v10 ? v9 : v10);
        const float v12 = v9 != v9 ? v9 : v11;
        const float v13 = __shfl_xor(v12, (int)4);
        const float v14 = v12 == v13 ? __uint_as_float(__float_as_uint(v12) & __float_as_uint(v13))
                : (v12 > v13 ? v12 : v13);
        const float v15 = v12 != v12 ? v12 : v14;
        const float v16 = __shfl_xor(v15, (int)2);
        const float v17 = v15 == v16 ? __uint_as_float(__float_as_uint(v15) & __float_as_uint(v16))
                : (v15 > v16 ? v15 : v16);
        const float v18 = v15 != v15 ? v15 : v17;
        const float v19 = __shfl_xor(v18, (int)1);
        const float v20 = v18 == v19 ? __uint_as_float(__float_as_uint(v18) & __float_as_uint(v19))
                : (v18 > v19 ? v18 : v19);
        const float largest_2 = v18 != v18 ? v18 : v20;
        // kernels.py:118: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        for (int k1 = v2; k1 < x_shape1; k1 += 64) {
            // kernels.py:119: total += cp.exp(x[row, k] - largest)
            const float v21 = x[v1 + k1] - largest_2;
            const float v22 = v21 > 89.0f ? 89.0f : v21;
            const bool v23 = v22 < 0.0f;
            const float v24 = v23 ? 12583103.0f : 12582975.0f;
            const float v25 = fmaf(v22, 1.442695f, v24);
            const float v26 = v25 - v24;
            const float v27 = fmaf(v26, 1.9046542e-09f, fmaf(v26, -0.6931472f, v22));
            const float v28 = fmaf(fmaf(fmaf(v27, 0.0013818947f, 0.008368704f), v27, 0.04166829f),
                    v27, 0.16666521f);
            const float v29 = fmaf(v27, fmaf(fmaf(v28, v27, 0.49999994f), v27, 1.0f), 1.0f)
                    * __uint_as_float(__float_as_uint(v25) << 23u);
            total += (v22 < -104.0f ? 0.0f : v29) * (v23 ? 5.421011e-20f : 1.8446744e+19f);
        }
        // kernels.py:120: scale = 1 / cp.plane_sum(total)
        const float v30 = __shfl_xor(total, (int)32);
        const float v31 = total + v30;
        const float v32 = __shfl_xor(v31, (int)16);
        const float v33 = v31 + v32;
        const float v34 = __shfl_xor(v33, (int)8);
        const float v35 = v33 + v34;
        const float v36 = __shfl_xor(v35, (int)4);
        const float v37 = v35 + v36;
        const float v38 = __shfl_xor(v37, (int)2);
        const float v39 = v37 + v38;
        const float v40 = __shfl_xor(v39, (int)1);
        const float scale = 1.0f / (v39 + v40);
        // kernels.py:121: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const unsigned int v41 = (unsigned int)row * (unsigned int)out_stride0;
        for (int k2 = v2; k2 < x_shape1; k2 += 64) {
            // kernels.py:122: out[row, k] = cp.exp(x[row, k] - largest) * scale
            const float v42 = x[v1 + k2] - largest_2;
            const float v43 = v42 > 89.0f ? 89.0f : v42;
            const bool v44 = v43 < 0.0f;
            const float v45 = v44 ? 12583103.0f : 12582975.0f;
            const float v46 = fmaf(v43, 1.442695f, v45);
            const float v47 = v46 - v45;
            const float v48 = fmaf(v47, 1.9046542e-09f, fmaf(v47, -0.6931472f, v43));
            const float v49 = fmaf(fmaf(fmaf(v48, 0.0013818947f, 0.008368704f), v48, 0.04166829f),
                    v48, 0.16666521f);
            const float v50 = fmaf(v48, fmaf(fmaf(v49, v48, 0.49999994f), v48, 1.0f), 1.0f)
                    * __uint_as_float(__float_as_uint(v46) << 23u);
            out[(int)(v41 + (unsigned int)k2)] = (v43 < -104.0f ? 0.0f : v50)
                    * (v44 ? 5.421011e-20f : 1.8446744e+19f) * scale;
        }
    }
}
