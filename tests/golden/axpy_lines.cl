#pragma OPENCL FP_CONTRACT OFF

static inline uchar4 lane_mask_4(long first, long end) {
    return (uchar4)(first <= 0 && 0 < end, first <= 1 && 1 < end, first <= 2 && 2 < end,
            first <= 3 && 3 < end);
}

static inline float4 load_masked_f32x4_global(const __global float* from, uchar4 mask,
        float4 fill) {
    return (float4)(mask.s0 ? from[0] : fill.s0, mask.s1 ? from[1] : fill.s1,
            mask.s2 ? from[2] : fill.s2, mask.s3 ? from[3] : fill.s3);
}

static inline void store_masked_f32x4_global(__global float* to, float4 value, uchar4 mask) {
    if (mask.s0) to[0] = value.s0;
    if (mask.s1) to[1] = value.s1;
    if (mask.s2) to[2] = value.s2;
    if (mask.s3) to[3] = value.s3;
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void axpy_lines(
    float alpha,
    __global const float* restrict x,
    int x_shape0,
    __global float* restrict y,
    int y_shape0) {
    // kernels.py:27: i = cp.ABSOLUTE_POS
    const int i = (int)get_group_id(0) * 256 + (int)get_local_id(0);
    // kernels.py:28: if i < y.size
    if (i < ((y_shape0 + 3) >> 2)) {
        // kernels.py:29: y[i] = alpha * x[i] + y[i]
        const int v1 = i * 4;
        const int v2 = x_shape0 - v1;
        float4 x1;
        if (v2 >= 4) {
            x1 = *(const __global float4*)(x + v1);
        } else {
            x1 = load_masked_f32x4_global(x + v1, lane_mask_4(0l, (long)v2), (float4)(0.0f));
        }
        const int v3 = y_shape0 - v1;
        const bool v4 = v3 >= 4;
        const float4 v5 = (float4)(alpha);
        float4 y2;
        if (v4) {
            y2 = *(const __global float4*)(y + v1);
        } else {
            y2 = load_masked_f32x4_global(y + v1, lane_mask_4(0l, (long)v3), (float4)(0.0f));
        }
        const float4 v6 = fma(v5, x1, y2);
        if (v4) {
            *(__global float4*)(y + v1) = v6;
        } else {
            store_masked_f32x4_global(y + v1, v6, lane_mask_4(0l, (long)v3));
        }
    }
}
