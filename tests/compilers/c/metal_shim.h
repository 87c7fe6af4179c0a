// Enough of Metal's standard library to compile and run generated kernels as C++ on a CPU.
// One thread for each unit; threadgroup memory is static, so that cubes run one after the other.
// The text of a kernel is rewritten before: threadgroup variables become static ones.
#pragma once
#include <pthread.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define device
#define thread
#define threadgroup
#define constant const
#define kernel

namespace metal {

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;

constexpr half operator""h(long double value) { return (half)value; }

// Vectors

template <typename T, int N> struct vec;
template <typename T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    T x, y;
    vec() = default;
    vec(T s) : x(s), y(s) {}
    vec(T a, T b) : x(a), y(b) {}
    T& lane(int k) { return k ? y : x; }
    T lane(int k) const { return k ? y : x; }
};
template <typename T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    T x, y, z, w;
    vec() = default;
    vec(T s) : x(s), y(s), z(s), w(s) {}
    vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
    T& lane(int k) { return k == 0 ? x : k == 1 ? y : k == 2 ? z : w; }
    T lane(int k) const { return k == 0 ? x : k == 1 ? y : k == 2 ? z : w; }
};

#define OPERATOR(op, R)                                                   \
    template <typename T, int N>                                          \
    vec<R, N> operator op(vec<T, N> a, vec<T, N> b) {                     \
        vec<R, N> r;                                                      \
        for (int k = 0; k < N; ++k) r.lane(k) = (R)(a.lane(k) op b.lane(k)); \
        return r;                                                         \
    }
OPERATOR(+, T) OPERATOR(-, T) OPERATOR(*, T) OPERATOR(/, T)
OPERATOR(&, T) OPERATOR(|, T) OPERATOR(^, T)
OPERATOR(==, bool) OPERATOR(!=, bool) OPERATOR(<, bool)
OPERATOR(<=, bool) OPERATOR(>, bool) OPERATOR(>=, bool)
#undef OPERATOR

#define VECTORS(T) typedef vec<T, 2> T##2; typedef vec<T, 4> T##4;
VECTORS(bool) VECTORS(char) VECTORS(uchar) VECTORS(short) VECTORS(ushort) VECTORS(int)
VECTORS(uint) VECTORS(half) VECTORS(float)
typedef vec<long, 2> long2;
typedef vec<ulong, 2> ulong2;
#undef VECTORS
struct uint3 { uint x, y, z; };

template <typename To, typename From> To as_type(From value) {
    static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
    To result;
    memcpy(&result, &value, sizeof(To));
    return result;
}

// Numbers

#define UNARY_FUNCTION(name, expression)                       \
    inline float name(float a) { return expression(a); }       \
    inline half name(half a) { return (half)expression((float)a); } \
    template <typename T, int N> vec<T, N> name(vec<T, N> a) { \
        vec<T, N> r;                                           \
        for (int k = 0; k < N; ++k) r.lane(k) = name(a.lane(k)); \
        return r;                                              \
    }
UNARY_FUNCTION(sqrt, std::sqrt) UNARY_FUNCTION(floor, std::floor) UNARY_FUNCTION(ceil, std::ceil)
UNARY_FUNCTION(trunc, std::trunc) UNARY_FUNCTION(rint, std::nearbyint)
UNARY_FUNCTION(fabs, std::fabs)
#undef UNARY_FUNCTION
inline float copysign(float a, float b) { return std::copysign(a, b); }
inline half copysign(half a, half b) { return (half)std::copysign((float)a, (float)b); }
inline float fma(float a, float b, float c) { return std::fma(a, b, c); }
inline half fma(half a, half b, half c) {  // the product is exact in double, the sum decides alike
    return (half)((double)a * (double)b + (double)c);
}
template <typename T, int N> vec<T, N> copysign(vec<T, N> a, vec<T, N> b) {
    vec<T, N> r;
    for (int k = 0; k < N; ++k) r.lane(k) = copysign(a.lane(k), b.lane(k));
    return r;
}
template <typename T, int N> vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
    vec<T, N> r;
    for (int k = 0; k < N; ++k) r.lane(k) = fma(a.lane(k), b.lane(k), c.lane(k));
    return r;
}

#define INTEGER template <typename T, typename = std::enable_if_t<std::is_integral<T>::value>>
INTEGER T min(T a, T b) { return a < b ? a : b; }
INTEGER T max(T a, T b) { return a > b ? a : b; }
INTEGER T popcount(T a) { return (T)__builtin_popcountll((std::make_unsigned_t<T>)a); }
INTEGER T clz(T a) {
    const auto bits = (std::make_unsigned_t<T>)a;
    return (T)(bits ? __builtin_clzll(bits) - (64 - 8 * (int)sizeof(T)) : 8 * sizeof(T));
}
INTEGER T mulhi(T a, T b) {
    static_assert(sizeof(T) <= 4, "mulhi takes up to 32 bits");
    return (T)(((long)a * (long)b) >> (8 * sizeof(T)));
}
#undef INTEGER

// Atomics

struct atomic_int { int value; };
struct atomic_uint { uint value; };
enum memory_order { memory_order_relaxed, memory_order_seq_cst };
enum thread_scope { thread_scope_device };
#define ATOMIC(A, T)                                                                         \
    inline T atomic_load_explicit(volatile A* p, memory_order) {                             \
        return __atomic_load_n(&p->value, __ATOMIC_RELAXED);                                 \
    }                                                                                        \
    inline T atomic_exchange_explicit(volatile A* p, T v, memory_order) {                    \
        return __atomic_exchange_n(&p->value, v, __ATOMIC_RELAXED);                          \
    }                                                                                        \
    inline bool atomic_compare_exchange_weak_explicit(volatile A* p, T* e, T v, memory_order, \
                                                      memory_order) {                        \
        return __atomic_compare_exchange_n(&p->value, e, v, true, __ATOMIC_RELAXED,          \
                                           __ATOMIC_RELAXED);                                \
    }
#define FETCH(A, T, name, builtin)                                                    \
    inline T atomic_fetch_##name##_explicit(volatile A* p, T v, memory_order) {       \
        return builtin(&p->value, v, __ATOMIC_RELAXED);                               \
    }
#define FETCHES(A, T)                                                                  \
    ATOMIC(A, T)                                                                       \
    FETCH(A, T, add, __atomic_fetch_add) FETCH(A, T, min, __atomic_fetch_min)          \
    FETCH(A, T, max, __atomic_fetch_max) FETCH(A, T, and, __atomic_fetch_and)          \
    FETCH(A, T, or, __atomic_fetch_or) FETCH(A, T, xor, __atomic_fetch_xor)
FETCHES(atomic_int, int) FETCHES(atomic_uint, uint)
#undef FETCHES
#undef FETCH
#undef ATOMIC

// Cooperation

namespace mem_flags { enum type { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
inline type operator|(type a, type b) { return (type)((int)a | (int)b); } }

const int PLANE = 32;
struct Plane { pthread_barrier_t barrier; uint64_t values[PLANE]; };
struct Unit { pthread_barrier_t* cube; Plane* plane; int lane, lanes; };
extern thread_local Unit unit;

inline void threadgroup_barrier(int) { pthread_barrier_wait(unit.cube); }
inline void simdgroup_barrier(int) { pthread_barrier_wait(&unit.plane->barrier); }
inline void atomic_thread_fence(int, memory_order, thread_scope) { __atomic_thread_fence(5); }

template <typename T> T exchange(T value, int lane) {
    static_assert(sizeof(T) <= 4 || std::is_same<T, uint2>::value, "shuffles take up to 32 bits");
    uint64_t word = 0;
    memcpy(&word, &value, sizeof(T));
    unit.plane->values[unit.lane] = word;
    pthread_barrier_wait(&unit.plane->barrier);
    if (lane >= 0 && lane < unit.lanes) memcpy(&value, &unit.plane->values[lane], sizeof(T));
    pthread_barrier_wait(&unit.plane->barrier);
    return value;
}
template <typename T> T simd_shuffle(T v, ushort k) { return exchange(v, k); }
template <typename T> T simd_shuffle_xor(T v, ushort m) { return exchange(v, unit.lane ^ m); }
template <typename T> T simd_shuffle_up(T v, ushort d) { return exchange(v, unit.lane - d); }
template <typename T> T simd_shuffle_down(T v, ushort d) { return exchange(v, unit.lane + d); }
struct simd_vote {
    typedef uint64_t vote_t;
    vote_t bits;
    explicit operator vote_t() const { return bits; }
};
inline simd_vote simd_ballot(bool p) {
    unit.plane->values[unit.lane] = p;
    pthread_barrier_wait(&unit.plane->barrier);
    simd_vote vote = {0};
    for (int k = 0; k < unit.lanes; ++k) vote.bits |= unit.plane->values[k] << k;
    pthread_barrier_wait(&unit.plane->barrier);
    return vote;
}
inline bool simd_any(bool p) { return simd_ballot(p).bits != 0; }
inline bool simd_all(bool p) { return simd_ballot(!p).bits == 0; }

// Launching: `run_unit` calls the kernel with its arguments and positions

typedef void (*RunUnit)(void** arguments, uint3 unit, uint3 cube, uint3 counts);
struct Start { RunUnit run; void** arguments; uint3 at, cube, counts; Unit unit; };
inline void* start_unit(void* data) {
    Start* start = (Start*)data;
    unit = start->unit;
    start->run(start->arguments, start->at, start->cube, start->counts);
    return nullptr;
}
inline void run_cube(RunUnit run, void** arguments, uint3 cube, uint3 counts, uint3 dim) {
    const int units = dim.x * dim.y * dim.z, planes = (units + PLANE - 1) / PLANE;
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, nullptr, units);
    Plane* plane = new Plane[planes];
    Start* starts = new Start[units];
    pthread_t* threads = new pthread_t[units];
    for (int p = 0; p < planes; ++p) {
        const int lanes = units - p * PLANE < PLANE ? units - p * PLANE : PLANE;
        pthread_barrier_init(&plane[p].barrier, nullptr, lanes);
        for (int k = 0; k < lanes; ++k) {
            const uint u = p * PLANE + k;
            const uint3 at = {u % dim.x, u / dim.x % dim.y, u / dim.x / dim.y};
            starts[u] = {run, arguments, at, cube, counts, {&barrier, &plane[p], k, lanes}};
        }
    }
    for (int u = 0; u < units; ++u) pthread_create(&threads[u], nullptr, start_unit, &starts[u]);
    for (int u = 0; u < units; ++u) pthread_join(threads[u], nullptr);
    delete[] threads;
    delete[] starts;
    delete[] plane;
}
}  // namespace metal
