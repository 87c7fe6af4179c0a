// The rules of the Metal Shading Language that C++ can check, as declarations alone: nothing runs.
// Address spaces are types, vectors have the arity of their constructors, functions their types.
// The text is rewritten before: threadgroup variables in functions become static ones.
#pragma once

#define thread
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define kernel

namespace metal {

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
typedef unsigned char uint8_t;
constexpr half operator""h(long double value) { return (half)value; }

// Types

template <bool B, typename T = void> struct enable_if {};
template <typename T> struct enable_if<true, T> { typedef T type; };
template <typename T, typename U> struct same { enum { value = 0 }; };
template <typename T> struct same<T, T> { enum { value = 1 }; };

template <typename T> struct shape { typedef T scalar; enum { lanes = 1, known = 0 }; };
template <typename T, uint N> struct vector_of;
template <typename T, uint N> using vec = typename vector_of<T, N>::type;
#define SCALAR(T) template <> struct shape<T> { typedef T scalar; enum { lanes = 1, known = 1 }; };
#define VECTOR(T, N)                                       \
    typedef T T##N __attribute__((ext_vector_type(N)));    \
    template <> struct vector_of<T, N> { typedef T##N type; };                              \
    template <> struct shape<T##N> { typedef T scalar; enum { lanes = N, known = 1 }; };
#define TYPE(T) SCALAR(T) VECTOR(T, 2) VECTOR(T, 3) VECTOR(T, 4)
#define TRUTHS(N, lanes_)                                                                    \
    struct bool##N {                                                                         \
        bool lanes_;                                                                         \
        bool##N() = default;                                                                 \
        template <typename V, typename = typename enable_if<shape<V>::lanes == N>::type>     \
        bool##N(V);                                                                          \
    };                                                                                       \
    template <> struct vector_of<bool, N> { typedef bool##N type; };                         \
    template <> struct shape<bool##N> { typedef bool scalar; enum { lanes = N, known = 1 }; };
#define COMMA ,
SCALAR(bool) TRUTHS(2, x COMMA y) TRUTHS(3, x COMMA y COMMA z) TRUTHS(4, x COMMA y COMMA z COMMA w)
#undef COMMA
#undef TRUTHS
TYPE(char) TYPE(uchar) TYPE(short) TYPE(ushort) TYPE(int) TYPE(uint) TYPE(long)
TYPE(ulong) TYPE(half) TYPE(float)
#undef TYPE
#undef VECTOR
#undef SCALAR
template <typename T> struct is_real {
    typedef typename shape<T>::scalar S;
    enum { value = same<S, float>::value || same<S, half>::value };
};
template <typename T> struct is_integer {
    enum { value = shape<T>::known && !is_real<T>::value };
};
template <typename... Ts> struct sum { enum { value = 0 }; };
template <typename T, typename... Ts> struct sum<T, Ts...> {
    enum { value = shape<T>::lanes + sum<Ts...>::value };
};
template <typename V, typename... Ts> V vector(Ts... parts) {
    static_assert(sizeof...(Ts) == 0 || (sizeof...(Ts) == 1 && sum<Ts...>::value == 1) ||
                      (int)sum<Ts...>::value == (int)shape<V>::lanes,
                  "a vector takes one scalar, or as many lanes as it has");
    return V();
}

template <typename To, typename From> To as_type(From value) {
    static_assert(sizeof(To) == sizeof(From), "as_type keeps the size");
    return To();
}

// Structures move between memory and units as a whole, which C++ has no constructors for.

template <typename T> struct Place { void operator=(T); };
template <typename T, typename Pointer, typename From> T loaded(From from) {
    (void)(Pointer)from;
    return T();
}
template <typename T, typename Pointer, typename To> Place<T> place(To to) {
    (void)(Pointer)to;
    return Place<T>();
}

// Numbers

#define REAL template <typename T, typename = typename enable_if<is_real<T>::value>::type>
#define INTEGER template <typename T, typename = typename enable_if<is_integer<T>::value>::type>
#define NUMBER template <typename T, typename = typename enable_if<shape<T>::known>::type>
REAL T sqrt(T); REAL T rsqrt(T); REAL T floor(T); REAL T ceil(T); REAL T trunc(T); REAL T rint(T);
REAL T round(T); REAL T fabs(T); REAL T exp(T); REAL T exp2(T); REAL T log(T); REAL T log2(T);
REAL T sin(T); REAL T cos(T); REAL T tan(T); REAL T tanh(T); REAL T fract(T); REAL T sign(T);
REAL T copysign(T, T); REAL T pow(T, T); REAL T fmod(T, T); REAL T fmin(T, T); REAL T fmax(T, T);
REAL T fma(T, T, T); REAL T mix(T, T, T);
NUMBER T min(T, T); NUMBER T max(T, T); NUMBER T abs(T); NUMBER T clamp(T, T, T);
INTEGER T popcount(T); INTEGER T clz(T); INTEGER T ctz(T); INTEGER T mulhi(T, T);
INTEGER T reverse_bits(T);
template <typename T> typename shape<T>::scalar dot(T, T);
NUMBER T select(T, T, bool);
bool all(bool2); bool all(bool3); bool all(bool4); bool any(bool2); bool any(bool3);
bool any(bool4);

#define OF_BOTH(name) using metal::name;
#define MODES                                                                                \
    OF_BOTH(sqrt) OF_BOTH(rsqrt) OF_BOTH(exp) OF_BOTH(exp2) OF_BOTH(log) OF_BOTH(log2)       \
    OF_BOTH(sin) OF_BOTH(cos) OF_BOTH(tan) OF_BOTH(tanh) OF_BOTH(pow) OF_BOTH(fmod)          \
    OF_BOTH(min) OF_BOTH(max) OF_BOTH(clamp)
namespace fast { MODES }
namespace precise { MODES }
#undef MODES
#undef OF_BOTH

// Atomics: opaque, in memory that units share, relaxed

class atomic_int { int value; };
class atomic_uint { uint value; };
enum memory_order { memory_order_relaxed };
enum fence_order { memory_order_seq_cst };
enum thread_scope { thread_scope_device, thread_scope_threadgroup };
#define ATOMIC(space, A, T)                                                               \
    T atomic_load_explicit(const volatile space A*, memory_order);                        \
    void atomic_store_explicit(volatile space A*, T, memory_order);                       \
    T atomic_exchange_explicit(volatile space A*, T, memory_order);                       \
    bool atomic_compare_exchange_weak_explicit(volatile space A*, T*, T, memory_order,    \
                                               memory_order);                             \
    T atomic_fetch_add_explicit(volatile space A*, T, memory_order);                      \
    T atomic_fetch_sub_explicit(volatile space A*, T, memory_order);                      \
    T atomic_fetch_min_explicit(volatile space A*, T, memory_order);                      \
    T atomic_fetch_max_explicit(volatile space A*, T, memory_order);                      \
    T atomic_fetch_and_explicit(volatile space A*, T, memory_order);                      \
    T atomic_fetch_or_explicit(volatile space A*, T, memory_order);                       \
    T atomic_fetch_xor_explicit(volatile space A*, T, memory_order);
ATOMIC(device, atomic_int, int) ATOMIC(device, atomic_uint, uint)
ATOMIC(threadgroup, atomic_int, int) ATOMIC(threadgroup, atomic_uint, uint)
#undef ATOMIC

// Cooperation

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
mem_flags operator|(mem_flags, mem_flags);
void threadgroup_barrier(mem_flags);
void simdgroup_barrier(mem_flags);
void atomic_thread_fence(mem_flags, fence_order, thread_scope);

// Shuffles and reductions take numbers of up to 32 bits, and vectors of them.
template <typename T> struct travels {
    enum {
        value = shape<T>::known && sizeof(typename shape<T>::scalar) <= 4 &&
                !same<typename shape<T>::scalar, bool>::value
    };
};
#define TRAVELS template <typename T, typename = typename enable_if<travels<T>::value>::type>
TRAVELS T simd_shuffle(T, ushort); TRAVELS T simd_shuffle_xor(T, ushort);
TRAVELS T simd_shuffle_up(T, ushort); TRAVELS T simd_shuffle_down(T, ushort);
TRAVELS T simd_broadcast(T, ushort); TRAVELS T simd_sum(T); TRAVELS T simd_product(T);
TRAVELS T simd_min(T); TRAVELS T simd_max(T); TRAVELS T simd_prefix_exclusive_sum(T);
TRAVELS T simd_prefix_inclusive_sum(T);
struct simd_vote {
    typedef ulong vote_t;
    explicit operator vote_t() const;
    bool all() const;
    bool any() const;
};
struct truth {  // no vector becomes a bool by itself
    template <typename T, typename = typename enable_if<shape<T>::lanes == 1>::type> truth(T);
};
simd_vote simd_ballot(truth);
bool simd_any(truth);
bool simd_all(truth);
bool simd_is_first();

// Matrices of floats that a SIMD-group holds

template <typename T, int columns, int rows> struct simdgroup_matrix;
// As long as one of Apple's headers has them.
typedef float float64_of_matrix __attribute__((ext_vector_type(64)));
typedef half half64_of_matrix __attribute__((ext_vector_type(64)));
template <> struct simdgroup_matrix<float, 8, 8> { float64_of_matrix& thread_elements(); };
template <> struct simdgroup_matrix<half, 8, 8> { half64_of_matrix& thread_elements(); };
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
template <typename T, typename U>
void simdgroup_multiply_accumulate(simdgroup_matrix<T, 8, 8>&, simdgroup_matrix<U, 8, 8>,
                                   simdgroup_matrix<U, 8, 8>, simdgroup_matrix<T, 8, 8>);

#undef REAL
#undef INTEGER
#undef NUMBER
#undef TRAVELS
}  // namespace metal

#define MAKE(V) metal::vector<metal::V>
#define bool2(...) MAKE(bool2)(__VA_ARGS__)
#define bool3(...) MAKE(bool3)(__VA_ARGS__)
#define bool4(...) MAKE(bool4)(__VA_ARGS__)
#define char2(...) MAKE(char2)(__VA_ARGS__)
#define char3(...) MAKE(char3)(__VA_ARGS__)
#define char4(...) MAKE(char4)(__VA_ARGS__)
#define uchar2(...) MAKE(uchar2)(__VA_ARGS__)
#define uchar3(...) MAKE(uchar3)(__VA_ARGS__)
#define uchar4(...) MAKE(uchar4)(__VA_ARGS__)
#define short2(...) MAKE(short2)(__VA_ARGS__)
#define short3(...) MAKE(short3)(__VA_ARGS__)
#define short4(...) MAKE(short4)(__VA_ARGS__)
#define ushort2(...) MAKE(ushort2)(__VA_ARGS__)
#define ushort3(...) MAKE(ushort3)(__VA_ARGS__)
#define ushort4(...) MAKE(ushort4)(__VA_ARGS__)
#define int2(...) MAKE(int2)(__VA_ARGS__)
#define int3(...) MAKE(int3)(__VA_ARGS__)
#define int4(...) MAKE(int4)(__VA_ARGS__)
#define uint2(...) MAKE(uint2)(__VA_ARGS__)
#define uint3(...) MAKE(uint3)(__VA_ARGS__)
#define uint4(...) MAKE(uint4)(__VA_ARGS__)
#define long2(...) MAKE(long2)(__VA_ARGS__)
#define long3(...) MAKE(long3)(__VA_ARGS__)
#define long4(...) MAKE(long4)(__VA_ARGS__)
#define ulong2(...) MAKE(ulong2)(__VA_ARGS__)
#define ulong3(...) MAKE(ulong3)(__VA_ARGS__)
#define ulong4(...) MAKE(ulong4)(__VA_ARGS__)
#define half2(...) MAKE(half2)(__VA_ARGS__)
#define half3(...) MAKE(half3)(__VA_ARGS__)
#define half4(...) MAKE(half4)(__VA_ARGS__)
#define float2(...) MAKE(float2)(__VA_ARGS__)
#define float3(...) MAKE(float3)(__VA_ARGS__)
#define float4(...) MAKE(float4)(__VA_ARGS__)

#define double metal_has_no_double
#define goto metal_has_no_goto
#define new metal_has_no_new
#define throw metal_has_no_exceptions
#define virtual metal_has_no_virtual
