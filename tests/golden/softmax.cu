static __device__ __forceinline__ float max_nan(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}

extern "C" __global__ void __launch_bounds__(256)
softmax(
    const float* __restrict__ x,
    long long x_shape0,
    long long x_shape1,
    long long x_stride0,
    float* __restrict__ out,
    long long out_shape0,
    long long out_shape1,
    long long out_stride0) {
    // kernels.py:111: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const long long cube_pos = ((long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x
            + blockIdx.x;
    const long long unit_x = (long long)threadIdx.x;
    const long long absolute_pos = cube_pos * 256 + unit_x;
    const long long row = absolute_pos / 32;
    // kernels.py:112: if row < x.shape[0]
    if (row < x_shape0) {
        // kernels.py:113: largest = x[row, 0]
        const long long v1 = row * x_stride0;
        const float largest = x[v1];
        // kernels.py:114: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const long long v2 = unit_x % 32;
        float largest_1 = largest;
        for (long long k = v2; k < x_shape1; k += 32) {
            // kernels.py:115: largest = max(largest, x[row, k])
            largest_1 = max_nan(largest_1, x[v1 + k]);
        }
        // kernels.py:116: largest = cp.plane_max(largest)
        const float v3 = __shfl_xor_sync(0xffffffffu, largest_1, 16);
        const float v4 = max_nan(largest_1, v3);
        const float v5 = __shfl_xor_sync(0xffffffffu, v4, 8);
        const float v6 = max_nan(v4, v5);
        const float v7 = __shfl_xor_sync(0xffffffffu, v6, 4);
        const float v8 = max_nan(v6, v7);
        const float v9 = __shfl_xor_sync(0xffffffffu, v8, 2);
        const float v10 = max_nan(v8, v9);
        const float v11 = __shfl_xor_sync(0xffffffffu, v10, 1);
        const float largest_2 = max_nan(v10, v11);
        // kernels.py:118: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        for (long long k1 = v2; k1 < x_shape1; k1 += 32) {
            // kernels.py:119: total += cp.exp(x[row, k] - largest)
            const float v12 = x[v1 + k1] - largest_2;
            const float v13 = v12 < -104.0f ? -104.0f : v12;
            const float v14 = v13 > 89.0f ? 89.0f : v13;
            const bool v15 = v14 < 0.0f;
            const float v16 = v15 ? 12583103.0f : 12582975.0f;
            const float v17 = fmaf(v14, 1.442695f, v16);
            const float v18 = v17 - v16;
            const float v19 = fmaf(v18, 1.9046542e-09f, fmaf(v18, -0.6931472f, v14));
            const float v20 = fmaf(fmaf(fmaf(v19, 0.0013818947f, 0.008368704f), v19, 0.04166829f),
                    v19, 0.16666521f);
            const float v21 = fmaf(v19, fmaf(fmaf(v20, v19, 0.49999994f), v19, 1.0f), 1.0f)
                    * __uint_as_float(__float_as_uint(v17) << 23u);
            total += v21 * (v15 ? 5.421011e-20f : 1.8446744e+19f);
        }
        // kernels.py:120: scale = 1 / cp.plane_sum(total)
        const float v22 = __shfl_xor_sync(0xffffffffu, total, 16);
        const float v23 = total + v22;
        const float v24 = __shfl_xor_sync(0xffffffffu, v23, 8);
        const float v25 = v23 + v24;
        const float v26 = __shfl_xor_sync(0xffffffffu, v25, 4);
        const float v27 = v25 + v26;
        const float v28 = __shfl_xor_sync(0xffffffffu, v27, 2);
        const float v29 = v27 + v28;
        const float v30 = __shfl_xor_sync(0xffffffffu, v29, 1);
        const float scale = 1.0f / (v29 + v30);
        // kernels.py:121: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const long long v31 = row * out_stride0;
        for (long long k2 = v2; k2 < x_shape1; k2 += 32) {
            // kernels.py:122: out[row, k] = cp.exp(x[row, k] - largest) * scale
            const float v32 = x[v1 + k2] - largest_2;
            const float v33 = v32 < -104.0f ? -104.0f : v32;
            const float v34 = v33 > 89.0f ? 89.0f : v33;
            const bool v35 = v34 < 0.0f;
            const float v36 = v35 ? 12583103.0f : 12582975.0f;
            const float v37 = fmaf(v34, 1.442695f, v36);
            const float v38 = v37 - v36;
            const float v39 = fmaf(v38, 1.9046542e-09f, fmaf(v38, -0.6931472f, v34));
            const float v40 = fmaf(fmaf(fmaf(v39, 0.0013818947f, 0.008368704f), v39, 0.04166829f),
                    v39, 0.16666521f);
            const float v41 = fmaf(v39, fmaf(fmaf(v40, v39, 0.49999994f), v39, 1.0f), 1.0f)
                    * __uint_as_float(__float_as_uint(v37) << 23u);
            out[v31 + k2] = v41 * (v35 ? 5.421011e-20f : 1.8446744e+19f) * scale;
        }
    }
}
