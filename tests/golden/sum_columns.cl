#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void sum_columns(
    __global const float* restrict x,
    int x_shape0,
    int x_shape1,
    __global float* restrict out,
    int out_shape0) {
    // kernels.py:176: column = cp.ABSOLUTE_POS
    const int column = (int)get_group_id(0) * 256 + (int)get_local_id(0);
    // kernels.py:177: if column < out.size
    if (column < ((out_shape0 + 3) >> 2)) {
        // kernels.py:178: total = x[0, column]
        const int v1 = column * 4;
        const float4 total = *(const __global float4*)(x + v1);
        // kernels.py:179: for row in range(1, x.shape[0])
        float4 total_1 = total;
        for (int row = 1; row < x_shape0; ++row) {
            // kernels.py:180: total += x[row, column]
            total_1 = total_1 + *(const __global float4*)(x + (row * x_shape1 + v1));
        }
        // kernels.py:181: out[column] = total
        *(__global float4*)(out + v1) = total_1;
    }
}
