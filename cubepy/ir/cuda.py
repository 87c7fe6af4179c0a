"""Operations of NVIDIA's hardware: rows of the op table that CUDA targets alone have.

Names and meanings follow the PTX ISA; which architecture has what is the compiler's matter. An
address is a buffer and an index, as everywhere in the IR.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from cubepy.ir import opdef as rule
from cubepy.ir.opdef import (
    MEMORY,
    NOTHING,
    Attrs,
    Group,
    OpDef,
    Resource,
    Rule,
    Uniformity,
    int_attr,
    require,
)
from cubepy.ir.operands import Wanted, operand_groups, takes
from cubepy.ir.plane_products import MMA_NUMBERS, multiplying_numbers, multiplying_words
from cubepy.ir.tile_products import multiplying_tiles
from cubepy.ir.types import (
    Buffer,
    DType,
    Line,
    Space,
    Type,
    bf16,
    bool_,
    element_of,
    f16,
    f32,
    i32,
    i64,
    make_line,
    u16,
    u32,
    u64,
    width_of,
)

ROWS: list[OpDef] = []


_GLOBAL = frozenset((Resource.GLOBAL,))
_SHARED = frozenset((Resource.SHARED,))
_MACHINE = frozenset((Resource.MACHINE,))
_BARRIER = _GLOBAL | _SHARED
"""A barrier orders the accesses to both, so that it counts as reading and writing them."""


def _op(
    name: str,
    typing: Rule,
    doc: str,
    *,
    reads: frozenset[Resource] = NOTHING,
    writes: frozenset[Resource] = NOTHING,
    group: Group | None = None,
    uniformity: Uniformity = Uniformity.NEVER,
    surface: str = "",
    attrs: tuple[str, ...] = (),
) -> OpDef:
    row = OpDef(
        f"cuda_{name}",
        doc,
        typing,
        f"cp.cuda.{surface or name}",
        unknown="only NVIDIA's hardware has it",
        reads=reads,
        writes=writes,
        convergent=group,
        uniformity=uniformity,
        attrs=attrs,
        kind="cuda",
    )
    ROWS.append(row)
    return row


def _registers(t: Type) -> int:
    """How many registers of inline assembly hold a value."""
    size = element_of(t).bits
    plain = isinstance(t, Buffer) or size >= 16 or t is bool_
    require(plain, f"registers have 16, 32 or 64 bits, {t!r} does not")
    return width_of(t)


# Inline assembly and addresses

_REGISTER = r"%(%|\d+)"


def _assembling(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """Scalars, lines and addresses; the result, if any, is the attribute `type`."""
    template, result = attrs.get("template"), attrs.get("type")
    require(isinstance(template, str) and template.isascii(), "needs a template of ASCII text")
    require(result is None or isinstance(result, DType | Line), "needs a scalar or a line as type")
    results: tuple[Type, ...] = (result,) if isinstance(result, DType | Line) else ()
    first = [types[group[0]] for group in operand_groups(types)]
    count = sum(_registers(t) for t in (*results, *first))
    used = [int(k) for k in re.findall(_REGISTER, str(template)) if k != "%"]
    require(max(used, default=-1) < count, f"has {count} registers, %0 and so on")
    return results


PTX = _op(
    "ptx",
    _assembling,
    "Inline PTX: `%0`, `%1`, ... are the registers of the result (one for each lane of a line), "
    "then of the operands, addresses as 32 bits (shared) or 64; `%%` is a percent sign.",
    reads=MEMORY | _MACHINE,
    writes=MEMORY | _MACHINE,
    attrs=("template", "type"),
)


def _addressing(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A buffer and an index: 32 bits within shared memory, else 64."""
    rule.addressing(types, attrs)
    buffer = types[0]
    assert isinstance(buffer, Buffer)
    require(buffer.element is not bool_, "does not take bools, whose size is not fixed")
    return (u32 if buffer.space is Space.SHARED else u64,)


def _assembling_update(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """As assembling; the result is the first operand's, in the same registers."""
    is_value = bool(types) and isinstance(types[0], DType | Line)
    require(is_value and types[0] is not bool_, "updates a number or a line")
    _assembling(types[1:], {**attrs, "type": types[0]})
    return (types[0],)


PTX_UPDATE = _op(
    "ptx_update",
    _assembling_update,
    "Inline PTX that reads and writes the registers of its first operand; they are the result.",
    reads=MEMORY | _MACHINE,
    writes=MEMORY | _MACHINE,
    surface="ptx",
    attrs=("template",),
)

ADDRESS = _op(
    "address",
    _addressing,
    "The address of an element: a u32 within shared memory, a generic u64 elsewhere.",
    uniformity=Uniformity.OPERANDS,
)

# Copies that a unit starts and does not wait for (sm_80)


def _copying(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    """A shared address, a global one, `bytes`, and maybe a bool."""
    condition = (bool_,) if len(types) > 4 else ()
    found = takes(Space.SHARED, Space.GLOBAL, *condition)(types, attrs)
    require(element_of(types[0]) is element_of(types[2]), "copies between equal types")
    require(int_attr(attrs, "bytes") in (4, 8, 16), "copies 4, 8 or 16 bytes")
    return found


COPY_ASYNC = _op(
    "async_copy",
    _copying,
    "cp.async: copies 4, 8 or 16 bytes from global to shared memory, both aligned to that size; "
    "where a third operand is false nothing is read, and they are 0.",
    reads=_GLOBAL,
    writes=_SHARED | _MACHINE,
    attrs=("bytes",),
)


def _waiting(name: str, typing: Rule, doc: str, *attrs: str, group: Group | None = None) -> OpDef:
    """Waits until at most `count` asynchronous groups are under way."""

    def apply(types: Sequence[Type], given: Attrs) -> tuple[Type, ...]:
        require(int_attr(given, "count") >= 0, "has a negative count")
        return typing(types, given)

    ordered = _BARRIER | _MACHINE
    return _op(
        name, apply, doc, reads=ordered, writes=ordered, group=group, attrs=("count", *attrs)
    )


_commit = partial(_op, typing=rule.nothing, reads=_MACHINE, writes=_MACHINE)
_fence = partial(_op, typing=rule.nothing, reads=_BARRIER, writes=_BARRIER)
COMMIT_COPIES = _commit(
    "async_commit", doc="Makes a group of the unit's copies since the last one."
)
WAIT_COPIES = _waiting(
    "async_wait",
    rule.nothing,
    "Waits until at most `count` of the unit's last groups of copies are under way.",
)

# Matrices of a plane (sm_80; stmatrix sm_90)


def _loading_matrices(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    takes(Space.SHARED)(types, attrs)
    count, size = int_attr(attrs, "count"), element_of(types[0]).itemsize
    require(count in (1, 2, 4), "loads 1, 2 or 4 matrices")
    require(size in (1, 2, 4), "takes elements of 1, 2 or 4 bytes")
    require(size < 4 or not attrs["transposed"], "transposes elements of 1 or 2 bytes")
    return (make_line(u32, count),)


def _storing_matrices(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    require(len(types) == 3, "takes a shared address and a line")
    takes(Space.SHARED)(types[:2], attrs)
    count = width_of(types[2])
    require(types[2] == make_line(u32, count) and count in (1, 2, 4), "takes 1, 2 or 4 words")
    require(element_of(types[0]).itemsize < 4, "takes elements of 1 or 2 bytes")
    return ()


LDMATRIX = _op(
    "ldmatrix",
    _loading_matrices,
    "Loads `count` matrices of 8x8 elements of 2 bytes from shared memory into the plane: lanes "
    "8k..8k+7 give the addresses of the rows of matrix k, lane l gets elements 2(l%4) and 2(l%4)+1 "
    "of row l/4 (`transposed`: of column l/4), packed into word k. Elements may have 1 byte, of "
    "which pairs move together, or where nothing is transposed 4: a row has 16 bytes, a word 4.",
    reads=_SHARED,
    group=Group.PLANE,
    attrs=("count", "transposed"),
)
STMATRIX = _op(
    "stmatrix",
    _storing_matrices,
    "Stores matrices as ldmatrix loads them.",
    writes=_SHARED,
    group=Group.PLANE,
    attrs=("transposed",),
)

MMA = _op(
    "mma",
    multiplying_words,
    "mma.sync: a @ b + c over the plane, a 16xk row-major, b kx8 column-major, c 16x8, in the "
    "PTX ISA's fragments. `elements`: f16, bf16, tf32, i8 or u8.",
    group=Group.PLANE,
    attrs=("elements",),
)

MMA_F64 = _op(
    "mma_f64",
    multiplying_numbers(MMA_NUMBERS, 4),
    "mma.sync of f64: as mma, with numbers instead of words; k is 4, 8 or 16.",
    group=Group.PLANE,
    surface="mma",
)
MMA_F64_SQUARE = _op(
    "mma_f64_square",
    multiplying_numbers({(1, 1): "m8n8k4"}, 2),
    "mma.sync m8n8k4 of f64: a @ b + c, a 8x4, b 4x8, c 8x8.",
    group=Group.PLANE,
    surface="mma",
)

# Barriers in shared memory and the bulk copies that arrive at them (sm_90)


def _at_barrier(*more: Wanted, gives: DType | None = None) -> Rule:
    """The address of a u64 in shared memory, and more."""

    def apply(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
        found = takes(Space.SHARED, *more, gives=gives)(types, attrs)
        require(element_of(types[0]) is u64, "takes a barrier: u64 in shared memory")
        return found

    return apply


BARRIER_INIT = _op(
    "barrier_init",
    _at_barrier(u32),
    "mbarrier.init: a phase ends after so many arrivals.",
    writes=_SHARED,
)
BARRIER_ARRIVE = _op(
    "barrier_arrive",
    _at_barrier(),
    "mbarrier.arrive: one arrival.",
    reads=_BARRIER,
    writes=_BARRIER,
)
BARRIER_EXPECT = _op(
    "barrier_expect",
    _at_barrier(u32),
    "mbarrier.arrive.expect_tx: one arrival; the phase also waits for so many bytes of copies.",
    reads=_BARRIER,
    writes=_BARRIER,
)
BARRIER_TRY_WAIT = _op(
    "barrier_try_wait",
    _at_barrier(u32, gives=bool_),
    "mbarrier.try_wait.parity: whether the phase of this parity (0, 1, 0, ...) has ended, perhaps "
    "after a short wait.",
    reads=_BARRIER,
    writes=_BARRIER,
)
FENCE_BARRIERS = _fence(
    "fence_barriers", doc="Initialised barriers are seen by the cluster and the copy engine."
)
FENCE_ASYNC = _fence(
    "fence_async",
    doc="fence.proxy.async: the unit's accesses to shared memory come before those of the copy "
    "engine and of wgmma behind it.",
)


HINTS = ("evict_first", "evict_last")
"""How long the L2 cache keeps what a copy touches."""


def _require_hint(attrs: Attrs) -> None:
    require(attrs.get("hint") in (None, *HINTS), f"has the hints {' and '.join(HINTS)}")


def _bulk_loading(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _require_hint(attrs)
    found = takes(Space.SHARED, Space.GLOBAL, u32, Space.SHARED)(types, attrs)
    require(element_of(types[5]) is u64, "takes a barrier: u64 in shared memory")
    return found


def _bulk_storing(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _require_hint(attrs)
    return takes(Space.GLOBAL, Space.SHARED, u32)(types, attrs)


def _tensor_loading(types: Sequence[Type], attrs: Attrs, *more: Wanted) -> tuple[Type, ...]:
    found = takes(Space.SHARED, Space.TENSOR_MAP, Space.SHARED, *more, rest=i32)(types, attrs)
    _require_arrival(types, attrs)
    return found


def _im2col_loading(types: Sequence[Type], attrs: Attrs, *more: Wanted) -> tuple[Type, ...]:
    """As `_tensor_loading`, of 3 to 5 coordinates and, for all axes but two, a u16 offset."""
    offsets = sum(t is u16 for t in types) - len(more)
    require(1 <= offsets <= 3, "takes 1 to 3 offsets: u16")
    wanted = (*more, *[i32] * (offsets + 2), *[u16] * offsets)
    found = takes(Space.SHARED, Space.TENSOR_MAP, Space.SHARED, *wanted)(types, attrs)
    _require_arrival(types, attrs)
    return found


def _require_arrival(types: Sequence[Type], attrs: Attrs) -> None:
    """A barrier behind the tensor map, whose elements shared memory has; perhaps a hint."""
    _require_hint(attrs)
    require(element_of(types[3]) is u64, "takes a barrier: u64 in shared memory")
    _require_elements(types[0], types[2])


def _tensor_storing(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    _require_hint(attrs)
    found = takes(Space.TENSOR_MAP, Space.SHARED, rest=i32)(types, attrs)
    _require_elements(types[1], types[0])
    return found


_SMALL = frozenset((f16, bf16))
_INTEGERS = frozenset((i32, u32, i64, u64))
REDUCTIONS = {
    "add": _SMALL | {f32, i32, u32, u64},
    **dict.fromkeys(("min", "max"), _SMALL | _INTEGERS),
    **dict.fromkeys(("and", "or", "xor"), _INTEGERS),
}
"""What the copy engine does with elements in memory, by their types."""


def _tensor_reducing(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    found = _tensor_storing(types, attrs)
    name, element = str(attrs.get("operation")), element_of(types[0])
    require(element in REDUCTIONS.get(name, ()), f"has no {name} of {element.name}")
    return found


def _require_elements(memory: Type, tensor_map: Type) -> None:
    require(
        element_of(memory) is element_of(tensor_map),
        f"takes {element_of(tensor_map)!r}, as the tensor map has, not {element_of(memory)!r}",
    )


BULK_LOAD = _op(
    "bulk_load",
    _bulk_loading,
    "cp.async.bulk: bytes from global to shared memory, which complete at a barrier. `hint`: what "
    "the L2 cache evicts first, or last.",
    reads=_GLOBAL,
    writes=_SHARED | _MACHINE,
    attrs=("hint",),
)
BULK_STORE = _op(
    "bulk_store",
    _bulk_storing,
    "cp.async.bulk: bytes from shared to global memory, in the unit's bulk group.",
    reads=_SHARED,
    writes=_GLOBAL | _MACHINE,
    attrs=("hint",),
)
_load = partial(
    _op, reads=_GLOBAL, writes=_SHARED | _MACHINE, surface="tensor_load", attrs=("hint",)
)
TENSOR_LOAD = _load(
    "tensor_load",
    _tensor_loading,
    "cp.async.bulk.tensor: the box of a tensor map at the coordinates (the innermost first) to "
    "shared memory, zero outside of the array; completes at a barrier. `hint`: what the L2 cache "
    "evicts first, or last.",
)
TENSOR_MULTICAST = _load(
    "tensor_multicast",
    lambda types, attrs: _tensor_loading(types, attrs, u16),
    "As tensor_load, to the same place of the cubes of the cluster whose bits a u16 has; the bytes "
    "complete at the same barrier of each.",
)
IM2COL_LOAD = _load(
    "im2col_load",
    _im2col_loading,
    "cp.async.bulk.tensor in im2col mode: pixels by channels from the coordinates (the innermost "
    "first) on, of the pixels at the offsets (the innermost first) from each; else as tensor_load.",
)
IM2COL_MULTICAST = _load(
    "im2col_multicast",
    lambda types, attrs: _im2col_loading(types, attrs, u16),
    "As im2col_load, to the same place of the cubes of the cluster whose bits a u16 has.",
)
TENSOR_STORE = _op(
    "tensor_store",
    _tensor_storing,
    "cp.async.bulk.tensor: a box from shared memory to the coordinates (the innermost first); "
    "what lies outside of the array is dropped. In the unit's bulk group.",
    reads=_SHARED,
    writes=_GLOBAL | _MACHINE,
    attrs=("hint",),
)
TENSOR_REDUCE = _op(
    "tensor_reduce",
    _tensor_reducing,
    "cp.reduce.async.bulk.tensor: as tensor_store, but combines what is there with the box by "
    "`operation`: add, min, max, and, or, xor. Each element is updated at once, in any order.",
    reads=_SHARED | _GLOBAL,
    writes=_GLOBAL | _MACHINE,
    attrs=("operation", "hint"),
)
COMMIT_BULK = _commit("bulk_commit", doc="Makes a group of the unit's bulk stores since the last.")
WAIT_BULK = _waiting(
    "bulk_wait",
    rule.nothing,
    "Waits until at most `count` of the unit's last bulk groups are under way; with `read`, until "
    "the others have read shared memory.",
    "read",
)

# Clusters: cubes that run together and read each other's shared memory (sm_90)

CLUSTER_RANK = _op(
    "cluster_rank",
    takes(gives=u32),
    "The position of the cube in its cluster, over all axes.",
    uniformity=Uniformity.ALWAYS,
)
CLUSTER_SYNC = _fence(
    "cluster_sync",
    group=Group.CLUSTER,
    doc="All units of the cluster arrive before any goes on; their accesses to shared and global "
    "memory are ordered.",
)


def _of_cluster(writes: bool) -> Rule:
    """A shared address, a rank, and a value where one is written; else it is given."""

    def apply(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
        element = element_of(types[0]) if types else bool_
        require(element.bits >= 16, "takes elements of 2, 4 or 8 bytes")
        more = (element,) if writes else ()
        return takes(Space.SHARED, u32, *more, gives=None if writes else element)(types, attrs)

    return apply


CLUSTER_LOAD = _op(
    "cluster_load",
    _of_cluster(False),
    "Reads the element at the same place of the shared memory of another cube of the cluster.",
    reads=_SHARED,
    uniformity=Uniformity.OPERANDS,
)
CLUSTER_STORE = _op(
    "cluster_store",
    _of_cluster(True),
    "Writes the element at the same place of the shared memory of another cube of the cluster.",
    writes=_SHARED,
)

CLUSTER_ARRIVE = _op(
    "cluster_arrive",
    _at_barrier(u32),
    "mbarrier.arrive at the same barrier of another cube of the cluster; with `fence`, accesses of "
    "the unit before it come before what that cube does behind the barrier.",
    reads=_BARRIER,
    writes=_BARRIER,
    attrs=("fence",),
)

# Warpgroups (sm_90a)


def _of_registers(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    count = int_attr(attrs, "count")
    require(24 <= count <= 256 and count % 8 == 0, "takes a multiple of 8 from 24 to 256")
    return rule.nothing(types, attrs)


SET_REGISTERS = _op(
    "set_registers",
    _of_registers,
    "setmaxnreg: each unit of the warpgroup has `count` registers from here on, more than before "
    "where `grow` says so, else fewer.",
    writes=_MACHINE,
    group=Group.WARPGROUP,
    surface="increase_registers, cp.cuda.decrease_registers",
    attrs=("count", "grow"),
)
WGMMA_FENCE = _fence(
    "wgmma_fence",
    doc="Orders accesses to registers and shared memory before wgmma behind it.",
    group=Group.WARPGROUP,
)
WGMMA_COMMIT = _commit(
    "wgmma_commit",
    doc="Makes a group of the products since the last one.",
    group=Group.WARPGROUP,
)


WGMMA = _op(
    "wgmma",
    multiplying_tiles,
    "wgmma.mma_async m64nN: c + a @ b over the warpgroup, or a @ b unless `accumulate` and the "
    "condition, if there is one, hold. b, and a where it is a u64, are tiles in shared memory that "
    "descriptors give, K-major unless `a_transposed` or `b_transposed`; a line of u32 is a's "
    "fragment in registers. Sums are there after `wgmma_wait`.",
    reads=_SHARED | _MACHINE,
    writes=_MACHINE,
    group=Group.WARPGROUP,
    attrs=("a_elements", "b_elements", "a_transposed", "b_transposed", "accumulate"),
)


def _waiting_for_tiles(types: Sequence[Type], attrs: Attrs) -> tuple[Type, ...]:
    rule.require_count(types, 1)
    require(isinstance(types[0], Line) and element_of(types[0]) in (f32, i32, u32), "takes sums")
    return (types[0],)


WGMMA_WAIT = _waiting(
    "wgmma_wait",
    _waiting_for_tiles,
    "Waits until at most `count` of the last groups of products are under way, and gives the sums.",
    group=Group.WARPGROUP,
)
