#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void views(
    __global const float* restrict image,
    int image_stride0,
    __global float* restrict out,
    int out_shape0,
    int out_shape1,
    int out_stride0,
    float gain) {
    // kernels.py:167: i = cp.ABSOLUTE_POS
    const int i = (int)get_group_id(0) * 256 + (int)get_local_id(0);
    // kernels.py:168: if i < out.shape[0]
    if (i < out_shape0) {
        // kernels.py:169: row = image[i][1:]
        const uint row = (uint)i * (uint)image_stride0 + 1u;
        // kernels.py:170: for k in range(out.shape[1])
        const int v1 = i * out_stride0;
        for (int k = 0; k < out_shape1; ++k) {
            // kernels.py:161: total += row[k + j] * (j + 1)
            const float v2 = fma(image[(int)(row + (uint)(k + 1))], 2.0f,
                    fma(image[(int)(row + (uint)k)], 1.0f, 0.0f));
            // kernels.py:162: return clamp(total * gain, 0.0, 1.0)
            const float v3 = fma(image[(int)(row + (uint)(k + 2))], 3.0f, v2) * gain;
            // kernels.py:154: return min(max(v, low), high)
            const float v4 = v3 != v3 ? v3 : (v3 == 0.0f ? (as_int(v3) < 0 ? 0.0f : v3)
                    : (v3 > 0.0f ? v3 : 0.0f));
            const float v5 = v4 != v4 ? v4 : (v4 == 1.0f ? (as_int(v4) < 0 ? v4 : 1.0f)
                    : (v4 < 1.0f ? v4 : 1.0f));
            // kernels.py:171: out[i][k] = shade(row, k, gain)
            out[v1 + k] = v5;
        }
    }
}
