static __device__ __forceinline__ float4 make_float4(float value) {
    return make_float4(value, value, value, value);
}

static __device__ __forceinline__ float4 operator*(float4 a, float4 b) {
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

static __device__ __forceinline__ float4 fma_f32x4(float4 a, float4 b, float4 c) {
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z),
            fmaf(a.w, b.w, c.w));
}

static __device__ __forceinline__ float4 abs_f32x4(float4 a) {
    return make_float4(fabsf(a.x), fabsf(a.y), fabsf(a.z), fabsf(a.w));
}

struct __align__(4) boolx4 {
    bool lane[4];
};

static __device__ __forceinline__ boolx4 operator>(float4 a, float4 b) {
    return boolx4{{a.x > b.x, a.y > b.y, a.z > b.z, a.w > b.w}};
}

static __device__ __forceinline__ float4 select_f32x4_mask(boolx4 a, float4 b, float4 c) {
    return make_float4(a.lane[0] ? b.x : c.x, a.lane[1] ? b.y : c.y, a.lane[2] ? b.z : c.z,
            a.lane[3] ? b.w : c.w);
}

static __device__ __forceinline__ float4 operator+(float4 a, float4 b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

static __device__ __forceinline__ float4 operator-(float4 a, float4 b) {
    return make_float4(a.x - b.x, a.y - b.y, a.z - b.z, a.w - b.w);
}

static __device__ __forceinline__ uint4 bitcast_u32x4_f32x4(float4 a) {
    return make_uint4(__float_as_uint(a.x), __float_as_uint(a.y), __float_as_uint(a.z),
            __float_as_uint(a.w));
}

static __device__ __forceinline__ uint4 make_uint4(unsigned int value) {
    return make_uint4(value, value, value, value);
}

static __device__ __forceinline__ uint4 operator<<(uint4 a, uint4 b) {
    return make_uint4(a.x << b.x, a.y << b.y, a.z << b.z, a.w << b.w);
}

static __device__ __forceinline__ float4 bitcast_f32x4_u32x4(uint4 a) {
    return make_float4(__uint_as_float(a.x), __uint_as_float(a.y), __uint_as_float(a.z),
            __uint_as_float(a.w));
}

static __device__ __forceinline__ float4 operator/(float4 a, float4 b) {
    return make_float4(a.x / b.x, a.y / b.y, a.z / b.z, a.w / b.w);
}

static __device__ __forceinline__ float4 copysign_f32x4(float4 a, float4 b) {
    return make_float4(copysignf(a.x, b.x), copysignf(a.y, b.y), copysignf(a.z, b.z),
            copysignf(a.w, b.w));
}

extern "C" __global__ void __launch_bounds__(256)
gelu_lines(
    const float* __restrict__ x,
    long long x_shape0,
    float* __restrict__ out,
    long long out_shape0) {
    // kernels.py:20: i = cp.ABSOLUTE_POS
    const long long cube_pos = ((long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x
            + blockIdx.x;
    const long long i = cube_pos * 256 + threadIdx.x;
    // kernels.py:21: if i < out.size
    if (i < (out_shape0 + 3) / 4) {
        // kernels.py:22: out.flat[i] = gelu(x.flat[i])
        const long long v1 = i * 4;
        const float4 x1 = *(const float4*)(x + v1);
        // kernels.py:15: return v * 0.5 * (1 + cp.tanh(0.7978845608 * (v + 0.044715 * v * v * v)))
        const float4 v2 = make_float4(0.7978846f) * fma_f32x4(make_float4(0.044715f) * x1 * x1, x1,
                x1);
        const float4 v3 = abs_f32x4(v2);
        const float4 v4 = make_float4(9.1f);
        const float4 v5 = select_f32x4_mask(v3 > v4, v4, v3);
        const float4 v6 = v5 + v5;
        const float4 v7 = make_float4(12583039.0f);
        const float4 v8 = fma_f32x4(v6, make_float4(1.442695f), v7);
        const float4 v9 = v8 - v7;
        const float4 v10 = fma_f32x4(v9, make_float4(1.9046542e-09f),
                fma_f32x4(v9, make_float4(-0.6931472f), v6));
        const float4 v11 = fma_f32x4(fma_f32x4(v10, make_float4(0.0013868089f),
                make_float4(0.008366431f)), v10, make_float4(0.041667465f));
        const float4 v12 = fma_f32x4(fma_f32x4(v11, v10, make_float4(0.16666545f)), v10,
                make_float4(0.49999997f));
        const float4 v13 = bitcast_f32x4_u32x4(bitcast_u32x4_f32x4(v8) << make_uint4(23u));
        const float4 v14 = make_float4(1.0f);
        const float4 v15 = fma_f32x4(v13, fma_f32x4(v10 * v10, v12, v10), v13 - v14);
        const float4 v16 = x1 * make_float4(0.5f) * (v14
                + copysign_f32x4(v15 / (v15 + make_float4(2.0f)), v2));
        // kernels.py:22: out.flat[i] = gelu(x.flat[i])
        *(float4*)(out + v1) = v16;
    }
}
