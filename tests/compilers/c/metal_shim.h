// Enough of Metal's standard library to compile and run generated kernels as C++ on a CPU.
// One fibre for each unit; threadgroup memory is static, so that cubes run one after the other.
// The text of a kernel is rewritten before: threadgroup variables become static ones.
#pragma once
#include <ucontext.h>
#include <cmath>
#include <cstdint>
#include <cstdlib>
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
    T& operator[](int k) { return lane(k); }
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
OPERATOR(&, T) OPERATOR(|, T) OPERATOR(^, T) OPERATOR(<<, T) OPERATOR(>>, T)
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
    return (T)(((__int128)a * b) >> (8 * sizeof(T)));
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

// A unit is a fibre: it runs until it meets others, and goes on when all that are left are there.

const int PLANE = 32;
enum State { READY, AT_CUBE, AT_PLANE, ENDED };
struct Plane { uint64_t values[PLANE]; int lanes; };
struct Unit { ucontext_t context; State state; Plane* plane; int lane; };
struct Cube { ucontext_t scheduler; Unit* unit; };
inline Cube& cube() {
    static Cube running;
    return running;
}
inline void meet(State where) {
    Cube& c = cube();
    c.unit->state = where;
    swapcontext(&c.unit->context, &c.scheduler);
}
inline void threadgroup_barrier(int) { meet(AT_CUBE); }
inline void simdgroup_barrier(int) { meet(AT_PLANE); }
inline void atomic_thread_fence(int, memory_order, thread_scope) { __atomic_thread_fence(5); }

template <typename T> T exchange(T value, int lane) {
    static_assert(sizeof(T) <= 4 || std::is_same<T, uint2>::value, "shuffles take up to 32 bits");
    Unit* own = cube().unit;
    uint64_t word = 0;
    memcpy(&word, &value, sizeof(T));
    own->plane->values[own->lane] = word;
    meet(AT_PLANE);
    const bool is_there = lane >= 0 && lane < own->plane->lanes;
    if (is_there) memcpy(&value, &own->plane->values[lane], sizeof(T));
    meet(AT_PLANE);
    return value;
}
inline int lane() { return cube().unit->lane; }
template <typename T> T simd_shuffle(T v, ushort k) { return exchange(v, k); }
template <typename T> T simd_shuffle_xor(T v, ushort m) { return exchange(v, lane() ^ m); }
template <typename T> T simd_shuffle_up(T v, ushort d) { return exchange(v, lane() - d); }
template <typename T> T simd_shuffle_down(T v, ushort d) { return exchange(v, lane() + d); }
struct simd_vote {
    typedef uint64_t vote_t;
    vote_t bits;
    explicit operator vote_t() const { return bits; }
};
inline simd_vote simd_ballot(bool p) {
    Plane* plane = cube().unit->plane;
    plane->values[lane()] = p;
    meet(AT_PLANE);
    simd_vote vote = {0};
    for (int k = 0; k < plane->lanes; ++k) vote.bits |= (plane->values[k] & 1) << k;
    meet(AT_PLANE);
    return vote;
}
inline bool simd_any(bool p) { return simd_ballot(p).bits != 0; }
inline bool simd_all(bool p) { return simd_ballot(!p).bits == 0; }

// Matrices of a SIMD-group: a lane holds two neighbours in a row, as MLX found (steel/gemm/mma.h)

template <typename T, int C, int R> struct simdgroup_matrix {
    static_assert(C == 8 && R == 8, "SIMD-groups have matrices of 8x8");
    vec<T, 2> held;
    vec<T, 2>& thread_elements() { return held; }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
inline int row_of(int lane) { return (lane / 4 & 4) + lane / 2 % 4; }
inline int column_of(int lane) { return (lane / 4 & 2) * 2 + lane % 2 * 2; }
template <typename T> void gather(const simdgroup_matrix<T, 8, 8>& m, float (&all)[8][8]) {
    Plane* plane = cube().unit->plane;
    const float pair[2] = {(float)m.held.x, (float)m.held.y};
    memcpy(&plane->values[lane()], pair, sizeof(pair));
    meet(AT_PLANE);
    for (int k = 0; k < PLANE; ++k)
        memcpy(&all[row_of(k)][column_of(k)], &plane->values[k], sizeof(pair));
    meet(AT_PLANE);
}
template <typename T, typename U>
void simdgroup_multiply_accumulate(simdgroup_matrix<T, 8, 8>& d, const simdgroup_matrix<U, 8, 8>& a,
                                   const simdgroup_matrix<U, 8, 8>& b,
                                   const simdgroup_matrix<T, 8, 8>& c) {
    float left[8][8], right[8][8], sums[8][8];
    gather(a, left), gather(b, right), gather(c, sums);
    const int r = row_of(lane()), k0 = column_of(lane());
    for (int k = 0; k < 8; ++k) {
        sums[r][k0] = __builtin_fmaf(left[r][k], right[k][k0], sums[r][k0]);
        sums[r][k0 + 1] = __builtin_fmaf(left[r][k], right[k][k0 + 1], sums[r][k0 + 1]);
    }
    d.held.x = (T)sums[r][k0], d.held.y = (T)sums[r][k0 + 1];
}

// Launching: `run_unit` calls the kernel with its arguments and positions

typedef void (*RunUnit)(void** arguments, uint3 unit, uint3 cube, uint3 counts);
struct Start { RunUnit run; void** arguments; uint3 at, cube, counts; };
inline Start& start() {
    static Start next;
    return next;
}
inline void run_fibre() {
    const Start own = start();
    own.run(own.arguments, own.at, own.cube, own.counts);
    meet(ENDED);
}

// Whether those of units first .. end that have not ended wait at `where`; if so they may go on.
inline bool release(Unit* units, int first, int end, State where) {
    bool any = false;
    for (int k = first; k < end; ++k) {
        if (units[k].state != where && units[k].state != ENDED) return false;
        any |= units[k].state == where;
    }
    for (int k = first; k < end && any; ++k)
        if (units[k].state == where) units[k].state = READY;
    return any;
}
inline void run_ready(Unit* units, int count) {
    for (int k = 0; k < count; ++k) {
        if (units[k].state != READY) continue;
        cube().unit = &units[k];
        swapcontext(&cube().scheduler, &units[k].context);
    }
}
// Metal wants every unit at every barrier: one that ended is not waited for, but is no error here,
// because a plane of which some units returned has its own rule; the tests of refusals cover it.
inline bool run_together(RunUnit run, void** arguments, uint3 cube_at, uint3 counts, uint3 dim) {
    const int count = dim.x * dim.y * dim.z, stack = 256 << 10;
    Unit* units = (Unit*)std::calloc(count, sizeof(Unit));
    Plane* planes = (Plane*)std::calloc((count + PLANE - 1) / PLANE, sizeof(Plane));
    char* stacks = (char*)std::malloc((size_t)count * stack);
    for (int k = 0; k < count; ++k) {
        Unit& u = units[k];
        const int rest = count - k / PLANE * PLANE;
        planes[k / PLANE].lanes = rest < PLANE ? rest : PLANE;
        u.state = READY, u.plane = &planes[k / PLANE], u.lane = k % PLANE;
        getcontext(&u.context);
        u.context.uc_stack.ss_sp = stacks + (size_t)k * stack;
        u.context.uc_stack.ss_size = stack;
        u.context.uc_link = nullptr;
        makecontext(&u.context, run_fibre, 0);
        const uint x = k % dim.x, y = k / dim.x % dim.y, z = k / dim.x / dim.y;
        start() = {run, arguments, {x, y, z}, cube_at, counts};
        cube().unit = &u;
        swapcontext(&cube().scheduler, &u.context);
    }
    bool moves = true;
    while (moves) {
        moves = release(units, 0, count, AT_CUBE);
        for (int k = 0; k < count; k += PLANE)
            moves |= release(units, k, k + PLANE < count ? k + PLANE : count, AT_PLANE);
        run_ready(units, count);
    }
    bool ended = true;
    for (int k = 0; k < count; ++k) ended &= units[k].state == ENDED;
    std::free(stacks);
    std::free(planes);
    std::free(units);
    return ended;
}
// Kernels that meet nowhere need no fibres.
template <int MEETS>
bool run_cube(RunUnit run, void** arguments, uint3 cube_at, uint3 counts, uint3 dim) {
    if (MEETS) return run_together(run, arguments, cube_at, counts, dim);
    for (uint z = 0; z < dim.z; ++z)
        for (uint y = 0; y < dim.y; ++y)
            for (uint x = 0; x < dim.x; ++x) run(arguments, uint3{x, y, z}, cube_at, counts);
    return true;
}
}  // namespace metal
