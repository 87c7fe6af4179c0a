static __device__ __forceinline__ void sync_dependencies() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

typedef unsigned short half;

typedef unsigned short bfloat16;

struct __align__(16) f16x8 {
    half lane[8];
};

static __device__ __forceinline__ float half_to_float(half value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value));
    return result;
}

struct __align__(16) f32x8 {
    float lane[8];
};

static __device__ __forceinline__ f32x8 cast_f32x8_f16x8(f16x8 a) {
    return f32x8{{half_to_float(a.lane[0]), half_to_float(a.lane[1]), half_to_float(a.lane[2]),
            half_to_float(a.lane[3]), half_to_float(a.lane[4]), half_to_float(a.lane[5]),
            half_to_float(a.lane[6]), half_to_float(a.lane[7])}};
}

struct __align__(16) bf16x8 {
    bfloat16 lane[8];
};

static __device__ __forceinline__ float bfloat16_to_float(bfloat16 value) {
    return __uint_as_float((unsigned int)value << 16);
}

static __device__ __forceinline__ f32x8 cast_f32x8_bf16x8(bf16x8 a) {
    return f32x8{{bfloat16_to_float(a.lane[0]), bfloat16_to_float(a.lane[1]),
            bfloat16_to_float(a.lane[2]), bfloat16_to_float(a.lane[3]),
            bfloat16_to_float(a.lane[4]), bfloat16_to_float(a.lane[5]),
            bfloat16_to_float(a.lane[6]), bfloat16_to_float(a.lane[7])}};
}

static __device__ __forceinline__ f32x8 operator*(f32x8 a, f32x8 b) {
    return f32x8{{a.lane[0] * b.lane[0], a.lane[1] * b.lane[1], a.lane[2] * b.lane[2],
            a.lane[3] * b.lane[3], a.lane[4] * b.lane[4], a.lane[5] * b.lane[5],
            a.lane[6] * b.lane[6], a.lane[7] * b.lane[7]}};
}

static __device__ __forceinline__ half float_to_half(float value) {
    half result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(value));
    return result;
}

static __device__ __forceinline__ f16x8 cast_f16x8_f32x8(f32x8 a) {
    return f16x8{{float_to_half(a.lane[0]), float_to_half(a.lane[1]), float_to_half(a.lane[2]),
            float_to_half(a.lane[3]), float_to_half(a.lane[4]), float_to_half(a.lane[5]),
            float_to_half(a.lane[6]), float_to_half(a.lane[7])}};
}

static __device__ __forceinline__ f32x8 operator+(f32x8 a, f32x8 b) {
    return f32x8{{a.lane[0] + b.lane[0], a.lane[1] + b.lane[1], a.lane[2] + b.lane[2],
            a.lane[3] + b.lane[3], a.lane[4] + b.lane[4], a.lane[5] + b.lane[5],
            a.lane[6] + b.lane[6], a.lane[7] + b.lane[7]}};
}

extern "C" __global__ void __launch_bounds__(256)
mix_halves(
    const half* __restrict__ a,
    const bfloat16* __restrict__ b,
    half* __restrict__ out,
    int out_shape0) {
    sync_dependencies();
    // kernels.py:127: i = cp.ABSOLUTE_POS
    const int i = (int)blockIdx.x * 256 + (int)threadIdx.x;
    // kernels.py:128: if i < out.size
    if (i < ((out_shape0 + 7) >> 3)) {
        // kernels.py:129: out[i] = cp.f16(cp.f32(a[i]) * cp.f32(b[i])) + a[i]
        const int v1 = i * 8;
        const f32x8 v2 = cast_f32x8_f16x8(*(const f16x8*)(a + v1))
                * cast_f32x8_bf16x8(*(const bf16x8*)(b + v1));
        const f32x8 v3 = cast_f32x8_f16x8(cast_f16x8_f32x8(v2))
                + cast_f32x8_f16x8(*(const f16x8*)(a + v1));
        *(f16x8*)(out + v1) = cast_f16x8_f32x8(v3);
    }
}
