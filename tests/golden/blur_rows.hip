#pragma clang fp contract(off)

extern "C" __global__ void __launch_bounds__(256)
blur_rows(
    const float* __restrict__ image,
    long long image_shape0,
    long long image_shape1,
    long long image_stride0,
    float* __restrict__ out,
    long long out_shape0,
    long long out_shape1,
    long long out_stride0) {
    // kernels.py:41: row, column = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    const long long row = (long long)blockIdx.y * 8 + threadIdx.y;
    const long long column = (long long)blockIdx.x * 32 + threadIdx.x;
    // kernels.py:42: if row < out.shape[0] and column < out.shape[1]
    if (row < out_shape0 && column < out_shape1) {
        // kernels.py:43: left = image[row, max(column - 1, 0)]
        const long long v1 = row * image_stride0;
        const float left = image[v1 + max(column - 1, 0ll)];
        // kernels.py:44: right = image[row, min(column + 1, image.shape[1] - 1)]
        const float right = image[v1 + min(column + 1, image_shape1 - 1)];
        // kernels.py:45: out[row, column] = (left + 2 * image[row, column] + right) * 0.25
        out[row * out_stride0 + column] = (fmaf(2.0f, image[v1 + column], left) + right) * 0.25f;
    }
}
