#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) long a_shape0;
    alignas(8) long a_shape1;
    alignas(8) long a_stride0;
    alignas(8) long b_shape0;
    alignas(8) long b_shape1;
    alignas(8) long b_stride0;
    alignas(8) long c_shape0;
    alignas(8) long c_shape1;
    alignas(8) long c_stride0;
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
    const long i = (long)cube_position.y * 16;
    const long unit_x = (long)unit_position.x;
    const long j = ((long)cube_position.x * 2 + unit_x / 32) * 8;
    // kernels.py:190: total = cp.cmma.fragment("accumulator", 16, 8, cp.f32, fill=0)
    held_2[0] = 0.0f;
    held_2[1] = 0.0f;
    held_2[2] = 0.0f;
    held_2[3] = 0.0f;
    // kernels.py:192: cp.cmma.load(left, a, (i, k))
    const bool v1 = i >= 0;
    const long v2 = i + 16;
    const long v3 = unit_x % 32;
    const long v4 = v3 / 16 * 4 + v3 / 2 % 4;
    const long v5 = v3 / 8 % 2 * 4 + v3 % 2 * 2;
    const long v6 = i + v4;
    const long v7 = v6 * arguments.a_stride0;
    const long v8 = v5 + 1;
    const long v9 = 8 + v5;
    const long v10 = v5 + 9;
    const long v11 = 8 + v4;
    const long v12 = i + v11;
    const long v13 = v12 * arguments.a_stride0;
    const bool v14 = 0 <= v6;
    const bool v15 = v14 && v6 < arguments.a_shape0;
    const bool v16 = 0 <= v12;
    const bool v17 = v16 && v12 < arguments.a_shape0;
    // kernels.py:193: cp.cmma.load(right, b, (k, j))
    const bool v18 = j >= 0;
    const long v19 = j + 8;
    const long v20 = j + v5;
    const long v21 = j + v8;
    const bool v22 = 0 <= v20;
    const bool v23 = v22 && v20 < arguments.b_shape1;
    const bool v24 = 0 <= v21;
    const bool v25 = v24 && v21 < arguments.b_shape1;
    // kernels.py:191: for k in range(0, a.shape[1], 16)
    const bool v26 = v2 <= arguments.a_shape0;
    const bool v27 = v19 <= arguments.b_shape1;
    for (long k = 0; k < arguments.a_shape1; k += 16) {
        // kernels.py:192: cp.cmma.load(left, a, (i, k))
        const bool v28 = k >= 0;
        const long v29 = k + 16;
        if (v1 && v28 && v26 && v29 <= arguments.a_shape1) {
            const long v30 = k + v5;
            held[0] = a[v7 + v30];
            const long v31 = k + v8;
            held[1] = a[v7 + v31];
            const long v32 = k + v9;
            held[2] = a[v7 + v32];
            const long v33 = k + v10;
            held[3] = a[v7 + v33];
            held[4] = a[v13 + v30];
            held[5] = a[v13 + v31];
            held[6] = a[v13 + v32];
            held[7] = a[v13 + v33];
        } else {
            const long v34 = k + v5;
            const bool v35 = 0 <= v34 && v34 < arguments.a_shape1;
            const half either = v15 && v35 ? a[v7 + v34] : 0.0h;
            held[0] = either;
            const long v36 = k + v8;
            const bool v37 = 0 <= v36 && v36 < arguments.a_shape1;
            const half either_1 = v15 && v37 ? a[v7 + v36] : 0.0h;
            held[1] = either_1;
            const long v38 = k + v9;
            const bool v39 = 0 <= v38 && v38 < arguments.a_shape1;
            const half either_2 = v15 && v39 ? a[v7 + v38] : 0.0h;
            held[2] = either_2;
            const long v40 = k + v10;
            const bool v41 = 0 <= v40 && v40 < arguments.a_shape1;
            const half either_3 = v15 && v41 ? a[v7 + v40] : 0.0h;
            held[3] = either_3;
            const half either_4 = v17 && v35 ? a[v13 + v34] : 0.0h;
            held[4] = either_4;
            const half either_5 = v17 && v37 ? a[v13 + v36] : 0.0h;
            held[5] = either_5;
            const half either_6 = v17 && v39 ? a[v13 + v38] : 0.0h;
            held[6] = either_6;
            const half either_7 = v17 && v41 ? a[v13 + v40] : 0.0h;
            held[7] = either_7;
        }
        // kernels.py:193: cp.cmma.load(right, b, (k, j))
        if (v28 && v18 && v29 <= arguments.b_shape0 && v27) {
            const long v42 = (k + v4) * arguments.b_stride0;
            held_1[0] = b[v42 + v20];
            held_1[1] = b[v42 + v21];
            const long v43 = (k + v11) * arguments.b_stride0;
            held_1[2] = b[v43 + v20];
            held_1[3] = b[v43 + v21];
        } else {
            const long v44 = k + v4;
            const bool v45 = 0 <= v44 && v44 < arguments.b_shape0;
            const half either_8 = v45 && v23 ? b[v44 * arguments.b_stride0 + v20] : 0.0h;
            held_1[0] = either_8;
            const half either_9 = v45 && v25 ? b[v44 * arguments.b_stride0 + v21] : 0.0h;
            held_1[1] = either_9;
            const long v46 = k + v11;
            const bool v47 = 0 <= v46 && v46 < arguments.b_shape0;
            const half either_10 = v47 && v23 ? b[v46 * arguments.b_stride0 + v20] : 0.0h;
            held_1[2] = either_10;
            const half either_11 = v47 && v25 ? b[v46 * arguments.b_stride0 + v21] : 0.0h;
            held_1[3] = either_11;
        }
        // kernels.py:194: cp.cmma.mma(total, left, right)
        const float2 v48 = multiply_accumulate_half(load_f16x2_local(held + 0),
                load_f16x2_local(held_1 + 0), load_f32x2_local(held_2 + 0));
        const float2 v49 = multiply_accumulate_half(load_f16x2_local(held + 2),
                load_f16x2_local(held_1 + 2), v48);
        store_f32x2_local(held_2 + 0, v49);
        const float2 v50 = multiply_accumulate_half(load_f16x2_local(held + 4),
                load_f16x2_local(held_1 + 0), load_f32x2_local(held_2 + 2));
        const float2 sums = multiply_accumulate_half(load_f16x2_local(held + 6),
                load_f16x2_local(held_1 + 2), v50);
        store_f32x2_local(held_2 + 2, sums);
    }
    // kernels.py:195: cp.cmma.store(c, (i, j), total)
    if (v1 && v18 && v2 <= arguments.c_shape0 && v19 <= arguments.c_shape1) {
        const long v51 = v6 * arguments.c_stride0;
        c[v51 + v20] = held_2[0];
        c[v51 + v21] = held_2[1];
        const long v52 = v12 * arguments.c_stride0;
        c[v52 + v20] = held_2[2];
        c[v52 + v21] = held_2[3];
    } else {
        const bool v53 = v14 && v6 < arguments.c_shape0;
        const bool v54 = v22 && v20 < arguments.c_shape1;
        if (v53 && v54) {
            c[v6 * arguments.c_stride0 + v20] = held_2[0];
        }
        const bool v55 = v24 && v21 < arguments.c_shape1;
        if (v53 && v55) {
            c[v6 * arguments.c_stride0 + v21] = held_2[1];
        }
        const bool v56 = v16 && v12 < arguments.c_shape0;
        if (v56 && v54) {
            c[v12 * arguments.c_stride0 + v20] = held_2[2];
        }
        if (v56 && v55) {
            c[v12 * arguments.c_stride0 + v21] = held_2[3];
        }
    }
    simdgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
}
