#version 450
layout(local_size_x = 64) in;
layout(std430, binding = 0) readonly buffer X { float x[]; };
layout(std430, binding = 1) buffer Sums { float sums[]; };
shared float tile[64];
void main() {
    uint t = gl_LocalInvocationID.x;
    tile[t] = x[gl_GlobalInvocationID.x];
    barrier();
    for (uint d = 32; d > 0; d /= 2) {
        if (t < d) tile[t] += tile[t + d];
        barrier();
    }
    if (t == 0) sums[gl_WorkGroupID.x] = tile[0];
}
