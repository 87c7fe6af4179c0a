#pragma clang fp contract(off)

extern "C" __global__ void __launch_bounds__(256)
row_sums(
    const float* __restrict__ x,
    long long x_shape0,
    long long x_shape1,
    long long x_stride0,
    float* __restrict__ out,
    long long out_shape0) {
    // kernels.py:86: row = cp.ABSOLUTE_POS // cp.PLANE_DIM
    const long long cube_pos = ((long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x
            + blockIdx.x;
    const long long unit_x = (long long)threadIdx.x;
    const long long absolute_pos = cube_pos * 256 + unit_x;
    const long long row = absolute_pos / 64;
    // kernels.py:87: if row < x.shape[0]
    if (row < x_shape0) {
        // kernels.py:89: for column in range(cp.UNIT_POS_PLANE, x.shape[1], cp.PLANE_DIM)
        const long long v1 = unit_x % 64;
        float total = 0.0f;
        const long long v2 = row * x_stride0;
        for (long long column = v1; column < x_shape1; column += 64) {
            // kernels.py:90: total += x[row, column]
            total += x[v2 + column];
        }
        // kernels.py:91: total = cp.plane_sum(total)
        const float v3 = __shfl_xor(total, (int)32);
        const float v4 = total + v3;
        const float v5 = __shfl_xor(v4, (int)16);
        const float v6 = v4 + v5;
        const float v7 = __shfl_xor(v6, (int)8);
        const float v8 = v6 + v7;
        const float v9 = __shfl_xor(v8, (int)4);
        const float v10 = v8 + v9;
        const float v11 = __shfl_xor(v10, (int)2);
        const float v12 = v10 + v11;
        const float v13 = __shfl_xor(v12, (int)1);
        const float total_1 = v12 + v13;
        // kernels.py:92: if cp.plane_elect()
        if (v1 == 0) {
            // kernels.py:93: out[row] = total
            out[row] = total_1;
        }
    }
}
