"""HIP C++ as data, for one architecture of AMD. Nothing beyond HIP's runtime header is used.

HIP is always compiled by clang, whose vectors have operators and take 16 bytes in one access; f16
is a type of the hardware.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from cubepy.compilers.cstyle import cuda_family as family
from cubepy.compilers.cstyle.dialect import REFUSED, Dialect, Helper, Spellings, complete
from cubepy.compilers.cstyle.shared import FLOAT_FUNCTIONS, SHARED
from cubepy.compilers.cstyle.spelling import EQUAL, UNARY, Spelling, call, cast
from cubepy.compilers.hip.reserved import RESERVED
from cubepy.ir import ops
from cubepy.ir.types import (
    DType,
    Kind,
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
    i64,
    index,
    u8,
    u16,
    u32,
    u64,
)
from cubepy.passes.legalise.capabilities import Capabilities, Planes
from cubepy.passes.legalise.rows import FMOD

SCALARS: dict[DType, str] = {
    **family.INTEGERS,
    f16: "_Float16",
    bf16: "bfloat16",
    f32: "float",
    f64: "double",
    f8e4m3: "float8_e4m3",
    f8e5m2: "float8_e5m2",
}
_STORED = {bf16: "unsigned short", f8e4m3: "unsigned char", f8e5m2: "unsigned char"}
_LINES = [
    (dtype, width)
    for dtype in SCALARS
    for width in (2, 4, 8, 16)
    if dtype is not bool_ and dtype.itemsize * width <= 16
]
_BITS = {bf16: u16, f8e4m3: u8, f8e5m2: u8}
VECTORS = {(d, width): f"{_BITS.get(d, d).name}x{width}" for d, width in _LINES}


def _type_helpers() -> dict[str, Helper]:
    """Small floats that are their bits, and lines as vectors of clang."""
    found = {f"type {SCALARS[d]}": f"typedef {word} {SCALARS[d]};" for d, word in _STORED.items()}
    for (dtype, width), name in VECTORS.items():
        lanes = f"__attribute__((ext_vector_type({width})))"
        scalar = SCALARS[_BITS.get(dtype, dtype)]
        found[f"type {name}"] = f"typedef {scalar} {name} {lanes};"
    return {name: Helper(text) for name, text in found.items()}


def _halves() -> Spellings:
    """f16 by way of f32 where that is exact, or rounds alike."""
    table: Spellings = {}
    for row, (name, count) in {**FLOAT_FUNCTIONS, FMOD: ("fmod", 2)}.items():
        operands = ", ".join(f"(float){{{k}}}" for k in range(count))
        table[row, f16] = Spelling(f"(_Float16){name}f({operands})", UNARY, (UNARY,) * count)
    # The builtin gives `__fp16`, which braces do not narrow to `_Float16`.
    return table | {(ops.FMA, f16): cast(call("__builtin_fmaf16", 3))}


def _shuffles() -> Spellings:
    """Shuffles take 32 and 64 bits; bools and smaller ones travel as ints, f16 by its bits, since
    a conversion would quiet NaNs that signal."""
    names = {
        ops.PLANE_SHUFFLE: "__shfl",
        ops.PLANE_SHUFFLE_XOR: "__shfl_xor",
        ops.PLANE_SHUFFLE_UP: "__shfl_up",
        ops.PLANE_SHUFFLE_DOWN: "__shfl_down",
    }
    table: Spellings = {}
    for row, name in names.items():
        lane = "(int){1}"
        table[row, None] = Spelling(f"{name}({{0}}, {lane})", needs=(0, UNARY))
        small = Spelling(f"({{t}}){name}((int){{0}}, {lane})", UNARY, (UNARY, UNARY))
        table |= {(row, d): small for d in (i8, i16, u8, u16, *_STORED)}
        bits = f"(unsigned short){name}((int)bits_as<unsigned short>({{0}}), {lane})"
        table[row, f16] = Spelling(f"bits_as<_Float16>({bits})", needs=(0, UNARY))
        table[row, bool_] = Spelling(f"{name}((int){{0}}, {lane}) != 0", EQUAL, (UNARY, UNARY))
    return table


_COOPERATION: Spellings = {
    (ops.SYNC_CUBE, None): Spelling("__syncthreads()"),
    (ops.SYNC_PLANE, None): Spelling("sync_plane()"),
    (ops.SYNC_STORAGE, None): Spelling("__threadfence()"),
    (ops.PLANE_ALL, None): Spelling("__all({0}) != 0", EQUAL),
    (ops.PLANE_ANY, None): Spelling("__any({0}) != 0", EQUAL),
    (ops.PLANE_BALLOT, None): call("__ballot"),
    (ops.MISALIGNMENT, None): Spelling(
        "(long long)(((unsigned long long)({0}) & {mask}) / {item})", UNARY
    ),
}


def _atomics() -> Spellings:
    """Those of 32 and 64 bits."""
    return {key: found for key, found in family.atomics().items() if _is_wide(key[1])}


def _is_wide(dtype: DType | Kind | None) -> bool:
    return not isinstance(dtype, DType) or dtype.bits >= 32


_SYNC_PLANE = family.function(
    "void sync_plane()",
    '__builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");\n'
    "    __builtin_amdgcn_wave_barrier();\n"
    '    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");',
)
"""Fences alone may be copied into the arms of branches around them, which run one after another."""
_BITS_AS = Helper(
    "template <typename To, typename From>\n"
    f"{family.INLINE}To bits_as(From value) {{\n"
    "    return __builtin_bit_cast(To, value);\n"
    "}"
)
"""By a copy: of a vector's element itself clang, at least 16 to 19, takes the bits of the first."""
_SUMS = frozenset((ops.ADD, ops.SUB, ops.MUL))
_BIT_ROWS = frozenset((ops.AND, ops.OR, ops.XOR))

BASE = Dialect(
    can=Capabilities(
        target="hip",
        kind="hip",
        stored=frozenset(_STORED),
        soft=frozenset(_STORED),
        native_fma=frozenset((f16, f32, f64)),
        refused=REFUSED,
        planes=Planes.SHUFFLES,
        plane_dim=64,
        shuffles_keep=True,
        early_exit=True,
    ),
    scalars=SCALARS,
    suffixes={i64: "ll", index: "ll", u32: "u", u64: "ull"},
    float_suffixes={f16: "f16", f32: "f", f64: ""},
    from_bits={
        f16: "__builtin_bit_cast(_Float16, (unsigned short){})",
        f32: "__builtin_bit_cast(float, {})",
        f64: "__builtin_bit_cast(double, {})",
    },
    vectors=VECTORS,
    lanes=tuple(f"s{k:x}" for k in range(16)),
    vector_build="{type}{{{lanes}}}",
    vector_splat=Spelling("({type})({0})"),
    struct="struct __align__({align}) {name} {{\n    {type} lane[{width}];\n}};",
    struct_build="{type}{{{{{lanes}}}}}",
    function=family.INLINE,
    overloads="structs",
    vector_rows={
        Kind.FLOAT: _SUMS | {ops.DIV},
        Kind.UINT: _SUMS | _BIT_ROWS | {ops.SHL, ops.SHR},
        Kind.INT: _BIT_ROWS | {ops.SHR},
    },
    head='extern "C" __global__ void __launch_bounds__({units})\n{name}',
    simds=4,
    buffer="{const}{type}* {restrict}{name}",
    number="{type} {name}",
    fault="unsigned long long* {name}",
    restrict="__restrict__ ",
    spaces={Space.GLOBAL: "", Space.SHARED: "", Space.LOCAL: ""},
    table=family.TABLE,
    large_table=family.LARGE_TABLE,
    declarations={
        Space.SHARED: "__shared__ __align__(16) {type} {name}[{size}];",
        Space.LOCAL: "__align__(16) {type} {name}[{size}];",
    },
    positions=family.POSITIONS,
    bare_positions=True,
    prelude=("#pragma clang fp contract(off)",),
    spellings=SHARED
    | family.numbers()
    | family.bits()
    | _halves()
    | _atomics()
    | _shuffles()
    | _COOPERATION,
    conversions=family.BITCASTS,
    bitcast=call("bits_as<{t}>"),
    line_bitcast=Spelling("__builtin_bit_cast({t}, {0})"),
    helpers=_type_helpers()
    | {"note_fault": family.NOTE_FAULT, "bits_as": _BITS_AS, "sync_plane": _SYNC_PLANE},
    print_words={"int": "%lld", "uint": "%llu"},
    print_float=Spelling("(double){0}", UNARY, (UNARY,)),
    reserved=RESERVED,
)


@lru_cache(maxsize=64)
def dialect(arch: str, plane_dim: int) -> Dialect:
    """HIP C++ for `gfx942` and the like, with its size of wavefronts."""
    return complete(replace(BASE, can=replace(BASE.can, target=f"hip:{arch}", plane_dim=plane_dim)))
