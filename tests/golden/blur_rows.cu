static __device__ __forceinline__ void sync_dependencies() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(256)
blur_rows(
    const float* __restrict__ image,
    int image_shape1,
    int image_stride0,
    float* __restrict__ out,
    int out_shape0,
    int out_shape1,
    int out_stride0) {
    sync_dependencies();
    // kernels.py:41: row, column = cp.ABSOLUTE_POS_Y, cp.ABSOLUTE_POS_X
    const int row = (int)blockIdx.y * 8 + (int)threadIdx.y;
    const int column = (int)blockIdx.x * 32 + (int)threadIdx.x;
    // kernels.py:42: if row < out.shape[0] and column < out.shape[1]
    if (row < out_shape0 && column < out_shape1) {
        // kernels.py:43: left = image[row, max(column - 1, 0)]
        const int v1 = column - 1;
        const unsigned int v2 = (unsigned int)row * (unsigned int)image_stride0;
        const float left = image[(int)(v2 + (unsigned int)(v1 > 0 ? v1 : 0))];
        // kernels.py:44: right = image[row, min(column + 1, image.shape[1] - 1)]
        const int v3 = column + 1;
        const int v4 = image_shape1 - 1;
        const float right = image[(int)(v2 + (unsigned int)(v3 < v4 ? v3 : v4))];
        // kernels.py:45: out[row, column] = (left + 2 * image[row, column] + right) * 0.25
        out[row * out_stride0 + column] = (fmaf(2.0f, image[(int)(v2 + (unsigned int)column)], left)
                + right) * 0.25f;
    }
}
