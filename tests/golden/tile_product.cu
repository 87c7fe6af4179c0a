typedef unsigned short half;

static __device__ __forceinline__ float4 load_f32x4(const float* from) {
    return make_float4(from[0], from[1], from[2], from[3]);
}

static __device__ __forceinline__ uint4 load_u32x4(const unsigned int* from) {
    return make_uint4(from[0], from[1], from[2], from[3]);
}

static __device__ __forceinline__ uint2 load_u32x2(const unsigned int* from) {
    return make_uint2(from[0], from[1]);
}

static __device__ __forceinline__ float4 mma(uint4 a, uint2 b, float4 c) {
    float4 result;
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
        : "=f"(result.x), "=f"(result.y), "=f"(result.z), "=f"(result.w)
        : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "f"(c.x), "f"(c.y),
          "f"(c.z), "f"(c.w)
        : "memory");
    return result;
}

static __device__ __forceinline__ void store_f32x4(float* to, float4 value) {
    to[0] = value.x;
    to[1] = value.y;
    to[2] = value.z;
    to[3] = value.w;
}

extern "C" __global__ void __launch_bounds__(64)
tile_product(
    const half* __restrict__ a,
    long long a_shape0,
    long long a_shape1,
    long long a_stride0,
    const half* __restrict__ b,
    long long b_shape0,
    long long b_shape1,
    long long b_stride0,
    float* __restrict__ c,
    long long c_shape0,
    long long c_shape1,
    long long c_stride0) {
    __align__(16) unsigned int held[4];
    __align__(16) unsigned int held_1[2];
    __align__(16) float held_2[4];
    // kernels.py:187: i, j = cp.CUBE_POS_Y * 16, (cp.CUBE_POS_X * cp.PLANE_COUNT + cp.PLANE_POS)...
    const long long i = (long long)blockIdx.y * 16;
    const long long unit_x = (long long)threadIdx.x;
    const long long j = ((long long)blockIdx.x * 2 + unit_x / 32) * 8;
    // kernels.py:190: total = cp.cmma.fragment("accumulator", 16, 8, cp.f32, fill=0)
    held_2[0] = 0.0f;
    held_2[1] = 0.0f;
    held_2[2] = 0.0f;
    held_2[3] = 0.0f;
    // kernels.py:192: cp.cmma.load(left, a, (i, k))
    const bool v1 = i >= 0;
    const long long v2 = i + 16;
    const long long v3 = unit_x % 32;
    const long long v4 = v3 / 4;
    const long long v5 = v3 % 4 * 2;
    const long long v6 = i + v4;
    const long long v7 = v6 * a_stride0;
    const long long v8 = v5 + 1;
    const long long v9 = i + (v4 + 8);
    const long long v10 = v9 * a_stride0;
    const long long v11 = v5 + 8;
    const long long v12 = v5 + 9;
    const bool v13 = 0 <= v6;
    const bool v14 = v13 && v6 < a_shape0;
    const bool v15 = 0 <= v9;
    const bool v16 = v15 && v9 < a_shape0;
    // kernels.py:193: cp.cmma.load(right, b, (k, j))
    const bool v17 = j >= 0;
    const long long v18 = j + 8;
    const long long v19 = j + v4;
    const bool v20 = 0 <= v19 && v19 < b_shape1;
    // kernels.py:191: for k in range(0, a.shape[1], 16)
    const bool v21 = v2 <= a_shape0;
    const bool v22 = v18 <= b_shape1;
    for (long long k = 0; k < a_shape1; k += 16) {
        // kernels.py:192: cp.cmma.load(left, a, (i, k))
        const bool v23 = k >= 0;
        const long long v24 = k + 16;
        if (v1 && v23 && v21 && v24 <= a_shape1) {
            const long long v25 = k + v5;
            const long long v26 = k + v8;
            const unsigned int v27 = (unsigned int)(unsigned short)a[v7 + v25]
                    | ((unsigned int)(unsigned short)a[v7 + v26] << 16u);
            held[0] = v27;
            const unsigned int v28 = (unsigned int)(unsigned short)a[v10 + v25]
                    | ((unsigned int)(unsigned short)a[v10 + v26] << 16u);
            held[1] = v28;
            const long long v29 = k + v11;
            const long long v30 = k + v12;
            const unsigned int v31 = (unsigned int)(unsigned short)a[v7 + v29]
                    | ((unsigned int)(unsigned short)a[v7 + v30] << 16u);
            held[2] = v31;
            const unsigned int v32 = (unsigned int)(unsigned short)a[v10 + v29]
                    | ((unsigned int)(unsigned short)a[v10 + v30] << 16u);
            held[3] = v32;
        } else {
            const long long v33 = k + v5;
            const bool v34 = 0 <= v33 && v33 < a_shape1;
            const half either = v14 && v34 ? a[v7 + v33] : 0x0000;
            const long long v35 = k + v8;
            const bool v36 = 0 <= v35 && v35 < a_shape1;
            const half either_1 = v14 && v36 ? a[v7 + v35] : 0x0000;
            const unsigned int v37 = (unsigned int)(unsigned short)either
                    | ((unsigned int)(unsigned short)either_1 << 16u);
            held[0] = v37;
            const half either_2 = v16 && v34 ? a[v10 + v33] : 0x0000;
            const half either_3 = v16 && v36 ? a[v10 + v35] : 0x0000;
            const unsigned int v38 = (unsigned int)(unsigned short)either_2
                    | ((unsigned int)(unsigned short)either_3 << 16u);
            held[1] = v38;
            const long long v39 = k + v11;
            const bool v40 = 0 <= v39 && v39 < a_shape1;
            const half either_4 = v14 && v40 ? a[v7 + v39] : 0x0000;
            const long long v41 = k + v12;
            const bool v42 = 0 <= v41 && v41 < a_shape1;
            const half either_5 = v14 && v42 ? a[v7 + v41] : 0x0000;
            const unsigned int v43 = (unsigned int)(unsigned short)either_4
                    | ((unsigned int)(unsigned short)either_5 << 16u);
            held[2] = v43;
            const half either_6 = v16 && v40 ? a[v10 + v39] : 0x0000;
            const half either_7 = v16 && v42 ? a[v10 + v41] : 0x0000;
            const unsigned int v44 = (unsigned int)(unsigned short)either_6
                    | ((unsigned int)(unsigned short)either_7 << 16u);
            held[3] = v44;
        }
        // kernels.py:193: cp.cmma.load(right, b, (k, j))
        if (v23 && v17 && v24 <= b_shape0 && v22) {
            const unsigned int v45 = (unsigned int)(unsigned short)b[(k + v5) * b_stride0 + v19]
                    | ((unsigned int)(unsigned short)b[(k + v8) * b_stride0 + v19] << 16u);
            held_1[0] = v45;
            const unsigned int v46 = (unsigned int)(unsigned short)b[(k + v11) * b_stride0 + v19]
                    | ((unsigned int)(unsigned short)b[(k + v12) * b_stride0 + v19] << 16u);
            held_1[1] = v46;
        } else {
            const long long v47 = k + v5;
            const half either_8 = 0 <= v47 && v47 < b_shape0 && v20 ? b[v47 * b_stride0 + v19]
                    : 0x0000;
            const long long v48 = k + v8;
            const half either_9 = 0 <= v48 && v48 < b_shape0 && v20 ? b[v48 * b_stride0 + v19]
                    : 0x0000;
            const unsigned int v49 = (unsigned int)(unsigned short)either_8
                    | ((unsigned int)(unsigned short)either_9 << 16u);
            held_1[0] = v49;
            const long long v50 = k + v11;
            const half either_10 = 0 <= v50 && v50 < b_shape0 && v20 ? b[v50 * b_stride0 + v19]
                    : 0x0000;
            const long long v51 = k + v12;
            const half either_11 = 0 <= v51 && v51 < b_shape0 && v20 ? b[v51 * b_stride0 + v19]
                    : 0x0000;
            const unsigned int v52 = (unsigned int)(unsigned short)either_10
                    | ((unsigned int)(unsigned short)either_11 << 16u);
            held_1[1] = v52;
        }
        // kernels.py:194: cp.cmma.mma(total, left, right)
        const float4 sums = mma(load_u32x4(held + 0), load_u32x2(held_1 + 0),
                load_f32x4(held_2 + 0));
        store_f32x4(held_2 + 0, sums);
    }
    // kernels.py:195: cp.cmma.store(c, (i, j), total)
    if (v1 && v17 && v2 <= c_shape0 && v18 <= c_shape1) {
        const long long v53 = j + v5;
        const long long v54 = v6 * c_stride0;
        c[v54 + v53] = held_2[0];
        const long long v55 = j + v8;
        c[v54 + v55] = held_2[1];
        const long long v56 = v9 * c_stride0;
        c[v56 + v53] = held_2[2];
        c[v56 + v55] = held_2[3];
    } else {
        const long long v57 = j + v5;
        const bool v58 = v13 && v6 < c_shape0;
        const bool v59 = 0 <= v57 && v57 < c_shape1;
        if (v58 && v59) {
            c[v6 * c_stride0 + v57] = held_2[0];
        }
        const long long v60 = j + v8;
        const bool v61 = 0 <= v60 && v60 < c_shape1;
        if (v58 && v61) {
            c[v6 * c_stride0 + v60] = held_2[1];
        }
        const bool v62 = v15 && v9 < c_shape0;
        if (v62 && v59) {
            c[v9 * c_stride0 + v57] = held_2[2];
        }
        if (v62 && v61) {
            c[v9 * c_stride0 + v60] = held_2[3];
        }
    }
    __syncwarp();
}
