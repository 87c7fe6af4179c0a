"""CUDA C as data, for one architecture. Everything is self-contained: no header is included."""

from __future__ import annotations

from functools import lru_cache

from cubepy.compilers.cstyle.dialect import Dialect, Helper, Spellings
from cubepy.compilers.cstyle.rows import FMOD
from cubepy.compilers.cstyle.shared import SHARED
from cubepy.compilers.cstyle.spelling import UNARY, Spelling, call, cast
from cubepy.compilers.cuda.words import RESERVED
from cubepy.ir import ops
from cubepy.ir.types import (
    DType,
    Space,
    bf16,
    bool_,
    f8e4m3,
    f8e5m2,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    index,
    u8,
    u16,
    u32,
    u64,
)

SCALARS: dict[DType, str] = {
    bool_: "bool",
    i8: "signed char",
    i16: "short",
    i32: "int",
    i64: "long long",
    index: "long long",
    u8: "unsigned char",
    u16: "unsigned short",
    u32: "unsigned int",
    u64: "unsigned long long",
    f16: "half",
    bf16: "bfloat16",
    f32: "float",
    f64: "double",
    f8e4m3: "float8_e4m3",
    f8e5m2: "float8_e5m2",
}
_VECTORS = {
    i8: "char",
    i16: "short",
    i32: "int",
    i64: "longlong",
    index: "longlong",
    u8: "uchar",
    u16: "ushort",
    u32: "uint",
    u64: "ulonglong",
    f32: "float",
    f64: "double",
    f16: "half",
    bf16: "bfloat16_",
}
VECTORS = {
    (dtype, width): f"{name}{width}"
    for dtype, name in _VECTORS.items()
    for width in (2, 4)
    if dtype.itemsize * width <= 16
}

_INLINE = "static __device__ __forceinline__ "
_FULL = "0xffffffffu"


def _function(head: str, body: str) -> Helper:
    return Helper(f"{_INLINE}{head} {{\n    {body}\n}}")


def _convert(name: str, source: str, target: str, word: str, before: str, after: str) -> Helper:
    """A conversion by one instruction of PTX; `before` and `after` name registers' kinds."""
    text = f'asm("{word} %0, %1;" : "={after}"(result) : "{before}"(value));'
    return _function(
        f"{target} {name}({source} value)", f"{target} result;\n    {text}\n    return result;"
    )


def _type_helpers() -> dict[str, Helper]:
    """Small floats are their bits: conversions are instructions, and computing is done in f32."""
    words = {"half": "unsigned short", "bfloat16": "unsigned short"}
    words |= {"float8_e4m3": "unsigned char", "float8_e5m2": "unsigned char"}
    found = {f"type {n}": Helper(f"typedef {word} {n};") for n, word in words.items()}
    for prefix in ("half", "bfloat16_"):
        for width in (2, 4):
            vector = f"{prefix}{width}"
            text = f"typedef ushort{width} {vector};\n#define make_{vector} make_ushort{width}"
            found[f"type {vector}"] = Helper(text)
    return found


HELPERS: dict[str, Helper] = {
    **_type_helpers(),
    "half_to_float": _convert("half_to_float", "half", "float", "cvt.f32.f16", "h", "f"),
    "float_to_half": _convert("float_to_half", "float", "half", "cvt.rn.f16.f32", "f", "h"),
    "half_to_double": _convert("half_to_double", "half", "double", "cvt.f64.f16", "h", "d"),
    "double_to_half": _convert("double_to_half", "double", "half", "cvt.rn.f16.f64", "d", "h"),
    "fma_half": _function(
        "half fma_half(half a, half b, half c)",
        "half result;\n"
        '    asm("fma.rn.f16 %0, %1, %2, %3;" : "=h"(result) : "h"(a), "h"(b), "h"(c));\n'
        "    return result;",
    ),
    "bfloat16_to_float": _function(
        "float bfloat16_to_float(bfloat16 value)",
        "return __uint_as_float((unsigned int)value << 16);",
    ),
    "note_fault": _function(
        "void note_fault(unsigned long long* faults, long long code, long long unit, "
        "long long cube, long long a, long long b, long long c, long long d)",
        "if (atomicCAS(faults, 0ull, 1ull) != 0ull) return;\n    "
        + "\n    ".join(
            f"faults[{k}] = (unsigned long long){name};"
            for k, name in enumerate(("code", "unit", "cube", "a", "b", "c", "d"), 1)
        ),
    ),
}

_BF16_BY_INSTRUCTION = _convert(
    "float_to_bfloat16", "float", "bfloat16", "cvt.rn.bf16.f32", "f", "h"
)


def _extremum(name: str, word: str) -> Helper:
    text = f'asm("{word}.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));'
    return _function(
        f"float {name}(float a, float b)", f"float result;\n    {text}\n    return result;"
    )


_NAN_HELPERS = {"min_nan": _extremum("min_nan", "min"), "max_nan": _extremum("max_nan", "max")}

_WIDE = (i32, i64, index, u32, u64)


def _numbers() -> Spellings:
    """Functions of f32 and f64 by C's names, of integers by intrinsics."""
    table: Spellings = {}
    names = {
        ops.SQRT: ("sqrt", 1),
        ops.FLOOR: ("floor", 1),
        ops.CEIL: ("ceil", 1),
        ops.TRUNC: ("trunc", 1),
        ops.RINT: ("rint", 1),
        ops.ABS: ("fabs", 1),
        ops.COPYSIGN: ("copysign", 2),
        ops.FMA: ("fma", 3),
        FMOD: ("fmod", 2),
    }
    for row, (name, count) in names.items():
        table[row, f32] = call(f"{name}f", count)
        table[row, f64] = call(name, count)
    table |= {
        (row, d): call(n, 2) for d in _WIDE for row, n in ((ops.MIN, "min"), (ops.MAX, "max"))
    }
    table[ops.FMA, f16] = call("fma_half", 3)
    return table


def _bits() -> Spellings:
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


def _atomics() -> Spellings:
    long = "unsigned long long"
    table: Spellings = {(ops.ATOMIC_LOAD, None): Spelling("*(const volatile {t}*){p}", UNARY)}
    table |= {(ops.ATOMIC_ADD, d): _atomic("atomicAdd") for d in (i32, u32, u64, f32, f64)}
    table |= {(ops.ATOMIC_ADD, d): _atomic("atomicAdd", long) for d in (i64, index)}
    for row, name in ((ops.ATOMIC_MIN, "atomicMin"), (ops.ATOMIC_MAX, "atomicMax")):
        table |= {(row, d): _atomic(name) for d in _WIDE}
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


def _shuffles() -> Spellings:
    """Warp shuffles take 32 and 64 bits and floats; bools and smaller ones travel as ints."""
    names = {
        ops.PLANE_SHUFFLE: "__shfl_sync",
        ops.PLANE_SHUFFLE_XOR: "__shfl_xor_sync",
        ops.PLANE_SHUFFLE_UP: "__shfl_up_sync",
        ops.PLANE_SHUFFLE_DOWN: "__shfl_down_sync",
    }
    table: Spellings = {}
    for row, name in names.items():
        table[row, None] = Spelling(f"{name}({_FULL}, {{0}}, {{1}})")
        small = Spelling(f"({{t}}){name}({_FULL}, (int){{0}}, {{1}})", UNARY, (14,))
        table |= {(row, d): small for d in (i8, i16, u8, u16, f16, bf16, f8e4m3, f8e5m2)}
        table[row, bool_] = Spelling(f"{name}({_FULL}, (int){{0}}, {{1}}) != 0", 9, (14,))
    return table


_COOPERATION: Spellings = {
    (ops.SYNC_CUBE, None): Spelling("__syncthreads()"),
    (ops.SYNC_PLANE, None): Spelling("__syncwarp()"),
    (ops.SYNC_STORAGE, None): Spelling("__threadfence()"),
    (ops.PLANE_ALL, None): Spelling(f"__all_sync({_FULL}, {{0}}) != 0", 9),
    (ops.PLANE_ANY, None): Spelling(f"__any_sync({_FULL}, {{0}}) != 0", 9),
    (ops.PLANE_BALLOT, None): Spelling(f"(unsigned long long)__ballot_sync({_FULL}, {{0}})", UNARY),
    (ops.PREFETCH, None): Spelling('asm volatile("prefetch.global.L2 [%0];" :: "l"({0}))'),
    (ops.MISALIGNMENT, None): Spelling(
        "(long long)(((unsigned long long)({0}) & {mask}) / {item})", UNARY
    ),
}

_CONVERSIONS = {
    (ops.CAST, f16, f32): call("half_to_float"),
    (ops.CAST, f32, f16): call("float_to_half"),
    (ops.CAST, f16, f64): call("half_to_double"),
    (ops.CAST, f64, f16): call("double_to_half"),
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
_BF16_CONVERSIONS = {
    (ops.CAST, bf16, f32): call("bfloat16_to_float"),
    (ops.CAST, f32, bf16): call("float_to_bfloat16"),
}


@lru_cache(maxsize=64)
def dialect(arch: str) -> Dialect:
    """CUDA C for `sm_90a` and the like; what an architecture lacks is computed by hand."""
    recent = _number(arch) >= 80
    spellings = SHARED | _numbers() | _bits() | _atomics() | _shuffles() | _COOPERATION
    helpers = dict(HELPERS)
    if recent:
        spellings |= {(ops.MIN, f32): call("min_nan", 2), (ops.MAX, f32): call("max_nan", 2)}
        helpers |= _NAN_HELPERS | {"float_to_bfloat16": _BF16_BY_INSTRUCTION}
    soft = {f8e4m3, f8e5m2} | (set() if recent else {bf16})
    return Dialect(
        name=f"cuda:{arch}",
        scalars=SCALARS,
        stored=frozenset((f16, bf16, f8e4m3, f8e5m2)),
        soft=frozenset(soft),
        native_fma=frozenset((f16,)),
        suffixes={i64: "ll", index: "ll", u32: "u", u64: "ull"},
        float_suffixes={f32: "f", f64: ""},
        from_bits={f32: "__uint_as_float({})", f64: "__longlong_as_double({})"},
        vectors=VECTORS,
        lanes=("x", "y", "z", "w"),
        vector_build="make_{type}({lanes})",
        vector_splat="make_{type}({value})",
        splat_helper="{function}{type} make_{type}({scalar} value) {{\n"
        "    return make_{type}({lanes});\n}}",
        struct="struct __align__({align}) {name} {{\n    {type} lane[{width}];\n}};",
        struct_build="{type}{{{{{lanes}}}}}",
        function=_INLINE,
        has_overloads=True,
        head='extern "C" __global__ void __launch_bounds__({units})\n{name}',
        buffer="{const}{type}* {restrict}{name}",
        number="{type} {name}",
        fault="unsigned long long* {name}",
        restrict="__restrict__ ",
        spaces={Space.GLOBAL: "", Space.SHARED: "", Space.LOCAL: ""},
        declarations={
            Space.SHARED: "__shared__ __align__(16) {type} {name}[{size}];",
            Space.LOCAL: "__align__(16) {type} {name}[{size}];",
        },
        dynamic_block="extern __shared__ __align__(16) unsigned char shared_memory[];",
        dynamic_shared="{type}* const {name} = ({type}*)(shared_memory + {offset});",
        static_shared_bytes=48 << 10,
        positions={
            (row, axis): f"(long long){word}.{axis}"
            for row, word in (
                (ops.UNIT_POS, "threadIdx"),
                (ops.CUBE_POS, "blockIdx"),
                (ops.CUBE_COUNT, "gridDim"),
            )
            for axis in "xyz"
        },
        plane_dim=32,
        planes_exit=True,
        planes="warps",
        spellings=spellings,
        conversions=_CONVERSIONS | (_BF16_CONVERSIONS if recent else {}),
        helpers=helpers,
        stream_store="__stcs({pointer}, {value})",
        print_words={
            "int": "%lld",
            "uint": "%llu",
            "float": "(double){}",
        },
        reserved=RESERVED,
        refused=_REFUSED,
    )


def _number(arch: str) -> int:
    return int("".join(c for c in arch if c.isdigit()) or 0)


_REFUSED = dict.fromkeys(
    (ops.UNITS, ops.PLANES, ops.PLANE_POS), "it is made for CPUs, where loops run the units"
) | dict.fromkeys((ops.VAR, ops.GET, ops.SET), "locals become SSA values before")
