static __device__ __forceinline__ void sync_dependencies() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

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
    sync_dependencies();
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
    const int v1 = unit_x & 31;
    const int v2 = v1 >> 2;
    const int v3 = (v1 & 3) * 2;
    const int v4 = i + v2;
    const unsigned int v5 = (unsigned int)a_stride0;
    const unsigned int v6 = (unsigned int)v4 * v5;
    const int v7 = v3 + 1;
    const int v8 = i + (v2 + 8);
    const unsigned int v9 = (unsigned int)v8 * v5;
    const int v10 = v3 + 8;
    const int v11 = v3 + 9;
    const bool v12 = v4 < a_shape0;
    const bool v13 = v8 < a_shape0;
    // kernels.py:193: cp.cmma.load(right, b, (k, j))
    const int v14 = j + v2;
    const bool v15 = v14 < b_shape1;
    // kernels.py:191: for k in range(0, a.shape[1], 16)
    const bool v16 = i <= a_shape0 - 16;
    const int v17 = a_shape1 - 16;
    const int v18 = b_shape0 - 16;
    const bool v19 = j <= b_shape1 - 8;
    for (int k = 0; k < a_shape1; k += 16) {
        // kernels.py:192: cp.cmma.load(left, a, (i, k))
        if (v16 && k <= v17) {
            const unsigned int v20 = (unsigned int)(k + v3);
            const unsigned int v21 = (unsigned int)(k + v7);
            const unsigned int v22 = (unsigned int)(unsigned short)a[(int)(v6 + v20)]
                    | ((unsigned int)(unsigned short)a[(int)(v6 + v21)] << 16u);
            held[0] = v22;
            const unsigned int v23 = (unsigned int)(unsigned short)a[(int)(v9 + v20)]
                    | ((unsigned int)(unsigned short)a[(int)(v9 + v21)] << 16u);
            held[1] = v23;
            const unsigned int v24 = (unsigned int)(k + v10);
            const unsigned int v25 = (unsigned int)(k + v11);
            const unsigned int v26 = (unsigned int)(unsigned short)a[(int)(v6 + v24)]
                    | ((unsigned int)(unsigned short)a[(int)(v6 + v25)] << 16u);
            held[2] = v26;
            const unsigned int v27 = (unsigned int)(unsigned short)a[(int)(v9 + v24)]
                    | ((unsigned int)(unsigned short)a[(int)(v9 + v25)] << 16u);
            held[3] = v27;
        } else {
            const int v28 = k + v3;
            const bool v29 = v28 < a_shape1;
            const half either = v12 && v29 ? a[(int)(v6 + (unsigned int)v28)] : 0x0000;
            const int v30 = k + v7;
            const bool v31 = v30 < a_shape1;
            const half either_1 = v12 && v31 ? a[(int)(v6 + (unsigned int)v30)] : 0x0000;
            const unsigned int v32 = (unsigned int)(unsigned short)either
                    | ((unsigned int)(unsigned short)either_1 << 16u);
            held[0] = v32;
            const half either_2 = v13 && v29 ? a[(int)(v9 + (unsigned int)v28)] : 0x0000;
            const half either_3 = v13 && v31 ? a[(int)(v9 + (unsigned int)v30)] : 0x0000;
            const unsigned int v33 = (unsigned int)(unsigned short)either_2
                    | ((unsigned int)(unsigned short)either_3 << 16u);
            held[1] = v33;
            const int v34 = k + v10;
            const bool v35 = v34 < a_shape1;
            const half either_4 = v12 && v35 ? a[(int)(v6 + (unsigned int)v34)] : 0x0000;
            const int v36 = k + v11;
            const bool v37 = v36 < a_shape1;
            const half either_5 = v12 && v37 ? a[(int)(v6 + (unsigned int)v36)] : 0x0000;
            const unsigned int v38 = (unsigned int)(unsigned short)either_4
                    | ((unsigned int)(unsigned short)either_5 << 16u);
            held[2] = v38;
            const half either_6 = v13 && v35 ? a[(int)(v9 + (unsigned int)v34)] : 0x0000;
            const half either_7 = v13 && v37 ? a[(int)(v9 + (unsigned int)v36)] : 0x0000;
            const unsigned int v39 = (unsigned int)(unsigned short)either_6
                    | ((unsigned int)(unsigned short)either_7 << 16u);
            held[3] = v39;
        }
        // kernels.py:193: cp.cmma.load(right, b, (k, j))
        if (k <= v18 && v19) {
            const unsigned int v40 = (unsigned int)(unsigned short)b[(k + v3) * b_stride0 + v14]
                    | ((unsigned int)(unsigned short)b[(k + v7) * b_stride0 + v14] << 16u);
            held_1[0] = v40;
            const unsigned int v41 = (unsigned int)(unsigned short)b[(k + v10) * b_stride0 + v14]
                    | ((unsigned int)(unsigned short)b[(k + v11) * b_stride0 + v14] << 16u);
            held_1[1] = v41;
        } else {
            const int v42 = k + v3;
            const half either_8 = v42 < b_shape0 && v15 ? b[v42 * b_stride0 + v14] : 0x0000;
            const int v43 = k + v7;
            const half either_9 = v43 < b_shape0 && v15 ? b[v43 * b_stride0 + v14] : 0x0000;
            const unsigned int v44 = (unsigned int)(unsigned short)either_8
                    | ((unsigned int)(unsigned short)either_9 << 16u);
            held_1[0] = v44;
            const int v45 = k + v10;
            const half either_10 = v45 < b_shape0 && v15 ? b[v45 * b_stride0 + v14] : 0x0000;
            const int v46 = k + v11;
            const half either_11 = v46 < b_shape0 && v15 ? b[v46 * b_stride0 + v14] : 0x0000;
            const unsigned int v47 = (unsigned int)(unsigned short)either_10
                    | ((unsigned int)(unsigned short)either_11 << 16u);
            held_1[1] = v47;
        }
        // kernels.py:194: cp.cmma.mma(total, left, right)
        const float4 sums = mma(load_u32x4(held + 0), load_u32x2(held_1 + 0),
                load_f32x4(held_2 + 0));
        store_f32x4(held_2 + 0, sums);
    }
    // kernels.py:195: cp.cmma.store(c, (i, j), total)
    if (i <= c_shape0 - 16 && j <= c_shape1 - 8) {
        const int v48 = j + v3;
        *(float2*)(c + (v4 * c_stride0 + v48)) = load_f32x2(held_2 + 0);
        const float2 part = load_f32x2(held_2 + 2);
        *(float2*)(c + (v8 * c_stride0 + v48)) = part;
    } else {
        const int v49 = j + v3;
        const bool v50 = v4 < c_shape0;
        const bool v51 = v49 < c_shape1;
        if (v50 && v51) {
            c[v4 * c_stride0 + v49] = held_2[0];
        }
        const int v52 = j + v7;
        const bool v53 = v52 < c_shape1;
        if (v50 && v53) {
            c[v4 * c_stride0 + v52] = held_2[1];
        }
        const bool v54 = v8 < c_shape0;
        if (v54 && v51) {
            c[v8 * c_stride0 + v49] = held_2[2];
        }
        if (v54 && v53) {
            c[v8 * c_stride0 + v52] = held_2[3];
        }
    }
    __syncwarp();
}
