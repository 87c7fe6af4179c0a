"""Words that HIP C++ reads for itself, beyond C's and C++'s."""

from __future__ import annotations

from cubepy.compilers.cstyle.cuda_family import reserved

_VECTORS = "char uchar short ushort int uint long ulong longlong ulonglong float double half"
_OWN = """
    threadIdx blockIdx blockDim gridDim warpSize dim3 hipError_t hipSuccess clock clock64
    wall_clock64 longlong ulonglong shared_memory bfloat16 float8_e4m3 float8_e5m2 hip_bfloat16
    atomicAdd atomicSub atomicExch atomicMin atomicMax atomicInc atomicDec atomicCAS atomicAnd
    atomicOr atomicXor unsafeAtomicAdd safeAtomicAdd mul24 umul24 mulhi umulhi saturate hip
    HIP_vector_type
"""
_LIBRARY = """
    fadd fsub fmul fdiv fsqrt ffma roundeven canonicalize significand drem finite scalb llogb
    totalorder rand srand random srandom initstate setstate qsort bsearch atoi atof atol strtol
    strtod getenv putenv system realpath mktemp remove rename puts gets getc putc perror memchr
    memcmp strlen strcmp strcpy strcat strchr strstr strsep rindex bcmp bcopy bzero swab ffs ffsl
    ffsll basename time clock errno EOF BUFSIZ RAND_MAX stdin stdout stderr CHAR_BIT CHAR_MIN
    CHAR_MAX SHRT_MIN SHRT_MAX INT_MIN INT_MAX UINT_MAX LONG_MIN LONG_MAX ULONG_MAX LLONG_MIN
    LLONG_MAX FP_NAN FP_ZERO FP_NORMAL FP_FAST_FMA FP_FAST_FMAF FLT_MIN FLT_MAX FLT_EPSILON
    DBL_MIN DBL_MAX DBL_EPSILON M_E M_LOG2E M_LOG10E M_LN2 M_LN10 M_PI M_PI_2 M_PI_4 M_1_PI M_2_PI
    M_2_SQRTPI M_SQRT2 M_SQRT1_2
"""
"""What the C library's headers declare, which HIP's include: functions and macros."""
RESERVED = reserved(_OWN + _LIBRARY, _VECTORS)
