"""CUDA C as data, for one architecture. Everything is self-contained: no header is included."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from cubepy.compilers.cstyle import cuda_family as family
from cubepy.compilers.cstyle import nvidia
from cubepy.compilers.cstyle.cuda_family import function
from cubepy.compilers.cstyle.dialect import REFUSED, Dialect, Helper, Spellings, complete
from cubepy.compilers.cstyle.shared import SHARED
from cubepy.compilers.cstyle.spelling import UNARY, Spelling, call
from cubepy.compilers.cuda.instructions import (
    REGISTERS,
    SHARED_ADDRESS,
    has_clusters,
    instructions,
)
from cubepy.compilers.cuda.reserved import RESERVED
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
from cubepy.lang.math.error_function import ERF_P, ERF_Q
from cubepy.passes.legalise.capabilities import Capabilities, Planes
from cubepy.targets import cuda_target

SCALARS: dict[DType, str] = {
    **family.INTEGERS,
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

_FULL = "0xffffffffu"


def _convert(name: str, source: str, target: str, word: str, before: str, after: str) -> Helper:
    """A conversion by one instruction of PTX; `before` and `after` name registers' kinds."""
    text = f'asm("{word} %0, %1;" : "={after}"(result) : "{before}"(value));'
    return function(
        f"{target} {name}({source} value)", f"{target} result;\n    {text}\n    return result;"
    )


def _type_helpers() -> dict[str, Helper]:
    """Small floats are their bits: conversions are instructions, and computing is done in f32."""
    words = {"half": "unsigned short", "bfloat16": "unsigned short"}
    words |= {"float8_e4m3": "unsigned char", "float8_e5m2": "unsigned char"}
    found = {f"type {n}": Helper(f"typedef {word} {n};") for n, word in words.items()}
    for prefix in ("half", "bfloat16_"):
        for width in (2, 4):
            vector, scalar = f"{prefix}{width}", prefix.rstrip("_")
            lanes = "abcd"[:width]
            made = function(
                f"{vector} make_{vector}({', '.join(f'{scalar} {k}' for k in lanes)})",
                f"return make_ushort{width}({', '.join(lanes)});",
            )
            found[f"type {vector}"] = Helper(f"typedef ushort{width} {vector};\n{made.text}")
    return found


def _disguise(found: nvidia.Disguise) -> Helper:
    result, value = SCALARS[found.result], SCALARS[found.value]
    return function(
        f"{result} {found.name}({value} value)",
        f"{result} result;\n    {found.statement}\n    return result;",
    )


def _horner(coefficients: tuple[float, ...]) -> str:
    """A polynomial in `z`, the highest power first."""
    text = f"{coefficients[0]!r}f"
    for c in coefficients[1:]:
        text = f"fmaf({text}, z, {c!r}f)"
    return text


def _error_function() -> Helper:
    """The expansion of `lang.math`, with a reciprocal of 1 ULP for the quotient: fewer instructions
    than CUDA's own, which computes two forms and selects."""
    return function(
        "float error_function(float value)",
        "const float x = fabsf(value) > 4.0f ? copysignf(4.0f, value) : value;\n"
        "    const float z = x * x;\n"
        f"    const float numerator = {_horner(ERF_P)};\n"
        f"    const float denominator = {_horner(ERF_Q)};\n"
        "    const float found = x * numerator * near_reciprocal(denominator);\n"
        "    return fabsf(found) > 1.0f ? copysignf(1.0f, found) : found;",
    )


CLUSTER = "__cluster_dims__({}, {}, {}) "
"""Declares the size of clusters in the kernel, so that an ordinary launch suffices."""
_TENSOR_MAP = "struct __align__(64) TensorMap {\n    unsigned long long words[16];\n};"

HELPERS: dict[str, Helper] = {
    "TensorMap": Helper(_TENSOR_MAP),
    **_type_helpers(),
    "half_to_float": _convert("half_to_float", "half", "float", "cvt.f32.f16", "h", "f"),
    "float_to_half": _convert("float_to_half", "float", "half", "cvt.rn.f16.f32", "f", "h"),
    "half_to_double": _convert("half_to_double", "half", "double", "cvt.f64.f16", "h", "d"),
    "double_to_half": _convert("double_to_half", "double", "half", "cvt.rn.f16.f64", "d", "h"),
    "fma_half": function(
        "half fma_half(half a, half b, half c)",
        "half result;\n"
        '    asm("fma.rn.f16 %0, %1, %2, %3;" : "=h"(result) : "h"(a), "h"(b), "h"(c));\n'
        "    return result;",
    ),
    "bfloat16_to_float": function(
        "float bfloat16_to_float(bfloat16 value)",
        "return __uint_as_float((unsigned int)value << 16);",
    ),
    "bfloat16_to_double": function(
        "double bfloat16_to_double(bfloat16 value)",
        "return __uint_as_float((unsigned int)value << 16);",
    ),
    "note_fault": family.NOTE_FAULT,
    "sigmoid": function(
        "float sigmoid(float value)",
        "const float e = expf(-fabsf(value));\n"
        "    return (value < 0.0f ? e : 1.0f) * near_reciprocal(e + 1.0f);",
    ),
    "error_function": _error_function(),
    **{found.name: _disguise(found) for found in nvidia.DISGUISES},
    "near_reciprocal": function(
        "float near_reciprocal(float value)",
        'float result;\n    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));\n'
        "    return result;",
    ),
}

_DOUBLE_TO_BF16 = function(
    "bfloat16 double_to_bfloat16(double value)",
    "const float near = __double2float_rz(value);\n"
    "    const unsigned int is_cut = (double)near != value;  // rounding to odd rounds once\n"
    "    return float_to_bfloat16(__uint_as_float(__float_as_uint(near) | is_cut));",
)
_BF16_BY_INSTRUCTION = _convert(
    "float_to_bfloat16", "float", "bfloat16", "cvt.rn.bf16.f32", "f", "h"
)


_BF16_HELPERS = {
    "float_to_bfloat16": _BF16_BY_INSTRUCTION,
    "double_to_bfloat16": _DOUBLE_TO_BF16,
}

WAIT = 'asm volatile("griddepcontrol.wait;" ::: "memory");'
_DEPENDENCIES = {"sync_dependencies": function("void sync_dependencies()", WAIT)}
"""What kernels begin with where launches overlap: it waits until those before are done, and what
they wrote is seen (PTX ISA, griddepcontrol). None lets the next one begin before it ends
(griddepcontrol.launch_dependents): cubes that come early take the places that are free then, so
that kernels with few are spread unevenly, up to 2.5 times as slow, for 0.5 us that others gain."""


def _extremum(name: str, word: str) -> Helper:
    text = f'asm("{word}.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));'
    return function(
        f"float {name}(float a, float b)", f"float result;\n    {text}\n    return result;"
    )


_NAN_HELPERS = {"min_nan": _extremum("min_nan", "min"), "max_nan": _extremum("max_nan", "max")}


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

_CONVERSIONS = (
    family.BITCASTS
    | family.conversions(f16, "half")
    | family.conversions(bf16, "bfloat16")
    | nvidia.CONVERSIONS
)


def _functions() -> Spellings:
    """Elementary functions of CUDA's library: within 2 ULP, pow 8 (CUDA C++ Programming Guide,
    Mathematical Functions); `targets` lists them."""
    names = ("exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p")
    names += ("sin", "cos", "tanh", "erf", "erfc", "rsqrt", "cbrt")
    table: Spellings = {}
    for name in names:
        row = ops.TABLE[name]
        table |= {(row, f32): call(f"{name}f"), (row, f64): call(name)}
    table |= {(ops.POW, f32): call("powf", 2), (ops.POW, f64): call("pow", 2)}
    table[ops.SIGMOID, f32] = call("sigmoid")
    table[ops.ERF, f32] = call("error_function")
    return table


_RECENT = {(ops.MIN, f32): call("min_nan", 2), (ops.MAX, f32): call("max_nan", 2)}
"""From sm_80 on the hardware has IEEE 754 minimum and maximum of f32."""

BASE = Dialect(
    can=Capabilities(
        target="cuda",
        kind="cuda",
        stored=frozenset((f16, bf16, f8e4m3, f8e5m2)),
        native_fma=frozenset((f16, f32, f64)),
        planes=Planes.SHUFFLES,
        plane_dim=32,
        shuffles_keep=True,
        named_barriers=True,
        early_exit=True,
        of_nvidia=True,
    ),
    scalars=SCALARS,
    suffixes={i64: "ll", index: "ll", u32: "u", u64: "ull"},
    float_suffixes={f32: "f", f64: ""},
    from_bits={f32: "__uint_as_float({})", f64: "__longlong_as_double({})"},
    vectors=VECTORS,
    lanes=("x", "y", "z", "w"),
    vector_build="make_{type}({lanes})",
    vector_splat=Spelling("make_{type}({0})"),
    splat_helper="{function}{type} make_{type}({scalar} value) {{\n"
    "    return make_{type}({lanes});\n}}",
    struct="struct __align__({align}) {name} {{\n    {type} lane[{width}];\n}};",
    struct_build="{type}{{{{{lanes}}}}}",
    function=family.INLINE,
    overloads="all",
    head='extern "C" __global__ void {cluster}__launch_bounds__({units})\n{name}',
    tensor_map="const __grid_constant__ TensorMap {name}",
    registers=REGISTERS,
    address=SHARED_ADDRESS,
    buffer="{const}{type}* {restrict}{name}",
    number="{type} {name}",
    fault="unsigned long long* {name}",
    restrict="__restrict__ ",
    spaces={Space.GLOBAL: "", Space.SHARED: "", Space.LOCAL: ""},
    table=family.TABLE,
    large_table=family.LARGE_TABLE,
    declarations={
        Space.SHARED: "__shared__ __align__({align}) {type} {name}[{size}];",
        Space.LOCAL: "__align__(16) {type} {name}[{size}];",
    },
    dynamic_block="extern __shared__ __align__({align}) unsigned char shared_memory[];",
    dynamic_shared="{type}* const {name} = ({type}*)(shared_memory + {offset});",
    static_shared_bytes=48 << 10,
    positions=family.POSITIONS,
    bare_positions=True,
    spellings=SHARED
    | family.numbers()
    | family.bits()
    | _functions()
    | nvidia.spellings("long long")
    | family.atomics()
    | _shuffles()
    | _COOPERATION,
    conversions=_CONVERSIONS,
    helpers=HELPERS,
    stream_load=call("__ldcs"),
    stream_store=call("__stcs", 2),
    print_words={"int": "%lld", "uint": "%llu"},
    print_float=Spelling("(double){0}", UNARY, (UNARY,)),
    print_most=32,  # CUDA C++ Programming Guide, Formatted Output: others are not printed
    reserved=RESERVED,
)


@lru_cache(maxsize=64)
def dialect(arch: str) -> Dialect:
    """CUDA C for `sm_90a` and the like; what an architecture lacks is computed by hand."""
    found, lacks = instructions(arch)
    is_old = cuda_target(arch).version < 80
    soft = frozenset((bf16, f8e4m3, f8e5m2) if is_old else (f8e4m3, f8e5m2))
    can = replace(
        BASE.can,
        target=f"cuda:{arch}",
        refused={**REFUSED, **lacks},
        refused_attributes={} if has_clusters(arch) else {"cluster": "it needs sm_90 or newer"},
        soft=soft,
    )
    base = replace(BASE, can=can, instructions=found, cluster=CLUSTER)
    if is_old:
        return complete(base)
    base = replace(
        base,
        spellings=BASE.spellings | _RECENT,
        conversions=_CONVERSIONS,
        helpers=HELPERS | _NAN_HELPERS | _BF16_HELPERS | _DEPENDENCIES,
        begin="sync_dependencies();" if cuda_target(arch).overlaps_launches else "",
    )
    return complete(base)
