"""Operations of NVIDIA's hardware in PTX, and the architectures that have them.

Reference: PTX ISA (https://docs.nvidia.com/cuda/parallel-thread-execution/).
"""

from __future__ import annotations

from collections.abc import Callable

from cubepy.compilers.cstyle.dialect import Instruction
from cubepy.ir import cuda, ops
from cubepy.ir.core import Op
from cubepy.ir.opdef import OpDef
from cubepy.ir.plane_products import MMA_NUMBERS, MMA_WORDS
from cubepy.ir.tile_products import wgmma_columns
from cubepy.ir.types import (
    DType,
    Line,
    Space,
    bf16,
    bool_,
    element_of,
    f16,
    f32,
    f64,
    i16,
    i32,
    i64,
    index,
    u16,
    u32,
    u64,
    width_of,
)
from cubepy.targets import cuda_target

REGISTERS: dict[DType | Space, str] = {
    **dict.fromkeys((i16, u16, f16, bf16), "h"),
    **dict.fromkeys((i32, u32, bool_), "r"),
    **dict.fromkeys((i64, u64, index), "l"),
    f32: "f",
    f64: "d",
    Space.SHARED: "r",
    Space.GLOBAL: "l",
    Space.LOCAL: "l",
    Space.TENSOR_MAP: "l",
}
"""Constraints of inline assembly: the kinds of registers."""
SHARED_ADDRESS = "(unsigned int)__cvta_generic_to_shared({})"
BOX_ALIGNMENT = 1024
"""What tiles with a swizzle of 128 bytes are aligned to; others need less."""


def _integer(op: Op, name: str) -> int:
    value = op.attrs[name]
    assert isinstance(value, int)
    return value


def _registers(start: int, count: int) -> str:
    """`{%4, %5}`"""
    return "{" + ", ".join(f"%{k}" for k in range(start, start + count)) + "}"


def _scoped(*lines: str) -> str:
    return "{ " + " ".join(lines) + " }"


def _fixed(text: str) -> Callable[[Op], str]:
    return lambda op: text


def _counted(text: str) -> Callable[[Op], str]:
    return lambda op: text.format(_integer(op, "count"))


def _template(op: Op) -> str:
    text = op.attrs["template"]
    assert isinstance(text, str)
    return text


def _address(op: Op) -> str:
    return f"mov.b{element_of(op.result.type).bits} %0, %1;"


def _copy_async(op: Op) -> str:
    size = _integer(op, "bytes")
    cache = "cg" if size == 16 else "ca"  # 16 bytes may pass the nearest cache
    copy = f"cp.async.{cache}.shared.global [%0], [%1], {size}"
    if len(op.operands) == 4:
        return f"{copy};"
    return _scoped(".reg .pred absent;", "setp.eq.b32 absent, %2, 0;", f"{copy}, absent;")


def _matrices(count: int, transposed: object) -> str:
    return f"sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"


def _ldmatrix(op: Op) -> str:
    count = _integer(op, "count")
    kind = _matrices(count, op.attrs["transposed"])
    return f"ldmatrix.{kind} {_registers(0, count)}, [%{count}];"


def _stmatrix(op: Op) -> str:
    count = width_of(op.operands[2].type)
    return f"stmatrix.{_matrices(count, op.attrs['transposed'])} [%0], {_registers(1, count)};"


def _mma(op: Op) -> str:
    a, b = (width_of(v.type) for v in op.operands[:2])
    kind = str(op.attrs["elements"])
    shape, total = MMA_WORDS[kind, a, b], "s32" if kind in ("i8", "u8") else "f32"
    word = _WORDS.get(kind, kind)
    operands = ", ".join(
        _registers(start, count) for start, count in ((0, 4), (4, a), (4 + a, b), (4 + a + b, 4))
    )
    return f"mma.sync.aligned.{shape}.row.col.{total}.{word}.{word}.{total} {operands};"


def _mma_f64(op: Op) -> str:
    a, b, sums = (width_of(v.type) for v in op.operands)
    shape = MMA_NUMBERS[a, b] if sums == 4 else "m8n8k4"
    starts = (0, sums), (sums, a), (sums + a, b), (sums + a + b, sums)
    operands = ", ".join(_registers(start, count) for start, count in starts)
    return f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64 {operands};"


def _bulk_wait(op: Op) -> str:
    read = ".read" if op.attrs["read"] else ""
    return f"cp.async.bulk.wait_group{read} {_integer(op, 'count')};"


def _rank(op: Op, others: int) -> int:
    """How many coordinates an operation on a tensor map has."""
    return len(op.operands) - others


def _to_shared(rank: int, mode: str) -> str:
    ways = "mbarrier::complete_tx::bytes"
    return f"cp.async.bulk.tensor.{rank}d.shared::cluster.global.{mode}.{ways}"


def _hinted(op: Op, instruction: str, operands: str) -> str:
    """The instruction, with a policy of the L2 cache where there is a hint."""
    hint = op.attrs.get("hint")
    if hint is None:
        return f"{instruction} {operands};"
    policy = f".reg .b64 policy; createpolicy.fractional.L2::{hint}.b64 policy, 1.0;"
    return _scoped(policy, f"{instruction}.L2::cache_hint {operands}, policy;")


def _bulk_load(op: Op) -> str:
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
    return _hinted(op, copy, "[%0], [%1], %2, [%3]")


def _bulk_store(op: Op) -> str:
    return _hinted(op, "cp.async.bulk.global.shared::cta.bulk_group", "[%0], [%1], %2")


def _tensor_load(op: Op) -> str:
    rank = _rank(op, 5)
    return _hinted(op, _to_shared(rank, "tile"), f"[%0], [%1, {_registers(3, rank)}], [%2]")


def _tensor_multicast(op: Op) -> str:
    rank = _rank(op, 6)
    operands = f"[%0], [%1, {_registers(4, rank)}], [%2], %3"
    return _hinted(op, f"{_to_shared(rank, 'tile')}.multicast::cluster", operands)


def _im2col_load(op: Op) -> str:
    rank = _rank(op, 5) // 2 + 1
    operands = f"[%0], [%1, {_registers(3, rank)}], [%2], {_registers(3 + rank, rank - 2)}"
    return _hinted(op, _to_shared(rank, "im2col"), operands)


def _im2col_multicast(op: Op) -> str:
    rank = _rank(op, 6) // 2 + 1
    operands = f"[%0], [%1, {_registers(4, rank)}], [%2], {_registers(4 + rank, rank - 2)}, %3"
    return _hinted(op, f"{_to_shared(rank, 'im2col')}.multicast::cluster", operands)


def _tensor_store(op: Op) -> str:
    rank = _rank(op, 3)
    instruction = f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
    return _hinted(op, instruction, f"[%0, {_registers(2, rank)}], [%1]")


def _tensor_reduce(op: Op) -> str:
    rank, name = _rank(op, 3), op.attrs["operation"]
    instruction = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{name}.tile.bulk_group"
    return _hinted(op, instruction, f"[%0, {_registers(2, rank)}], [%1]")


def _remote(rank: int, shared: int) -> str:
    return f".reg .b32 place; mapa.shared::cluster.u32 place, %{shared}, %{rank};"


def _cluster_load(op: Op) -> str:
    bits = element_of(op.result.type).bits
    return _scoped(_remote(2, 1), f"ld.shared::cluster.b{bits} %0, [place];")


def _cluster_store(op: Op) -> str:
    bits = element_of(op.operands[3].type).bits
    return _scoped(_remote(1, 0), f"st.shared::cluster.b{bits} [place], %2;")


def _set_registers(op: Op) -> str:
    word = "inc" if op.attrs["grow"] else "dec"
    return f"setmaxnreg.{word}.sync.aligned.u32 {_integer(op, 'count')};"


_WORDS = {"i8": "s8", "f8e4m3": "e4m3", "f8e5m2": "e5m2"}
"""What PTX calls kinds of elements, where that differs."""


def _wgmma(op: Op) -> str:
    """The sums' registers, a's (4, or 1 of a descriptor), b's, and one of a condition."""
    sums, a = op.operands[0].type, op.operands[1].type
    first, count = width_of(sums), width_of(a)
    left = _registers(first, count) if isinstance(a, Line) else f"%{first}"
    after = first + count
    has_condition = len(op.operands) == 4
    scale = "adds" if has_condition else f"{_integer(op, 'accumulate'):d}"
    operands = f"{_registers(0, first)}, {left}, %{after}, {scale}{_wgmma_flags(op)}"
    text = f"wgmma.mma_async.sync.aligned.{_wgmma_shape(op)} {operands};"
    if not has_condition:
        return text
    return _scoped(f".reg .pred adds; setp.ne.b32 adds, %{after + 1}, 0;", text)


def _wgmma_shape(op: Op) -> str:
    """`m64n128k16.f32.bf16.bf16`"""
    a, b = (str(op.attrs[name]) for name in ("a_elements", "b_elements"))
    sums = op.operands[0].type
    depth = {"f16": 16, "bf16": 16, "tf32": 8}.get(a, 32)
    total = {f32: "f32", i32: "s32", u32: "f16"}[element_of(sums)]
    words = f"{_WORDS.get(a, a)}.{_WORDS.get(b, b)}"
    return f"m64n{wgmma_columns(sums)}k{depth}.{total}.{words}"


def _wgmma_flags(op: Op) -> str:
    """Signs of a and b, for floats; and whether tiles of 2-byte elements are transposed."""
    if element_of(op.operands[0].type) is i32:
        return ""
    if op.attrs["a_elements"] not in ("f16", "bf16"):
        return ", 1, 1"
    in_registers = isinstance(op.operands[1].type, Line)
    names = ("b_transposed",) if in_registers else ("a_transposed", "b_transposed")
    return "".join((", 1, 1", *(f", {_integer(op, name):d}" for name in names)))


def _discards(op: Op) -> bool:
    return not op.attrs["accumulate"]


_MBARRIER = "mbarrier.{}.shared::cta.b64"
_SYNC = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"


def _cluster_arrive(op: Op) -> str:
    """Ordering accesses for the cluster costs a fence of the whole device's memory."""
    order = ".release.cluster" if op.attrs["fence"] else ""
    arrive = f"mbarrier.arrive{order}.shared::cluster.b64 _, [place];"
    return _scoped(_remote(1, 0), arrive)


_TRY_WAIT = _scoped(
    ".reg .pred ended;",
    f"{_MBARRIER.format('try_wait.parity')} ended, [%1], %2;",
    "selp.b32 %0, 1, 0, ended;",
)


def _named_barrier(op: Op) -> str:
    """Whole warps arrive together, and each counts 32 units."""
    return f"barrier.sync.aligned {_integer(op, 'barrier')}, {_integer(op, 'count')};"


ALL: dict[OpDef, tuple[int, Instruction]] = {
    ops.SYNC_UNITS: (75, Instruction(_named_barrier)),
    cuda.PTX: (75, Instruction(_template)),
    cuda.PTX_UPDATE: (75, Instruction(_template, is_update=True)),
    cuda.ADDRESS: (75, Instruction(_address, alignments={0: BOX_ALIGNMENT})),
    cuda.COPY_ASYNC: (80, Instruction(_copy_async)),
    cuda.COMMIT_COPIES: (80, Instruction(_fixed("cp.async.commit_group;"))),
    cuda.WAIT_COPIES: (80, Instruction(_counted("cp.async.wait_group {};"))),
    cuda.LDMATRIX: (75, Instruction(_ldmatrix)),
    cuda.MMA: (80, Instruction(_mma)),
    cuda.MMA_F64: (90, Instruction(_mma_f64)),
    cuda.MMA_F64_SQUARE: (80, Instruction(_mma_f64)),
    cuda.STMATRIX: (90, Instruction(_stmatrix)),
    cuda.BARRIER_INIT: (90, Instruction(_fixed(f"{_MBARRIER.format('init')} [%0], %1;"))),
    cuda.BARRIER_ARRIVE: (90, Instruction(_fixed(f"{_MBARRIER.format('arrive')} _, [%0];"))),
    cuda.BARRIER_EXPECT: (
        90,
        Instruction(_fixed(f"{_MBARRIER.format('arrive.expect_tx')} _, [%0], %1;")),
    ),
    cuda.BARRIER_TRY_WAIT: (90, Instruction(_fixed(_TRY_WAIT))),
    cuda.FENCE_BARRIERS: (90, Instruction(_fixed("fence.mbarrier_init.release.cluster;"))),
    cuda.FENCE_ASYNC: (90, Instruction(_fixed("fence.proxy.async.shared::cta;"))),
    cuda.BULK_LOAD: (90, Instruction(_bulk_load)),
    cuda.BULK_STORE: (90, Instruction(_bulk_store)),
    cuda.TENSOR_LOAD: (90, Instruction(_tensor_load, alignments={0: BOX_ALIGNMENT})),
    cuda.TENSOR_MULTICAST: (90, Instruction(_tensor_multicast, alignments={0: BOX_ALIGNMENT})),
    cuda.IM2COL_LOAD: (90, Instruction(_im2col_load, alignments={0: BOX_ALIGNMENT})),
    cuda.IM2COL_MULTICAST: (90, Instruction(_im2col_multicast, alignments={0: BOX_ALIGNMENT})),
    cuda.CLUSTER_ARRIVE: (90, Instruction(_cluster_arrive)),
    cuda.TENSOR_STORE: (90, Instruction(_tensor_store, alignments={1: BOX_ALIGNMENT})),
    cuda.TENSOR_REDUCE: (90, Instruction(_tensor_reduce, alignments={1: BOX_ALIGNMENT})),
    cuda.COMMIT_BULK: (90, Instruction(_fixed("cp.async.bulk.commit_group;"))),
    cuda.WAIT_BULK: (90, Instruction(_bulk_wait)),
    cuda.CLUSTER_RANK: (90, Instruction(_fixed("mov.u32 %0, %%cluster_ctarank;"))),
    cuda.CLUSTER_SYNC: (90, Instruction(_fixed(_SYNC))),
    cuda.CLUSTER_LOAD: (90, Instruction(_cluster_load)),
    cuda.CLUSTER_STORE: (90, Instruction(_cluster_store)),
}
"""For each operation the first architecture that has it, as in sm_80."""
HOPPER: dict[OpDef, Instruction] = {
    cuda.SET_REGISTERS: Instruction(_set_registers),
    cuda.WGMMA_FENCE: Instruction(_fixed("wgmma.fence.sync.aligned;")),
    cuda.WGMMA_COMMIT: Instruction(_fixed("wgmma.commit_group.sync.aligned;")),
    cuda.WGMMA_WAIT: Instruction(_counted("wgmma.wait_group.sync.aligned {};"), is_update=True),
    cuda.WGMMA: Instruction(_wgmma, is_update=True, discards=_discards),
}
"""What sm_90a alone has (setmaxnreg also later ones of its kind)."""
_CLUSTERS_FROM = 90


def instructions(arch: str) -> tuple[dict[OpDef, Instruction], dict[OpDef, str]]:
    """What an architecture has; and what it lacks, with the reason."""
    number, suffix = _version(arch)
    found = {row: text for row, (least, text) in ALL.items() if number >= least}
    lacks = {row: f"it needs sm_{n} or newer" for row, (n, _) in ALL.items() if number < n}
    for row, instruction in HOPPER.items():
        every_a = row is cuda.SET_REGISTERS and number >= 90 and suffix
        if every_a or (number == 90 and suffix == "a"):
            found[row] = instruction
        else:
            newer = " or a newer architecture of that kind" if row is cuda.SET_REGISTERS else ""
            lacks[row] = f"it needs sm_90a{newer}"
    return found, lacks


def has_clusters(arch: str) -> bool:
    """Whether cubes can run together in clusters."""
    return _version(arch)[0] >= _CLUSTERS_FROM


def _version(arch: str) -> tuple[int, str]:
    target = cuda_target(arch)
    return target.version, target.variant
