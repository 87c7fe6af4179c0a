#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int x_shape0;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void tree_sum(
    device const float* x [[buffer(0)]],
    device float* partial [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]],
    uint3 cube_counts [[threadgroups_per_grid]]) {
    alignas(16) threadgroup float sums[256];
    // kernels.py:67: unit, units = cp.UNIT_POS, cp.CUBE_DIM
    const int unit = (int)unit_position.x;
    // kernels.py:70: for i in range(cp.ABSOLUTE_POS, x.size, cp.CUBE_COUNT * units)
    const int cube_x = (int)cube_position.x;
    const int absolute_pos = cube_x * 256 + unit;
    const int v1 = (int)cube_counts.x * 256;
    float total = 0.0f;
    for (int i = absolute_pos; i < arguments.x_shape0; i += v1) {
        // kernels.py:71: total += x[i]
        total += x[i];
    }
    // kernels.py:72: sums[unit] = total
    sums[unit] = total;
    // kernels.py:73: cp.sync_cube()
    threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
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
        threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
        // kernels.py:79: half //= 2
        half_1 >>= 1;
    }
    // kernels.py:80: if unit == 0
    if (unit == 0) {
        // kernels.py:81: partial[cp.CUBE_POS] = sums[0]
        partial[cube_x] = sums[0];
    }
}
