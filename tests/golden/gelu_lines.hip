#pragma clang fp contract(off)

typedef float f32x4 __attribute__((ext_vector_type(4)));

static __device__ __forceinline__ f32x4 fma_f32x4(f32x4 a, f32x4 b, f32x4 c) {
    return f32x4{fmaf(a.s0, b.s0, c.s0), fmaf(a.s1, b.s1, c.s1), fmaf(a.s2, b.s2, c.s2),
            fmaf(a.s3, b.s3, c.s3)};
}

static __device__ __forceinline__ f32x4 abs_f32x4(f32x4 a) {
    return f32x4{fabsf(a.s0), fabsf(a.s1), fabsf(a.s2), fabsf(a.s3)};
}

struct __align__(4) boolx4 {
    bool lane[4];
};

static __device__ __forceinline__ boolx4 gt_boolx4_f32x4(f32x4 a, f32x4 b) {
    return boolx4{{a.s0 > b.s0, a.s1 > b.s1, a.s2 > b.s2, a.s3 > b.s3}};
}

static __device__ __forceinline__ f32x4 select_f32x4_mask(boolx4 a, f32x4 b, f32x4 c) {
    return f32x4{a.lane[0] ? b.s0 : c.s0, a.lane[1] ? b.s1 : c.s1, a.lane[2] ? b.s2 : c.s2,
            a.lane[3] ? b.s3 : c.s3};
}

typedef unsigned int u32x4 __attribute__((ext_vector_type(4)));

static __device__ __forceinline__ f32x4 copysign_f32x4(f32x4 a, f32x4 b) {
    return f32x4{copysignf(a.s0, b.s0), copysignf(a.s1, b.s1), copysignf(a.s2, b.s2),
            copysignf(a.s3, b.s3)};
}

extern "C" __global__ void __launch_bounds__(256)
gelu_lines(const float* __restrict__ x, float* __restrict__ out, int out_shape0) {
    // kernels.py:20: i = cp.ABSOLUTE_POS
    const int i = (int)blockIdx.x * 256 + (int)threadIdx.x;
    // kernels.py:21: if i < out.size
    if (i < ((out_shape0 + 3) >> 2)) {
        // kernels.py:22: out.flat[i] = gelu(x.flat[i])
        const int v1 = i * 4;
        const f32x4 x1 = *(const f32x4*)(x + v1);
        // kernels.py:15: return v * 0.5 * (1 + cp.tanh(0.7978845608 * (v + 0.044715 * v * v * v)))
        const f32x4 v2 = (f32x4)(0.7978846f) * fma_f32x4((f32x4)(0.044715f) * x1 * x1, x1, x1);
        const f32x4 v3 = abs_f32x4(v2);
        const f32x4 v4 = (f32x4)(9.1f);
        const f32x4 v5 = select_f32x4_mask(gt_boolx4_f32x4(v3, v4), v4, v3);
        const f32x4 v6 = v5 + v5;
        const f32x4 v7 = (f32x4)(12583039.0f);
        const f32x4 v8 = fma_f32x4(v6, (f32x4)(1.442695f), v7);
        const f32x4 v9 = v8 - v7;
        const f32x4 v10 = fma_f32x4(v9, (f32x4)(1.9046542e-09f),
                fma_f32x4(v9, (f32x4)(-0.6931472f), v6));
        const f32x4 v11 = fma_f32x4(fma_f32x4(v10, (f32x4)(0.0013868089f), (f32x4)(0.008366431f)),
                v10, (f32x4)(0.041667465f));
        const f32x4 v12 = fma_f32x4(v10 * v10, fma_f32x4(fma_f32x4(v11, v10, (f32x4)(0.16666545f)),
                v10, (f32x4)(0.49999997f)), v10);
        const f32x4 v13 = __builtin_bit_cast(f32x4, __builtin_bit_cast(u32x4, v8) << (u32x4)(23u));
        const f32x4 v14 = (f32x4)(1.0f);
        const f32x4 v15 = fma_f32x4(v13, v12, v13 - v14);
        // kernels.py:22: out.flat[i] = gelu(x.flat[i])
        *(f32x4*)(out + v1) = x1 * (f32x4)(0.5f) * (v14
                + copysign_f32x4(v15 / (v15 + (f32x4)(2.0f)), v2));
    }
}
