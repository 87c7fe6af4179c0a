"""The Metal Shading Language 3 as data.

Buffers are bound in the order of the arguments; all numbers together are one structure behind them,
with eight bytes for each. Fast math is off.
"""

from __future__ import annotations

from cubepy.compilers.cstyle.dialect import REFUSED, Dialect, Helper, Spellings, complete
from cubepy.compilers.cstyle.shared import FLOAT_FUNCTIONS, SHARED, SHORT_NAMES
from cubepy.compilers.cstyle.spelling import EQUAL, UNARY, Spelling, call
from cubepy.compilers.metal.reserved import RESERVED
from cubepy.ir import metal, ops
from cubepy.ir.types import (
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
    i32,
    i64,
    index,
    u8,
    u16,
    u32,
    u64,
)
from cubepy.passes.legalise.capabilities import Capabilities, Planes
from cubepy.passes.legalise.rows import FMOD

SCALARS = {**SHORT_NAMES, f16: "half"}
_STORED = frozenset((bf16, f8e4m3, f8e5m2))
_LONG = (i64, index, u64)
VECTORS = {
    (dtype, width): f"{name}{width}"
    for dtype, name in SCALARS.items()
    for width in (2, 4)
    if dtype.itemsize * width <= 16
}


def _functions() -> Spellings:
    table: Spellings = {(row, Kind.FLOAT): call(*word) for row, word in FLOAT_FUNCTIONS.items()}
    table[FMOD, f32] = call("exact_fmod", 2)
    table[FMOD, f16] = Spelling("(half)exact_fmod((float){0}, (float){1})", UNARY, (UNARY, UNARY))
    integers = {
        ops.MIN: ("min", 2),
        ops.MAX: ("max", 2),
        ops.POPCOUNT: ("popcount", 1),
        ops.CLZ: ("clz", 1),
        ops.MUL_HI: ("mulhi", 2),
    }
    for row, (name, count) in integers.items():
        operands = ", ".join(f"({{t}}){{{k}}}" for k in range(count))
        spelling = Spelling(f"{name}({operands})", needs=(UNARY,) * count)
        table[row, Kind.INT] = table[row, Kind.UINT] = spelling  # literals are ints
    table |= {(ops.MUL_HI, dtype): call("mul_hi_signed", 2) for dtype in (i64, index)}
    table[ops.MUL_HI, u64] = call("mul_hi_unsigned", 2)
    return table


_FENCES = "mem_flags::mem_device | mem_flags::mem_threadgroup"
_COOPERATION: Spellings = {
    (ops.SYNC_CUBE, None): Spelling(f"threadgroup_barrier({_FENCES})"),
    (ops.SYNC_PLANE, None): Spelling(f"simdgroup_barrier({_FENCES})"),
    (ops.PLANE_ALL, None): call("simd_all"),
    (ops.PLANE_ANY, None): call("simd_any"),
    (ops.PLANE_BALLOT, None): Spelling("(ulong)(simd_vote::vote_t)simd_ballot({0})", UNARY),
    (ops.MISALIGNMENT, None): Spelling("(long)(((ulong)({0}) & {mask}) / {item})", UNARY),
}


def _shuffles() -> Spellings:
    """Shuffles take up to 32 bits: longer ones travel as pairs, bools as numbers."""
    names = {
        ops.PLANE_SHUFFLE: "simd_shuffle",
        ops.PLANE_SHUFFLE_XOR: "simd_shuffle_xor",
        ops.PLANE_SHUFFLE_UP: "simd_shuffle_up",
        ops.PLANE_SHUFFLE_DOWN: "simd_shuffle_down",
    }
    table: Spellings = {}
    for row, name in names.items():
        lane = "(ushort){1}"
        table[row, None] = Spelling(f"{name}({{0}}, {lane})", needs=(0, UNARY))
        small = Spelling(f"{name}(({{t}}){{0}}, {lane})", needs=(UNARY, UNARY))
        table |= {(row, dtype): small for dtype in (i8, i16, u8, u16)}
        wide = f"as_type<{{t}}>({name}(as_type<uint2>({{0}}), {lane}))"
        table |= {(row, dtype): Spelling(wide, needs=(0, UNARY)) for dtype in _LONG}
        table[row, bool_] = Spelling(f"{name}((uint){{0}}, {lane}) != 0", EQUAL, (UNARY, UNARY))
    return table


_ATOMIC = {
    ops.ATOMIC_ADD: "fetch_add",
    ops.ATOMIC_MIN: "fetch_min",
    ops.ATOMIC_MAX: "fetch_max",
    ops.ATOMIC_AND: "fetch_and",
    ops.ATOMIC_OR: "fetch_or",
    ops.ATOMIC_XOR: "fetch_xor",
    ops.ATOMIC_EXCHANGE: "exchange",
}


def _atomics() -> Spellings:
    """On 32 bits; floats by compare and swap of their bits."""
    table: Spellings = {}
    for dtype, word in ((i32, "int"), (u32, "uint")):
        place = f"(volatile {{space}}atomic_{word}*){{p}}"
        for row, name in _ATOMIC.items():
            text = f"atomic_{name}_explicit({place}, {{0}}, memory_order_relaxed)"
            table[row, dtype] = Spelling(text)
        load = f"atomic_load_explicit({place}, memory_order_relaxed)"
        table[ops.ATOMIC_LOAD, dtype] = Spelling(load)
    bits = "(volatile {space}atomic_uint*){p}"
    table[ops.ATOMIC_CAS, u32] = Spelling(f"compare_and_swap({bits}, {{0}}, {{1}})")
    signed = f"(int)compare_and_swap({bits}, (uint){{0}}, (uint){{1}})"
    table[ops.ATOMIC_CAS, i32] = Spelling(signed, UNARY, (UNARY, UNARY))
    values = "as_type<uint>({0}), as_type<uint>({1})"
    table[ops.ATOMIC_CAS, f32] = Spelling(f"as_type<float>(compare_and_swap({bits}, {values}))")
    load = f"as_type<float>(atomic_load_explicit({bits}, memory_order_relaxed))"
    table[ops.ATOMIC_LOAD, f32] = Spelling(load)
    return table


def _put(matrix: str, values: str) -> str:
    """Its own two elements one by one: headers give vectors of other lengths."""
    return "".join(f"    {matrix}.thread_elements()[{n}] = {values}[{n}];\n" for n in range(2))


def _multiply_accumulate(scalar: str) -> Helper:
    return Helper(
        "static inline float2 "
        f"multiply_accumulate_{scalar}({scalar}2 a, {scalar}2 b, float2 c) {{\n"
        f"    simdgroup_{scalar}8x8 left, right;\n"
        "    simdgroup_float8x8 sums;\n"
        f"{_put('left', 'a')}{_put('right', 'b')}{_put('sums', 'c')}"
        "    simdgroup_multiply_accumulate(sums, left, right, sums);\n"
        "    return float2(sums.thread_elements()[0], sums.thread_elements()[1]);\n"
        "}"
    )


HELPERS = {
    "multiply_accumulate_float": _multiply_accumulate("float"),
    "multiply_accumulate_half": _multiply_accumulate("half"),
    "compare_and_swap": Helper(
        "template <typename Place>\n"
        "static inline uint compare_and_swap(Place place, uint expected, uint value) {\n"
        "    uint seen = expected;\n"
        "    while (!atomic_compare_exchange_weak_explicit(\n"
        "            place, &seen, value, memory_order_relaxed, memory_order_relaxed)) {\n"
        "        if (seen != expected) break;\n"
        "    }\n"
        "    return seen;\n"
        "}"
    ),
    "exact_fmod": Helper(
        "static inline float exact_fmod(float a, float b) {\n"
        "    float rest = fabs(a);\n"
        "    const float divisor = fabs(b);\n"
        "    if (!(divisor > 0.0f) || !(rest - rest == 0.0f)) return (a * b) / (a * b);\n"
        "    while (rest >= divisor) {\n"
        "        float part = divisor;\n"
        "        while (part <= rest - part) part += part;\n"
        "        rest -= part;\n"
        "    }\n"
        "    return copysign(rest, a);\n"
        "}"
    ),
    "mul_hi_unsigned": Helper(
        "static inline ulong mul_hi_unsigned(ulong a, ulong b) {\n"
        "    const ulong a0 = a & 0xffffffffu, a1 = a >> 32, b0 = b & 0xffffffffu, b1 = b >> 32;\n"
        "    const ulong middle = a1 * b0 + (a0 * b0 >> 32);\n"
        "    const ulong low = a0 * b1 + (middle & 0xffffffffu);\n"
        "    return a1 * b1 + (middle >> 32) + (low >> 32);\n"
        "}"
    ),
    "mul_hi_signed": Helper(
        "static inline long mul_hi_signed(long a, long b) {\n"
        "    const ulong high = mul_hi_unsigned((ulong)a, (ulong)b);\n"
        "    return (long)(high - (a < 0 ? (ulong)b : 0ul) - (b < 0 ? (ulong)a : 0ul));\n"
        "}"
    ),
    "note_fault": Helper(
        "static inline void note_fault(device ulong* faults, long code, long unit, long cube,\n"
        "        long a, long b, long c, long d) {\n"
        "    if (compare_and_swap((volatile device atomic_uint*)faults, 0u, 1u) != 0u) return;\n"
        + "".join(
            f"    faults[{k}] = (ulong){name};\n"
            for k, name in enumerate(("code", "unit", "cube", "a", "b", "c", "d"), 1)
        )
        + "}"
    ),
}

_BIT_ROWS = frozenset((ops.AND, ops.OR, ops.XOR))
_SUMS = frozenset((ops.ADD, ops.SUB, ops.MUL))
_COMPARISONS = frozenset((ops.EQ, ops.NE, ops.LT, ops.LE, ops.GT, ops.GE))

_NO_FENCE = "Metal before 3.2 orders memory within a cube alone; use a second launch"
MOST_BUFFERS = 31
"""Metal Feature Set Tables, "Maximum number of entries in the buffer argument table". Faults of
checked kernels take one."""

_BASE = Dialect(
    can=Capabilities(
        target="metal",
        kind="metal",
        reasons={f64: "Metal has no double"},
        stored=_STORED,
        soft=_STORED,
        native_fma=frozenset((f16, f32)),
        refused={**REFUSED, ops.PRINT: "Metal has no printf", ops.SYNC_STORAGE: _NO_FENCE},
        most_buffers=MOST_BUFFERS - 1,
        planes=Planes.SHUFFLES,
        plane_dim=32,
        shuffles_keep=True,
    ),
    scalars=SCALARS,
    suffixes={i64: "l", index: "l", u32: "u", u64: "ul"},
    float_suffixes={f16: "h", f32: "f"},
    from_bits={f16: "as_type<half>((ushort){})", f32: "as_type<float>({})"},
    vectors=VECTORS,
    lanes=("x", "y", "z", "w"),
    vector_build="{type}({lanes})",
    vector_splat=Spelling("{type}({0})"),
    struct="struct alignas({align}) {name} {{\n    {type} lane[{width}];\n}};",
    struct_build="{type}{{{{{lanes}}}}}",
    function="static inline ",
    overloads="structs",
    vector_rows={
        Kind.FLOAT: _SUMS | {ops.DIV} | _COMPARISONS,
        Kind.UINT: _SUMS | _BIT_ROWS | _COMPARISONS | {ops.SHL, ops.SHR},
        Kind.INT: _BIT_ROWS | _COMPARISONS | {ops.SHR},
    },
    vector_calls=frozenset(
        (ops.SQRT, ops.FLOOR, ops.CEIL, ops.TRUNC, ops.RINT, ops.ABS, ops.COPYSIGN, ops.FMA)
    ),
    head="[[max_total_threads_per_threadgroup({units})]]\nkernel void {name}",
    buffer="device {const}{type}* {name} [[buffer({slot})]]",
    number="alignas(8) {type} {name}",
    fault="device ulong* {name} [[buffer({slot})]]",
    restrict="",
    arguments_struct="constant Arguments& arguments [[buffer({slot})]]",
    extra_params={
        "unit_position": "uint3 unit_position [[thread_position_in_threadgroup]]",
        "cube_position": "uint3 cube_position [[threadgroup_position_in_grid]]",
        "cube_counts": "uint3 cube_counts [[threadgroups_per_grid]]",
    },
    spaces={Space.GLOBAL: "device ", Space.SHARED: "threadgroup ", Space.LOCAL: "thread "},
    table="constant {type} {name}[{count}]",
    declarations={
        Space.SHARED: "alignas(16) threadgroup {type} {name}[{size}];",
        Space.LOCAL: "alignas(16) thread {type} {name}[{size}];",
    },
    positions={
        (row, axis): f"{word}.{axis}"
        for row, word in (
            (ops.UNIT_POS, "unit_position"),
            (ops.CUBE_POS, "cube_position"),
            (ops.CUBE_COUNT, "cube_counts"),
        )
        for axis in "xyz"
    },
    bare_positions=True,
    prelude=(
        "#include <metal_stdlib>",
        "using namespace metal;",
        "#pragma METAL fp math_mode(safe)",
        "#pragma METAL fp contract(off)",
    ),
    spellings=SHARED | _functions() | _COOPERATION | _shuffles() | _atomics(),
    calls={metal.MULTIPLY_ACCUMULATE: "multiply_accumulate_{t}"},
    bitcast=call("as_type<{t}>"),
    line_bitcast=call("as_type<{t}>"),
    helpers=HELPERS,
    print_words={},
    reserved=RESERVED,
)
DIALECT = complete(_BASE)
"""Metal 3."""
