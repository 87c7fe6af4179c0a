#pragma OPENCL FP_CONTRACT OFF

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void histogram(
    __global const uchar* restrict x,
    long x_shape0,
    __global int* restrict counts,
    long counts_shape0) {
    __local int local_1[256] __attribute__((aligned(16)));
    // kernels.py:99: for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM)
    const long unit_x = (long)get_local_id(0);
    for (long k = unit_x; k < 256; k += 256) {
        // kernels.py:100: local[k] = 0
        local_1[k] = 0;
    }
    // kernels.py:101: cp.sync_cube()
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    // kernels.py:102: for i in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * cp.CUBE_DIM)
    const long count_x = (long)get_num_groups(0);
    const long count_y = (long)get_num_groups(1);
    const long cube_pos = ((long)get_group_id(2) * count_y + (long)get_group_id(1)) * count_x
            + (long)get_group_id(0);
    const long absolute_pos = cube_pos * 256 + unit_x;
    const long v1 = count_x * count_y * (long)get_num_groups(2) * 256;
    for (long i = absolute_pos; i < x_shape0; i += v1) {
        // kernels.py:103: cp.atomic.add(local, cp.i32(x[i]), 1)
        atomic_add(&local_1[(long)(int)x[i]], 1);
    }
    // kernels.py:104: cp.sync_cube()
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    // kernels.py:105: for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM)
    for (long k1 = unit_x; k1 < 256; k1 += 256) {
        // kernels.py:106: cp.atomic.add(counts, k, local[k])
        atomic_add(&counts[k1], local_1[k1]);
    }
}
