#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(32, 8, 1)))
void blur_rows(
    __global const float* restrict image,
    int image_shape1,
    int image_stride0,
    __global float* restrict out,
    int out_shape0,
    int out_shape1,
    int out_stride0) {
    // kernels.py:41: row, column = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    const int row = (int)get_group_id(1) * 8 + (int)get_local_id(1);
    const int column = (int)get_group_id(0) * 32 + (int)get_local_id(0);
    // kernels.py:42: if row < out.shape[0] and column < out.shape[1]
    if (row < out_shape0 && column < out_shape1) {
        // kernels.py:43: left = image[row, max(column - 1, 0)]
        const int v1 = column - 1;
        const uint v2 = (uint)row * (uint)image_stride0;
        const float left = image[(int)(v2 + (uint)(v1 > 0 ? v1 : 0))];
        // kernels.py:44: right = image[row, min(column + 1, image.shape[1] - 1)]
        const int v3 = column + 1;
        const int v4 = image_shape1 - 1;
        const float right = image[(int)(v2 + (uint)(v3 < v4 ? v3 : v4))];
        // kernels.py:45: out[row, column] = (left + 2 * image[row, column] + right) * 0.25
        out[row * out_stride0 + column] = (fma(2.0f, image[(int)(v2 + (uint)column)], left) + right)
                * 0.25f;
    }
}
