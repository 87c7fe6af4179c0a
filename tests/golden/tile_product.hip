#pragma clang fp contract(off)

static __device__ __forceinline__ void sync_plane() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

extern "C" __global__ void __launch_bounds__(64)
tile_product(
    const _Float16* __restrict__ a,
    int a_shape0,
    int a_shape1,
    int a_stride0,
    const _Float16* __restrict__ b,
    int b_shape0,
    int b_shape1,
    int b_stride0,
    float* __restrict__ c,
    int c_shape0,
    int c_shape1,
    int c_stride0) {
    __shared__ __align__(16) _Float16 held[256];
    __shared__ __align__(16) _Float16 held_1[128];
    __align__(16) float held_2[2];
    // kernels.py:187: i, j = cp.CUBE_POS_Y * 16, (cp.CUBE_POS_X * cp.PLANE_COUNT + cp.PLANE_POS)...
    const int i = (int)blockIdx.y * 16;
    const int unit_x = (int)threadIdx.x;
    const int v1 = unit_x >> 6;
    const int j = ((int)blockIdx.x + v1) * 8;
    // kernels.py:190: total = cp.cmma.fragment("accumulator", 16, 8, cp.f32, fill=0)
    held_2[0] = 0.0f;
    held_2[1] = 0.0f;
    // kernels.py:192: cp.cmma.load(left, a, (i, k))
    const int v2 = unit_x & 63;
    const int v3 = v1 * 256;
    // kernels.py:193: cp.cmma.load(right, b, (k, j))
    const int v4 = v1 * 128;
    // kernels.py:191: for k in range(0, a.shape[1], 16)
    for (int k = 0; k < a_shape1; k += 16) {
        // kernels.py:192: cp.cmma.load(left, a, (i, k))
        sync_plane();
        for (int e = v2; e < 256; e += 64) {
            const int r = e >> 4;
            const int c1 = e & 15;
            const int v5 = i + r;
            const int v6 = k + c1;
            const _Float16 value = v5 < a_shape0 && v6 < a_shape1 ? a[v5 * a_stride0 + v6] : 0.0f16;
            held[v3 + r * 16 + c1] = value;
        }
        sync_plane();
        // kernels.py:193: cp.cmma.load(right, b, (k, j))
        sync_plane();
        for (int e1 = v2; e1 < 128; e1 += 64) {
            const int r1 = e1 >> 3;
            const int c2 = e1 & 7;
            const int v7 = k + r1;
            const int v8 = j + c2;
            const _Float16 value_1 = v7 < b_shape0 && v8 < b_shape1 ? b[v7 * b_stride0 + v8]
                    : 0.0f16;
            held_1[v4 + r1 * 8 + c2] = value_1;
        }
        sync_plane();
        // kernels.py:194: cp.cmma.mma(total, left, right)
        float value_2 = held_2[0];
        const int v9 = v2 & 7;
        const int v10 = v3 + (v2 >> 3) * 16;
        for (int k1 = 0; k1 < 16; ++k1) {
            value_2 = fmaf((float)held[v10 + k1], (float)held_1[v4 + k1 * 8 + v9], value_2);
        }
        held_2[0] = value_2;
        const int v11 = 64 + v2;
        const float value_3 = held_2[1];
        float value_4 = value_3;
        const int v12 = v11 & 7;
        const int v13 = v3 + (v11 >> 3) * 16;
        for (int k2 = 0; k2 < 16; ++k2) {
            const _Float16 left = held[v13 + k2];
            const _Float16 right = held_1[v4 + k2 * 8 + v12];
            value_4 = fmaf((float)left, (float)right, value_4);
        }
        held_2[1] = value_4;
    }
    // kernels.py:195: cp.cmma.store(c, (i, j), total)
    if (i <= c_shape0 - 16 && j <= c_shape1 - 8) {
        c[(i + (v2 >> 3)) * c_stride0 + (j + (v2 & 7))] = held_2[0];
        const int v14 = 64 + v2;
        c[(i + (v14 >> 3)) * c_stride0 + (j + (v14 & 7))] = held_2[1];
    } else {
        const int v15 = i + (v2 >> 3);
        const int v16 = j + (v2 & 7);
        if (v15 < c_shape0 && v16 < c_shape1) {
            c[v15 * c_stride0 + v16] = held_2[0];
        }
        const int v17 = 64 + v2;
        const int v18 = i + (v17 >> 3);
        const int v19 = j + (v17 & 7);
        if (v18 < c_shape0 && v19 < c_shape1) {
            c[v18 * c_stride0 + v19] = held_2[1];
        }
    }
    sync_plane();
}
