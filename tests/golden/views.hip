#pragma clang fp contract(off)

extern "C" __global__ void __launch_bounds__(256)
views(
    const float* __restrict__ image,
    int image_stride0,
    float* __restrict__ out,
    int out_shape0,
    int out_shape1,
    int out_stride0,
    float gain) {
    // kernels.py:167: i = cp.ABSOLUTE_POS
    const int i = (int)blockIdx.x * 256 + (int)threadIdx.x;
    // kernels.py:168: if i < out.shape[0]
    if (i < out_shape0) {
        // kernels.py:169: row = image[i][1:]
        const unsigned int row = (unsigned int)i * (unsigned int)image_stride0 + 1u;
        // kernels.py:170: for k in range(out.shape[1])
        const int v1 = i * out_stride0;
        for (int k = 0; k < out_shape1; ++k) {
            // kernels.py:161: total += row[k + j] * (j + 1)
            const float v2 = fmaf(image[(int)(row + (unsigned int)(k + 1))], 2.0f,
                    fmaf(image[(int)(row + (unsigned int)k)], 1.0f, 0.0f));
            // kernels.py:162: return clamp(total * gain, 0.0, 1.0)
            const float v3 = fmaf(image[(int)(row + (unsigned int)(k + 2))], 3.0f, v2) * gain;
            // kernels.py:154: return min(max(v, low), high)
            const float v4 = v3 != v3 ? v3 : (v3 == 0.0f ? (__float_as_int(v3) < 0 ? 0.0f : v3)
                    : (v3 > 0.0f ? v3 : 0.0f));
            const float v5 = v4 != v4 ? v4 : (v4 == 1.0f ? (__float_as_int(v4) < 0 ? v4 : 1.0f)
                    : (v4 < 1.0f ? v4 : 1.0f));
            // kernels.py:171: out[i][k] = shade(row, k, gain)
            out[v1 + k] = v5;
        }
    }
}
