static __device__ __forceinline__ void sync_dependencies() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

struct __align__(4) boolx4 {
    bool lane[4];
};

static __device__ __forceinline__ boolx4 lane_mask_4(long long first, long long end) {
    return boolx4{{first <= 0 && 0 < end, first <= 1 && 1 < end, first <= 2 && 2 < end,
            first <= 3 && 3 < end}};
}

static __device__ __forceinline__ float4 make_float4(float value) {
    return make_float4(value, value, value, value);
}

static __device__ __forceinline__ float4 load_masked_f32x4(const float* from, boolx4 mask,
        float4 fill) {
    return make_float4(mask.lane[0] ? from[0] : fill.x, mask.lane[1] ? from[1] : fill.y,
            mask.lane[2] ? from[2] : fill.z, mask.lane[3] ? from[3] : fill.w);
}

static __device__ __forceinline__ float4 fma_f32x4(float4 a, float4 b, float4 c) {
    return make_float4(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y), fmaf(a.z, b.z, c.z),
            fmaf(a.w, b.w, c.w));
}

static __device__ __forceinline__ void store_masked_f32x4(float* to, float4 value, boolx4 mask) {
    if (mask.lane[0]) to[0] = value.x;
    if (mask.lane[1]) to[1] = value.y;
    if (mask.lane[2]) to[2] = value.z;
    if (mask.lane[3]) to[3] = value.w;
}

extern "C" __global__ void __launch_bounds__(256)
axpy_lines(
    float alpha,
    const float* __restrict__ x,
    int x_shape0,
    float* __restrict__ y,
    int y_shape0) {
    sync_dependencies();
    // kernels.py:27: i = cp.ABSOLUTE_POS
    const int i = (int)blockIdx.x * 256 + (int)threadIdx.x;
    // kernels.py:28: if i < y.size
    if (i < ((y_shape0 + 3) >> 2)) {
        // kernels.py:29: y[i] = alpha * x[i] + y[i]
        const int v1 = i * 4;
        const int v2 = x_shape0 - v1;
        float4 x1;
        if (v2 >= 4) {
            x1 = *(const float4*)(x + v1);
        } else {
            x1 = load_masked_f32x4(x + v1, lane_mask_4(0ll, (long long)v2), make_float4(0.0f));
        }
        const int v3 = y_shape0 - v1;
        const bool v4 = v3 >= 4;
        const float4 v5 = make_float4(alpha);
        float4 y2;
        if (v4) {
            y2 = *(const float4*)(y + v1);
        } else {
            y2 = load_masked_f32x4(y + v1, lane_mask_4(0ll, (long long)v3), make_float4(0.0f));
        }
        const float4 v6 = fma_f32x4(v5, x1, y2);
        if (v4) {
            *(float4*)(y + v1) = v6;
        } else {
            store_masked_f32x4(y + v1, v6, lane_mask_4(0ll, (long long)v3));
        }
    }
}
