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
    left.thread_elements() = a;
    right.thread_elements() = b;
    sums.thread_elements() = c;
    simdgroup_multiply_accumulate(sums, left, right, sums);
    return sums.thread_elements();
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
    const int v1 = i + 16;
    const int v2 = unit_x & 31;
    const int v3 = (v2 >> 4) * 4 + ((v2 >> 1) & 3);
    const int v4 = ((v2 >> 3) & 1) * 4 + (v2 & 1) * 2;
    const int v5 = i + v3;
    const uint v6 = (uint)arguments.a_stride0;
    const uint v7 = (uint)v5 * v6;
    const int v8 = v4 + 1;
    const int v9 = 8 + v4;
    const int v10 = v4 + 9;
    const int v11 = 8 + v3;
    const int v12 = i + v11;
    const uint v13 = (uint)v12 * v6;
    const bool v14 = v5 < arguments.a_shape0;
    const bool v15 = v12 < arguments.a_shape0;
    // kernels.py:193: cp.cmma.load(right, b, (k, j))
    const int v16 = j + 8;
    const int v17 = j + v4;
    const int v18 = j + v8;
    const bool v19 = v17 < arguments.b_shape1;
    const bool v20 = v18 < arguments.b_shape1;
    // kernels.py:191: for k in range(0, a.shape[1], 16)
    const bool v21 = v1 <= arguments.a_shape0;
    const bool v22 = v16 <= arguments.b_shape1;
    for (int k = 0; k < arguments.a_shape1; k += 16) {
        // kernels.py:192: cp.cmma.load(left, a, (i, k))
        const int v23 = k + 16;
        if (v21 && v23 <= arguments.a_shape1) {
            const uint v24 = (uint)(k + v4);
            held[0] = a[(int)(v7 + v24)];
            const uint v25 = (uint)(k + v8);
            held[1] = a[(int)(v7 + v25)];
            const uint v26 = (uint)(k + v9);
            held[2] = a[(int)(v7 + v26)];
            const uint v27 = (uint)(k + v10);
            held[3] = a[(int)(v7 + v27)];
            held[4] = a[(int)(v13 + v24)];
            held[5] = a[(int)(v13 + v25)];
            held[6] = a[(int)(v13 + v26)];
            held[7] = a[(int)(v13 + v27)];
        } else {
            const int v28 = k + v4;
            const bool v29 = v28 < arguments.a_shape1;
            const half either = v14 && v29 ? a[(int)(v7 + (uint)v28)] : 0.0h;
            held[0] = either;
            const int v30 = k + v8;
            const bool v31 = v30 < arguments.a_shape1;
            const half either_1 = v14 && v31 ? a[(int)(v7 + (uint)v30)] : 0.0h;
            held[1] = either_1;
            const int v32 = k + v9;
            const bool v33 = v32 < arguments.a_shape1;
            const half either_2 = v14 && v33 ? a[(int)(v7 + (uint)v32)] : 0.0h;
            held[2] = either_2;
            const int v34 = k + v10;
            const bool v35 = v34 < arguments.a_shape1;
            const half either_3 = v14 && v35 ? a[(int)(v7 + (uint)v34)] : 0.0h;
            held[3] = either_3;
            const half either_4 = v15 && v29 ? a[(int)(v13 + (uint)v28)] : 0.0h;
            held[4] = either_4;
            const half either_5 = v15 && v31 ? a[(int)(v13 + (uint)v30)] : 0.0h;
            held[5] = either_5;
            const half either_6 = v15 && v33 ? a[(int)(v13 + (uint)v32)] : 0.0h;
            held[6] = either_6;
            const half either_7 = v15 && v35 ? a[(int)(v13 + (uint)v34)] : 0.0h;
            held[7] = either_7;
        }
        // kernels.py:193: cp.cmma.load(right, b, (k, j))
        if (v23 <= arguments.b_shape0 && v22) {
            const uint v36 = (uint)arguments.b_stride0;
            const uint v37 = (uint)(k + v3) * v36;
            const uint v38 = (uint)v17;
            held_1[0] = b[(int)(v37 + v38)];
            const uint v39 = (uint)v18;
            held_1[1] = b[(int)(v37 + v39)];
            const uint v40 = (uint)(k + v11) * v36;
            held_1[2] = b[(int)(v40 + v38)];
            held_1[3] = b[(int)(v40 + v39)];
        } else {
            const int v41 = k + v3;
            const bool v42 = v41 < arguments.b_shape0;
            half either_8;
            if (v42 && v19) {
                either_8 = b[(int)((uint)v41 * (uint)arguments.b_stride0 + (uint)v17)];
            } else {
                either_8 = 0.0h;
            }
            held_1[0] = either_8;
            half either_9;
            if (v42 && v20) {
                either_9 = b[(int)((uint)v41 * (uint)arguments.b_stride0 + (uint)v18)];
            } else {
                either_9 = 0.0h;
            }
            held_1[1] = either_9;
            const int v43 = k + v11;
            const bool v44 = v43 < arguments.b_shape0;
            half either_10;
            if (v44 && v19) {
                either_10 = b[(int)((uint)v43 * (uint)arguments.b_stride0 + (uint)v17)];
            } else {
                either_10 = 0.0h;
            }
            held_1[2] = either_10;
            half either_11;
            if (v44 && v20) {
                either_11 = b[(int)((uint)v43 * (uint)arguments.b_stride0 + (uint)v18)];
            } else {
                either_11 = 0.0h;
            }
            held_1[3] = either_11;
        }
        // kernels.py:194: cp.cmma.mma(total, left, right)
        const float2 v45 = multiply_accumulate_half(load_f16x2_local(held + 0),
                load_f16x2_local(held_1 + 0), load_f32x2_local(held_2 + 0));
        const float2 v46 = multiply_accumulate_half(load_f16x2_local(held + 2),
                load_f16x2_local(held_1 + 2), v45);
        store_f32x2_local(held_2 + 0, v46);
        const float2 v47 = multiply_accumulate_half(load_f16x2_local(held + 4),
                load_f16x2_local(held_1 + 0), load_f32x2_local(held_2 + 2));
        const float2 sums = multiply_accumulate_half(load_f16x2_local(held + 6),
                load_f16x2_local(held_1 + 2), v47);
        store_f32x2_local(held_2 + 2, sums);
    }
    // kernels.py:195: cp.cmma.store(c, (i, j), total)
    if (v1 <= arguments.c_shape0 && v16 <= arguments.c_shape1) {
        *(device float2*)(c + (v5 * arguments.c_stride0 + v17)) = load_f32x2_local(held_2 + 0);
        const float2 part = load_f32x2_local(held_2 + 2);
        *(device float2*)(c + (v12 * arguments.c_stride0 + v17)) = part;
    } else {
        const bool v48 = v5 < arguments.c_shape0;
        const bool v49 = v17 < arguments.c_shape1;
        if (v48 && v49) {
            c[v5 * arguments.c_stride0 + v17] = held_2[0];
        }
        const bool v50 = v18 < arguments.c_shape1;
        if (v48 && v50) {
            c[v5 * arguments.c_stride0 + v18] = held_2[1];
        }
        const bool v51 = v12 < arguments.c_shape0;
        if (v51 && v49) {
            c[v12 * arguments.c_stride0 + v17] = held_2[2];
        }
        if (v51 && v50) {
            c[v12 * arguments.c_stride0 + v18] = held_2[3];
        }
    }
    simdgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
}
