#version 450
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require
layout(local_size_x = 32) in;
layout(std430, binding = 0) buffer X { vec4 x[]; };
void main() {
    uint i = gl_GlobalInvocationID.x;
    vec4 v = sqrt(abs(x[i])) * 2.0 + vec4(1.0, x[0].yz, 0.5);
    float total = subgroupAdd(v.x) + subgroupShuffleXor(v.y, 1u);
    x[i] = vec4(total, min(v.x, v.y), float(floatBitsToUint(v.z) & 3u), dot(v, v));
}
