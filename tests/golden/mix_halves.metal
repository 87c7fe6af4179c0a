#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int out_shape0;
};

struct alignas(16) f16x8 {
    half lane[8];
};

struct alignas(16) f32x8 {
    float lane[8];
};

static inline f32x8 cast_f32x8_f16x8(f16x8 a) {
    return f32x8{{(float)a.lane[0], (float)a.lane[1], (float)a.lane[2], (float)a.lane[3],
            (float)a.lane[4], (float)a.lane[5], (float)a.lane[6], (float)a.lane[7]}};
}

struct alignas(16) bf16x8 {
    ushort lane[8];
};

struct alignas(16) u16x8 {
    ushort lane[8];
};

static inline u16x8 bitcast_u16x8_bf16x8(bf16x8 a) {
    return u16x8{{(ushort)a.lane[0], (ushort)a.lane[1], (ushort)a.lane[2], (ushort)a.lane[3],
            (ushort)a.lane[4], (ushort)a.lane[5], (ushort)a.lane[6], (ushort)a.lane[7]}};
}

struct alignas(16) u32x8 {
    uint lane[8];
};

static inline u32x8 cast_u32x8_u16x8(u16x8 a) {
    return u32x8{{(uint)a.lane[0], (uint)a.lane[1], (uint)a.lane[2], (uint)a.lane[3],
            (uint)a.lane[4], (uint)a.lane[5], (uint)a.lane[6], (uint)a.lane[7]}};
}

static inline u32x8 splat_u32x8(uint value) {
    return u32x8{{value, value, value, value, value, value, value, value}};
}

static inline u32x8 operator<<(u32x8 a, u32x8 b) {
    return u32x8{{a.lane[0] << b.lane[0], a.lane[1] << b.lane[1], a.lane[2] << b.lane[2],
            a.lane[3] << b.lane[3], a.lane[4] << b.lane[4], a.lane[5] << b.lane[5],
            a.lane[6] << b.lane[6], a.lane[7] << b.lane[7]}};
}

static inline f32x8 bitcast_f32x8_u32x8(u32x8 a) {
    return f32x8{{as_type<float>(a.lane[0]), as_type<float>(a.lane[1]), as_type<float>(a.lane[2]),
            as_type<float>(a.lane[3]), as_type<float>(a.lane[4]), as_type<float>(a.lane[5]),
            as_type<float>(a.lane[6]), as_type<float>(a.lane[7])}};
}

static inline f32x8 operator*(f32x8 a, f32x8 b) {
    return f32x8{{a.lane[0] * b.lane[0], a.lane[1] * b.lane[1], a.lane[2] * b.lane[2],
            a.lane[3] * b.lane[3], a.lane[4] * b.lane[4], a.lane[5] * b.lane[5],
            a.lane[6] * b.lane[6], a.lane[7] * b.lane[7]}};
}

static inline f16x8 cast_f16x8_f32x8(f32x8 a) {
    return f16x8{{(half)a.lane[0], (half)a.lane[1], (half)a.lane[2], (half)a.lane[3],
            (half)a.lane[4], (half)a.lane[5], (half)a.lane[6], (half)a.lane[7]}};
}

static inline f16x8 operator+(f16x8 a, f16x8 b) {
    return f16x8{{a.lane[0] + b.lane[0], a.lane[1] + b.lane[1], a.lane[2] + b.lane[2],
            a.lane[3] + b.lane[3], a.lane[4] + b.lane[4], a.lane[5] + b.lane[5],
            a.lane[6] + b.lane[6], a.lane[7] + b.lane[7]}};
}

[[max_total_threads_per_threadgroup(256)]]
kernel void mix_halves(
    device const half* a [[buffer(0)]],
    device const ushort* b [[buffer(1)]],
    device half* out [[buffer(2)]],
    constant Arguments& arguments [[buffer(3)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    // kernels.py:127: i = cp.ABSOLUTE_POS
    const int i = (int)cube_position.x * 256 + (int)unit_position.x;
    // kernels.py:128: if i < out.size
    if (i < ((arguments.out_shape0 + 7) >> 3)) {
        // kernels.py:129: out[i] = cp.f16(cp.f32(a[i]) * cp.f32(b[i])) + a[i]
        const int v1 = i * 8;
        const u32x8 v2 = cast_u32x8_u16x8(bitcast_u16x8_bf16x8(*(const device bf16x8*)(b
                + v1))) << splat_u32x8(16u);
        const f16x8 v3 = cast_f16x8_f32x8(cast_f32x8_f16x8(*(const device f16x8*)(a + v1))
                * bitcast_f32x8_u32x8(v2));
        *(device f16x8*)(out + v1) = v3 + *(const device f16x8*)(a + v1);
    }
}
