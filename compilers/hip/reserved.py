"""Words that HIP C++ reads for itself, beyond C's and C++'s."""

from __future__ import annotations

from cubepy.compilers.cstyle.cuda_family import reserved

_VECTORS = "char uchar short ushort int uint long ulong longlong ulonglong float double half"
_OWN = """
    threadIdx blockIdx blockDim gridDim warpSize dim3 hipError_t hipSuccess clock clock64
    wall_clock64 longlong ulonglong shared_memory bfloat16 float8_e4m3 float8_e5m2 hip_bfloat16
    atomicAdd atomicSub atomicExch atomicMin atomicMax atomicInc atomicDec atomicCAS atomicAnd
    atomicOr atomicXor unsafeAtomicAdd safeAtomicAdd mul24 umul24 mulhi umulhi nan nanf rhypot norm
    norm3d norm4d rnorm rnorm3d rnorm4d rcbrt fdividef saturate hip HIP_vector_type
"""
RESERVED = reserved(_OWN, _VECTORS)
