"""Emission of memory operations: loads, stores, masks, hints, allocations, atomics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cubepy.compilers.llvm import ops as spell
from cubepy.compilers.llvm.numbers import Emit, binary_text
from cubepy.compilers.llvm.writer import IN_PARALLEL
from cubepy.ir import ops
from cubepy.ir.core import Op
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import (
    Buffer,
    DType,
    Kind,
    Line,
    Space,
    Type,
    bool_,
    element_of,
    index32,
    width_of,
)

if TYPE_CHECKING:
    from cubepy.compilers.llvm.emit import Emitter


def _address(e: Emitter, op: Op) -> str:
    """Where an access goes."""
    return pointer(e, op, "getelementptr inbounds")


def pointer(e: Emitter, op: Op, instruction: str) -> str:
    """The address of the element at an index."""
    buffer, offset = e.operands(op)[:2]
    name = spell.memory_name(element_of(op.operands[0].type))
    if op.operands[1].type is index32:
        offset = e.w.value(f"sext i32 {offset} to i64")
    return e.w.value(f"{instruction} {name}, ptr {buffer}, i64 {offset}", "p")


def _alignment(op: Op, t: Type) -> int:
    align = op.attrs.get("align")
    return align if isinstance(align, int) else element_of(t).itemsize


def from_memory(e: Emitter, value: str, t: Type) -> str:
    """Bools are bytes in memory: any nonzero byte is true."""
    if element_of(t) is not bool_:
        return value
    zero = "zeroinitializer" if isinstance(t, Line) else "0"
    return e.w.value(f"icmp ne {spell.memory_name(t)} {value}, {zero}")


def to_memory(e: Emitter, value: str, t: Type) -> str:
    """The byte of a bool; anything else as it is."""
    if element_of(t) is not bool_:
        return value
    return e.w.value(f"zext {spell.type_name(t)} {value} to {spell.memory_name(t)}")


def _load(e: Emitter, op: Op) -> str:
    t = op.result.type
    name, align = spell.memory_name(t), _alignment(op, t)
    address = _address(e, op)
    if len(op.operands) == 4:
        return from_memory(e, _masked_load(e, op, address, name, align), t)
    stream = ", !nontemporal !0" if op.attrs.get("hint") == "stream" else ""
    text = f"load {name}, ptr {address}, align {align}{stream}{_unordered(op)}"
    loaded = e.w.value(text, op.result.name)
    return from_memory(e, loaded, t)


def _as_vector(t: Type) -> str:
    """The memory type of a masked access: scalars become vectors of one."""
    return spell.memory_name(t) if isinstance(t, Line) else f"<1 x {spell.memory_name(t)}>"


def _masked_load(e: Emitter, op: Op, address: str, name: str, align: int) -> str:
    t = op.result.type
    _, _, mask, fill = e.operands(op)
    fill = to_memory(e, fill, t)
    vector, width = _as_vector(t), width_of(t)
    if not isinstance(t, Line):
        mask = e.w.value(f"insertelement <1 x i1> poison, i1 {mask}, i64 0")
        fill = e.w.value(f"insertelement {vector} poison, {name} {fill}, i64 0")
    loaded = e.w.call(
        f"llvm.masked.load.{_memory_suffix(t)}.p0",
        vector,
        (f"ptr align {align}", address),
        (f"<{width} x i1>", mask),
        (vector, fill),
    )
    if isinstance(t, Line):
        return loaded
    return e.w.value(f"extractelement {vector} {loaded}, i64 0")


def _memory_suffix(t: Type) -> str:
    scalar = "i8" if element_of(t) is bool_ else spell.suffix(element_of(t))
    return f"v{width_of(t)}{scalar}"


def _store(e: Emitter, op: Op) -> str:
    t = op.operands[2].type
    name, align = spell.memory_name(t), _alignment(op, t)
    address = _address(e, op)
    value = to_memory(e, e.operands(op)[2], t)
    if len(op.operands) == 4:
        _masked_store(e, op, address, value, align)
    elif op.attrs.get("hint") == "stream" and isinstance(t, Line):
        _stream_store(e, t, address, value, align)
    else:
        e.w.line(f"store {name} {value}, ptr {address}, align {align}{_unordered(op)}")
    return ""


def _pointers(e: Emitter, op: Op) -> tuple[str, str]:
    """Where the lanes of a gather or scatter lie, with their alignment; and the mangled type."""
    name = spell.memory_name(element_of(op.operands[0].type))
    distances, lanes = e.operands(op)[2], spell.type_name(op.operands[2].type)
    base = pointer(e, op, "getelementptr")
    pointers = e.w.value(f"getelementptr {name}, ptr {base}, {lanes} {distances}")
    return pointers, f"v{width_of(op.operands[2].type)}p0"


def _gather(e: Emitter, op: Op) -> str:
    t = op.result.type
    mask, fill = e.operands(op)[3:]
    vector, width = spell.memory_name(t), width_of(t)
    pointers, mangled = _pointers(e, op)
    loaded = e.w.call(
        f"llvm.masked.gather.{_memory_suffix(t)}.{mangled}",
        vector,
        (f"<{width} x ptr> align {element_of(t).itemsize}", pointers),
        (f"<{width} x i1>", mask),
        (vector, to_memory(e, fill, t)),
    )
    return from_memory(e, loaded, t)


def _scatter(e: Emitter, op: Op) -> str:
    t = op.operands[3].type
    value, mask = e.operands(op)[3:]
    width = width_of(t)
    pointers, mangled = _pointers(e, op)
    e.w.call(
        f"llvm.masked.scatter.{_memory_suffix(t)}.{mangled}",
        "void",
        (spell.memory_name(t), to_memory(e, value, t)),
        (f"<{width} x ptr> align {element_of(t).itemsize}", pointers),
        (f"<{width} x i1>", mask),
    )
    return ""


def _unordered(op: Op) -> str:
    """Units are not ordered with each other but by barriers. An array of a unit, however, is one
    that all units use in turn."""
    buffer = op.operands[0].type
    is_private = isinstance(buffer, Buffer) and buffer.space is Space.LOCAL
    return "" if is_private else IN_PARALLEL


def _masked_store(e: Emitter, op: Op, address: str, value: str, align: int) -> None:
    t = op.operands[2].type
    mask = e.operands(op)[3]
    vector, width = _as_vector(t), width_of(t)
    if not isinstance(t, Line):
        mask = e.w.value(f"insertelement <1 x i1> poison, i1 {mask}, i64 0")
        value = e.w.value(f"insertelement {vector} poison, {spell.memory_name(t)} {value}, i64 0")
    e.w.call(
        f"llvm.masked.store.{_memory_suffix(t)}.p0",
        "void",
        (vector, value),
        (f"ptr align {align}", address),
        (f"<{width} x i1>", mask),
    )


def _stream_store(e: Emitter, t: Line, address: str, value: str, align: int) -> None:
    """Past the caches; only aligned addresses can do that, so others are stored as usual."""
    size = t.element.itemsize * t.width
    name = spell.memory_name(t)
    if size & (size - 1) or size < 16:
        e.w.line(f"store {name} {value}, ptr {address}, align {align}")
        return
    e.w.has_stream_stores = True
    if align >= size:
        e.w.line(f"store {name} {value}, ptr {address}, align {size}, !nontemporal !0")
        return
    number = e.w.value(f"ptrtoint ptr {address} to i64")
    rest = e.w.value(f"and i64 {number}, {size - 1}")
    aligned = e.w.value(f"icmp eq i64 {rest}, 0")
    yes, no, after = (e.w.label(n) for n in ("stream", "plain", "stored"))
    e.w.branch(aligned, yes, no)
    e.w.start(yes)
    e.w.line(f"store {name} {value}, ptr {address}, align {size}, !nontemporal !0")
    e.w.jump(after)
    e.w.start(no)
    e.w.line(f"store {name} {value}, ptr {address}, align {align}")
    e.w.jump(after)
    e.w.start(after)


def _prefetch(e: Emitter, op: Op) -> str:
    address = pointer(e, op, "getelementptr")
    level = op.attrs.get("level", 1)
    assert isinstance(level, int)
    locality = ("i32", str(4 - level))
    e.w.call("llvm.prefetch.p0", "void", ("ptr", address), ("i32", "0"), locality, ("i32", "1"))
    return ""


def _misalignment(e: Emitter, op: Op) -> str:
    size = op.attrs["bytes"]
    assert isinstance(size, int)
    element = element_of(op.operands[0].type)
    number = e.w.value(f"ptrtoint ptr {pointer(e, op, 'getelementptr')} to i64")
    rest = e.w.value(f"and i64 {number}, {size - 1}")
    return e.w.value(f"udiv exact i64 {rest}, {element.itemsize}")


def _alloc(e: Emitter, op: Op) -> str:
    if op.result in e.scratch.offsets:
        return e.scratch_parameter(op.result)
    size, element = op.attrs["size"], element_of(op.result.type)
    assert isinstance(size, int)
    text = f"[{max(size, 1)} x {spell.memory_name(element)}], align 64"
    return e.w.allocate(text, op.result.name)


def _nothing(e: Emitter, op: Op) -> str:
    """A unit that is alone, or runs after the others in the same thread, waits for nobody."""
    return ""


ATOMIC_WORDS = {
    ops.ATOMIC_ADD: ("add", "add", "fadd"),
    ops.ATOMIC_MIN: ("min", "umin", "fminimum"),
    ops.ATOMIC_MAX: ("max", "umax", "fmaximum"),
    ops.ATOMIC_AND: ("and", "and", ""),
    ops.ATOMIC_OR: ("or", "or", ""),
    ops.ATOMIC_XOR: ("xor", "xor", ""),
    ops.ATOMIC_EXCHANGE: ("xchg", "xchg", "xchg"),
}


def _is_of_thread(op: Op) -> bool:
    """Whether no other thread sees the memory: the units of a cube run in one thread."""
    buffer = op.operands[0].type
    return isinstance(buffer, Buffer) and buffer.space is not Space.GLOBAL


SHORT = 24


def updates_own_memory(body: Sequence[Op]) -> bool:
    """Whether a short body updates memory of the cube at places that only run time knows, so that
    units cannot run in lanes."""
    inner = [op for op in body if op.row.is_pure or op.row in (ops.LOAD, ops.STORE)]
    updates = [op for op in body if op.row in ATOMIC_WORDS and _is_of_thread(op)]
    others = len(body) - len(inner) - len(updates) - 1
    is_short = len(body) <= SHORT and not any(op.regions for op in body)
    return bool(updates) and others <= 0 and is_short


def _order(e: Emitter) -> str:
    """Atomics order nothing by themselves; after a `sync_storage` of another cube they pass on what
    it wrote, so that later loads come after."""
    return "acquire" if e.orders_storage else "monotonic"


def _atomic(e: Emitter, op: Op) -> str:
    dtype = element_of(op.operands[0].type)
    name = spell.memory_name(dtype)
    if _is_of_thread(op):
        return _plain_update(e, op, dtype)
    value = to_memory(e, e.operands(op)[2], dtype)
    column = 2 if dtype.is_float else 0 if dtype.kind is Kind.INT else 1
    word = ATOMIC_WORDS[op.row][column]
    tail = f"{name} {value} {_order(e)}, align {dtype.itemsize}"
    return from_memory(e, e.w.value(f"atomicrmw {word} ptr {_address(e, op)}, {tail}"), dtype)


def _plain_update(e: Emitter, op: Op, dtype: DType) -> str:
    name, address = spell.memory_name(dtype), _address(e, op)
    value = e.operands(op)[2]
    old = from_memory(e, e.w.value(f"load {name}, ptr {address}"), dtype)
    step = op.row.step
    new = value if step is None else binary_text(e, step, dtype, old, value)
    e.w.line(f"store {name} {to_memory(e, new, dtype)}, ptr {address}")
    return old


def _atomic_load(e: Emitter, op: Op) -> str:
    dtype = element_of(op.operands[0].type)
    name, address = spell.memory_name(dtype), _address(e, op)
    if _is_of_thread(op):
        return from_memory(e, e.w.value(f"load {name}, ptr {address}"), dtype)
    text = f"load atomic {name}, ptr {address} {_order(e)}, align {dtype.itemsize}"
    return from_memory(e, e.w.value(text), dtype)


def _atomic_cas(e: Emitter, op: Op) -> str:
    """Compared bit by bit, as integers: that is what processors do."""
    dtype = element_of(op.operands[0].type)
    name, bits = spell.memory_name(dtype), f"i{8 * dtype.itemsize}"
    expected, value = (to_memory(e, v, dtype) for v in e.operands(op)[2:])
    if dtype.is_float:
        expected, value = (e.w.value(f"bitcast {name} {v} to {bits}") for v in (expected, value))
    address = _address(e, op)
    if _is_of_thread(op):
        old = e.w.value(f"load {bits}, ptr {address}")
        equal = e.w.value(f"icmp eq {bits} {old}, {expected}")
        new = e.w.value(f"select i1 {equal}, {bits} {value}, {bits} {old}")
        e.w.line(f"store {bits} {new}, ptr {address}")
    else:
        pair = e.w.value(
            f"cmpxchg ptr {address}, {bits} {expected}, {bits} {value} {_order(e)} {_order(e)}, "
            f"align {dtype.itemsize}"
        )
        old = e.w.value(f"extractvalue {{ {bits}, i1 }} {pair}, 0")
    return (
        e.w.value(f"bitcast {bits} {old} to {name}")
        if dtype.is_float
        else from_memory(e, old, dtype)
    )


def _fence(e: Emitter, op: Op) -> str:
    """A fence of the processor, over which LLVM keeps no loaded value either.

    Sequentially consistent, as CUDA's `__threadfence` is.
    """
    e.w.line("fence seq_cst")
    return ""


def _for_debuggers(e: Emitter, op: Op) -> str:
    """Only the interpreter stops, and keeps names."""
    return ""


HANDLERS: dict[OpDef, Emit] = {
    ops.BREAKPOINT: _for_debuggers,
    ops.NAME: _for_debuggers,
    ops.LOAD: _load,
    ops.STORE: _store,
    ops.GATHER: _gather,
    ops.SCATTER: _scatter,
    ops.PREFETCH: _prefetch,
    ops.ALLOC: _alloc,
    ops.MISALIGNMENT: _misalignment,
    ops.SYNC_CUBE: _nothing,
    ops.SYNC_PLANE: _nothing,
    ops.SYNC_STORAGE: _fence,
}
HANDLERS |= dict.fromkeys(ATOMIC_WORDS, _atomic)
HANDLERS |= {ops.ATOMIC_LOAD: _atomic_load, ops.ATOMIC_CAS: _atomic_cas}
