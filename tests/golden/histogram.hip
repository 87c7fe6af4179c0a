#pragma clang fp contract(off)

extern "C" __global__ void __launch_bounds__(256)
histogram(
    const unsigned char* __restrict__ x,
    long long x_shape0,
    int* __restrict__ counts,
    long long counts_shape0) {
    __shared__ __align__(16) int local[256];
    // kernels.py:99: for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM)
    const long long unit_x = (long long)threadIdx.x;
    for (long long k = unit_x; k < 256; k += 256) {
        // kernels.py:100: local[k] = 0
        local[k] = 0;
    }
    // kernels.py:101: cp.sync_cube()
    __syncthreads();
    // kernels.py:102: for i in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * cp.CUBE_DIM)
    const long long count_x = (long long)gridDim.x;
    const long long count_y = (long long)gridDim.y;
    const long long cube_pos = ((long long)blockIdx.z * count_y + blockIdx.y) * count_x
            + blockIdx.x;
    const long long absolute_pos = cube_pos * 256 + unit_x;
    const long long v1 = count_x * count_y * gridDim.z * 256;
    for (long long i = absolute_pos; i < x_shape0; i += v1) {
        // kernels.py:103: cp.atomic.add(local, cp.i32(x[i]), 1)
        atomicAdd(&local[(long long)(int)x[i]], 1);
    }
    // kernels.py:104: cp.sync_cube()
    __syncthreads();
    // kernels.py:105: for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM)
    for (long long k1 = unit_x; k1 < 256; k1 += 256) {
        // kernels.py:106: cp.atomic.add(counts, k, local[k])
        atomicAdd(&counts[k1], local[k1]);
    }
}
