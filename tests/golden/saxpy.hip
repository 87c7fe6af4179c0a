#pragma clang fp contract(off)

extern "C" __global__ void __launch_bounds__(256)
saxpy(
    float alpha,
    const float* __restrict__ x,
    long long x_shape0,
    const float* __restrict__ y,
    long long y_shape0,
    float* __restrict__ out,
    long long out_shape0) {
    // kernels.py:34: i = cp.ABSOLUTE_POS
    const long long cube_pos = ((long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x
            + blockIdx.x;
    const long long i = cube_pos * 256 + threadIdx.x;
    // kernels.py:35: if i < out.size
    if (i < out_shape0) {
        // kernels.py:36: out.flat[i] = alpha * x.flat[i] + y.flat[i]
        out[i] = fmaf(alpha, x[i], y[i]);
    }
}
