"""Emission of `print`: one call of printf for each unit that prints, more for very many values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from cubepy.compilers.cstyle.spelling import LOWEST, UNARY, Expr
from cubepy.compilers.printf import directive, directives
from cubepy.ir import ops
from cubepy.ir.core import Op, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Kind, Line, bool_, element_of, f64, i64, u64

if TYPE_CHECKING:
    from cubepy.compilers.cstyle.emit import Emitter

_DIRECTIVE = re.compile(r"%%|%[-+ 0-9.]*l*[a-zA-Z]")


def emit_print(e: Emitter, op: Op) -> None:
    """The text with each `{}` replaced by a directive, and the operands converted."""
    args = [a for value in op.operands for a in _arguments(e, value)]

    def shown(k: int, spec: str) -> str:
        t = op.operands[k].type
        if isinstance(t, Line):
            return "[" + ", ".join([_directive(e, t.element)] * t.width) + "]"
        return directive(spec, element_of(t), _directive(e, element_of(t)))

    text = directives(str(op.attrs["text"]), shown)
    end = str(op.attrs.get("end", "\n")).replace("%", "%%")
    first = 0
    for part, count in _calls(text + end, e.dialect.print_most or len(args)):
        e.statement(f"printf({', '.join([quoted(part), *args[first : first + count]])})")
        first += count


def _calls(text: str, most: int) -> Iterator[tuple[str, int]]:
    """A format in parts of at most so many directives, each with their number."""
    start = count = 0
    for found in _DIRECTIVE.finditer(text):
        if found[0] == "%%":
            continue
        if count == most:
            yield text[start : found.start()], count
            start, count = found.start(), 0
        count += 1
    yield text[start:], count


def _arguments(e: Emitter, value: Value) -> list[str]:
    t = value.type
    if not isinstance(t, Line):
        return [_argument(e, element_of(t), e.value(value))]
    name = e.name(value)
    return [_argument(e, t.element, e.lines.lane(name, t, k)) for k in range(t.width)]


def _directive(e: Emitter, dtype: DType) -> str:
    if dtype is bool_:
        return "%s" if e.dialect.prints_strings else "%d"
    if dtype.is_float:
        return "%.17g" if dtype is f64 else "%.9g"
    return e.dialect.print_words["int" if dtype.kind is Kind.INT else "uint"]


def _argument(e: Emitter, dtype: DType, value: Expr) -> str:
    """Integers as the widest, floats as the dialect passes them, bools as words where it can."""
    if dtype is bool_ and e.dialect.prints_strings:
        return f'{value.within(UNARY)} ? "True" : "False"'
    if dtype is bool_:
        return f"(int){value.within(UNARY)}"
    if dtype.is_float:
        return e.dialect.print_float.fill([value]).within(LOWEST)
    wide = i64 if dtype.kind is Kind.INT else u64
    return f"({e.lines.scalar(wide)}){value.within(UNARY)}"


def quoted(text: str) -> str:
    """A C string; everything that C reads specially is written in octal."""
    data = text.encode()
    inner = "".join(chr(c) if 32 <= c < 127 and c not in b'"\\?' else f"\\{c:03o}" for c in data)
    return f'"{inner}"'


EFFECTS: dict[OpDef, Callable[[Emitter, Op], None]] = {ops.PRINT: emit_print}
