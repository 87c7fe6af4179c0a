#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(32, 8, 1)))
void transpose(
    __global const float* restrict x,
    int x_shape0,
    int x_shape1,
    int x_stride0,
    __global float* restrict out,
    int out_stride0) {
    __local float tile[1056] __attribute__((aligned(16)));
    // kernels.py:54: tx, ty = cp.UNIT_POS_X, cp.UNIT_POS_Y
    const int tx = (int)get_local_id(0);
    const int ty = (int)get_local_id(1);
    // kernels.py:55: row, column = cp.CUBE_POS_Y * TILE, cp.CUBE_POS_X * TILE
    const int row = (int)get_group_id(1) * 32;
    const int column = (int)get_group_id(0) * 32;
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
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
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
            out[(int)((uint)v7 * (uint)out_stride0 + (uint)v4)] = tile[v6 + k1];
        }
    }
}
