// What generated kernels use of HIP's runtime header, for clang alone:
// clang -x hip --cuda-device-only -nogpulib -nogpuinc. Mathematics stays undefined functions.
#pragma once
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define D static __device__ inline
#define POSITION(name, X, Y, Z)                                                        \
    struct name##_t {                                                                  \
        struct X_t { __device__ operator unsigned() const { return X; } } x;           \
        struct Y_t { __device__ operator unsigned() const { return Y; } } y;           \
        struct Z_t { __device__ operator unsigned() const { return Z; } } z;           \
    };                                                                                 \
    static const __device__ name##_t name{};
#define GRID(k) \
    (((const __attribute__((address_space(4))) unsigned*)__builtin_amdgcn_implicitarg_ptr())[k])
POSITION(threadIdx, __builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),
         __builtin_amdgcn_workitem_id_z())
POSITION(blockIdx, __builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),
         __builtin_amdgcn_workgroup_id_z())
POSITION(gridDim, GRID(0), GRID(1), GRID(2))
D void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
D void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }
D unsigned long long __ballot(int p) { return __builtin_amdgcn_uicmpl(p, 0, 33); }
D int __any(int p) { return __ballot(p) != 0; }
D int __all(int p) { return __ballot(!p) == 0; }
template <typename T> D T exchange(T value, int lane) {
    constexpr int words = (sizeof(T) + 3) / 4;
    struct Words { int word[words]; } held = __builtin_bit_cast(Words, value);
    for (int k = 0; k < words; ++k)
        held.word[k] = __builtin_amdgcn_ds_bpermute(lane << 2, held.word[k]);
    return __builtin_bit_cast(T, held);
}
D int own_lane() {
    return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
}
template <typename T> D T __shfl(T v, int lane) { return exchange(v, lane); }
template <typename T> D T __shfl_xor(T v, int mask) { return exchange(v, own_lane() ^ mask); }
template <typename T> D T __shfl_up(T v, unsigned d) { return exchange(v, own_lane() - d); }
template <typename T> D T __shfl_down(T v, unsigned d) { return exchange(v, own_lane() + d); }
#define ATOMIC(name, builtin)                                            \
    template <typename T> D T name(T* p, decltype(T() + T()) v) {        \
        return builtin(p, (T)v, __ATOMIC_RELAXED);                       \
    }
ATOMIC(atomicAdd, __atomic_fetch_add) ATOMIC(atomicMin, __atomic_fetch_min)
ATOMIC(atomicMax, __atomic_fetch_max) ATOMIC(atomicAnd, __atomic_fetch_and)
ATOMIC(atomicOr, __atomic_fetch_or) ATOMIC(atomicXor, __atomic_fetch_xor)
template <typename T> D T atomicExch(T* p, T v) {
    T old;
    __atomic_exchange(p, &v, &old, __ATOMIC_RELAXED);
    return old;
}
template <typename T> D T atomicCAS(T* p, T expected, T v) {
    __atomic_compare_exchange(p, &expected, &v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
#define SAME_BITS(name, To, From) D To name(From v) { return __builtin_bit_cast(To, v); }
SAME_BITS(__float_as_uint, unsigned, float) SAME_BITS(__float_as_int, int, float)
SAME_BITS(__uint_as_float, float, unsigned) SAME_BITS(__int_as_float, float, int)
SAME_BITS(__double_as_longlong, long long, double)
SAME_BITS(__longlong_as_double, double, long long)
#define FUNCTION(name) \
    D float name##f(float a) { return __builtin_##name##f(a); } \
    D double name(double a) { return __builtin_##name(a); }
FUNCTION(sqrt) FUNCTION(floor) FUNCTION(ceil) FUNCTION(trunc) FUNCTION(rint) FUNCTION(fabs)
D float copysignf(float a, float b) { return __builtin_copysignf(a, b); }
D double copysign(double a, double b) { return __builtin_copysign(a, b); }
D float fmaf(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
D double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
__device__ float fmodf(float a, float b);
__device__ double fmod(double a, double b);
D int __popc(unsigned v) { return __builtin_popcount(v); }
D int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
D int __clz(int v) { return v ? __builtin_clz(v) : 32; }
D int __clzll(long long v) { return v ? __builtin_clzll(v) : 64; }
template <typename T> D T min(T a, T b) { return a < b ? a : b; }
template <typename T> D T max(T a, T b) { return a > b ? a : b; }
D int __mulhi(int a, int b) { return (long long)a * b >> 32; }
D unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long long)a * b >> 32; }
D long long __mul64hi(long long a, long long b) { return (__int128)a * b >> 64; }
D unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned __int128)a * b >> 64;
}
__device__ int printf(const char* format, ...);
#undef D
