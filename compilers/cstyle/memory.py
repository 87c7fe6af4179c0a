"""Emission of memory operations: allocations, loads, stores, masks, hints, atomics, faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.cstyle.lines import alignment, tag
from cubepy.compilers.cstyle.literals import short_index
from cubepy.compilers.cstyle.spelling import ADD, EQUAL, POSTFIX, TERNARY, UNARY, Expr, Spelling
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Buffer, DType, Line, Space, Type, element_of
from cubepy.passes.legalise.rows import FAULTED, NOTE

if TYPE_CHECKING:
    from cubepy.compilers.cstyle.emit import Emitter


ALIGNMENT = 16
"""Bytes that arrays of a cube are aligned to, unless an instruction needs more."""


def emit_alloc(e: Emitter, op: Op) -> None:
    """Memory is declared at the head of the kernel."""
    buffer = op.result.type
    assert isinstance(buffer, Buffer)
    name = e.fresh(op.result)
    size = _integer(op, "size")
    template = e.dialect.declarations[buffer.space]
    fields: dict[str, object] = {"type": e.lines.scalar(buffer.element), "name": name}
    fields |= {"size": max(size, 1), "align": e.shared.alignment_of(op)}
    if buffer.space is Space.SHARED and e.shared.is_dynamic:
        template = e.dialect.dynamic_shared
        fields["offset"] = e.shared.place(op)
    e.entry.append(template.format(**fields))
    e.bind(op.result, Expr(name))


def _integer(op: Op, name: str) -> int:
    value = op.attrs[name]
    assert isinstance(value, int)
    return value


# Addresses


def _offset(e: Emitter, value: Value) -> Expr:
    number = e.constants.get(value)
    if isinstance(number, int):
        return short_index(number, e.dialect)
    return e.value(value)


def element(e: Emitter, op: Op) -> Expr:
    """`x[i]`."""
    buffer, offset = op.operands[:2]
    return Expr(f"{e.name(buffer)}[{_offset(e, offset).whole}]", POSTFIX)


def pointer(e: Emitter, op: Op) -> Expr:
    """`x + i`."""
    buffer, offset = op.operands[:2]
    return Expr(f"{e.name(buffer)} + {_offset(e, offset).within(ADD + 1)}", ADD)


def _space(op: Op) -> Space:
    buffer = op.operands[0].type
    assert isinstance(buffer, Buffer)
    return buffer.space


def _is_aligned(e: Emitter, op: Op, t: Line) -> bool:
    """Whether the access may be one of the line's type. Vectors that a function moves from any
    address are else aligned to their size."""
    align, size = op.attrs.get("align"), t.element.itemsize * t.width
    least = size & -size if _is_vector(e, t) else alignment(t)
    return isinstance(align, int) and align >= least


def _is_vector(e: Emitter, t: Line) -> bool:
    """Whether the dialect has a function that moves such a line from and to any address."""
    return e.lines.is_native(t) and e.dialect.vector_load is not None


def _cast_pointer(e: Emitter, op: Op, t: Line, const: str) -> str:
    space = e.dialect.spaces[_space(op)]
    return f"*({const}{space}{e.lines.type(t)}*)({pointer(e, op).whole})"


def _streamed(
    e: Emitter, op: Op, t: Type, spelling: Spelling | None, const: str = ""
) -> Expr | None:
    """An access that caches evict first, where the dialect has one for the type."""
    if op.attrs.get("hint") != "stream" or spelling is None or _space(op) is not Space.GLOBAL:
        return None
    if isinstance(t, Line) and not e.lines.is_native(t):
        return None
    address = pointer(e, op)
    if isinstance(t, Line):
        address = Expr(f"({const}{e.lines.type(t)}*)({address.whole})", UNARY)
    return spelling.fill([address, *map(e.value, op.operands[2:])])


# Loads


def emit_load(e: Emitter, op: Op) -> Expr:
    """An element, a vector, or the lanes one by one."""
    t = op.result.type
    if not isinstance(t, Line):
        if len(op.operands) == 2:
            return _streamed(e, op, t, e.dialect.stream_load) or element(e, op)
        mask, fill = (e.value(v) for v in op.operands[2:])
        text = f"{mask.within(TERNARY + 2)} ? {element(e, op).whole} : {fill.within(UNARY)}"
        return Expr(text, TERNARY)
    if len(op.operands) == 4:
        return _masked_load(e, op, t)
    if _is_aligned(e, op, t):
        plain = Expr(_cast_pointer(e, op, t, "const "), UNARY)
        return _streamed(e, op, t, e.dialect.stream_load, "const ") or plain
    if _is_vector(e, t):
        assert e.dialect.vector_load is not None
        return e.dialect.vector_load.fill([pointer(e, op)], width=str(t.width))
    return _call_by_lane(e, op, t, "load", "from[{k}]", [])


def _masked_load(e: Emitter, op: Op, t: Line) -> Expr:
    extra = [(op.operands[2], "mask"), (op.operands[3], "fill")]
    return _call_by_lane(e, op, t, "load_masked", "{mask} ? from[{k}] : {fill}", extra)


def _call_by_lane(
    e: Emitter, op: Op, t: Line, name: str, lane: str, extra: list[tuple[Value, str]]
) -> Expr:
    """A call of a helper that reads lane by lane; masked off lanes are not read."""
    lanes = [Expr(text, 0) for text in _by_lane(e, t, lane, extra)]
    body = f"    return {e.lines.build(t, lanes).whole};"
    helper = _helper(e, op, t, name, f"const {_pointer_type(e, op)} from", extra, body)
    rest = [e.value(v).whole for v, _ in extra]
    return Expr(f"{helper}({', '.join([pointer(e, op).whole, *rest])})", POSTFIX)


def _by_lane(e: Emitter, t: Line, lane: str, extra: list[tuple[Value, str]]) -> Iterator[str]:
    """`lane` for each lane: `{k}` is its number, each name of `extra` that lane of its value."""
    for k in range(t.width):
        fields = {n: e.lines.lane(n, v.type, k).whole for v, n in extra}
        yield lane.format(k=k, **fields)


def _pointer_type(e: Emitter, op: Op) -> str:
    return f"{e.dialect.spaces[_space(op)]}{e.lines.scalar(element_of(op.operands[0].type))}*"


def _helper(
    e: Emitter, op: Op, t: Line, name: str, first: str, extra: list[tuple[Value, str]], body: str
) -> str:
    """Declare a helper for a line and a space; gives its name."""
    is_load = name.startswith("load")
    space = f"_{_space(op).value}" if e.dialect.spaces[Space.GLOBAL] else ""
    full = f"{name}_{tag(t)}{space}"
    params = ", ".join([first, *(f"{e.lines.type(v.type)} {n}" for v, n in extra)])
    result = e.lines.type(t) if is_load else "void"
    e.lines.declare(full, f"{e.dialect.function}{result} {full}({params}) {{\n{body}\n}}")
    return full


# Stores


def emit_store(e: Emitter, op: Op) -> None:
    """An element, a vector, or the lanes one by one."""
    value = op.operands[2]
    t = value.type
    if len(op.operands) == 4:
        _masked_store(e, op, t)
    elif not isinstance(t, Line):
        streamed = _streamed(e, op, t, e.dialect.stream_store)
        e.statement(streamed.whole if streamed else _assignment(e, op, value))
    elif _is_aligned(e, op, t):
        streamed = _streamed(e, op, t, e.dialect.stream_store)
        plain = f"{_cast_pointer(e, op, t, '')} = {e.value(value).whole}"
        e.statement(streamed.whole if streamed else plain)
    elif _is_vector(e, t):
        assert e.dialect.vector_store is not None
        operands = [pointer(e, op), e.value(value)]
        e.statement(e.dialect.vector_store.fill(operands, width=str(t.width)).whole)
    else:
        _store_by_lane(e, op, t, "store", "to[{k}] = {value};", [(value, "value")])


def _assignment(e: Emitter, op: Op, value: Value) -> str:
    place = element(e, op).whole
    short = e.augmented(place, value)
    text = e.value(value).whole
    return short or f"{place} = {text}"


def _masked_store(e: Emitter, op: Op, t: Type) -> None:
    value, mask = op.operands[2:]
    if isinstance(t, Line):
        extra = [(value, "value"), (mask, "mask")]
        _store_by_lane(e, op, t, "store_masked", "if ({mask}) to[{k}] = {value};", extra)
        return
    condition = e.value(mask).whole
    e.statement(f"if ({condition}) {element(e, op).whole} = {e.value(value).whole}")


def _store_by_lane(
    e: Emitter, op: Op, t: Line, name: str, lane: str, extra: list[tuple[Value, str]]
) -> None:
    lines = [f"    {text}" for text in _by_lane(e, t, lane, extra)]
    first = f"{_pointer_type(e, op)} to"
    helper = _helper(e, op, t, name, first, extra, "\n".join(lines))
    rest = [e.value(v).whole for v, _ in extra]
    e.statement(f"{helper}({', '.join([pointer(e, op).whole, *rest])})")


# Others


def emit_misalignment(e: Emitter, op: Op) -> Expr:
    spelling = e.dialect.spelling(op.row, None)
    assert spelling is not None
    size, item = _integer(op, "bytes"), element_of(op.operands[0].type).itemsize
    e.use_helpers(spelling.text)
    return spelling.fill([pointer(e, op)], mask=str(size - 1), item=str(item))


def emit_prefetch(e: Emitter, op: Op) -> None:
    """A hint; only for global memory, and only where the dialect has one."""
    spelling = e.dialect.spelling(op.row, None)
    if spelling is not None and _space(op) is Space.GLOBAL:
        e.use_helpers(spelling.text)
        e.statement(spelling.fill([pointer(e, op)]).whole)


def emit_atomic(e: Emitter, op: Op) -> None:
    """A function of the dialect on an address."""
    dtype = element_of(op.operands[0].type)
    spelling = e.dialect.spelling(op.row, dtype)
    assert spelling is not None
    address = f"&{element(e, op).whole}"
    operands = [e.value(v) for v in op.operands[2:]]
    e.use_helpers(spelling.text)
    fields = {"p": address, "space": e.dialect.spaces[_space(op)], "t": e.lines.scalar(dtype)}
    e.result(op, spelling.fill(operands, **fields))


def emit_fault(e: Emitter, op: Op) -> None:
    """The first unit that gets here writes the record; see `artifact.FAULT_WORDS`."""
    reported = [e.value(v).whole for v in op.operands]
    words = ", ".join([str(_integer(op, "code")), *reported, *["0"] * (6 - len(reported))])
    e.use_helpers("note_fault")
    e.statement(f"note_fault({e.signature.faults}, {words})")


def emit_faulted(e: Emitter, op: Op) -> None:
    """The first word of the record, as other units leave it."""
    word = f"*(const volatile unsigned long long*){e.signature.faults}"
    e.result(op, Expr(f"{word} != 0", EQUAL))


class SharedMemory:
    """Where shared arrays lie: declared one by one, or in one block beyond the static limit."""

    def __init__(self, kernel: Kernel, allocations: list[Op], dialect: Dialect) -> None:
        self._alignments = _alignments(kernel, dialect)
        self.alignment = max((self.alignment_of(op) for op in allocations), default=ALIGNMENT)
        self._places: dict[Op, int] = {}
        end = 0
        for op in allocations:
            align = self.alignment_of(op)
            self._places[op] = end = -(-end // align) * align
            size = max(_integer(op, "size"), 1) * _element(op).itemsize
            end += -(-size // ALIGNMENT) * ALIGNMENT
        self.size = end
        limit = dialect.static_shared_bytes
        self.is_dynamic = bool(limit) and end > limit

    def alignment_of(self, op: Op) -> int:
        """What an array is aligned to, in bytes."""
        return self._alignments.get(op.result, ALIGNMENT)

    def place(self, op: Op) -> int:
        """The offset of an array in the block."""
        return self._places[op]


def _alignments(kernel: Kernel, dialect: Dialect) -> dict[Value, int]:
    """What instructions of the hardware need of the arrays that they take."""
    found: dict[Value, int] = {}
    for op in kernel.body.walk():
        instruction = dialect.instructions.get(op.row)
        for position, align in instruction.alignments.items() if instruction else ():
            value = op.operands[position]
            found[value] = max(found.get(value, ALIGNMENT), align)
    return found


def _element(op: Op) -> DType:
    return element_of(op.result.type)


HANDLERS: dict[OpDef, Callable[[Emitter, Op], Expr]] = {
    ops.LOAD: emit_load,
    ops.MISALIGNMENT: emit_misalignment,
}
EFFECTS: dict[OpDef, Callable[[Emitter, Op], None]] = {
    ops.ALLOC: emit_alloc,
    ops.STORE: emit_store,
    ops.PREFETCH: emit_prefetch,
    NOTE: emit_fault,
    FAULTED: emit_faulted,
    **dict.fromkeys(ops.ATOMICS, emit_atomic),
}
