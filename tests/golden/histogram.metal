#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int x_shape0;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void histogram(
    device const uchar* x [[buffer(0)]],
    device int* counts [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]],
    uint3 cube_counts [[threadgroups_per_grid]]) {
    alignas(16) threadgroup int local[256];
    // kernels.py:99: for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM)
    const int unit_x = (int)unit_position.x;
    for (int k = unit_x; k < 256; k += 256) {
        // kernels.py:100: local[k] = 0
        local[k] = 0;
    }
    // kernels.py:101: cp.sync_cube()
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    // kernels.py:102: for i in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * cp.CUBE_DIM)
    const int absolute_pos = (int)cube_position.x * 256 + unit_x;
    const int v1 = (int)cube_counts.x * 256;
    for (int i = absolute_pos; i < arguments.x_shape0; i += v1) {
        // kernels.py:103: cp.atomic.add(local, cp.i32(x[i]), 1)
        atomic_fetch_add_explicit((volatile threadgroup atomic_int*)&local[(int)x[i]], 1,
                memory_order_relaxed);
    }
    // kernels.py:104: cp.sync_cube()
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
    // kernels.py:105: for k in range(cp.UNIT_POS, 256, cp.CUBE_DIM)
    for (int k1 = unit_x; k1 < 256; k1 += 256) {
        // kernels.py:106: cp.atomic.add(counts, k, local[k])
        atomic_fetch_add_explicit((volatile device atomic_int*)&counts[k1], local[k1],
                memory_order_relaxed);
    }
}
