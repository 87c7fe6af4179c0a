#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void histogram(__global const uchar* restrict x, int x_shape0, __global int* restrict counts) {
    __local int local_1[256] __attribute__((aligned(16)));
    // kernels.py:99: for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM)
    const int unit_x = (int)get_local_id(0);
    for (int k = unit_x; k < 256; k += 256) {
        // kernels.py:100: local[k] = 0
        local_1[k] = 0;
    }
    // kernels.py:101: cp.sync_cube()
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    // kernels.py:102: for i in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * cp.CUBE_DIM)
    const int absolute_pos = (int)get_group_id(0) * 256 + unit_x;
    const int v1 = (int)get_num_groups(0) * 256;
    for (int i = absolute_pos; i < x_shape0; i += v1) {
        // kernels.py:103: cp.atomic.add(local, cp.i32(x[i]), 1)
        atomic_add(&local_1[(int)x[i]], 1);
    }
    // kernels.py:104: cp.sync_cube()
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    // kernels.py:105: for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM)
    for (int k1 = unit_x; k1 < 256; k1 += 256) {
        // kernels.py:106: cp.atomic.add(counts, k, local[k])
        atomic_add(&counts[k1], local_1[k1]);
    }
}
