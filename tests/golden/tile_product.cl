#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void tile_product(
    __global const ushort* restrict a,
    long a_shape0,
    long a_shape1,
    long a_stride0,
    __global const ushort* restrict b,
    long b_shape0,
    long b_shape1,
    long b_stride0,
    __global float* restrict c,
    long c_shape0,
    long c_shape1,
    long c_stride0) {
    ushort held[256] __attribute__((aligned(16)));
    ushort held_1[128] __attribute__((aligned(16)));
    float held_2[128] __attribute__((aligned(16)));
    // kernels.py:187: i, j = cp.CUBE_POS_Y * 16, (cp.CUBE_POS_X * cp.PLANE_COUNT + cp.PLANE_POS)...
    const long i = (long)get_group_id(1) * 16;
    const long j = ((long)get_group_id(0) * 64 + (long)get_local_id(0)) * 8;
    // kernels.py:190: total = cp.cmma.fragment("accumulator", 16, 8, cp.f32, fill=0)
    for (long k = 0; k < 128; ++k) {
        held_2[k] = 0.0f;
    }
    // kernels.py:192: cp.cmma.load(left, a, (i, k))
    const bool v1 = i >= 0;
    const long v2 = i + 16;
    // kernels.py:193: cp.cmma.load(right, b, (k, j))
    const bool v3 = j >= 0;
    const long v4 = j + 8;
    // kernels.py:191: for k in range(0, a.shape[1], 16)
    const bool v5 = v2 <= a_shape0;
    const bool v6 = v4 <= b_shape1;
    for (long k1 = 0; k1 < a_shape1; k1 += 16) {
        // kernels.py:192: cp.cmma.load(left, a, (i, k))
        const bool v7 = k1 >= 0;
        const long v8 = k1 + 16;
        if (v1 && v7 && v5 && v8 <= a_shape1) {
            for (long k2 = 0; k2 < 256; ++k2) {
                const long block = k2 / 256;
                const long part = k2 % 256;
                held[k2] = a[(i + (block * 16 + part / 16)) * a_stride0 + (k1 + part % 16)];
            }
        } else {
            for (long k3 = 0; k3 < 256; ++k3) {
                const long block_1 = k3 / 256;
                const long part_1 = k3 % 256;
                const long v9 = i + (block_1 * 16 + part_1 / 16);
                const long v10 = k1 + part_1 % 16;
                const ushort either = 0 <= v9 && v9 < a_shape0 && (0 <= v10 && v10 < a_shape1)
                        ? a[v9 * a_stride0 + v10] : 0x0000;
                held[k3] = either;
            }
        }
        // kernels.py:193: cp.cmma.load(right, b, (k, j))
        if (v7 && v3 && v8 <= b_shape0 && v6) {
            for (long k4 = 0; k4 < 128; ++k4) {
                const long block_2 = k4 / 128;
                const long part_2 = k4 % 128;
                held_1[k4] = b[(k1 + (block_2 * 16 + part_2 / 8)) * b_stride0 + (j + part_2 % 8)];
            }
        } else {
            for (long k5 = 0; k5 < 128; ++k5) {
                const long block_3 = k5 / 128;
                const long part_3 = k5 % 128;
                const long v11 = k1 + (block_3 * 16 + part_3 / 8);
                const long v12 = j + part_3 % 8;
                const ushort either_1 = 0 <= v11 && v11 < b_shape0 && (0 <= v12 && v12 < b_shape1)
                        ? b[v11 * b_stride0 + v12] : 0x0000;
                held_1[k5] = either_1;
            }
        }
        // kernels.py:194: cp.cmma.mma(total, left, right)
        for (long r = 0; r < 16; ++r) {
            const long v13 = r * 8;
            const long v14 = r * 16;
            for (long k6 = 0; k6 < 16; ++k6) {
                const uint v15 = (uint)held[v14 + k6];
                const uint v16 = v15 & 32767u;
                const uint v17 = v16 << 13u;
                const uint v18 = as_uint(v16 >= 31744u ? as_float(v17 | 2139095040u) : as_float(v17)
                        * 5.192297e+33f);
                const float left = as_float(v18 | ((v15 << 16u) & 2147483648u));
                const long v19 = k6 * 8;
                const uint v20 = (uint)held_1[v19];
                const uint v21 = v20 & 32767u;
                const uint v22 = v21 << 13u;
                const uint v23 = as_uint(v21 >= 31744u ? as_float(v22 | 2139095040u) : as_float(v22)
                        * 5.192297e+33f);
                held_2[v13] = fma(left, as_float(v23 | ((v20 << 16u) & 2147483648u)), held_2[v13]);
                const uint v24 = (uint)held_1[v19 + 1];
                const uint v25 = v24 & 32767u;
                const uint v26 = v25 << 13u;
                const uint v27 = as_uint(v25 >= 31744u ? as_float(v26 | 2139095040u) : as_float(v26)
                        * 5.192297e+33f);
                const long v28 = v13 + 1;
                held_2[v28] = fma(left, as_float(v27 | ((v24 << 16u) & 2147483648u)), held_2[v28]);
                const uint v29 = (uint)held_1[v19 + 2];
                const uint v30 = v29 & 32767u;
                const uint v31 = v30 << 13u;
                const uint v32 = as_uint(v30 >= 31744u ? as_float(v31 | 2139095040u) : as_float(v31)
                        * 5.192297e+33f);
                const long v33 = v13 + 2;
                held_2[v33] = fma(left, as_float(v32 | ((v29 << 16u) & 2147483648u)), held_2[v33]);
                const uint v34 = (uint)held_1[v19 + 3];
                const uint v35 = v34 & 32767u;
                const uint v36 = v35 << 13u;
                const uint v37 = as_uint(v35 >= 31744u ? as_float(v36 | 2139095040u) : as_float(v36)
                        * 5.192297e+33f);
                const long v38 = v13 + 3;
                held_2[v38] = fma(left, as_float(v37 | ((v34 << 16u) & 2147483648u)), held_2[v38]);
                const uint v39 = (uint)held_1[v19 + 4];
                const uint v40 = v39 & 32767u;
                const uint v41 = v40 << 13u;
                const uint v42 = as_uint(v40 >= 31744u ? as_float(v41 | 2139095040u) : as_float(v41)
                        * 5.192297e+33f);
                const long v43 = v13 + 4;
                held_2[v43] = fma(left, as_float(v42 | ((v39 << 16u) & 2147483648u)), held_2[v43]);
                const uint v44 = (uint)held_1[v19 + 5];
                const uint v45 = v44 & 32767u;
                const uint v46 = v45 << 13u;
                const uint v47 = as_uint(v45 >= 31744u ? as_float(v46 | 2139095040u) : as_float(v46)
                        * 5.192297e+33f);
                const long v48 = v13 + 5;
                held_2[v48] = fma(left, as_float(v47 | ((v44 << 16u) & 2147483648u)), held_2[v48]);
                const uint v49 = (uint)held_1[v19 + 6];
                const uint v50 = v49 & 32767u;
                const uint v51 = v50 << 13u;
                const uint v52 = as_uint(v50 >= 31744u ? as_float(v51 | 2139095040u) : as_float(v51)
                        * 5.192297e+33f);
                const long v53 = v13 + 6;
                held_2[v53] = fma(left, as_float(v52 | ((v49 << 16u) & 2147483648u)), held_2[v53]);
                const uint v54 = (uint)held_1[v19 + 7];
                const uint v55 = v54 & 32767u;
                const uint v56 = v55 << 13u;
                const uint v57 = as_uint(v55 >= 31744u ? as_float(v56 | 2139095040u) : as_float(v56)
                        * 5.192297e+33f);
                const float right = as_float(v57 | ((v54 << 16u) & 2147483648u));
                const long v58 = v13 + 7;
                held_2[v58] = fma(left, right, held_2[v58]);
            }
        }
    }
    // kernels.py:195: cp.cmma.store(c, (i, j), total)
    if (v1 && v3 && v2 <= c_shape0 && v4 <= c_shape1) {
        for (long k7 = 0; k7 < 128; ++k7) {
            const long block_4 = k7 / 128;
            const long part_4 = k7 % 128;
            c[(i + (block_4 * 16 + part_4 / 8)) * c_stride0 + (j + part_4 % 8)] = held_2[k7];
        }
    } else {
        for (long k8 = 0; k8 < 128; ++k8) {
            const long block_5 = k8 / 128;
            const long part_5 = k8 % 128;
            const long v59 = i + (block_5 * 16 + part_5 / 8);
            const long v60 = j + part_5 % 8;
            if (0 <= v59 && v59 < c_shape0 && (0 <= v60 && v60 < c_shape1)) {
                c[v59 * c_stride0 + v60] = held_2[k8];
            }
        }
    }
}
