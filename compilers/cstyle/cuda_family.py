"""What CUDA C and HIP spell alike: functions of numbers and bits, atomics, the fault record."""

from __future__ import annotations

from cubepy.compilers.cstyle.dialect import Helper, Spellings
from cubepy.compilers.cstyle.reserved import C_FUNCTIONS, C_WORDS, CPP_WORDS, vector_words, words
from cubepy.compilers.cstyle.shared import FLOAT_FUNCTIONS
from cubepy.compilers.cstyle.spelling import UNARY, Spelling, call, cast
from cubepy.ir import ops
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    index,
    index32,
    u8,
    u16,
    u32,
    u64,
)
from cubepy.passes.legalise.rows import FMOD

INTEGERS: dict[DType, str] = {
    bool_: "bool",
    i8: "signed char",
    i16: "short",
    i32: "int",
    i64: "long long",
    index: "long long",
    index32: "int",
    u8: "unsigned char",
    u16: "unsigned short",
    u32: "unsigned int",
    u64: "unsigned long long",
}
TABLE = "static __constant__ {type} {name}[{count}]"
LARGE_TABLE = "static __device__ const {type} {name}[{count}]"
INLINE = "static __device__ __forceinline__ "
WIDE = (i32, i64, index, index32, u32, u64)


def function(head: str, body: str) -> Helper:
    """A helper that is always inlined."""
    return Helper(f"{INLINE}{head} {{\n    {body}\n}}")


NOTE_FAULT = function(
    "void note_fault(unsigned long long* faults, long long code, long long unit,\n        "
    "long long cube, long long a, long long b, long long c, long long d)",
    "if (atomicCAS(faults, 0ull, 1ull) != 0ull) return;\n    "
    + "\n    ".join(
        f"faults[{k}] = (unsigned long long){name};"
        for k, name in enumerate(("code", "unit", "cube", "a", "b", "c", "d"), 1)
    ),
)
POSITIONS = {
    (row, axis): f"{word}.{axis}"
    for row, word in (
        (ops.UNIT_POS, "threadIdx"),
        (ops.CUBE_POS, "blockIdx"),
        (ops.CUBE_COUNT, "gridDim"),
    )
    for axis in "xyz"
}
BITCASTS = {
    (ops.BITCAST, f32, u32): call("__float_as_uint"),
    (ops.BITCAST, f32, i32): call("__float_as_int"),
    (ops.BITCAST, u32, f32): call("__uint_as_float"),
    (ops.BITCAST, i32, f32): call("__int_as_float"),
    (ops.BITCAST, f64, i64): call("__double_as_longlong"),
    (ops.BITCAST, f64, index): call("__double_as_longlong"),
    (ops.BITCAST, f64, u64): cast(call("__double_as_longlong")),
    (ops.BITCAST, i64, f64): call("__longlong_as_double"),
    (ops.BITCAST, index, f64): call("__longlong_as_double"),
    (ops.BITCAST, u64, f64): call("__longlong_as_double"),
}


def conversions(dtype: DType, name: str) -> dict[tuple[OpDef, DType, DType], Spelling]:
    """Conversions between a small float and the others, by functions that are named after it."""
    wide = ((f32, "float"), (f64, "double"))
    return {
        key: call(f"{a}_to_{b}")
        for other, word in wide
        for key, a, b in (
            ((ops.CAST, dtype, other), name, word),
            ((ops.CAST, other, dtype), word, name),
        )
    }


def numbers() -> Spellings:
    """Functions of f32 and f64 by C's names, of integers by intrinsics."""
    table: Spellings = {}
    for row, (name, count) in {**FLOAT_FUNCTIONS, FMOD: ("fmod", 2)}.items():
        table[row, f32] = call(f"{name}f", count)
        table[row, f64] = call(name, count)
    table |= {(row, d): call(n, 2) for d in WIDE for row, n in ((ops.MIN, "min"), (ops.MAX, "max"))}
    table[ops.FMA, f16] = call("fma_half", 3)
    return table


def bits() -> Spellings:
    table: Spellings = {}
    for dtype in (i8, i16, u8, u16):
        mask = "0xffu" if dtype.bits == 8 else "0xffffu"
        table[ops.POPCOUNT, dtype] = cast(Spelling(f"__popc({{0}} & {mask})", 15, (14,)))
        leading = f"(__clz({{0}} & {mask}) - {32 - dtype.bits})"
        table[ops.CLZ, dtype] = cast(Spelling(leading, 16, (14,)))
        wide = "int" if dtype in (i8, i16) else "unsigned int"
        high = f"(({wide}){{0}} * ({wide}){{1}} >> {dtype.bits})"
        table[ops.MUL_HI, dtype] = cast(Spelling(high, 16, (14, 14)))
    for dtype in (i32, u32):
        table[ops.POPCOUNT, dtype] = cast(call("__popc"))
        table[ops.CLZ, dtype] = cast(call("__clz"))
    for dtype in (i64, index, u64):
        table[ops.POPCOUNT, dtype] = cast(call("__popcll"))
        table[ops.CLZ, dtype] = cast(call("__clzll"))
    for dtype, name in (
        (i32, "__mulhi"),
        (u32, "__umulhi"),
        (i64, "__mul64hi"),
        (u64, "__umul64hi"),
    ):
        table[ops.MUL_HI, dtype] = call(name, 2)
    table[ops.MUL_HI, index] = call("__mul64hi", 2)
    return table


def _atomic(name: str, word: str = "", count: int = 1) -> Spelling:
    """An atomic function, perhaps on a pointer to another type of the same size."""
    if not word:
        operands = ", ".join(f"{{{k}}}" for k in range(count))
        return Spelling(f"{name}({{p}}, {operands})")
    operands = ", ".join(f"({word}){{{k}}}" for k in range(count))
    return Spelling(f"({{t}}){name}(({word}*){{p}}, {operands})", UNARY, (UNARY,) * count)


def atomics() -> Spellings:
    long = "unsigned long long"
    table: Spellings = {(ops.ATOMIC_LOAD, None): Spelling("*(const volatile {t}*){p}", UNARY)}
    table |= {(ops.ATOMIC_ADD, d): _atomic("atomicAdd") for d in (i32, u32, u64, f32, f64)}
    table |= {(ops.ATOMIC_ADD, d): _atomic("atomicAdd", long) for d in (i64, index)}
    for row, name in ((ops.ATOMIC_MIN, "atomicMin"), (ops.ATOMIC_MAX, "atomicMax")):
        table |= {(row, d): _atomic(name) for d in WIDE}
    bits = {ops.ATOMIC_AND: "And", ops.ATOMIC_OR: "Or", ops.ATOMIC_XOR: "Xor"}
    for row, name in {**bits, ops.ATOMIC_EXCHANGE: "Exch"}.items():
        table |= {(row, d): _atomic(f"atomic{name}") for d in (i32, u32, u64)}
        table |= {(row, d): _atomic(f"atomic{name}", long) for d in (i64, index)}
    table[ops.ATOMIC_EXCHANGE, f32] = _atomic("atomicExch")
    table |= {
        (ops.ATOMIC_CAS, d): _atomic("atomicCAS", "", 2) for d in (i32, u32, u64, u16, f16, bf16)
    }
    table |= {(ops.ATOMIC_CAS, d): _atomic("atomicCAS", long, 2) for d in (i64, index)}
    table[ops.ATOMIC_CAS, i16] = _atomic("atomicCAS", "unsigned short", 2)
    table[ops.ATOMIC_CAS, f32] = Spelling(
        "__uint_as_float(atomicCAS((unsigned int*){p}, __float_as_uint({0}), __float_as_uint({1})))"
    )
    table[ops.ATOMIC_CAS, f64] = Spelling(
        f"__longlong_as_double(atomicCAS(({long}*){{p}}, __double_as_longlong({{0}}), "
        "__double_as_longlong({1})))"
    )
    return table


_FUNCTIONS = words(
    """
    sincospi rhypot rcbrt norm norm3d norm4d rnorm rnorm3d rnorm4d fdivide cyl_bessel_i0
    cyl_bessel_i1 nan
    """
)
"""Mathematics that C has not; that of f32 ends in "f". Kernels' names, which have C linkage, would
be overloads."""


def reserved(own: str, vectors: str) -> frozenset[str]:
    """Reserved words: those of C++, a dialect's `own`, and its types of vectors of scalars."""
    of_vectors = vector_words(vectors, (1, 2, 3, 4))
    makers = frozenset(f"make_{name}" for name in of_vectors)
    functions = C_FUNCTIONS | _FUNCTIONS | frozenset(f"{name}f" for name in _FUNCTIONS)
    return C_WORDS | CPP_WORDS | functions | words(own) | of_vectors | makers
