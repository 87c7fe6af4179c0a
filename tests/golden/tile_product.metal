#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int a_shape0;
    alignas(8) int a_shape1;
    alignas(8) int a_stride0;
    alignas(8) int b_shape0;
    alignas(8) int b_shape1;
    alignas(8) int b_stride0;
    alignas(8) int c_shape0;
    alignas(8) int c_shape1;
    alignas(8) int c_stride0;
};

static inline float2 load_f32x2_local(const thread float* from) {
    return float2(from[0], from[1]);
}

static inline half2 load_f16x2_local(const thread half* from) {
    return half2(from[0], from[1]);
}

static inline float2 multiply_accumulate_half(half2 a, half2 b, float2 c) {
    simdgroup_half8x8 left, right;
    simdgroup_float8x8 sums;
    left.thread_elements()[0] = a[0];
    left.thread_elements()[1] = a[1];
    right.thread_elements()[0] = b[0];
    right.thread_elements()[1] = b[1];
    sums.thread_elements()[0] = c[0];
    sums.thread_elements()[1] = c[1];
    simdgroup_multiply_accumulate(sums, left, right, sums);
    return float2(sums.thread_elements()[0], sums.thread_elements()[1]);
}

static inline void store_f32x2_local(thread float* to, float2 value) {
    to[0] = value.x;
    to[1] = value.y;
}

[[max_total_threads_per_threadgroup(64)]]
kernel void tile_product(
    device const half* a [[buffer(0)]],
    device const half* b [[buffer(1)]],
    device float* c [[buffer(2)]],
    constant Arguments& arguments [[buffer(3)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    alignas(16) thread half held[8];
    alignas(16) thread half held_1[4];
    alignas(16) thread float held_2[4];
    // kernels.py:187: i, j = cp.CUBE_POS_Y * 16, (cp.CUBE_POS_X * cp.PLANE_COUNT + cp.PLANE_POS)...
    const int i = (int)cube_position.y * 16;
    const int unit_x = (int)unit_position.x;
    const int j = ((int)cube_position.x * 2 + (unit_x >> 5)) * 8;
    // kernels.py:190: total = cp.cmma.fragment("accumulator", 16, 8, cp.f32, fill=0)
    held_2[0] = 0.0f;
    held_2[1] = 0.0f;
    held_2[2] = 0.0f;
    held_2[3] = 0.0f;
    // kernels.py:192: cp.cmma.load(left, a, (i, k))
    const int v1 = unit_x & 31;
    const int v2 = (v1 >> 4) * 4 + ((v1 >> 1) & 3);
    const int v3 = ((v1 >> 3) & 1) * 4 + (v1 & 1) * 2;
    const int v4 = i + v2;
    const uint v5 = (uint)arguments.a_stride0;
    const uint v6 = (uint)v4 * v5;
    const int v7 = v3 + 1;
    const int v8 = 8 + v3;
    const int v9 = v3 + 9;
    const int v10 = 8 + v2;
    const int v11 = i + v10;
    const uint v12 = (uint)v11 * v5;
    const bool v13 = v4 < arguments.a_shape0;
    const bool v14 = v11 < arguments.a_shape0;
    // kernels.py:193: cp.cmma.load(right, b, (k, j))
    const int v15 = j + v3;
    const int v16 = j + v7;
    const bool v17 = v15 < arguments.b_shape1;
    const bool v18 = v16 < arguments.b_shape1;
    // kernels.py:191: for k in range(0, a.shape[1], 16)
    const bool v19 = i <= arguments.a_shape0 - 16;
    const int v20 = arguments.a_shape1 - 16;
    const int v21 = arguments.b_shape0 - 16;
    const bool v22 = j <= arguments.b_shape1 - 8;
    for (int k = 0; k < arguments.a_shape1; k += 16) {
        // kernels.py:192: cp.cmma.load(left, a, (i, k))
        if (v19 && k <= v20) {
            const uint v23 = (uint)(k + v3);
            held[0] = a[(int)(v6 + v23)];
            const uint v24 = (uint)(k + v7);
            held[1] = a[(int)(v6 + v24)];
            const uint v25 = (uint)(k + v8);
            held[2] = a[(int)(v6 + v25)];
            const uint v26 = (uint)(k + v9);
            held[3] = a[(int)(v6 + v26)];
            held[4] = a[(int)(v12 + v23)];
            held[5] = a[(int)(v12 + v24)];
            held[6] = a[(int)(v12 + v25)];
            held[7] = a[(int)(v12 + v26)];
        } else {
            const int v27 = k + v3;
            const bool v28 = v27 < arguments.a_shape1;
            const half either = v13 && v28 ? a[(int)(v6 + (uint)v27)] : 0.0h;
            held[0] = either;
            const int v29 = k + v7;
            const bool v30 = v29 < arguments.a_shape1;
            const half either_1 = v13 && v30 ? a[(int)(v6 + (uint)v29)] : 0.0h;
            held[1] = either_1;
            const int v31 = k + v8;
            const bool v32 = v31 < arguments.a_shape1;
            const half either_2 = v13 && v32 ? a[(int)(v6 + (uint)v31)] : 0.0h;
            held[2] = either_2;
            const int v33 = k + v9;
            const bool v34 = v33 < arguments.a_shape1;
            const half either_3 = v13 && v34 ? a[(int)(v6 + (uint)v33)] : 0.0h;
            held[3] = either_3;
            const half either_4 = v14 && v28 ? a[(int)(v12 + (uint)v27)] : 0.0h;
            held[4] = either_4;
            const half either_5 = v14 && v30 ? a[(int)(v12 + (uint)v29)] : 0.0h;
            held[5] = either_5;
            const half either_6 = v14 && v32 ? a[(int)(v12 + (uint)v31)] : 0.0h;
            held[6] = either_6;
            const half either_7 = v14 && v34 ? a[(int)(v12 + (uint)v33)] : 0.0h;
            held[7] = either_7;
        }
        // kernels.py:193: cp.cmma.load(right, b, (k, j))
        if (k <= v21 && v22) {
            const int v35 = (k + v2) * arguments.b_stride0;
            held_1[0] = b[v35 + v15];
            held_1[1] = b[v35 + v16];
            const int v36 = (k + v10) * arguments.b_stride0;
            held_1[2] = b[v36 + v15];
            held_1[3] = b[v36 + v16];
        } else {
            const int v37 = k + v2;
            const bool v38 = v37 < arguments.b_shape0;
            const half either_8 = v38 && v17 ? b[v37 * arguments.b_stride0 + v15] : 0.0h;
            held_1[0] = either_8;
            const half either_9 = v38 && v18 ? b[v37 * arguments.b_stride0 + v16] : 0.0h;
            held_1[1] = either_9;
            const int v39 = k + v10;
            const bool v40 = v39 < arguments.b_shape0;
            const half either_10 = v40 && v17 ? b[v39 * arguments.b_stride0 + v15] : 0.0h;
            held_1[2] = either_10;
            const half either_11 = v40 && v18 ? b[v39 * arguments.b_stride0 + v16] : 0.0h;
            held_1[3] = either_11;
        }
        // kernels.py:194: cp.cmma.mma(total, left, right)
        const float2 v41 = multiply_accumulate_half(load_f16x2_local(held + 0),
                load_f16x2_local(held_1 + 0), load_f32x2_local(held_2 + 0));
        const float2 v42 = multiply_accumulate_half(load_f16x2_local(held + 2),
                load_f16x2_local(held_1 + 2), v41);
        store_f32x2_local(held_2 + 0, v42);
        const float2 v43 = multiply_accumulate_half(load_f16x2_local(held + 4),
                load_f16x2_local(held_1 + 0), load_f32x2_local(held_2 + 2));
        const float2 sums = multiply_accumulate_half(load_f16x2_local(held + 6),
                load_f16x2_local(held_1 + 2), v43);
        store_f32x2_local(held_2 + 2, sums);
    }
    // kernels.py:195: cp.cmma.store(c, (i, j), total)
    if (i <= arguments.c_shape0 - 16 && j <= arguments.c_shape1 - 8) {
        *(device float2*)(c + (v4 * arguments.c_stride0 + v15)) = load_f32x2_local(held_2 + 0);
        const float2 part = load_f32x2_local(held_2 + 2);
        *(device float2*)(c + (v11 * arguments.c_stride0 + v15)) = part;
    } else {
        const bool v44 = v4 < arguments.c_shape0;
        const bool v45 = v15 < arguments.c_shape1;
        if (v44 && v45) {
            c[v4 * arguments.c_stride0 + v15] = held_2[0];
        }
        const bool v46 = v16 < arguments.c_shape1;
        if (v44 && v46) {
            c[v4 * arguments.c_stride0 + v16] = held_2[1];
        }
        const bool v47 = v11 < arguments.c_shape0;
        if (v47 && v45) {
            c[v11 * arguments.c_stride0 + v15] = held_2[2];
        }
        if (v47 && v46) {
            c[v11 * arguments.c_stride0 + v16] = held_2[3];
        }
    }
    simdgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
}
