"""Operations that are inline assembly: each becomes a call of a helper that wraps one statement.

The statements are volatile and clobber memory, so that no C compiler moves them or accesses to
memory across them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cubepy.compilers.cstyle.dialect import Instruction
from cubepy.compilers.cstyle.memory import pointer
from cubepy.compilers.cstyle.spelling import POSTFIX, Expr
from cubepy.ir.core import Op, Value
from cubepy.ir.operands import operand_groups
from cubepy.ir.types import Buffer, DType, Line, Space, Type, bool_, element_of, i32

if TYPE_CHECKING:
    from cubepy.compilers.cstyle.emit import Emitter

_NAME = "\0"
"""Stands for the name of a helper in its text until it has one."""
_NAMES = "abcdefghijklmnopqrstuvwxyz"
_WIDTH = 92
_COLONS = re.compile(r":\s+(?=:)")


def emit_instruction(e: Emitter, op: Op, instruction: Instruction) -> None:
    """A call of the helper of an operation; helpers of equal text are one."""
    groups = operand_groups([v.type for v in op.operands])
    values = [op.operands[group[0]] for group in groups]
    key = _Helper(e, op, values, instruction).text(_NAME)
    name = e.assembly.get(key)
    if name is None:
        name = e.assembly[key] = e.namer.fresh(op.row.name.removeprefix("cuda_"))
        e.lines.declare(name, key.replace(_NAME, name))
    arguments = [_argument(e, op, group) for group in groups]
    e.result(op, Expr(f"{name}({', '.join(arguments)})", POSTFIX))


def _argument(e: Emitter, op: Op, group: tuple[int, ...]) -> str:
    first = op.operands[group[0]]
    if len(group) == 2:
        address = Op(op.row, tuple(op.operands[k] for k in group), {}, (), (), op.span)
        return pointer(e, address).whole
    is_map = isinstance(first.type, Buffer)
    return f"&{e.name(first)}" if is_map else e.value(first).whole


class _Helper:
    """The function around one statement of assembly."""

    def __init__(self, e: Emitter, op: Op, values: list[Value], instruction: Instruction) -> None:
        self._e = e
        self._op = op
        self._instruction = instruction
        self._operands = [(_NAMES[k], v.type) for k, v in enumerate(values)]

    def text(self, name: str) -> str:
        """The declaration, with the name still to be filled in."""
        e, op = self._e, self._op
        result = e.lines.type(op.result.type) if op.results else "void"
        params = ", ".join(f"{self._param(t)} {n}" for n, t in self._operands)
        lines = [f"{e.dialect.function}{result} {name}({params}) {{"]
        if op.results and not self._instruction.is_update:
            lines.append(f"    {self._register_type(op.result.type)} result;")
        lines += self._statement()
        if op.results:
            lines.append(f"    return {self._returned()};")
        return "\n".join([*lines, "}"])

    def _statement(self) -> list[str]:
        template = _c_string(self._instruction.text(self._op))
        sections = [self._outputs(), self._inputs(), ['"memory"']]
        colons = "".join(f": {', '.join(section)} " for section in sections).rstrip()
        flat = f"    asm volatile({template} {_COLONS.sub(':', colons)});"
        if len(flat) <= _WIDTH:
            return [flat]
        lines = [f"    asm volatile({template}"]
        for section in sections:
            lines += _wrapped(section)
        return [*lines[:-1], f"{lines[-1]});"]

    def _outputs(self) -> list[str]:
        if self._instruction.is_update:
            discards = self._instruction.discards
            sign = "=" if discards is not None and discards(self._op) else "+"
            return self._places(sign, *self._operands[0])
        return self._places("=", "result", self._op.result.type) if self._op.results else []

    def _inputs(self) -> list[str]:
        operands = self._operands[1:] if self._instruction.is_update else self._operands
        return [place for name, t in operands for place in self._places("", name, t)]

    def _places(self, sign: str, name: str, t: Type) -> list[str]:
        """The operands of assembly that hold a value."""
        d = self._e.dialect
        if isinstance(t, Buffer):
            text = d.address.format(name) if t.space is Space.SHARED else name
            return [f'"{d.registers[t.space]}"({text})']
        letter = d.registers[element_of(t)]
        if isinstance(t, Line):
            lanes = [self._e.lines.lane(name, t, k).whole for k in range(t.width)]
            return [f'"{sign}{letter}"({lane})' for lane in lanes]
        number = f"({d.scalars[_word(t)]}){name}" if t is bool_ and not sign else name
        return [f'"{sign}{letter}"({number})']

    def _param(self, t: Type) -> str:
        e = self._e
        if not isinstance(t, Buffer):
            return e.lines.type(t)
        if t.space is Space.TENSOR_MAP:
            return f"const {e.lines.use('TensorMap')}*"
        return f"const {e.dialect.spaces[t.space]}{e.lines.scalar(t.element)}*"

    def _register_type(self, t: Type) -> str:
        return self._e.lines.type(_word(t) if t is bool_ else t)

    def _returned(self) -> str:
        if self._instruction.is_update:
            return self._operands[0][0]
        return "result != 0" if self._op.result.type is bool_ else "result"


def _wrapped(operands: list[str]) -> list[str]:
    """A section of a statement: a colon, and operands on lines that fit."""
    lines = ["        :"]
    for k, operand in enumerate(operands):
        text = operand + ("," if k < len(operands) - 1 else "")
        if len(lines[-1]) + 1 + len(text) > _WIDTH and k:
            lines.append("         ")
        lines[-1] += f" {text}"
    return lines


def _word(t: Type) -> DType:
    """Bools are words in registers."""
    return i32 if t is bool_ else element_of(t)


def _c_string(text: str) -> str:
    """A literal of C; the text is ASCII."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "?": "\\?"}
    return '"' + "".join(escapes.get(c, c if c.isprintable() else " ") for c in text) + '"'
