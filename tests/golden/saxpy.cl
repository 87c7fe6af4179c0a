#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void saxpy(
    float alpha,
    __global const float* restrict x,
    long x_shape0,
    __global const float* restrict y,
    long y_shape0,
    __global float* restrict out,
    long out_shape0) {
    // kernels.py:34: i = cp.ABSOLUTE_POS
    const long v1 = ((long)get_group_id(2) * (long)get_num_groups(1) + (long)get_group_id(1))
            * (long)get_num_groups(0);
    const long cube_pos = v1 + (long)get_group_id(0);
    const long i = cube_pos * 256 + (long)get_local_id(0);
    // kernels.py:35: if i < out.size
    if (i < out_shape0) {
        // kernels.py:36: out.flat[i] = alpha * x.flat[i] + y.flat[i]
        out[i] = fma(alpha, x[i], y[i]);
    }
}
