#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void tile_product(
    __global const ushort* restrict a,
    int a_shape0,
    int a_shape1,
    int a_stride0,
    __global const ushort* restrict b,
    int b_shape0,
    int b_shape1,
    int b_stride0,
    __global float* restrict c,
    int c_shape0,
    int c_shape1,
    int c_stride0) {
    ushort held[256] __attribute__((aligned(16)));
    ushort held_1[128] __attribute__((aligned(16)));
    float held_2[128] __attribute__((aligned(16)));
    // kernels.py:187: i, j = cp.CUBE_POS_Y * 16, (cp.CUBE_POS_X * cp.PLANE_COUNT + cp.PLANE_POS)...
    const int i = (int)get_group_id(1) * 16;
    const int v1 = (int)get_group_id(0) * 64 + (int)get_local_id(0);
    const long v2 = (long)v1 * 8;
    const uint j = (uint)v1 * 8u;
    // kernels.py:190: total = cp.cmma.fragment("accumulator", 16, 8, cp.f32, fill=0)
    for (int k = 0; k < 128; ++k) {
        held_2[k] = 0.0f;
    }
    // kernels.py:192: cp.cmma.load(left, a, (i, k))
    const int v3 = i + 16;
    // kernels.py:193: cp.cmma.load(right, b, (k, j))
    const long v4 = v2 + 8;
    // kernels.py:191: for k in range(0, a.shape[1], 16)
    const bool v5 = v3 <= a_shape0;
    const bool v6 = v4 <= (long)b_shape1;
    for (int k1 = 0; k1 < a_shape1; k1 += 16) {
        // kernels.py:192: cp.cmma.load(left, a, (i, k))
        const int v7 = k1 + 16;
        if (v5 && v7 <= a_shape1) {
            for (int k2 = 0; k2 < 256; ++k2) {
                const int block = k2 >> 8;
                const int part = k2 & 255;
                const int v8 = (int)((uint)((i + (block * 16 + (part >> 4))) * a_stride0)
                        + (uint)(k1 + (part & 15)));
                held[k2] = a[v8];
            }
        } else {
            for (int k3 = 0; k3 < 256; ++k3) {
                const int block_1 = k3 >> 8;
                const int part_1 = k3 & 255;
                const int v9 = i + (block_1 * 16 + (part_1 >> 4));
                const int v10 = k1 + (part_1 & 15);
                const ushort either = v9 < a_shape0 && v10 < a_shape1 ? a[v9 * a_stride0 + v10]
                        : 0x0000;
                held[k3] = either;
            }
        }
        // kernels.py:193: cp.cmma.load(right, b, (k, j))
        if (v7 <= b_shape0 && v6) {
            for (int k4 = 0; k4 < 128; ++k4) {
                const int block_2 = k4 >> 7;
                const int part_2 = k4 & 127;
                const uint v11 = (uint)(k1 + (block_2 * 16 + (part_2 >> 3))) * (uint)b_stride0
                        + (j + (uint)(part_2 & 7));
                held_1[k4] = b[(int)v11];
            }
        } else {
            for (int k5 = 0; k5 < 128; ++k5) {
                const int block_3 = k5 >> 7;
                const int part_3 = k5 & 127;
                const int v12 = part_3 & 7;
                const int v13 = k1 + (block_3 * 16 + (part_3 >> 3));
                const long v14 = v2 + (long)v12;
                ushort either_1;
                if (v13 < b_shape0 && v14 < (long)b_shape1) {
                    const int v15 = v13 * b_stride0;
                    either_1 = b[(int)((long)v15 + v14)];
                } else {
                    either_1 = 0x0000;
                }
                held_1[k5] = either_1;
            }
        }
        // kernels.py:194: cp.cmma.mma(total, left, right)
        for (int r = 0; r < 16; ++r) {
            const int v16 = r * 8;
            const int v17 = r * 16;
            for (int k6 = 0; k6 < 16; ++k6) {
                const uint v18 = (uint)held[v17 + k6];
                const uint v19 = v18 & 32767u;
                const uint v20 = v19 << 13u;
                const uint v21 = as_uint(v19 >= 31744u ? as_float(v20 | 2139095040u) : as_float(v20)
                        * 5.192297e+33f);
                const float left = as_float(v21 | ((v18 << 16u) & 2147483648u));
                const int v22 = k6 * 8;
                const uint v23 = (uint)held_1[v22];
                const uint v24 = v23 & 32767u;
                const uint v25 = v24 << 13u;
                const uint v26 = as_uint(v24 >= 31744u ? as_float(v25 | 2139095040u) : as_float(v25)
                        * 5.192297e+33f);
                held_2[v16] = fma(left, as_float(v26 | ((v23 << 16u) & 2147483648u)), held_2[v16]);
                const uint v27 = (uint)held_1[v22 + 1];
                const uint v28 = v27 & 32767u;
                const uint v29 = v28 << 13u;
                const uint v30 = as_uint(v28 >= 31744u ? as_float(v29 | 2139095040u) : as_float(v29)
                        * 5.192297e+33f);
                const int v31 = v16 + 1;
                held_2[v31] = fma(left, as_float(v30 | ((v27 << 16u) & 2147483648u)), held_2[v31]);
                const uint v32 = (uint)held_1[v22 + 2];
                const uint v33 = v32 & 32767u;
                const uint v34 = v33 << 13u;
                const uint v35 = as_uint(v33 >= 31744u ? as_float(v34 | 2139095040u) : as_float(v34)
                        * 5.192297e+33f);
                const int v36 = v16 + 2;
                held_2[v36] = fma(left, as_float(v35 | ((v32 << 16u) & 2147483648u)), held_2[v36]);
                const uint v37 = (uint)held_1[v22 + 3];
                const uint v38 = v37 & 32767u;
                const uint v39 = v38 << 13u;
                const uint v40 = as_uint(v38 >= 31744u ? as_float(v39 | 2139095040u) : as_float(v39)
                        * 5.192297e+33f);
                const int v41 = v16 + 3;
                held_2[v41] = fma(left, as_float(v40 | ((v37 << 16u) & 2147483648u)), held_2[v41]);
                const uint v42 = (uint)held_1[v22 + 4];
                const uint v43 = v42 & 32767u;
                const uint v44 = v43 << 13u;
                const uint v45 = as_uint(v43 >= 31744u ? as_float(v44 | 2139095040u) : as_float(v44)
                        * 5.192297e+33f);
                const int v46 = v16 + 4;
                held_2[v46] = fma(left, as_float(v45 | ((v42 << 16u) & 2147483648u)), held_2[v46]);
                const uint v47 = (uint)held_1[v22 + 5];
                const uint v48 = v47 & 32767u;
                const uint v49 = v48 << 13u;
                const uint v50 = as_uint(v48 >= 31744u ? as_float(v49 | 2139095040u) : as_float(v49)
                        * 5.192297e+33f);
                const int v51 = v16 + 5;
                held_2[v51] = fma(left, as_float(v50 | ((v47 << 16u) & 2147483648u)), held_2[v51]);
                const uint v52 = (uint)held_1[v22 + 6];
                const uint v53 = v52 & 32767u;
                const uint v54 = v53 << 13u;
                const uint v55 = as_uint(v53 >= 31744u ? as_float(v54 | 2139095040u) : as_float(v54)
                        * 5.192297e+33f);
                const int v56 = v16 + 6;
                held_2[v56] = fma(left, as_float(v55 | ((v52 << 16u) & 2147483648u)), held_2[v56]);
                const uint v57 = (uint)held_1[v22 + 7];
                const uint v58 = v57 & 32767u;
                const uint v59 = v58 << 13u;
                const uint v60 = as_uint(v58 >= 31744u ? as_float(v59 | 2139095040u) : as_float(v59)
                        * 5.192297e+33f);
                const float right = as_float(v60 | ((v57 << 16u) & 2147483648u));
                const int v61 = v16 + 7;
                held_2[v61] = fma(left, right, held_2[v61]);
            }
        }
    }
    // kernels.py:195: cp.cmma.store(c, (i, j), total)
    if (v3 <= c_shape0 && v4 <= (long)c_shape1) {
        for (int k7 = 0; k7 < 128; ++k7) {
            const int block_4 = k7 >> 7;
            const int part_4 = k7 & 127;
            const uint v62 = (uint)((i + (block_4 * 16 + (part_4 >> 3))) * c_stride0)
                    + (j + (uint)(part_4 & 7));
            c[(int)v62] = held_2[k7];
        }
    } else {
        for (int k8 = 0; k8 < 128; ++k8) {
            const int block_5 = k8 >> 7;
            const int part_5 = k8 & 127;
            const int v63 = part_5 & 7;
            const int v64 = i + (block_5 * 16 + (part_5 >> 3));
            const long v65 = v2 + (long)v63;
            if (v64 < c_shape0 && v65 < (long)c_shape1) {
                const int v66 = v64 * c_stride0;
                c[(int)((long)v66 + v65)] = held_2[k8];
            }
        }
    }
}
