#pragma OPENCL FP_CONTRACT OFF

static inline uchar4 gt_boolx4_f32x4(float4 a, float4 b) {
    return (uchar4)(a.s0 > b.s0, a.s1 > b.s1, a.s2 > b.s2, a.s3 > b.s3);
}

static inline float4 select_f32x4_mask(uchar4 a, float4 b, float4 c) {
    return (float4)(a.s0 ? b.s0 : c.s0, a.s1 ? b.s1 : c.s1, a.s2 ? b.s2 : c.s2, a.s3 ? b.s3 : c.s3);
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void gelu_lines(__global const float* restrict x, __global float* restrict out, int out_shape0) {
    // kernels.py:20: i = cp.ABSOLUTE_POS
    const int i = (int)get_group_id(0) * 256 + (int)get_local_id(0);
    // kernels.py:21: if i < out.size
    if (i < ((out_shape0 + 3) >> 2)) {
        // kernels.py:22: out.flat[i] = gelu(x.flat[i])
        const int v1 = i * 4;
        const float4 x1 = *(const __global float4*)(x + v1);
        // kernels.py:15: return v * 0.5 * (1 + cp.tanh(0.7978845608 * (v + 0.044715 * v * v * v)))
        const float4 v2 = (float4)(0.7978846f) * fma((float4)(0.044715f) * x1 * x1, x1, x1);
        const float4 v3 = fabs(v2);
        const float4 v4 = (float4)(9.1f);
        const float4 v5 = select_f32x4_mask(gt_boolx4_f32x4(v3, v4), v4, v3);
        const float4 v6 = v5 + v5;
        const float4 v7 = (float4)(12583039.0f);
        const float4 v8 = fma(v6, (float4)(1.442695f), v7);
        const float4 v9 = v8 - v7;
        const float4 v10 = fma(v9, (float4)(1.9046542e-09f), fma(v9, (float4)(-0.6931472f), v6));
        const float4 v11 = fma(fma(v10, (float4)(0.0013868089f), (float4)(0.008366431f)), v10,
                (float4)(0.041667465f));
        const float4 v12 = fma(v10 * v10, fma(fma(v11, v10, (float4)(0.16666545f)), v10,
                (float4)(0.49999997f)), v10);
        const float4 v13 = as_float4(as_uint4(v8) << (uint4)(23u));
        const float4 v14 = (float4)(1.0f);
        const float4 v15 = fma(v13, v12, v13 - v14);
        // kernels.py:22: out.flat[i] = gelu(x.flat[i])
        *(__global float4*)(out + v1) = x1 * (float4)(0.5f)
                * (v14 + copysign(v15 / (v15 + (float4)(2.0f)), v2));
    }
}
