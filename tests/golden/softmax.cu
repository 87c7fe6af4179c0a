static __device__ __forceinline__ void sync_dependencies() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

static __device__ __forceinline__ float max_nan(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}

extern "C" __global__ void __launch_bounds__(256)
softmax(
    const float* __restrict__ x,
    int x_shape0,
    int x_shape1,
    int x_stride0,
    float* __restrict__ out,
    int out_stride0) {
    sync_dependencies();
    // kernels.py:111: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const int unit_x = (int)threadIdx.x;
    const int absolute_pos = (int)blockIdx.x * 256 + unit_x;
    const int row = absolute_pos >> 5;
    // kernels.py:112: if row < x.shape[0]
    if (row < x_shape0) {
        // kernels.py:113: largest = x[row, 0]
        const int v1 = row * x_stride0;
        const float largest = x[v1];
        // kernels.py:114: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const int v2 = unit_x & 31;
        float largest_1 = largest;
        for (int k = v2; k < x_shape1; k += 32) {
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
        for (int k1 = v2; k1 < x_shape1; k1 += 32) {
            // kernels.py:119: total += cp.exp(x[row, k] - largest)
            total += expf(x[v1 + k1] - largest_2);
        }
        // kernels.py:120: scale = 1 / cp.plane_sum(total)
        const float v12 = __shfl_xor_sync(0xffffffffu, total, 16);
        const float v13 = total + v12;
        const float v14 = __shfl_xor_sync(0xffffffffu, v13, 8);
        const float v15 = v13 + v14;
        const float v16 = __shfl_xor_sync(0xffffffffu, v15, 4);
        const float v17 = v15 + v16;
        const float v18 = __shfl_xor_sync(0xffffffffu, v17, 2);
        const float v19 = v17 + v18;
        const float v20 = __shfl_xor_sync(0xffffffffu, v19, 1);
        const float scale = 1.0f / (v19 + v20);
        // kernels.py:121: for k in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const unsigned int v21 = (unsigned int)row * (unsigned int)out_stride0;
        for (int k2 = v2; k2 < x_shape1; k2 += 32) {
            // kernels.py:122: out[row, k] = cp.exp(x[row, k] - largest) * scale
            out[(int)(v21 + (unsigned int)k2)] = expf(x[v1 + k2] - largest_2) * scale;
        }
    }
}
