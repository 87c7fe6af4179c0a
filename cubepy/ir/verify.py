"""The verifier. If `verify` passes, a compiler returns or raises `UnsupportedError`; nothing else.

Rules, each a method below; all failures are collected:

1. Definitions: a value is defined once, before its uses, in the same or an enclosing region.
2. Typing: operand types satisfy the row's rule, and results have the types that it gives.
3. Attributes: only those that the row lists.
4. Regions: as many as the row names; each ends with a terminator, and has no other.
5. Terminators: `yield` ends regions of an `if` (of `units` and `planes`, without values);
   `continue` and `break` lie in a loop; what they carry has the types of the results (of the
   carried values).
6. Arguments: the body of a loop takes the position (of a `for`) and the carried values; the
   regions of an `if` take none.
"""

from __future__ import annotations

from collections.abc import Iterable

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.opdef import TypingError
from cubepy.ir.types import Type
from cubepy.span import Span


class InvalidIR(Exception):
    """The IR breaks rules of the verifier: a defect of who made it. `span`: the first place."""

    def __init__(self, where: str, failures: list[str], span: Span | None) -> None:
        super().__init__(f"{where}:\n" + "\n".join(failures[:20]))
        self.failures = failures
        self.span = span


def verify(kernel: Kernel, after: str = "", typed: set[Op] | None = None) -> Kernel:
    """`kernel`, if it keeps all rules; else `InvalidIR` with every failure.

    `typed` holds operations that kept rules 2 and 3 before, and grows: operations are frozen, so
    that a pipeline need not type again what a pass left as it was.
    """
    verifier = _Verifier(set() if typed is None else typed)
    verifier.define(p.value for p in kernel.params)
    verifier.region(kernel.body, None, None)
    if verifier.failures:
        where = f" after {after}" if after else ""
        raise InvalidIR(f"{kernel.name}{where}", verifier.failures, verifier.place)
    return kernel


class _Verifier:
    def __init__(self, typed: set[Op]) -> None:
        self.failures: list[str] = []
        self.place: Span | None = None
        self._defined: set[Value] = set()
        self._seen: set[Value] = set()
        self._typed = typed

    def define(self, values: Iterable[Value]) -> None:
        for value in values:
            if value in self._seen:
                self.failures.append(f"%{value.name} is defined twice")
            self._seen.add(value)
            self._defined.add(value)

    def region(self, region: Region, parent: Op | None, loop: Op | None) -> None:
        added = list(region.args)
        self.define(region.args)
        for position, op in enumerate(region.ops):
            self._op(op, loop)
            if op.results:
                self.define(op.results)
                added += op.results
            if op.row.is_terminator:
                self._terminator(op, parent, loop)
            if op.row.is_terminator != (position == len(region.ops) - 1):
                self._complain(op, "a terminator must be the last operation of a region")
        if not region.ops:
            self.failures.append("a region has no terminator")
        self._defined.difference_update(added)

    def _op(self, op: Op, loop: Op | None) -> None:
        if not self._defined.issuperset(op.operands):
            for value in op.operands:
                if value not in self._defined:
                    self._complain(op, f"uses %{value.name or '?'} before its definition")
        if op not in self._typed:
            self._typing(op)
            self._typed.add(op)
        if op.regions or op.row.regions:
            self._regions(op, loop)

    def _regions(self, op: Op, loop: Op | None) -> None:
        if len(op.regions) != len(op.row.regions):
            self._complain(op, f"has {len(op.regions)} regions, not {len(op.row.regions)}")
            return
        inner = loop if op.row is ops.IF else op
        if inner is op:
            self._loop_arguments(op)
        elif any(region.args for region in op.regions):
            self._complain(op, "its regions take no arguments")
        for region in op.regions:
            self.region(region, op, inner)

    def _typing(self, op: Op) -> None:
        for name in op.attrs:
            if name not in op.row.attrs:
                self._complain(op, f"has an attribute {name}, which is not in the table")
        try:
            expected = op.row.rule([v.type for v in op.operands], op.attrs)
        except TypingError as error:
            self._complain(op, str(error))
            return
        if op.row is not ops.IF and expected != _types(op.results):
            self._complain(op, f"gives {expected}, but its results are {_types(op.results)}")

    def _loop_arguments(self, op: Op) -> None:
        position = (op.operands[0].type,) if op.row is ops.FOR else ()
        if _types(op.regions[0].args) != (*position, *_types(op.results)):
            self._complain(op, "the body's arguments do not match the carried values")

    def _terminator(self, op: Op, parent: Op | None, loop: Op | None) -> None:
        if op.row is ops.YIELD:
            yields = parent is not None and parent.row in (ops.IF, ops.UNITS, ops.PLANES)
            self._carries(op, parent if yields else None, "an if")
        elif op.row in (ops.BREAK, ops.CONTINUE):
            self._carries(op, loop, "a loop")

    def _carries(self, op: Op, target: Op | None, kind: str) -> None:
        if target is None:
            self._complain(op, f"is not inside {kind}")
        elif _types(op.operands) != _types(target.results):
            self._complain(op, f"carries {_types(op.operands)}, not {_types(target.results)}")

    def _complain(self, op: Op, message: str) -> None:
        self.place = self.place or op.span
        self.failures.append(f"{op.row.name}: {message}" + (f" ({op.span})" if op.span else ""))


def _types(values: tuple[Value, ...]) -> tuple[Type, ...]:
    return tuple(v.type for v in values)
