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

static __device__ __forceinline__ float2 load_f32x2(const float* from) {
    return make_float2(from[0], from[1]);
}

extern "C" __global__ void __launch_bounds__(64)
tile_product(
    const half* __restrict__ a,
    int a_shape0,
    int a_shape1,
    int a_stride0,
    const half* __restrict__ b,
    int b_shape0,
    int b_shape1,
    int b_stride0,
    float* __restrict__ c,
    int c_shape0,
    int c_shape1,
    int c_stride0) {
    __align__(16) unsigned int held[4];
    __align__(16) unsigned int held_1[2];
    __align__(16) float held_2[4];
    // kernels.py:187: i, j = cp.CUBE_POS_Y * 16, (cp.CUBE_POS_X * cp.PLANE_COUNT + cp.PLANE_POS)...
    const int i = (int)blockIdx.y * 16;
    const int unit_x = (int)threadIdx.x;
    const int j = ((int)blockIdx.x * 2 + (unit_x >> 5)) * 8;
    // kernels.py:190: total = cp.cmma.fragment("accumulator", 16, 8, cp.f32, fill=0)
    held_2[0] = 0.0f;
    held_2[1] = 0.0f;
    held_2[2] = 0.0f;
    held_2[3] = 0.0f;
    // kernels.py:192: cp.cmma.load(left, a, (i, k))
    const int v1 = i + 16;
    const int v2 = unit_x & 31;
    const int v3 = v2 >> 2;
    const int v4 = (v2 & 3) * 2;
    const int v5 = i + v3;
    const unsigned int v6 = (unsigned int)a_stride0;
    const unsigned int v7 = (unsigned int)v5 * v6;
    const int v8 = v4 + 1;
    const int v9 = i + (v3 + 8);
    const unsigned int v10 = (unsigned int)v9 * v6;
    const int v11 = v4 + 8;
    const int v12 = v4 + 9;
    const bool v13 = v5 < a_shape0;
    const bool v14 = v9 < a_shape0;
    // kernels.py:193: cp.cmma.load(right, b, (k, j))
    const int v15 = j + 8;
    const int v16 = j + v3;
    const bool v17 = v16 < b_shape1;
    // kernels.py:191: for k in range(0, a.shape[1], 16)
    const bool v18 = v1 <= a_shape0;
    const bool v19 = v15 <= b_shape1;
    for (int k = 0; k < a_shape1; k += 16) {
        // kernels.py:192: cp.cmma.load(left, a, (i, k))
        const int v20 = k + 16;
        if (v18 && v20 <= a_shape1) {
            const unsigned int v21 = (unsigned int)(k + v4);
            const unsigned int v22 = (unsigned int)(k + v8);
            const unsigned int v23 = (unsigned int)(unsigned short)a[(int)(v7 + v21)]
                    | ((unsigned int)(unsigned short)a[(int)(v7 + v22)] << 16u);
            held[0] = v23;
            const unsigned int v24 = (unsigned int)(unsigned short)a[(int)(v10 + v21)]
                    | ((unsigned int)(unsigned short)a[(int)(v10 + v22)] << 16u);
            held[1] = v24;
            const unsigned int v25 = (unsigned int)(k + v11);
            const unsigned int v26 = (unsigned int)(k + v12);
            const unsigned int v27 = (unsigned int)(unsigned short)a[(int)(v7 + v25)]
                    | ((unsigned int)(unsigned short)a[(int)(v7 + v26)] << 16u);
            held[2] = v27;
            const unsigned int v28 = (unsigned int)(unsigned short)a[(int)(v10 + v25)]
                    | ((unsigned int)(unsigned short)a[(int)(v10 + v26)] << 16u);
            held[3] = v28;
        } else {
            const int v29 = k + v4;
            const bool v30 = v29 < a_shape1;
            const half either = v13 && v30 ? a[(int)(v7 + (unsigned int)v29)] : 0x0000;
            const int v31 = k + v8;
            const bool v32 = v31 < a_shape1;
            const half either_1 = v13 && v32 ? a[(int)(v7 + (unsigned int)v31)] : 0x0000;
            const unsigned int v33 = (unsigned int)(unsigned short)either
                    | ((unsigned int)(unsigned short)either_1 << 16u);
            held[0] = v33;
            const half either_2 = v14 && v30 ? a[(int)(v10 + (unsigned int)v29)] : 0x0000;
            const half either_3 = v14 && v32 ? a[(int)(v10 + (unsigned int)v31)] : 0x0000;
            const unsigned int v34 = (unsigned int)(unsigned short)either_2
                    | ((unsigned int)(unsigned short)either_3 << 16u);
            held[1] = v34;
            const int v35 = k + v11;
            const bool v36 = v35 < a_shape1;
            const half either_4 = v13 && v36 ? a[(int)(v7 + (unsigned int)v35)] : 0x0000;
            const int v37 = k + v12;
            const bool v38 = v37 < a_shape1;
            const half either_5 = v13 && v38 ? a[(int)(v7 + (unsigned int)v37)] : 0x0000;
            const unsigned int v39 = (unsigned int)(unsigned short)either_4
                    | ((unsigned int)(unsigned short)either_5 << 16u);
            held[2] = v39;
            const half either_6 = v14 && v36 ? a[(int)(v10 + (unsigned int)v35)] : 0x0000;
            const half either_7 = v14 && v38 ? a[(int)(v10 + (unsigned int)v37)] : 0x0000;
            const unsigned int v40 = (unsigned int)(unsigned short)either_6
                    | ((unsigned int)(unsigned short)either_7 << 16u);
            held[3] = v40;
        }
        // kernels.py:193: cp.cmma.load(right, b, (k, j))
        if (v20 <= b_shape0 && v19) {
            const unsigned int v41 = (unsigned int)b_stride0;
            const unsigned int v42 = (unsigned int)v16;
            const unsigned int v43 = (unsigned int)(unsigned short)b[(int)((unsigned int)(k + v8)
                    * v41 + v42)] << 16u;
            held_1[0] = (unsigned int)(unsigned short)b[(int)((unsigned int)(k + v4) * v41 + v42)]
                    | v43;
            const unsigned int v44 = (unsigned int)(unsigned short)b[(int)((unsigned int)(k + v12)
                    * v41 + v42)] << 16u;
            const unsigned int v45 = (unsigned int)(unsigned short)b[(int)((unsigned int)(k + v11)
                    * v41 + v42)] | v44;
            held_1[1] = v45;
        } else {
            const int v46 = k + v4;
            half either_8;
            if (v46 < b_shape0 && v17) {
                either_8 = b[(int)((unsigned int)v46 * (unsigned int)b_stride0
                        + (unsigned int)v16)];
            } else {
                either_8 = 0x0000;
            }
            const int v47 = k + v8;
            half either_9;
            if (v47 < b_shape0 && v17) {
                either_9 = b[(int)((unsigned int)v47 * (unsigned int)b_stride0
                        + (unsigned int)v16)];
            } else {
                either_9 = 0x0000;
            }
            const unsigned int v48 = (unsigned int)(unsigned short)either_8
                    | ((unsigned int)(unsigned short)either_9 << 16u);
            held_1[0] = v48;
            const int v49 = k + v11;
            half either_10;
            if (v49 < b_shape0 && v17) {
                either_10 = b[(int)((unsigned int)v49 * (unsigned int)b_stride0
                        + (unsigned int)v16)];
            } else {
                either_10 = 0x0000;
            }
            const int v50 = k + v12;
            half either_11;
            if (v50 < b_shape0 && v17) {
                either_11 = b[(int)((unsigned int)v50 * (unsigned int)b_stride0
                        + (unsigned int)v16)];
            } else {
                either_11 = 0x0000;
            }
            const unsigned int v51 = (unsigned int)(unsigned short)either_10
                    | ((unsigned int)(unsigned short)either_11 << 16u);
            held_1[1] = v51;
        }
        // kernels.py:194: cp.cmma.mma(total, left, right)
        const float4 sums = mma(load_u32x4(held + 0), load_u32x2(held_1 + 0),
                load_f32x4(held_2 + 0));
        store_f32x4(held_2 + 0, sums);
    }
    // kernels.py:195: cp.cmma.store(c, (i, j), total)
    if (v1 <= c_shape0 && v15 <= c_shape1) {
        const int v52 = j + v4;
        *(float2*)(c + (v5 * c_stride0 + v52)) = load_f32x2(held_2 + 0);
        const float2 part = load_f32x2(held_2 + 2);
        *(float2*)(c + (v9 * c_stride0 + v52)) = part;
    } else {
        const int v53 = j + v4;
        const bool v54 = v5 < c_shape0;
        const bool v55 = v53 < c_shape1;
        if (v54 && v55) {
            c[v5 * c_stride0 + v53] = held_2[0];
        }
        const int v56 = j + v8;
        const bool v57 = v56 < c_shape1;
        if (v54 && v57) {
            c[v5 * c_stride0 + v56] = held_2[1];
        }
        const bool v58 = v9 < c_shape0;
        if (v58 && v55) {
            c[v9 * c_stride0 + v53] = held_2[2];
        }
        if (v58 && v57) {
            c[v9 * c_stride0 + v56] = held_2[3];
        }
    }
    __syncwarp();
}
