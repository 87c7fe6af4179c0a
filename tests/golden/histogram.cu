static __device__ __forceinline__ void sync_dependencies() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(256)
histogram(const unsigned char* __restrict__ x, int x_shape0, int* __restrict__ counts) {
    sync_dependencies();
    __shared__ __align__(16) int local[256];
    // kernels.py:99: for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM)
    const int unit_x = (int)threadIdx.x;
    for (int k = unit_x; k < 256; k += 256) {
        // kernels.py:100: local[k] = 0
        local[k] = 0;
    }
    // kernels.py:101: cp.sync_cube()
    __syncthreads();
    // kernels.py:102: for i in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * cp.CUBE_DIM)
    const int absolute_pos = (int)blockIdx.x * 256 + unit_x;
    const int v1 = (int)gridDim.x * 256;
    for (int i = absolute_pos; i < x_shape0; i += v1) {
        // kernels.py:103: cp.atomic.add(local, cp.i32(x[i]), 1)
        atomicAdd(&local[(int)x[i]], 1);
    }
    // kernels.py:104: cp.sync_cube()
    __syncthreads();
    // kernels.py:105: for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM)
    for (int k1 = unit_x; k1 < 256; k1 += 256) {
        // kernels.py:106: cp.atomic.add(counts, k, local[k])
        atomicAdd(&counts[k1], local[k1]);
    }
}
