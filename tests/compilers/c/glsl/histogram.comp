#version 450
layout(local_size_x = 32) in;
layout(std430, binding = 0) readonly buffer X { uint x[]; };
layout(std430, binding = 1) buffer Counts { uint counts[]; };
shared uint own[16];
void main() {
    uint t = gl_LocalInvocationID.x;
    if (t < 16) own[t] = 0;
    barrier();
    atomicAdd(own[x[gl_GlobalInvocationID.x] % 16u], 1u);
    barrier();
    if (t < 16) atomicAdd(counts[t], own[t]);
}
