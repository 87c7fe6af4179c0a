#pragma OPENCL FP_CONTRACT OFF

#ifdef POCL_DEVICE_ADDRESS_BITS
#define end_of_body() barrier(CLK_LOCAL_MEM_FENCE)
#else
#define end_of_body()
#endif

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void tree_sum(__global const float* restrict x, int x_shape0, __global float* restrict partial) {
    __local float sums[256] __attribute__((aligned(16)));
    // kernels.py:67: unit, units = cp.UNIT_POS, cp.CUBE_DIM
    const int unit = (int)get_local_id(0);
    // kernels.py:70: for i in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * units)
    const int cube_x = (int)get_group_id(0);
    const int absolute_pos = cube_x * 256 + unit;
    const int v1 = (int)get_num_groups(0) * 256;
    float total = 0.0f;
    for (int i = absolute_pos; i < x_shape0; i += v1) {
        // kernels.py:71: total += x[i]
        total += x[i];
    }
    // kernels.py:72: sums[unit] = total
    sums[unit] = total;
    // kernels.py:73: cp.sync_cube()
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    // kernels.py:75: while half > 0
    int half_1 = 128;
    while (half_1 > 0) {
        // kernels.py:76: if unit < half
        const int v2 = half_1;
        if (unit < v2) {
            // kernels.py:77: sums[unit] += sums[unit + half]
            sums[unit] += sums[(int)((uint)unit + (uint)v2)];
        }
        // kernels.py:78: cp.sync_cube()
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        // kernels.py:79: half //= 2
        half_1 >>= 1;
        end_of_body();
    }
    // kernels.py:80: if unit == 0
    if (unit == 0) {
        // kernels.py:81: partial[cp.CUBE_POS] = sums[0]
        partial[cube_x] = sums[0];
    }
}
