static __device__ __forceinline__ void sync_dependencies() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(256)
collatz(const int* __restrict__ x, int x_shape0, int* __restrict__ steps, int limit) {
    sync_dependencies();
    // kernels.py:134: i = cp.ABSOLUTE_POS
    const int i = (int)blockIdx.x * 256 + (int)threadIdx.x;
    // kernels.py:135: if i >= x.size
    if (i >= x_shape0) return;
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
        if (count == limit) break;
        // kernels.py:144: count += 1
        const int v1 = (int)((unsigned int)count + 1u);
        // kernels.py:145: if value % 2 == 0
        if ((value_1 & 1) == 0) {
            // kernels.py:147: continue
            count = v1;
            value_1 >>= 1;
            continue;
        }
        // kernels.py:148: value = 3 * value + 1
        count = v1;
        value_1 = (int)(3u * (unsigned int)value_1 + 1u);
    }
    // kernels.py:149: steps[i] = count
    steps[i] = count;
}
