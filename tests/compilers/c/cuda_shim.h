// What single units of CUDA C and HIP need to run as C++; tests alone include it.
#include <cmath>
#include <cstring>
#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
struct Dimensions { unsigned x, y, z; };
static const Dimensions threadIdx{0, 0, 0}, blockIdx{0, 0, 0}, gridDim{1, 1, 1};
template <typename T> static inline T min(T a, T b) { return b < a ? b : a; }
template <typename T> static inline T max(T a, T b) { return a < b ? b : a; }
template <typename T> static inline T __ldcs(const T* from) { return *from; }
template <typename T> static inline void __stcs(T* to, T value) { *to = value; }
static inline unsigned __float_as_uint(float v) { unsigned w; std::memcpy(&w, &v, 4); return w; }
static inline float __uint_as_float(unsigned w) { float v; std::memcpy(&v, &w, 4); return v; }
static inline int __float_as_int(float v) { return (int)__float_as_uint(v); }
static inline float __int_as_float(int w) { return __uint_as_float((unsigned)w); }
