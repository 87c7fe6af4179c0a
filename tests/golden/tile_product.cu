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
    const bool v20 = 0 <= v19;
    const bool v21 = v19 < b_shape1;
    // kernels.py:191: for k in range(0, a.shape[1], 16)
    const bool v22 = v2 <= a_shape0;
    const bool v23 = v18 <= b_shape1;
    for (long long k = 0; k < a_shape1; k += 16) {
        // kernels.py:192: cp.cmma.load(left, a, (i, k))
        const bool v24 = k >= 0;
        const long long v25 = k + 16;
        if (v1 && v24 && v22 && v25 <= a_shape1) {
            const long long v26 = k + v5;
            const long long v27 = k + v8;
            const unsigned int v28 = (unsigned int)(unsigned short)a[v7 + v26]
                    | ((unsigned int)(unsigned short)a[v7 + v27] << 16u);
            held[0] = v28;
            const unsigned int v29 = (unsigned int)(unsigned short)a[v10 + v26]
                    | ((unsigned int)(unsigned short)a[v10 + v27] << 16u);
            held[1] = v29;
            const long long v30 = k + v11;
            const long long v31 = k + v12;
            const unsigned int v32 = (unsigned int)(unsigned short)a[v7 + v30]
                    | ((unsigned int)(unsigned short)a[v7 + v31] << 16u);
            held[2] = v32;
            const unsigned int v33 = (unsigned int)(unsigned short)a[v10 + v30]
                    | ((unsigned int)(unsigned short)a[v10 + v31] << 16u);
            held[3] = v33;
        } else {
            const long long v34 = k + v5;
            const bool v35 = 0 <= v34;
            const bool v36 = v34 < a_shape1;
            const half either = v14 && v35 && v36 ? a[v7 + v34] : 0x0000;
            const long long v37 = k + v8;
            const bool v38 = 0 <= v37;
            const bool v39 = v37 < a_shape1;
            const half either_1 = v14 && v38 && v39 ? a[v7 + v37] : 0x0000;
            const unsigned int v40 = (unsigned int)(unsigned short)either
                    | ((unsigned int)(unsigned short)either_1 << 16u);
            held[0] = v40;
            const half either_2 = v16 && v35 && v36 ? a[v10 + v34] : 0x0000;
            const half either_3 = v16 && v38 && v39 ? a[v10 + v37] : 0x0000;
            const unsigned int v41 = (unsigned int)(unsigned short)either_2
                    | ((unsigned int)(unsigned short)either_3 << 16u);
            held[1] = v41;
            const long long v42 = k + v11;
            const bool v43 = 0 <= v42;
            const bool v44 = v42 < a_shape1;
            const half either_4 = v14 && v43 && v44 ? a[v7 + v42] : 0x0000;
            const long long v45 = k + v12;
            const bool v46 = 0 <= v45;
            const bool v47 = v45 < a_shape1;
            const half either_5 = v14 && v46 && v47 ? a[v7 + v45] : 0x0000;
            const unsigned int v48 = (unsigned int)(unsigned short)either_4
                    | ((unsigned int)(unsigned short)either_5 << 16u);
            held[2] = v48;
            const half either_6 = v16 && v43 && v44 ? a[v10 + v42] : 0x0000;
            const half either_7 = v16 && v46 && v47 ? a[v10 + v45] : 0x0000;
            const unsigned int v49 = (unsigned int)(unsigned short)either_6
                    | ((unsigned int)(unsigned short)either_7 << 16u);
            held[3] = v49;
        }
        // kernels.py:193: cp.cmma.load(right, b, (k, j))
        if (v24 && v17 && v25 <= b_shape0 && v23) {
            const unsigned int v50 = (unsigned int)(unsigned short)b[(k + v5) * b_stride0 + v19]
                    | ((unsigned int)(unsigned short)b[(k + v8) * b_stride0 + v19] << 16u);
            held_1[0] = v50;
            const unsigned int v51 = (unsigned int)(unsigned short)b[(k + v11) * b_stride0 + v19]
                    | ((unsigned int)(unsigned short)b[(k + v12) * b_stride0 + v19] << 16u);
            held_1[1] = v51;
        } else {
            const long long v52 = k + v5;
            const half either_8 = 0 <= v52 && v52 < b_shape0 && v20 && v21 ? b[v52 * b_stride0
                    + v19] : 0x0000;
            const long long v53 = k + v8;
            const half either_9 = 0 <= v53 && v53 < b_shape0 && v20 && v21 ? b[v53 * b_stride0
                    + v19] : 0x0000;
            const unsigned int v54 = (unsigned int)(unsigned short)either_8
                    | ((unsigned int)(unsigned short)either_9 << 16u);
            held_1[0] = v54;
            const long long v55 = k + v11;
            const half either_10 = 0 <= v55 && v55 < b_shape0 && v20 && v21 ? b[v55 * b_stride0
                    + v19] : 0x0000;
            const long long v56 = k + v12;
            const half either_11 = 0 <= v56 && v56 < b_shape0 && v20 && v21 ? b[v56 * b_stride0
                    + v19] : 0x0000;
            const unsigned int v57 = (unsigned int)(unsigned short)either_10
                    | ((unsigned int)(unsigned short)either_11 << 16u);
            held_1[1] = v57;
        }
        // kernels.py:194: cp.cmma.mma(total, left, right)
        const float4 sums = mma(load_u32x4(held + 0), load_u32x2(held_1 + 0),
                load_f32x4(held_2 + 0));
        store_f32x4(held_2 + 0, sums);
    }
    // kernels.py:195: cp.cmma.store(c, (i, j), total)
    if (v1 && v17 && v2 <= c_shape0 && v18 <= c_shape1) {
        const long long v58 = j + v5;
        const long long v59 = v6 * c_stride0;
        c[v59 + v58] = held_2[0];
        const long long v60 = j + v8;
        c[v59 + v60] = held_2[1];
        const long long v61 = v9 * c_stride0;
        c[v61 + v58] = held_2[2];
        c[v61 + v60] = held_2[3];
    } else {
        const long long v62 = j + v5;
        const bool v63 = v13 && v6 < c_shape0;
        const bool v64 = 0 <= v62;
        const bool v65 = v62 < c_shape1;
        if (v63 && v64 && v65) {
            c[v6 * c_stride0 + v62] = held_2[0];
        }
        const long long v66 = j + v8;
        const bool v67 = 0 <= v66;
        const bool v68 = v66 < c_shape1;
        if (v63 && v67 && v68) {
            c[v6 * c_stride0 + v66] = held_2[1];
        }
        const bool v69 = v15 && v9 < c_shape0;
        if (v69 && v64 && v65) {
            c[v9 * c_stride0 + v62] = held_2[2];
        }
        if (v69 && v67 && v68) {
            c[v9 * c_stride0 + v66] = held_2[3];
        }
    }
    __syncwarp();
}
