static __device__ __forceinline__ void sync_dependencies() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(256)
tree_sum(const float* __restrict__ x, int x_shape0, float* __restrict__ partial) {
    sync_dependencies();
    __shared__ __align__(16) float sums[256];
    // kernels.py:67: unit, units = cp.UNIT_POS, cp.CUBE_DIM
    const int unit = (int)threadIdx.x;
    // kernels.py:70: for i in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * units)
    const int cube_x = (int)blockIdx.x;
    const int absolute_pos = cube_x * 256 + unit;
    const int v1 = (int)gridDim.x * 256;
    float total = 0.0f;
    for (int i = absolute_pos; i < x_shape0; i += v1) {
        // kernels.py:71: total += x[i]
        total += x[i];
    }
    // kernels.py:72: sums[unit] = total
    sums[unit] = total;
    // kernels.py:73: cp.sync_cube()
    __syncthreads();
    // kernels.py:75: while half > 0
    int half_1 = 128;
    while (half_1 > 0) {
        // kernels.py:76: if unit < half
        const int v2 = half_1;
        if (unit < v2) {
            // kernels.py:77: sums[unit] += sums[unit + half]
            sums[unit] += sums[(int)((unsigned int)unit + (unsigned int)v2)];
        }
        // kernels.py:78: cp.sync_cube()
        __syncthreads();
        // kernels.py:79: half //= 2
        half_1 >>= 1;
    }
    // kernels.py:80: if unit == 0
    if (unit == 0) {
        // kernels.py:81: partial[cp.CUBE_POS] = sums[0]
        partial[cube_x] = sums[0];
    }
}
