static __device__ __forceinline__ void sync_dependencies() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(256)
row_sums(
    const float* __restrict__ x,
    int x_shape0,
    int x_shape1,
    int x_stride0,
    float* __restrict__ out) {
    sync_dependencies();
    // kernels.py:86: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const int unit_x = (int)threadIdx.x;
    const int absolute_pos = (int)blockIdx.x * 256 + unit_x;
    const int row = absolute_pos >> 5;
    // kernels.py:87: if row < x.shape[0]
    if (row < x_shape0) {
        // kernels.py:89: for column in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        const int v1 = row * x_stride0;
        for (int column = unit_x & 31; column < x_shape1; column += 32) {
            // kernels.py:90: total += x[row, column]
            total += x[v1 + column];
        }
        // kernels.py:91: total = cp.plane_sum(total)
        const float v2 = __shfl_xor_sync(0xffffffffu, total, 16);
        const float v3 = total + v2;
        const float v4 = __shfl_xor_sync(0xffffffffu, v3, 8);
        const float v5 = v3 + v4;
        const float v6 = __shfl_xor_sync(0xffffffffu, v5, 4);
        const float v7 = v5 + v6;
        const float v8 = __shfl_xor_sync(0xffffffffu, v7, 2);
        const float v9 = v7 + v8;
        const float v10 = __shfl_xor_sync(0xffffffffu, v9, 1);
        const float total_1 = v9 + v10;
        // kernels.py:92: if cp.plane_elect()
        if (((long long)threadIdx.x & 31ll) == 0) {
            // kernels.py:93: out[row] = total
            out[row] = total_1;
        }
    }
}
