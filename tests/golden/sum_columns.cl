#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void sum_columns(
    __global const float* restrict x,
    long x_shape0,
    long x_shape1,
    __global float* restrict out,
    long out_shape0) {
    // kernels.py:176: column = cp.ABSOLUTE_POS
    const long v1 = ((long)get_group_id(2) * (long)get_num_groups(1) + (long)get_group_id(1))
            * (long)get_num_groups(0);
    const long cube_pos = v1 + (long)get_group_id(0);
    const long column = cube_pos * 256 + (long)get_local_id(0);
    // kernels.py:177: if column < out.size
    if (column < (out_shape0 + 3) / 4) {
        // kernels.py:178: total = x[0, column]
        const long v2 = column * 4;
        const float4 total = *(const __global float4*)(x + v2);
        // kernels.py:179: for row in range(1, x.shape[0])
        float4 total_1 = total;
        for (long row = 1; row < x_shape0; ++row) {
            // kernels.py:180: total += x[row, column]
            total_1 = total_1 + *(const __global float4*)(x + (row * x_shape1 + v2));
        }
        // kernels.py:181: out[column] = total
        *(__global float4*)(out + v2) = total_1;
    }
}
