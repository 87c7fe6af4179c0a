#pragma clang fp contract(off)

typedef float f32x4 __attribute__((ext_vector_type(4)));

struct __align__(4) boolx4 {
    bool lane[4];
};

static __device__ __forceinline__ boolx4 lane_mask_4(long long first, long long end) {
    return boolx4{{first <= 0 && 0 < end, first <= 1 && 1 < end, first <= 2 && 2 < end,
            first <= 3 && 3 < end}};
}

static __device__ __forceinline__ f32x4 load_masked_f32x4(const float* from, boolx4 mask,
        f32x4 fill) {
    return f32x4{mask.lane[0] ? from[0] : fill.s0, mask.lane[1] ? from[1] : fill.s1,
            mask.lane[2] ? from[2] : fill.s2, mask.lane[3] ? from[3] : fill.s3};
}

static __device__ __forceinline__ f32x4 fma_f32x4(f32x4 a, f32x4 b, f32x4 c) {
    return f32x4{fmaf(a.s0, b.s0, c.s0), fmaf(a.s1, b.s1, c.s1), fmaf(a.s2, b.s2, c.s2),
            fmaf(a.s3, b.s3, c.s3)};
}

static __device__ __forceinline__ void store_masked_f32x4(float* to, f32x4 value, boolx4 mask) {
    if (mask.lane[0]) to[0] = value.s0;
    if (mask.lane[1]) to[1] = value.s1;
    if (mask.lane[2]) to[2] = value.s2;
    if (mask.lane[3]) to[3] = value.s3;
}

extern "C" __global__ void __launch_bounds__(256)
axpy_lines(
    float alpha,
    const float* __restrict__ x,
    int x_shape0,
    float* __restrict__ y,
    int y_shape0) {
    // kernels.py:27: i = cp.ABSOLUTE_POS
    const int i = (int)blockIdx.x * 256 + (int)threadIdx.x;
    // kernels.py:28: if i < y.size
    if (i < ((y_shape0 + 3) >> 2)) {
        // kernels.py:29: y[i] = alpha * x[i] + y[i]
        const int v1 = i * 4;
        const int v2 = x_shape0 - v1;
        f32x4 x1;
        if (v2 >= 4) {
            x1 = *(const f32x4*)(x + v1);
        } else {
            x1 = load_masked_f32x4(x + v1, lane_mask_4(0ll, (long long)v2), (f32x4)(0.0f));
        }
        const int v3 = y_shape0 - v1;
        const bool v4 = v3 >= 4;
        const f32x4 v5 = (f32x4)(alpha);
        f32x4 y2;
        if (v4) {
            y2 = *(const f32x4*)(y + v1);
        } else {
            y2 = load_masked_f32x4(y + v1, lane_mask_4(0ll, (long long)v3), (f32x4)(0.0f));
        }
        const f32x4 v6 = fma_f32x4(v5, x1, y2);
        if (v4) {
            *(f32x4*)(y + v1) = v6;
        } else {
            store_masked_f32x4(y + v1, v6, lane_mask_4(0ll, (long long)v3));
        }
    }
}
