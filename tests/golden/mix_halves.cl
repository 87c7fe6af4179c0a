#pragma OPENCL FP_CONTRACT OFF

static inline uint8 cast_u32x8_u16x8(ushort8 a) {
    return (uint8)((uint)a.s0, (uint)a.s1, (uint)a.s2, (uint)a.s3, (uint)a.s4, (uint)a.s5,
            (uint)a.s6, (uint)a.s7);
}

static inline float8 cast_f32x8_u32x8(uint8 a) {
    return (float8)((float)a.s0, (float)a.s1, (float)a.s2, (float)a.s3, (float)a.s4, (float)a.s5,
            (float)a.s6, (float)a.s7);
}

static inline uchar8 lt_boolx8_u32x8(uint8 a, uint8 b) {
    return (uchar8)(a.s0 < b.s0, a.s1 < b.s1, a.s2 < b.s2, a.s3 < b.s3, a.s4 < b.s4, a.s5 < b.s5,
            a.s6 < b.s6, a.s7 < b.s7);
}

static inline float8 select_f32x8_mask(uchar8 a, float8 b, float8 c) {
    return (float8)(a.s0 ? b.s0 : c.s0, a.s1 ? b.s1 : c.s1, a.s2 ? b.s2 : c.s2, a.s3 ? b.s3 : c.s3,
            a.s4 ? b.s4 : c.s4, a.s5 ? b.s5 : c.s5, a.s6 ? b.s6 : c.s6, a.s7 ? b.s7 : c.s7);
}

static inline uchar8 ge_boolx8_u32x8(uint8 a, uint8 b) {
    return (uchar8)(a.s0 >= b.s0, a.s1 >= b.s1, a.s2 >= b.s2, a.s3 >= b.s3, a.s4 >= b.s4,
            a.s5 >= b.s5, a.s6 >= b.s6, a.s7 >= b.s7);
}

static inline uint8 select_u32x8_mask(uchar8 a, uint8 b, uint8 c) {
    return (uint8)(a.s0 ? b.s0 : c.s0, a.s1 ? b.s1 : c.s1, a.s2 ? b.s2 : c.s2, a.s3 ? b.s3 : c.s3,
            a.s4 ? b.s4 : c.s4, a.s5 ? b.s5 : c.s5, a.s6 ? b.s6 : c.s6, a.s7 ? b.s7 : c.s7);
}

static inline uchar8 gt_boolx8_u32x8(uint8 a, uint8 b) {
    return (uchar8)(a.s0 > b.s0, a.s1 > b.s1, a.s2 > b.s2, a.s3 > b.s3, a.s4 > b.s4, a.s5 > b.s5,
            a.s6 > b.s6, a.s7 > b.s7);
}

static inline ushort8 cast_u16x8_u32x8(uint8 a) {
    return (ushort8)((ushort)a.s0, (ushort)a.s1, (ushort)a.s2, (ushort)a.s3, (ushort)a.s4,
            (ushort)a.s5, (ushort)a.s6, (ushort)a.s7);
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void mix_halves(
    __global const ushort* restrict a,
    __global const ushort* restrict b,
    __global ushort* restrict out,
    int out_shape0) {
    // kernels.py:127: i = cp.ABSOLUTE_POS
    const int i = (int)get_group_id(0) * 256 + (int)get_local_id(0);
    // kernels.py:128: if i < out.size
    if (i < ((out_shape0 + 7) >> 3)) {
        // kernels.py:129: out[i] = cp.f16(cp.f32(a[i]) * cp.f32(b[i])) + a[i]
        const int v1 = i * 8;
        const uint8 v2 = cast_u32x8_u16x8(*(const __global ushort8*)(a + v1));
        const uint8 v3 = (uint8)(32767u);
        const uint8 v4 = v2 & v3;
        const float8 v5 = (float8)(5.9604645e-08f);
        const uint8 v6 = (uint8)(13u);
        const uint8 v7 = v4 << v6;
        const uint8 v8 = (uint8)(939524096u);
        const uint8 v9 = (uint8)(1024u);
        const float8 v10 = select_f32x8_mask(lt_boolx8_u32x8(v4, v9), cast_f32x8_u32x8(v4) * v5,
                as_float8(v7 + v8));
        const uint8 v11 = (uint8)(2139095040u);
        const uint8 v12 = (uint8)(31744u);
        const uint8 v13 = (uint8)(16u);
        const uint8 v14 = (uint8)(2147483648u);
        const uint8 v15 = as_uint8(select_f32x8_mask(ge_boolx8_u32x8(v4, v12), as_float8(v7 | v11),
                v10)) | ((v2 << v13) & v14);
        const float8 v16 = as_float8(v15) * as_float8(cast_u32x8_u16x8(*(const __global ushort8*)(b
                + v1)) << v13);
        const uint8 v17 = as_uint8(v16);
        const uint8 v18 = (uint8)(2147483647u);
        const uint8 v19 = v17 & v18;
        const uint8 v20 = (uint8)(4095u);
        const uint8 v21 = (uint8)(1u);
        const float8 v22 = (float8)(0.5f);
        const uint8 v23 = (uint8)(1056964608u);
        const uint8 v24 = (uint8)(947912704u);
        const uint8 v25 = select_u32x8_mask(lt_boolx8_u32x8(v19, v24),
                as_uint8(as_float8(v19) + v22) - v23, (v19 + v20 + ((v19 >> v6) & v21) - v8) >> v6);
        const uint8 v26 = (uint8)(1199566848u);
        const uint8 v27 = (uint8)(32256u);
        const uint8 v28 = select_u32x8_mask(gt_boolx8_u32x8(v19, v11), v27,
                select_u32x8_mask(ge_boolx8_u32x8(v19, v26), v12, v25));
        const uint8 v29 = (uint8)(32768u);
        const uint8 v30 = cast_u32x8_u16x8(cast_u16x8_u32x8(v28 | ((v17 >> v13) & v29)));
        const uint8 v31 = v30 & v3;
        const uint8 v32 = v31 << v6;
        const float8 v33 = select_f32x8_mask(lt_boolx8_u32x8(v31, v9), cast_f32x8_u32x8(v31) * v5,
                as_float8(v32 + v8));
        const uint8 v34 = as_uint8(select_f32x8_mask(ge_boolx8_u32x8(v31, v12),
                as_float8(v32 | v11), v33));
        const uint8 v35 = cast_u32x8_u16x8(*(const __global ushort8*)(a + v1));
        const uint8 v36 = v35 & v3;
        const uint8 v37 = v36 << v6;
        const float8 v38 = select_f32x8_mask(lt_boolx8_u32x8(v36, v9), cast_f32x8_u32x8(v36) * v5,
                as_float8(v37 + v8));
        const uint8 v39 = as_uint8(select_f32x8_mask(ge_boolx8_u32x8(v36, v12),
                as_float8(v37 | v11), v38));
        const uint8 v40 = as_uint8(as_float8(v34 | ((v30 << v13) & v14))
                + as_float8(v39 | ((v35 << v13) & v14)));
        const uint8 v41 = v40 & v18;
        const uint8 v42 = select_u32x8_mask(lt_boolx8_u32x8(v41, v24),
                as_uint8(as_float8(v41) + v22) - v23, (v41 + v20 + ((v41 >> v6) & v21) - v8) >> v6);
        const uint8 v43 = select_u32x8_mask(gt_boolx8_u32x8(v41, v11), v27,
                select_u32x8_mask(ge_boolx8_u32x8(v41, v26), v12, v42));
        *(__global ushort8*)(out + v1) = cast_u16x8_u32x8(v43 | ((v40 >> v13) & v29));
    }
}
