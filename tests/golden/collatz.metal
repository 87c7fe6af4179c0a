#include <metal_stdlib>
using namespace metal;
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)

struct Arguments {
    alignas(8) int x_shape0;
    alignas(8) int limit;
};

[[max_total_threads_per_threadgroup(256)]]
kernel void collatz(
    device const int* x [[buffer(0)]],
    device int* steps [[buffer(1)]],
    constant Arguments& arguments [[buffer(2)]],
    uint3 unit_position [[thread_position_in_threadgroup]],
    uint3 cube_position [[threadgroup_position_in_grid]]) {
    // kernels.py:134: i = cp.ABSOLUTE_POS
    const int i = (int)cube_position.x * 256 + (int)unit_position.x;
    // kernels.py:135: if i >= x.size
    if (i >= arguments.x_shape0) return;
    // kernels.py:137: value, count = x[i], 0
    const int value = x[i];
    // kernels.py:138: while value != 1
    int count = 0;
    int value_1 = value;
    while (value_1 != 1) {
        // kernels.py:139: if value < 1
        if (value_1 < 1) {
            // kernels.py:141: break
            count = -1;
            break;
        }
        // kernels.py:142: if count == limit
        if (count == arguments.limit) break;
        // kernels.py:144: count += 1
        const int v1 = (int)((uint)count + 1u);
        // kernels.py:145: if value % 2 == 0
        if ((value_1 & 1) == 0) {
            // kernels.py:147: continue
            count = v1;
            value_1 >>= 1;
            continue;
        }
        // kernels.py:148: value = 3 * value + 1
        count = v1;
        value_1 = (int)(3u * (uint)value_1 + 1u);
    }
    // kernels.py:149: steps[i] = count
    steps[i] = count;
}
