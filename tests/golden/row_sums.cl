#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void row_sums(
    __global const float* restrict x,
    int x_shape0,
    int x_shape1,
    int x_stride0,
    __global float* restrict out) {
    // kernels.py:86: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const int absolute_pos = (int)get_group_id(0) * 256 + (int)get_local_id(0);
    // kernels.py:87: if row < x.shape[0]
    if (absolute_pos < x_shape0) {
        // kernels.py:89: for column in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        const int v1 = absolute_pos * x_stride0;
        for (int column = 0; column < x_shape1; ++column) {
            // kernels.py:90: total += x[row, column]
            total += x[v1 + column];
        }
        // kernels.py:93: out[row] = total
        out[absolute_pos] = total;
    }
}
