"""Words that CUDA C reads for itself, beyond C's and C++'s."""

from __future__ import annotations

from cubepy.compilers.cstyle.cuda_family import reserved

_VECTORS = """
    char uchar short ushort int uint long ulong longlong ulonglong float double half bfloat16_
"""
_OWN = """
    threadIdx blockIdx blockDim gridDim warpSize dim3 cudaError_t clock clock64 longlong ulonglong
    umin umax llmin llmax ullmin ullmax saturate nanosleep bfloat16 float8_e4m3 float8_e5m2
    shared_memory trap brkpt va_list va_start va_arg va_copy va_end atomicAdd atomicSub atomicExch
    atomicMin atomicMax atomicInc atomicDec atomicCAS atomicAnd atomicOr atomicXor mul24 umul24
    mulhi umulhi mul64hi umul64hi float_as_int int_as_float float_as_uint uint_as_float
    surfaceReference textureReference cudaSuccess nv_std cuda_std clock_t libraryPropertyType
    MAJOR_VERSION MINOR_VERSION PATCH_LEVEL
"""
RESERVED = reserved(_OWN, _VECTORS)
