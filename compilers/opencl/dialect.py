"""OpenCL C as data, for a set of features: fp16, fp64, int64_atomics, subgroups.

Division and square roots of f32 are correctly rounded where the program is built with
`-cl-fp32-correctly-rounded-divide-sqrt`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from cubepy.compilers.cstyle import nvidia
from cubepy.compilers.cstyle.dialect import REFUSED, Dialect, Helper, Spellings, complete
from cubepy.compilers.cstyle.shared import FLOAT_FUNCTIONS, SHARED, SHORT_NAMES
from cubepy.compilers.cstyle.spelling import EQUAL, UNARY, Spelling, call
from cubepy.compilers.opencl.reserved import RESERVED
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

SCALARS = {**SHORT_NAMES, f16: "ushort", f64: "double"}
_WIDTHS = (2, 4, 8, 16)
_FUNCTIONS = {**FLOAT_FUNCTIONS, FMOD: ("fmod", 2)}
_INTEGERS = {
    ops.MIN: ("min", 2),
    ops.MAX: ("max", 2),
    ops.POPCOUNT: ("popcount", 1),
    ops.CLZ: ("clz", 1),
    ops.MUL_HI: ("mul_hi", 2),
}


def _functions() -> Spellings:
    table: Spellings = {
        (row, Kind.FLOAT): call(name, count) for row, (name, count) in _FUNCTIONS.items()
    }
    for row, (name, count) in _INTEGERS.items():
        table[row, Kind.INT] = table[row, Kind.UINT] = call(name, count)
        operands = ", ".join(f"({{t}}){{{k}}}" for k in range(count))
        small = Spelling(f"{name}({operands})", needs=(UNARY,) * count)
        table |= {(row, dtype): small for dtype in (i8, i16, u8, u16)}  # literals are ints
    return table


_FENCES = "CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE"
END_OF_BODY = "end_of_body"
_END_OF_BODY = Helper(
    f"""#ifdef POCL_DEVICE_ADDRESS_BITS
#define {END_OF_BODY}() barrier(CLK_LOCAL_MEM_FENCE)
#else
#define {END_OF_BODY}()
#endif"""
)
"""PoCL 3 gives all units the condition of one behind the last barrier of a loop, where the loop
does not change it, and lets all of them store behind that of a branch."""
STORAGE_FENCE = "storage_fence"
_ORDERS = "defined(__opencl_c_atomic_order_seq_cst) && defined(__opencl_c_atomic_scope_device)"
_STORAGE_FENCE = Helper(
    f"""static inline void {STORAGE_FENCE}(void) {{
#if __OPENCL_C_VERSION__ == 200 || ({_ORDERS})
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_seq_cst, memory_scope_device);
#else
    mem_fence(CLK_GLOBAL_MEM_FENCE);
#endif
}}"""
)
"""OpenCL C 1.2 has no fence that other work-groups take part in; drivers make this one stronger."""
_COOPERATION: Spellings = {
    (ops.SYNC_CUBE, None): Spelling(f"barrier({_FENCES})"),
    (ops.SYNC_STORAGE, None): Spelling(f"{STORAGE_FENCE}()"),
    (ops.PREFETCH, None): Spelling("prefetch({0}, 1)"),
    (ops.MISALIGNMENT, None): Spelling("(long)(((ulong)({0}) & {mask}) / {item})", UNARY),
}

_SHUFFLES = {
    ops.PLANE_SHUFFLE: "sub_group_shuffle",
    ops.PLANE_SHUFFLE_XOR: "sub_group_shuffle_xor",
    ops.PLANE_SHUFFLE_UP: "sub_group_shuffle_up",
    ops.PLANE_SHUFFLE_DOWN: "sub_group_shuffle_down",
}


def _subgroups() -> Spellings:
    table: Spellings = {
        (row, None): Spelling(f"{name}({{0}}, (uint){{1}})", needs=(0, UNARY))
        for row, name in _SHUFFLES.items()
    }
    for row, name in _SHUFFLES.items():
        text = f"{name}((int){{0}}, (uint){{1}}) != 0"
        table[row, bool_] = Spelling(text, EQUAL, (UNARY, UNARY))
    table |= {
        (ops.SYNC_PLANE, None): Spelling(f"sub_group_barrier({_FENCES})"),
        (ops.PLANE_ALL, None): Spelling("sub_group_all({0}) != 0", EQUAL),
        (ops.PLANE_ANY, None): Spelling("sub_group_any({0}) != 0", EQUAL),
        (ops.PLANE_BALLOT, None): Spelling("as_ulong(sub_group_ballot({0}).s01)"),
    }
    return table


_ATOMIC = {
    ops.ATOMIC_ADD: "add",
    ops.ATOMIC_MIN: "min",
    ops.ATOMIC_MAX: "max",
    ops.ATOMIC_AND: "and",
    ops.ATOMIC_OR: "or",
    ops.ATOMIC_XOR: "xor",
    ops.ATOMIC_EXCHANGE: "xchg",
}


def _atomics(has_int64: bool) -> Spellings:
    table: Spellings = {
        (ops.ATOMIC_LOAD, None): Spelling("*(const volatile {space}{t}*){p}", UNARY),
        (ops.ATOMIC_EXCHANGE, f32): Spelling("atomic_xchg({p}, {0})"),
        (ops.ATOMIC_CAS, f32): _swap("atomic_cmpxchg", "uint", "float"),
    }
    families = [((i32, u32), "atomic_")] + ([((i64, index, u64), "atom_")] if has_int64 else [])
    for dtypes, prefix in families:
        for dtype in dtypes:
            for row, name in _ATOMIC.items():
                table[row, dtype] = Spelling(f"{prefix}{name}({{p}}, {{0}})")
            table[ops.ATOMIC_CAS, dtype] = Spelling(f"{prefix}cmpxchg({{p}}, {{0}}, {{1}})")
    if has_int64:
        table[ops.ATOMIC_CAS, f64] = _swap("atom_cmpxchg", "ulong", "double")
    return table


def _swap(name: str, word: str, dtype: str) -> Spelling:
    values = f"as_{word}({{0}}), as_{word}({{1}})"
    return Spelling(f"as_{dtype}({name}((volatile {{space}}{word}*){{p}}, {values}))")


def _disguise(found: nvidia.Disguise) -> Helper:
    """By NVIDIA's instructions with NVIDIA's driver alone."""
    result, value = SCALARS[found.result], SCALARS[found.value]
    plain = found.plain.format(result=result, unsigned=f"u{result}")
    return Helper(
        f"static inline {result} {found.name}({value} value) {{\n"
        "#ifdef __NV_CL_C_VERSION\n"
        f"    {result} result;\n"
        f"    {found.statement}\n"
        "    return result;\n"
        "#else\n"
        f"    return {plain};\n"
        "#endif\n"
        "}"
    )


_NOTE = Helper(
    "static inline void note_fault(volatile __global ulong* faults, long code, long unit, "
    "long cube,\n        long a, long b, long c, long d) {\n"
    "    if (atomic_cmpxchg((volatile __global uint*)faults, 0u, 1u) != 0u) return;\n"
    + "".join(
        f"    faults[{k}] = (ulong){name};\n"
        for k, name in enumerate(("code", "unit", "cube", "a", "b", "c", "d"), 1)
    )
    + "}"
)

_BIT_ROWS = frozenset((ops.AND, ops.OR, ops.XOR))
_SUMS = frozenset((ops.ADD, ops.SUB, ops.MUL))


def _pragmas() -> dict[str, str]:
    """Which words need which extension."""
    words = {"double": "cl_khr_fp64", "half": "cl_khr_fp16"}
    for name in (*_ATOMIC.values(), "cmpxchg"):
        kind = "extended" if name in ("min", "max", "and", "or", "xor") else "base"
        words[f"atom_{name}"] = f"cl_khr_int64_{kind}_atomics"
    words |= {"sub_group_shuffle": "cl_khr_subgroup_shuffle"}
    words |= {"sub_group_shuffle_xor": "cl_khr_subgroup_shuffle"}
    words |= dict.fromkeys(
        ("sub_group_shuffle_up", "sub_group_shuffle_down"), "cl_khr_subgroup_shuffle_relative"
    )
    words |= {"sub_group_ballot": "cl_khr_subgroup_ballot"}
    words |= dict.fromkeys(
        ("sub_group_barrier", "sub_group_all", "sub_group_any"), "cl_khr_subgroups"
    )
    return {word: f"#pragma OPENCL EXTENSION {name} : enable" for word, name in words.items()}


_STORED = frozenset((bf16, f8e4m3, f8e5m2))


_VECTOR_BYTES = 32
"""The longest native line: PoCL 3.0 passes vectors of 64 bytes to its functions wrongly."""


def _vectors(scalars: Mapping[DType, str]) -> dict[tuple[DType, int], str]:
    """Native lines; those of bools are bytes, 0 or 1."""
    return {
        (dtype, width): f"{'uchar' if dtype is bool_ else name}{width}"
        for dtype, name in scalars.items()
        for width in _WIDTHS
        if dtype.itemsize * width <= _VECTOR_BYTES
    }


BASE = Dialect(
    can=Capabilities(
        target="opencl",
        kind="opencl",
        reasons={f64: "the device has no fp64"},
        stored=_STORED | {f16},
        soft=_STORED | {f16},
        native_fma=frozenset((f32, f64)),
        refused=REFUSED,
        keeps_half_denormals=False,  # CL_FP_DENORM is no device's duty
        of_nvidia=True,
        plane_dim=32,
    ),
    scalars=SCALARS,
    param_types={bool_: "uchar"},
    suffixes={i64: "l", index: "l", u32: "u", u64: "ul"},
    float_suffixes={f16: "h", f32: "f", f64: ""},
    from_bits={f16: "as_half((ushort){})", f32: "as_float({})", f64: "as_double({})"},
    vectors=_vectors(SCALARS),
    lanes=tuple(f"s{k:x}" for k in range(16)),
    vector_build="({type})({lanes})",
    vector_splat=Spelling("({type})({0})"),
    struct="typedef struct {{\n    {type} lane[{width}];\n}} "
    "__attribute__((aligned({align}))) {name};",
    struct_build="({type}){{{{{lanes}}}}}",
    function="static inline ",
    overloads="",
    vector_rows={
        Kind.FLOAT: _SUMS | {ops.DIV},
        Kind.UINT: _SUMS | _BIT_ROWS | {ops.SHL, ops.SHR},
        Kind.INT: _BIT_ROWS | {ops.SHR},
        Kind.BOOL: _BIT_ROWS,
    },
    vector_calls=frozenset(_FUNCTIONS),
    head="__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))){planes}\nvoid {name}",
    buffer="__global {const}{type}* {restrict}{name}",
    number="{type} {name}",
    fault="volatile __global ulong* {name}",
    restrict="restrict ",
    spaces={Space.GLOBAL: "__global ", Space.SHARED: "__local ", Space.LOCAL: "__private "},
    table="__constant {type} {name}[{count}]",
    declarations={
        Space.SHARED: "__local {type} {name}[{size}] __attribute__((aligned(16)));",
        Space.LOCAL: "{type} {name}[{size}] __attribute__((aligned(16)));",
    },
    positions={
        (row, axis): f"get_{word}({k})"
        for row, word in (
            (ops.UNIT_POS, "local_id"),
            (ops.CUBE_POS, "group_id"),
            (ops.CUBE_COUNT, "num_groups"),
        )
        for k, axis in enumerate("xyz")
    },
    prelude=("#pragma OPENCL FP_CONTRACT OFF",),
    pragmas=_pragmas(),
    spellings=SHARED
    | _functions()
    | nvidia.spellings("long")
    | _COOPERATION
    | _atomics(has_int64=False),
    conversions=nvidia.CONVERSIONS,
    bitcast=call("as_{t}"),
    line_bitcast=call("as_{t}"),
    helpers={
        **{found.name: _disguise(found) for found in nvidia.DISGUISES},
        "note_fault": _NOTE,
        STORAGE_FENCE: _STORAGE_FENCE,
        END_OF_BODY: _END_OF_BODY,
    },
    end_of_body=f"{END_OF_BODY}()",
    vector_load=Spelling("vload{width}(0, {0})"),
    vector_store=Spelling("vstore{width}({1}, 0, {0})"),
    unroll="__attribute__((opencl_unroll_hint))",
    print_words={"int": "%ld", "uint": "%lu"},
    prints_strings=False,
    reserved=RESERVED,
)


@lru_cache(maxsize=64)
def dialect(features: frozenset[str], plane_dim: int) -> Dialect:
    """OpenCL C for devices with these features, whose sub-groups have `plane_dim` units."""
    found, can = BASE, replace(BASE.can, plane_dim=plane_dim)
    if "fp64" not in features:
        without = {dtype: name for dtype, name in SCALARS.items() if dtype is not f64}
        found = replace(found, scalars=without)
    if "int64_atomics" in features:
        found = replace(found, spellings=found.spellings | _atomics(has_int64=True))
    if "subgroups" in features:
        spellings = found.spellings | _subgroups()
        head = "\n__attribute__((intel_reqd_sub_group_size({plane})))"
        found = replace(found, head_of_planes=head, spellings=spellings)
        can = replace(can, planes=Planes.SHUFFLES, planes_in_rows=True)
    if "fp16" in features:
        scalars = {**found.scalars, f16: "half"}
        found = replace(found, scalars=scalars, vectors=_vectors(scalars))
        native_fma = frozenset((f16, f32, f64))
        can = replace(can, stored=_STORED, soft=_STORED, native_fma=native_fma)
    return complete(replace(found, can=can))
