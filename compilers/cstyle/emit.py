"""KernelIR to C: regions stay blocks, values become names or expressions, jumps assign and jump.

A value that is used once, and has no name in the Python source, is written where it is used, unless
control flow or an effect comes between. Carried values and results of `if` are mutable locals.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from cubepy.artifact import Listing
from cubepy.compilers.cstyle import memory, printing, values
from cubepy.compilers.cstyle.assembly import emit_instruction
from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.cstyle.kernels import Signature
from cubepy.compilers.cstyle.lines import WORD, Lines
from cubepy.compilers.cstyle.literals import short_index
from cubepy.compilers.cstyle.namer import Namer
from cubepy.compilers.cstyle.plan import Plan
from cubepy.compilers.cstyle.source_names import names_of
from cubepy.compilers.cstyle.spelling import ATOM, OR, POSTFIX, UNARY, Expr
from cubepy.compilers.cstyle.writer import Writer, choice
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DTYPES, DType, Type, element_of, index, index32

MAX_INLINE = 80
"""Characters of an expression that is still written where it is used."""


def emit(kernel: Kernel, dialect: Dialect) -> Listing:
    """The source of a legalised kernel."""
    return Emitter(kernel, dialect).source()


class Emitter:
    """State of one emission: names, expressions that wait for their use, and open loops."""

    def __init__(self, kernel: Kernel, dialect: Dialect) -> None:
        self.kernel = kernel
        self.dialect = dialect
        self.namer = Namer(dialect.reserved | frozenset(dialect.helpers))
        self.lines = Lines(dialect, self.namer)
        self.w = Writer()
        self.plan = Plan(kernel)
        self.constants: dict[Value, int | float] = {}
        self.positions: set[Value] = set()
        self.assembly: dict[str, str] = {}
        self.signature = Signature(self)
        self.entry: list[str] = []
        allocations = [op for op in kernel.body.walk() if _is_shared(op)]
        self.shared = memory.SharedMemory(kernel, allocations, dialect)
        if self.shared.is_dynamic:
            self.entry.append(dialect.dynamic_block.format(align=self.shared.alignment))
        if dialect.begin:
            self.entry.append(dialect.begin)
            self.lines.use_in(dialect.begin)
        self._source_names = names_of(kernel)
        self._exprs: dict[Value, Expr] = {}
        self._free: set[Value] = set()
        self._waiting: dict[Value, Op] = {}
        self._turned: dict[Value, Expr] = {}
        self._mutable: set[Value] = set()
        self._loops: list[tuple[str, ...]] = []
        self._merges: list[tuple[str, ...]] = []

    def source(self) -> Listing:
        """Prelude, helpers and the kernel."""
        self.signature.bind()
        for op in self.kernel.body.ops:
            self._op(op, self.kernel.body)
        words = set(WORD.findall(self.w.text))
        entry = [f"    {line}" for line in self.entry]
        body = [*self.lines.prelude(), *self.signature.head(words), *entry]
        words |= set(WORD.findall("\n".join(body)))
        pragmas = dict.fromkeys(p for word, p in self.dialect.pragmas.items() if word in words)
        prelude = [*self.dialect.prelude, *pragmas]
        return self.w.listing([*prelude, *([""] if prelude else []), *body], ["}"])

    # Values

    def bind(self, value: Value, expr: Expr) -> None:
        """What stands for a value from here on."""
        self._exprs[value] = expr

    def value(self, value: Value) -> Expr:
        """The expression of a value; one that waited is written here."""
        self._waiting.pop(value, None)
        return self._exprs[value]

    def name(self, value: Value) -> str:
        """The value as a name, a literal or a text that is free, for texts that need it more than
        once."""
        expr = self._exprs[value]
        if expr.rank == ATOM or value in self._free:
            return self.value(value).within(ATOM)  # a name of what is free would end with its block
        self._declare(value)
        return self._exprs[value].whole

    def is_mutable(self, value: Value) -> bool:
        """Whether the value is a local that may be assigned again."""
        return value in self._mutable

    def use_helpers(self, text: str) -> None:
        """Put the helpers that a text calls into the prelude."""
        self.lines.use_in(text)

    def fresh(self, value: Value) -> str:
        """A name for a value: the source's, else the IR's."""
        return self.namer.fresh(self._source_names.get(value) or value.name)

    def statement(self, text: str) -> None:
        """A statement with an effect; what waits for its use must not come after it."""
        self.flush()
        self.w.line(f"{text};")

    def flush(self) -> None:
        """Give names to all expressions that wait."""
        for value in list(self._waiting):
            self._declare(value)

    def _declare(self, value: Value) -> None:
        self._waiting.pop(value, None)
        expr, outer = self._exprs[value], self.w.span
        name = self.fresh(value)
        self.w.line(f"const {self.lines.type(value.type)} {name} = {expr.whole};")
        self.w.span = outer
        self._exprs[value] = Expr(name)

    # Operations

    def _op(self, op: Op, region: Region) -> None:
        self.w.span = op.span or self.w.span
        control = _CONTROL.get(op.row)
        if control is not None:
            control(self, op, region)
        elif op.row in _NOTHING:
            return
        elif op.row in self.dialect.instructions:
            emit_instruction(self, op, self.dialect.instructions[op.row])
        elif op.row in self.dialect.calls:
            self._call_helper(op, self.dialect.calls[op.row])
        elif op.row.is_readonly:
            self._compute(op)
        else:
            self._effect(op)

    def _compute(self, op: Op) -> None:
        if op.row.is_pure and not self.plan.uses.get(op.result):
            return
        self._name_repeated(op)
        if _is_widened(op):
            self.name(op.operands[0])  # its text goes wherever the wide value does
        handler = values.HANDLERS.get(op.row) or memory.HANDLERS.get(op.row)
        self._note(op)
        expr = (handler or values.emit_elementwise)(self, op)
        self.bind(op.result, expr)
        if self._is_free(op):
            self._free.add(op.result)
        else:
            self._keep(op, expr)

    def _note(self, op: Op) -> None:
        """Note constants, and the opposites of comparisons of integers."""
        number = op.attrs.get("value")
        if op.row is ops.CONST and isinstance(number, int | float):
            self.constants[op.result] = number
        turned = _TURNED.get(op.row)
        if turned is not None and op.operands[0].type in (*DTYPES, index32):
            assert isinstance(op.operands[0].type, DType)
            if op.operands[0].type.is_integer:
                opposite = Op(turned, op.operands, {}, op.results, (), op.span)
                self._turned[op.result] = values.emit_elementwise(self, opposite)

    def _name_repeated(self, op: Op) -> None:
        """Give names to scalar operands that the text of the operation has more than once."""
        if op.operands and isinstance(op.operands[0].type, DType):
            spelling = self.dialect.spelling(op.row, op.operands[0].type)
            for k in spelling.repeated() if spelling is not None else ():
                self.name(op.operands[k])

    def _is_free(self, op: Op) -> bool:
        """Whether the text costs nothing and never changes: constants, lanes of constant lines, and
        narrow indices where wide ones are needed."""
        if op.row is ops.CONST:
            return True
        if _is_widened(op):
            return op.operands[0] not in self._mutable
        return op.row is ops.EXTRACT and "lane" in op.attrs and op.operands[0] not in self._mutable

    def _keep(self, op: Op, expr: Expr) -> None:
        """Let the expression wait for its only use, or name it now."""
        value = op.result
        once = self.plan.uses.get(value, 0) == 1 and len(expr.whole) <= MAX_INLINE
        self._waiting[value] = op
        is_named = value in self._source_names and not self.plan.is_only_passed_on(value)
        if not once or is_named or value.name in _KEPT:
            self._declare(value)

    def _effect(self, op: Op) -> None:
        """A statement; its result, if any is used, gets a name at once."""
        handler = memory.EFFECTS.get(op.row) or printing.EFFECTS.get(op.row)
        if handler is not None:
            handler(self, op)
            return
        self._name_repeated(op)
        expr = values.emit_elementwise(self, op) if op.results else self._call(op)
        self.result(op, expr)

    def _call(self, op: Op) -> Expr:
        return values.scalar_text(self, op, [], index, [])

    def result(self, op: Op, expr: Expr) -> None:
        """The statement of an expression with an effect."""
        self.flush()
        if not op.results or not self.plan.uses.get(op.result):
            self.w.line(f"{expr.whole};")
            return
        name = self.fresh(op.result)
        self.w.line(f"const {self.lines.type(op.result.type)} {name} = {expr.whole};")
        self.bind(op.result, Expr(name))

    def _call_helper(self, op: Op, name: str) -> None:
        helper = name.format(t=self.lines.scalar(element_of(op.operands[0].type)))
        arguments = ", ".join(self.value(v).whole for v in op.operands)
        self.use_helpers(helper)
        self.result(op, Expr(f"{helper}({arguments})", POSTFIX))

    # Branches

    def _if(self, op: Op, region: Region) -> None:
        condition, opposite = self._condition(op.operands[0])
        self.flush()
        names = tuple(self._reusable(op, k, region) for k in range(len(op.results)))
        targets = tuple(
            name if name is not None and name not in names[:k] else self.fresh(op.results[k])
            for k, name in enumerate(names)
        )
        span = self.w.span
        then, otherwise = (self.w.captured(lambda r=r: self._block(r, targets)) for r in op.regions)
        self.w.span = span
        chosen = choice(targets, then, otherwise) if targets != names else None
        if chosen is not None:
            kind = self.lines.type(op.result.type)
            asked = condition.within(OR + 1)  # a conditional binds to the right
            self.w.line(f"const {kind} {targets[0]} = {asked} ? {chosen};")
            self.bind(op.result, Expr(targets[0]))
            return
        for result, name, old in zip(op.results, targets, names, strict=True):
            if name != old:
                self.w.line(f"{self.lines.type(result.type)} {name};")
        self.w.branch(condition.whole, opposite.whole, then, otherwise)
        self._merged(op.results, targets)

    def _block(self, region: Region, targets: tuple[str, ...]) -> None:
        """The operations of a branch, in which `yield` assigns the targets."""
        self._merges.append(targets)
        for op in region.ops:
            self._op(op, region)
        if region.terminator.row is ops.YIELD:
            self._end_of_body(region)
        self._merges.pop()

    def _condition(self, value: Value) -> tuple[Expr, Expr]:
        """A condition and its negation; comparisons of integers are turned round."""
        is_plain = value in self._waiting
        expr = self.value(value)
        if is_plain and value in self._turned:
            return expr, self._turned[value]
        return expr, Expr(f"!{expr.within(UNARY)}", UNARY)

    def _merged(self, results: tuple[Value, ...], names: tuple[str, ...]) -> None:
        for result, name in zip(results, names, strict=True):
            self.bind(result, Expr(name))
            self._mutable.add(result)

    def _reusable(self, op: Op, k: int, region: Region) -> str | None:
        """The local of a yielded value that nothing reads afterwards: the result can reuse it."""
        for branch in op.regions:
            end = branch.terminator
            if end.row is not ops.YIELD:
                continue
            value = end.operands[k]
            if value in self._mutable and self.plan.ends_with(value, op, region):
                return self._exprs[value].whole
        return None

    def _yield(self, op: Op, region: Region) -> None:
        if self._merges:
            self._assign(self._merges[-1], op.operands)

    def _assign(self, targets: tuple[str, ...], operands: tuple[Value, ...]) -> None:
        """Assign all at once: a local that a later value still needs is saved before it changes."""
        shorter = {t: self.augmented(t, v) for t, v in zip(targets, operands, strict=True)}
        pairs = [
            (target, self.value(v).whole, v.type)
            for target, v in zip(targets, operands, strict=True)
        ]
        whole = {target: text for target, text, _ in pairs}
        pairs = [pair for pair in pairs if pair[0] != pair[1]]
        self._waiting.clear()
        for k, (target, text, _) in enumerate(pairs):
            if any(_mentions(later, target) for _, later, _ in pairs[k + 1 :]):
                pairs[k + 1 :] = [self._saved(pair) for pair in pairs[k + 1 :]]
            short = shorter[target]
            short = shorter[target] if text == whole[target] else ""
            self.w.line(f"{short or f'{target} = {text}'};")

    def augmented(self, target: str, value: Value) -> str:
        """`target += rest` for an expression `target + rest` that waits for this use; else ""."""
        op, expr = self._waiting.get(value), self._exprs[value]
        operator = _AUGMENTED.get(op.row) if op is not None else None
        start = f"{target} {operator} "
        if op is None or not isinstance(value.type, DType) or not expr.whole.startswith(start):
            return ""
        left = self._exprs[op.operands[0]]
        return f"{target} {operator}= {expr.whole[len(start) :]}" if left.whole == target else ""

    def _saved(self, pair: tuple[str, str, Type]) -> tuple[str, str, Type]:
        target, text, t = pair
        name = self.namer.fresh(f"next_{target}")
        self.w.line(f"const {self.lines.type(t)} {name} = {text};")
        return target, name, t

    # Loops

    def _carry(self, op: Op, region: Region, initial: tuple[Value, ...]) -> tuple[str, ...]:
        """A mutable local for each carried value: the initial one's, if nothing else reads it."""
        args = op.regions[0].args[len(op.regions[0].args) - len(initial) :]
        names: list[str] = []
        for arg, value in zip(args, initial, strict=True):
            text = self._exprs[value].whole
            if not self._goes_on(op, region, value) or text in names:
                name = self.fresh(arg)
                self.w.line(f"{self.lines.type(arg.type)} {name} = {self.value(value).whole};")
                text = name
            names.append(text)
            self.bind(arg, Expr(text))
            self._mutable.add(arg)
        return tuple(names)

    def _goes_on(self, op: Op, region: Region, value: Value) -> bool:
        return (
            value in self._mutable
            and self.plan.uses[value] == 1
            and self.plan.ends_with(value, op, region)
        )

    def _for(self, op: Op, region: Region) -> None:
        start, stop, step = op.operands[:3]
        stop_text, step_text = self._fixed(stop), self._fixed(step)
        start_text = self._bound(start)
        names = self._carry(op, region, op.operands[3:])
        self.flush()
        position = op.regions[0].args[0]
        name = self.fresh(position)
        self.bind(position, Expr(name))
        number = self.constants.get(step)
        if op.attrs.get("rising") and number is None:
            more, following = f"{name} < {stop_text}", f"{name} += {step_text}"
        else:
            more, following = self._progress(name, stop_text, step_text, number)
        if op.attrs.get("unroll"):
            self.w.line(self.dialect.unroll)
        kind = self.lines.type(position.type)
        self.w.open(f"for ({kind} {name} = {start_text}; {more}; {following}) {{")
        self._body(op, names)

    def _bound(self, value: Value) -> str:
        number = self.constants.get(value)
        if isinstance(number, int):
            return short_index(number, self.dialect).whole
        return self.value(value).whole

    def _fixed(self, value: Value) -> str:
        """A bound of a loop as a text that does not change: a constant or a name."""
        number = self.constants.get(value)
        if isinstance(number, int):
            return short_index(number, self.dialect).whole
        if value in self._mutable:
            name = self.namer.fresh("bound")
            self.w.line(f"const {self.lines.type(value.type)} {name} = {self.value(value).whole};")
            return name
        return self.name(value)

    @staticmethod
    def _progress(name: str, stop: str, step: str, number: int | float | None) -> tuple[str, str]:
        """The condition and the increment; a step that is not known may count either way."""
        if number is None:
            more = f"{step} > 0 ? {name} < {stop} : {step} < 0 && {name} > {stop}"
            return more, f"{name} += {step}"
        more = f"{name} < {stop}" if number > 0 else f"{name} > {stop}"
        if number in (1, -1):
            return more, f"{'++' if number > 0 else '--'}{name}"
        sign, amount = ("+", int(number)) if number > 0 else ("-", -int(number))
        return more, f"{name} {sign}= {amount}"

    def _loop(self, op: Op, region: Region) -> None:
        names = self._carry(op, region, op.operands)
        self.flush()
        self.w.open("while (true) {")
        self._body(op, names)
        self.w.lift_condition()

    def _body(self, op: Op, names: tuple[str, ...]) -> None:
        self._loops.append(names)
        merges, self._merges = self._merges, []
        (body,) = op.regions
        for inner in body.ops[:-1]:
            self._op(inner, body)
        self._end(body.terminator, body)
        self._end_of_body(body)
        self._merges = merges
        self._loops.pop()
        self.w.close()
        self._merged(op.results, names)

    def _end_of_body(self, body: Region) -> None:
        if self.dialect.end_of_body and any(inner.row is ops.SYNC_CUBE for inner in body.ops):
            self.use_helpers(self.dialect.end_of_body)
            self.w.line(f"{self.dialect.end_of_body};")

    def _end(self, op: Op, region: Region) -> None:
        """The last operation of a body; a `continue` there needs no text."""
        if op.row is ops.CONTINUE:
            self.w.span = op.span or self.w.span
            self._assign(self._loops[-1], op.operands)
        else:
            self._op(op, region)

    def _jump(self, op: Op, region: Region) -> None:
        self._assign(self._loops[-1], op.operands)
        self.w.line("break;" if op.row is ops.BREAK else "continue;")

    def _return(self, op: Op, region: Region) -> None:
        if region is not self.kernel.body:
            self._waiting.clear()
            self.w.line("return;")


def _is_widened(op: Op) -> bool:
    return op.row is ops.CAST and op.operands[0].type is index32 and op.result.type is index


def _is_shared(op: Op) -> bool:
    return op.row is ops.ALLOC and op.attrs["space"] == "shared"


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


_AUGMENTED = {
    ops.ADD: "+",
    ops.SUB: "-",
    ops.MUL: "*",
    ops.DIV: "/",
    ops.SHR: ">>",
}
_NOTHING = (ops.BREAKPOINT, ops.NAME)
_KEPT = ("absolute_pos", "cube_pos")
_TURNED: dict[OpDef, OpDef] = {
    ops.EQ: ops.NE,
    ops.NE: ops.EQ,
    ops.LT: ops.GE,
    ops.LE: ops.GT,
    ops.GT: ops.LE,
    ops.GE: ops.LT,
}
_CONTROL: dict[OpDef, Callable[[Emitter, Op, Region], None]] = {
    ops.IF: Emitter._if,
    ops.FOR: Emitter._for,
    ops.LOOP: Emitter._loop,
    ops.YIELD: Emitter._yield,
    ops.CONTINUE: Emitter._jump,
    ops.BREAK: Emitter._jump,
    ops.RETURN: Emitter._return,
}
