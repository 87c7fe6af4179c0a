#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(32, 8, 1)))
void blur_rows(
    __global const float* restrict image,
    long image_shape0,
    long image_shape1,
    long image_stride0,
    __global float* restrict out,
    long out_shape0,
    long out_shape1,
    long out_stride0) {
    // kernels.py:41: row, column = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    const long row = (long)get_group_id(1) * 8 + (long)get_local_id(1);
    const long column = (long)get_group_id(0) * 32 + (long)get_local_id(0);
    // kernels.py:42: if row < out.shape[0] and column < out.shape[1]
    if (row < out_shape0 && column < out_shape1) {
        // kernels.py:43: left = image[row, max(column - 1, 0)]
        const long v1 = row * image_stride0;
        const float left = image[v1 + max(column - 1, 0l)];
        // kernels.py:44: right = image[row, min(column + 1, image.shape[1] - 1)]
        const float right = image[v1 + min(column + 1, image_shape1 - 1)];
        // kernels.py:45: out[row, column] = (left + 2 * image[row, column] + right) * 0.25
        out[row * out_stride0 + column] = (fma(2.0f, image[v1 + column], left) + right) * 0.25f;
    }
}
