#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void saxpy(
    float alpha,
    __global const float* restrict x,
    __global const float* restrict y,
    __global float* restrict out,
    int out_shape0) {
    // kernels.py:34: i = cp.ABSOLUTE_POS
    const int i = (int)get_group_id(0) * 256 + (int)get_local_id(0);
    // kernels.py:35: if i < out.size
    if (i < out_shape0) {
        // kernels.py:36: out.flat[i] = alpha * x.flat[i] + y.flat[i]
        out[i] = fma(alpha, x[i], y[i]);
    }
}
