static __device__ __forceinline__ void sync_dependencies() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(256)
transpose(
    const float* __restrict__ x,
    int x_shape0,
    int x_shape1,
    int x_stride0,
    float* __restrict__ out,
    int out_stride0) {
    sync_dependencies();
    __shared__ __align__(16) float tile[1056];
    // kernels.py:54: tx, ty = cp.UNIT_POS_X, cp.UNIT_POS_Y
    const int tx = (int)threadIdx.x;
    const int ty = (int)threadIdx.y;
    // kernels.py:55: row, column = cp.CUBE_POS_Y * TILE, cp.CUBE_POS_X * TILE
    const int row = (int)blockIdx.y * 32;
    const int column = (int)blockIdx.x * 32;
    // kernels.py:57: if row + k < x.shape[0] and column + tx < x.shape[1]
    const int v1 = column + tx;
    // kernels.py:56: for k in range(ty, TILE, cp.CUBE_DIM_Y)
    const bool v2 = v1 < x_shape1;
    for (int k = ty; k < 32; k += 8) {
        // kernels.py:57: if row + k < x.shape[0] and column + tx < x.shape[1]
        const int v3 = row + k;
        if (v3 < x_shape0 && v2) {
            // kernels.py:58: tile[k, tx] = x[row + k, column + tx]
            tile[k * 33 + tx] = x[v3 * x_stride0 + v1];
        }
    }
    // kernels.py:59: cp.sync_cube()
    __syncthreads();
    // kernels.py:61: if column + k < x.shape[1] and row + tx < x.shape[0]
    const int v4 = row + tx;
    // kernels.py:60: for k in range(ty, TILE, cp.CUBE_DIM_Y)
    const bool v5 = v4 < x_shape0;
    const int v6 = tx * 33;
    for (int k1 = ty; k1 < 32; k1 += 8) {
        // kernels.py:61: if column + k < x.shape[1] and row + tx < x.shape[0]
        const int v7 = column + k1;
        if (v7 < x_shape1 && v5) {
            // kernels.py:62: out[column + k, row + tx] = tile[tx, k]
            out[(int)((unsigned int)v7 * (unsigned int)out_stride0 + (unsigned int)v4)] = tile[v6
                    + k1];
        }
    }
}
