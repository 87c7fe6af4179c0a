"""KernelIR to Python source: a generator for the kernel, and a function for each inlined call.

Every SSA value is a local `_<n>`, constants are literals, and the user's names are locals of their
own. Loops carry values in the names of their arguments, `if`s assign the names of their results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cubepy.compilers.python import memory, values
from cubepy.compilers.python import ops as spell
from cubepy.compilers.python.calls import call_of, contains, path, shown, split
from cubepy.compilers.python.writer import Function, Line, Tables, local_name
from cubepy.errors import fail
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType
from cubepy.record import dataclass
from cubepy.span import Span

MAX_LOOPS = 18
"""Python nests no more than 20 loops in a function."""
MAX_INDENT = 90
"""Python reads no more than 100 levels of indentation."""
RESERVED = frozenset(spell.POSITION_NAMES)
ALWAYS = ("_unit", "UNIT_POS", "CUBE_POS")
"""What every function is given, so that a debugger shows it."""


@dataclass(frozen=True, slots=True)
class Module:
    """The generated program: prelude and functions as text, and what the runtime must know."""

    root: Function
    functions: tuple[Function, ...]
    prelude: tuple[str, ...]
    meanings: dict[str, tuple[str, str]]
    tables: Tables
    waits: bool


def emit(kernel: Kernel) -> Module:
    """The Python program of a verified kernel."""
    return Emitter(kernel).module()


class Emitter:
    """State of one emission: names of values, the open function, and the open loops."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.tables = Tables()
        self.fn = Function("kernel", None, 0)
        self._functions: list[Function] = []
        self._calls = 0
        self._prelude: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._meanings: dict[str, tuple[str, str]] = {}
        self._names: dict[Value, str] = {}
        self._literals: dict[Value, str] = {}
        self._needed = _needed(kernel)
        self._uses = _count(kernel.body.ops)
        self._buffers = _buffer_names(kernel)
        self._counters: list[tuple[int, str | None]] = []
        self._loops = 0
        self._open: list[Op] = []
        self._ends: dict[Op, Span | None] = {}

    # Names

    def atom(self, value: Value) -> str:
        """The name or literal of a value."""
        literal = self._literals.get(value)
        if literal is not None:
            return literal
        name = self._names[value]
        self.fn.names[name] = None
        return name

    def atoms(self, op: Op) -> list[str]:
        """The names or literals of the operands."""
        return [self.atom(v) for v in op.operands]

    def define(self, value: Value) -> str:
        """A name for a value that is computed here."""
        name = self._names.get(value)
        if name is None:
            name = self._names[value] = f"_{len(self._names)}"
        self.fn.assigned.add(name)
        return name

    def local(self, name: str) -> str:
        """The local of a name of the user."""
        return local_name(name, RESERVED)

    def set_literal(self, value: Value, text: str) -> None:
        """Write `text` where the value is used."""
        self._literals[value] = text

    def set_name(self, value: Value, name: str) -> None:
        """Use a name that every function is given."""
        self._names[value] = name

    def buffer_name(self, value: Value) -> str:
        """What the user calls a buffer."""
        return self._buffers.get(value, value.name)

    def function(self, name: str, parameters: int, text: str) -> str:
        """A helper of the prelude: `text` over the parameters a, b, c."""
        names = "abc"[:parameters]
        self._prelude[name] = f"{name} = lambda {', '.join(names)}: {text.format(*names)}"
        return name

    def constant(self, text: str) -> str:
        """A constant of the prelude, made once."""
        name = self._constants.setdefault(text, f"_table_{len(self._constants)}")
        self._prelude[name] = f"{name} = {text}"
        return name

    def meaning(self, row: OpDef, dtype: DType) -> str:
        """The name of a row's meaning for a scalar type."""
        name = f"_{row.name}_{dtype.name}"
        self._meanings[name] = (row.name, dtype.name)
        return name

    # Lines

    def line(self, text: str, span: Span | None) -> None:
        """One line that stands for `span`, as far as that lies in the open function."""
        number = self.tables.span(shown(span, self.fn.level))
        self.fn.lines.append(Line(self.fn.indent, text, number))

    def assign(self, op: Op, text: str) -> None:
        """The only result of `op`."""
        self.line(f"{self.define(op.result)} = {text}", op.span)

    def site(self, op: Op, **facts: Any) -> int:
        """The number by which the runtime knows this operation."""
        loops = [number for number, _ in self._counters]
        return self.tables.site(op.span, op.row.name, loops=loops, **facts)

    def iteration(self) -> str:
        """The iterations of the open loops, as a tuple: which execution of a barrier it is."""
        names = [name for _, name in self._counters if name]
        self.fn.names.update(dict.fromkeys(names))
        return f"({''.join(f'{n}, ' for n in names)})"

    # The program

    def module(self) -> Module:
        body = self.kernel.body
        waits = contains(body, spell.CONVERGENT)
        parameters = [self.define(p.value) for p in self.kernel.params]
        name = local_name(self.kernel.name, frozenset())
        self.fn = Function(name, _origin(body.ops, 0), 0)
        self._ops(body.ops)
        root = self.fn
        head = ", ".join(("_unit", *spell.POSITION_NAMES, *parameters))
        span = self.tables.span(root.span)
        root.lines.insert(0, Line(0, f"def {root.name}({head}):", span))
        prelude = tuple(self._prelude.values())
        functions = (*self._functions, root)
        return Module(root, functions, prelude, self._meanings, self.tables, waits)

    def _ops(self, block: Sequence[Op]) -> None:
        kept = [op for op in block if not op.row.is_pure or op in self._needed]
        plain = [op for op in kept if not self._is_named_only(op)]
        for is_call, part in split(plain, self.fn.level):
            if is_call:
                self._call(part)
            else:
                self._op(part[0])

    def _is_named_only(self, op: Op) -> bool:
        """Constants and positions need no line."""
        if op.row is ops.CONST:
            self.set_literal(op.result, values.literal(op.attrs["value"]))
        elif op.row in spell.POSITIONS:
            axis = str(op.attrs["axis"])
            suffix = "" if axis == "all" else f"_{axis.upper()}"
            self.set_name(op.result, spell.POSITIONS[op.row] + suffix)
        else:
            return False
        return True

    def _op(self, op: Op) -> None:
        handler = _HANDLERS.get(op.row)
        if handler is not None:
            handler(self, op)
        elif op.row.is_pure and op.row.meaning is not None:
            values.emit_pure(self, op)
        else:
            reason = "the interpreter runs kernels as they were written"
            fields = {"op": f"`{op.row.name}`", "target": "interpreter", "reason": reason}
            raise fail("E310", op.span, suggestion="", **fields)

    # Inlined calls

    def _call(self, part: list[Op]) -> None:
        key = call_of(part[0], self.fn.level)
        assert key is not None
        outer, inside = self.fn, _count(part)
        results = [v for op in part for v in op.results if self._uses.get(v, 0) > inside.get(v, 0)]
        name = f"_call{self._calls}"
        self._calls += 1
        self.fn = Function(name, _origin(part, outer.level + 1), outer.level + 1)
        self.fn.names.update(dict.fromkeys(ALWAYS))
        self._ops(part)
        if results:
            self.line(f"return ({''.join(f'{self.atom(v)}, ' for v in results)})", None)
        inner, self.fn = self.fn, outer
        self._close(inner)
        waits = contains(part, spell.CONVERGENT)
        self._call_line(inner, results, waits, key[0])

    def _close(self, inner: Function) -> None:
        head = f"def {inner.name}({', '.join(inner.free())}):"
        inner.lines.insert(0, Line(0, head, self.tables.span(inner.span)))
        if len(inner.lines) == 1:
            inner.lines.append(Line(1, "pass", -1))
        self._functions.append(inner)

    def _call_line(self, inner: Function, results: list[Value], waits: bool, span: Span) -> None:
        given = inner.free()
        self.fn.names.update(dict.fromkeys(given))
        targets = "".join(f"{self.define(v)}, " for v in results)
        text = f"{inner.name}({', '.join(given)})"
        text = f"(yield from {text})" if waits else text
        self.line(f"{targets}= {text}" if results else text, span)

    # Control flow

    def _block(self, op: Op, region: Region) -> None:
        """An indented block, which has at least one line.

        What its end assigns stands on the line before it: the user wrote nothing there.
        """
        before_end = region.ops[-2:-1]
        self._ends[region.terminator] = before_end[0].span if before_end else op.span
        self.fn.indent += 1
        if self.fn.indent > MAX_INDENT:
            raise self._too_deep(op.span)
        before = len(self.fn.lines)
        self._ops(region.ops)
        if len(self.fn.lines) == before:
            self.line("pass", op.span)
        self.fn.indent -= 1

    def _if(self, op: Op) -> None:
        for result in op.results:
            self.define(result)
        then, otherwise = op.regions
        self._open.append(op)
        self.line(f"if {self.atom(op.operands[0])}:", op.span)
        self._block(op, then)
        if op.results or len(otherwise.ops) > 1 or otherwise.terminator.row is not ops.YIELD:
            self.line("else:", op.span)
            self._block(op, otherwise)
        self._open.pop()

    def _for(self, op: Op) -> None:
        (body,) = op.regions
        start, stop, step = (self.atom(v) for v in op.operands[:3])
        position = self.define(body.args[0])
        head = f"for {position} in _range({start}, {stop}, {step}):"
        self._loop(op, head, body.args[1:], op.operands[3:])

    def _while(self, op: Op) -> None:
        self._loop(op, "while True:", op.regions[0].args, op.operands)

    def _loop(self, op: Op, head: str, args: tuple[Value, ...], starts: tuple[Value, ...]) -> None:
        for arg, result in zip(args, op.results, strict=True):
            self._names[result] = self.define(arg)
        self.move(args, starts, op.span)
        counter = self._enter(op)
        self.line(head, op.span)
        if counter:
            self.fn.lines.append(Line(self.fn.indent + 1, f"{counter} += 1", -1))
        self._open.append(op)
        self._block(op, op.regions[0])
        self._open.pop()
        self._counters.pop()
        self.fn.depth -= 1

    def _enter(self, op: Op) -> str | None:
        """Open a loop; one that contains a barrier counts its iterations."""
        self.fn.depth += 1
        if self.fn.depth > MAX_LOOPS:
            raise self._too_deep(op.span)
        self._loops += 1
        counter = f"_k{self._loops}" if contains(op.regions[0], spell.CONVERGENT) else None
        self._counters.append((self._loops, counter))
        if counter:
            self.fn.assigned.add(counter)
            self.line(f"{counter} = 0", op.span)
        return counter

    def _too_deep(self, span: Span | None) -> Exception:
        fields = {"op": "a loop or branch", "target": "interpreter", "suggestion": ""}
        return fail("E310", span, reason="Python cannot nest so many in one function", **fields)

    def move(self, targets: Sequence[Value], sources: Sequence[Value], span: Span | None) -> None:
        """Assign values to the names of others, all at once."""
        pairs = [(self._names[t], self.atom(s)) for t, s in zip(targets, sources, strict=True)]
        pairs = [(t, s) for t, s in pairs if t != s]
        self.fn.assigned.update(t for t, _ in pairs)
        if pairs:
            left, right = (", ".join(side) for side in zip(*pairs, strict=True))
            self.line(f"{left} = {right}", span)

    def _yield(self, op: Op) -> None:
        self.move(self._open[-1].results, op.operands, self._ends[op])

    def _continue(self, op: Op) -> None:
        loop = self._innermost()
        is_last = op is loop.regions[0].ops[-1]
        self.move(loop.results, op.operands, self._ends[op] if is_last else op.span)
        if not is_last:
            self.line("continue", op.span)

    def _break(self, op: Op) -> None:
        self.move(self._innermost().results, op.operands, op.span)
        self.line("break", op.span)

    def _innermost(self) -> Op:
        return next(op for op in reversed(self._open) if op.row is not ops.IF)

    def _return(self, op: Op) -> None:
        self.line(f"return {self.site(op)}", op.span)


def _needed(kernel: Kernel) -> set[Op]:
    """The pure operations that something with an effect depends on."""
    sources = {v: op for op in kernel.body.walk() if op.row.is_pure for v in op.results}
    todo = [v for op in kernel.body.walk() if not op.row.is_pure for v in op.operands]
    needed: set[Op] = set()
    while todo:
        op = sources.get(todo.pop())
        if op is not None and op not in needed:
            needed.add(op)
            todo += op.operands
    return needed


def _count(block: Sequence[Op]) -> dict[Value, int]:
    """How many operands each value is."""
    uses: dict[Value, int] = {}
    for op in Region((), tuple(block)).walk():
        for value in op.operands:
            uses[value] = uses.get(value, 0) + 1
    return uses


def _buffer_names(kernel: Kernel) -> dict[Value, str]:
    """What the user calls each buffer: the argument, or the first name that it was given."""
    names = {p.value: p.argument for p in kernel.params if p.kind.is_address}
    for op in kernel.body.walk():
        if op.row is ops.NAME and op.attrs["kind"] == "tensor":
            names.setdefault(op.operands[0], str(op.attrs["text"]))
    return names


def _origin(block: Sequence[Op], level: int) -> Span | None:
    """The first line known of the function at `level` inlined calls: that of its `def`."""
    spans = [s[level] for op in block if len(s := path(op.span)) > level]
    same = [s for s in spans if (s.file, s.function) == (spans[0].file, spans[0].function)]
    return min(same, key=lambda s: s.line, default=None)


_HANDLERS: dict[OpDef, Callable[[Emitter, Op], None]] = {
    **values.HANDLERS,
    **memory.HANDLERS,
    ops.IF: Emitter._if,
    ops.FOR: Emitter._for,
    ops.LOOP: Emitter._while,
    ops.YIELD: Emitter._yield,
    ops.CONTINUE: Emitter._continue,
    ops.BREAK: Emitter._break,
    ops.RETURN: Emitter._return,
}
