#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void row_sums(
    __global const float* restrict x,
    long x_shape0,
    long x_shape1,
    long x_stride0,
    __global float* restrict out,
    long out_shape0) {
    // kernels.py:86: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const long v1 = ((long)get_group_id(2) * (long)get_num_groups(1) + (long)get_group_id(1))
            * (long)get_num_groups(0);
    const long cube_pos = v1 + (long)get_group_id(0);
    const long absolute_pos = cube_pos * 256 + (long)get_local_id(0);
    // kernels.py:87: if row < x.shape[0]
    if (absolute_pos < x_shape0) {
        // kernels.py:89: for column in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        float total = 0.0f;
        const long v2 = absolute_pos * x_stride0;
        for (long column = 0; column < x_shape1; ++column) {
            // kernels.py:90: total += x[row, column]
            total += x[v2 + column];
        }
        // kernels.py:93: out[row] = total
        out[absolute_pos] = total;
    }
}
