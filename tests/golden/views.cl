#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void views(
    __global const float* restrict image,
    long image_shape0,
    long image_shape1,
    long image_stride0,
    __global float* restrict out,
    long out_shape0,
    long out_shape1,
    long out_stride0,
    float gain) {
    // kernels.py:167: i = cp.ABSOLUTE_POS
    const long v1 = ((long)get_group_id(2) * (long)get_num_groups(1) + (long)get_group_id(1))
            * (long)get_num_groups(0);
    const long cube_pos = v1 + (long)get_group_id(0);
    const long i = cube_pos * 256 + (long)get_local_id(0);
    // kernels.py:168: if i < out.shape[0]
    if (i < out_shape0) {
        // kernels.py:169: row = image[i][1:]
        const long row = i * image_stride0 + 1;
        // kernels.py:170: for k in range(out.shape[1])
        const long v2 = i * out_stride0;
        for (long k = 0; k < out_shape1; ++k) {
            // kernels.py:161: total += row[k + j] * (j + 1)
            const float v3 = fma(image[row + (k + 2)], 3.0f,
                    fma(image[row + (k + 1)], 2.0f, fma(image[row + k], 1.0f, 0.0f)));
            // kernels.py:162: return clamp(total * gain, 0.0, 1.0)
            const float v4 = v3 * gain;
            // kernels.py:154: return min(max(v, low), high)
            const float v5 = v4 != v4 ? v4 : (v4 == 0.0f ? 0.0f : (v4 > 0.0f ? v4 : 0.0f));
            const float v6 = v5 != v5 ? v5 : (v5 == 1.0f ? as_float(as_uint(v5) | 1065353216u)
                    : (v5 < 1.0f ? v5 : 1.0f));
            // kernels.py:171: out[i][k] = shade(row, k, gain)
            out[v2 + k] = v6;
        }
    }
}
