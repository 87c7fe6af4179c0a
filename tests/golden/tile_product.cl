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
    const long j = (long)v1 * 8;
    // kernels.py:190: total = cp.cmma.fragment("accumulator", 16, 8, cp.f32, fill=0)
    for (int k = 0; k < 128; ++k) {
        held_2[k] = 0.0f;
    }
    // kernels.py:193: cp.cmma.load(right, b, (k, j))
    const int v2 = b_shape1 - 8;
    // kernels.py:191: for k in range(0, a.shape[1], 16)
    const bool v3 = i <= a_shape0 - 16;
    const int v4 = a_shape1 - 16;
    const int v5 = b_shape0 - 16;
    const bool v6 = j <= (long)v2;
    for (int k1 = 0; k1 < a_shape1; k1 += 16) {
        // kernels.py:192: cp.cmma.load(left, a, (i, k))
        if (v3 && k1 <= v4) {
            for (int k2 = 0; k2 < 256; ++k2) {
                const int block = k2 >> 8;
                const int part = k2 & 255;
                held[k2] = a[(i + (block * 16 + (part >> 4))) * a_stride0 + (k1 + (part & 15))];
            }
        } else {
            for (int k3 = 0; k3 < 256; ++k3) {
                const int block_1 = k3 >> 8;
                const int part_1 = k3 & 255;
                const int v7 = i + (block_1 * 16 + (part_1 >> 4));
                const int v8 = k1 + (part_1 & 15);
                const ushort either = v7 < a_shape0 && v8 < a_shape1 ? a[v7 * a_stride0 + v8]
                        : 0x0000;
                held[k3] = either;
            }
        }
        // kernels.py:193: cp.cmma.load(right, b, (k, j))
        if (k1 <= v5 && v6) {
            for (int k4 = 0; k4 < 128; ++k4) {
                const int block_2 = k4 >> 7;
                const int part_2 = k4 & 127;
                const int v9 = part_2 & 7;
                held_1[k4] = b[(k1 + (block_2 * 16 + (part_2 >> 3))) * b_stride0
                        + (int)(j + (long)v9)];
            }
        } else {
            for (int k5 = 0; k5 < 128; ++k5) {
                const int block_3 = k5 >> 7;
                const int part_3 = k5 & 127;
                const int v10 = part_3 & 7;
                const int v11 = k1 + (block_3 * 16 + (part_3 >> 3));
                const long v12 = j + (long)v10;
                ushort either_1;
                if (v11 < b_shape0 && v12 < (long)b_shape1) {
                    const int v13 = v11 * b_stride0;
                    either_1 = b[(int)((long)v13 + v12)];
                } else {
                    either_1 = 0x0000;
                }
                held_1[k5] = either_1;
            }
        }
        // kernels.py:194: cp.cmma.mma(total, left, right)
        for (int r = 0; r < 16; ++r) {
            const int v14 = r * 8;
            const int v15 = r * 16;
            for (int k6 = 0; k6 < 16; ++k6) {
                const uint v16 = (uint)held[v15 + k6];
                const uint v17 = v16 & 32767u;
                const uint v18 = v17 << 13u;
                const float v19 = v17 >= 31744u ? as_float(v18 | 2139095040u)
                        : (v17 < 1024u ? (float)v17 * 5.9604645e-08f : as_float(v18 + 939524096u));
                const float left = as_float(as_uint(v19) | ((v16 << 16u) & 2147483648u));
                const int v20 = k6 * 8;
                const uint v21 = (uint)held_1[v20];
                const uint v22 = v21 & 32767u;
                const uint v23 = v22 << 13u;
                const float v24 = v22 >= 31744u ? as_float(v23 | 2139095040u)
                        : (v22 < 1024u ? (float)v22 * 5.9604645e-08f : as_float(v23 + 939524096u));
                held_2[v14] = fma(left, as_float(as_uint(v24) | ((v21 << 16u) & 2147483648u)),
                        held_2[v14]);
                const uint v25 = (uint)held_1[v20 + 1];
                const uint v26 = v25 & 32767u;
                const uint v27 = v26 << 13u;
                const float v28 = v26 >= 31744u ? as_float(v27 | 2139095040u)
                        : (v26 < 1024u ? (float)v26 * 5.9604645e-08f : as_float(v27 + 939524096u));
                const int v29 = v14 + 1;
                held_2[v29] = fma(left, as_float(as_uint(v28) | ((v25 << 16u) & 2147483648u)),
                        held_2[v29]);
                const uint v30 = (uint)held_1[v20 + 2];
                const uint v31 = v30 & 32767u;
                const uint v32 = v31 << 13u;
                const float v33 = v31 >= 31744u ? as_float(v32 | 2139095040u)
                        : (v31 < 1024u ? (float)v31 * 5.9604645e-08f : as_float(v32 + 939524096u));
                const int v34 = v14 + 2;
                held_2[v34] = fma(left, as_float(as_uint(v33) | ((v30 << 16u) & 2147483648u)),
                        held_2[v34]);
                const uint v35 = (uint)held_1[v20 + 3];
                const uint v36 = v35 & 32767u;
                const uint v37 = v36 << 13u;
                const float v38 = v36 >= 31744u ? as_float(v37 | 2139095040u)
                        : (v36 < 1024u ? (float)v36 * 5.9604645e-08f : as_float(v37 + 939524096u));
                const int v39 = v14 + 3;
                held_2[v39] = fma(left, as_float(as_uint(v38) | ((v35 << 16u) & 2147483648u)),
                        held_2[v39]);
                const uint v40 = (uint)held_1[v20 + 4];
                const uint v41 = v40 & 32767u;
                const uint v42 = v41 << 13u;
                const float v43 = v41 >= 31744u ? as_float(v42 | 2139095040u)
                        : (v41 < 1024u ? (float)v41 * 5.9604645e-08f : as_float(v42 + 939524096u));
                const int v44 = v14 + 4;
                held_2[v44] = fma(left, as_float(as_uint(v43) | ((v40 << 16u) & 2147483648u)),
                        held_2[v44]);
                const uint v45 = (uint)held_1[v20 + 5];
                const uint v46 = v45 & 32767u;
                const uint v47 = v46 << 13u;
                const float v48 = v46 >= 31744u ? as_float(v47 | 2139095040u)
                        : (v46 < 1024u ? (float)v46 * 5.9604645e-08f : as_float(v47 + 939524096u));
                const int v49 = v14 + 5;
                held_2[v49] = fma(left, as_float(as_uint(v48) | ((v45 << 16u) & 2147483648u)),
                        held_2[v49]);
                const uint v50 = (uint)held_1[v20 + 6];
                const uint v51 = v50 & 32767u;
                const uint v52 = v51 << 13u;
                const float v53 = v51 >= 31744u ? as_float(v52 | 2139095040u)
                        : (v51 < 1024u ? (float)v51 * 5.9604645e-08f : as_float(v52 + 939524096u));
                const int v54 = v14 + 6;
                held_2[v54] = fma(left, as_float(as_uint(v53) | ((v50 << 16u) & 2147483648u)),
                        held_2[v54]);
                const uint v55 = (uint)held_1[v20 + 7];
                const uint v56 = v55 & 32767u;
                const uint v57 = v56 << 13u;
                const float v58 = v56 >= 31744u ? as_float(v57 | 2139095040u)
                        : (v56 < 1024u ? (float)v56 * 5.9604645e-08f : as_float(v57 + 939524096u));
                const float right = as_float(as_uint(v58) | ((v55 << 16u) & 2147483648u));
                const int v59 = v14 + 7;
                held_2[v59] = fma(left, right, held_2[v59]);
            }
        }
    }
    // kernels.py:195: cp.cmma.store(c, (i, j), total)
    const int v60 = c_shape1 - 8;
    if (i <= c_shape0 - 16 && j <= (long)v60) {
        for (int k7 = 0; k7 < 128; ++k7) {
            const int block_4 = k7 >> 7;
            const int part_4 = k7 & 127;
            const int v61 = part_4 & 7;
            c[(i + (block_4 * 16 + (part_4 >> 3))) * c_stride0 + (int)(j + (long)v61)] = held_2[k7];
        }
    } else {
        for (int k8 = 0; k8 < 128; ++k8) {
            const int block_5 = k8 >> 7;
            const int part_5 = k8 & 127;
            const int v62 = part_5 & 7;
            const int v63 = i + (block_5 * 16 + (part_5 >> 3));
            const long v64 = j + (long)v62;
            if (v63 < c_shape0 && v64 < (long)c_shape1) {
                const int v65 = v63 * c_stride0;
                c[(int)((long)v65 + v64)] = held_2[k8];
            }
        }
    }
}
