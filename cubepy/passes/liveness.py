"""Which locals are read later: a backward walk over structured control flow, before SSA."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.record import dataclass

Locals = Set[Value]
_NONE: Locals = frozenset()


@dataclass(slots=True)
class Liveness:
    """What SSA construction needs to know of each `if`, `for` and `loop` of a kernel."""

    assigned: dict[Op, dict[Value, None]] = field(default_factory=dict[Op, dict[Value, None]])
    """The locals that are set inside, in the order of their first assignment."""
    wanted: dict[Op, Locals] = field(default_factory=dict[Op, Locals])
    """The locals whose value is read after the operation or, in a loop, by a later iteration."""

    def merged(self, op: Op) -> tuple[Value, ...]:
        """The locals for which `op` needs a result (and a loop carries a value)."""
        wanted = self.wanted.get(op, _NONE)  # absent in code that is never reached
        return tuple([local for local in self.assigned[op] if local in wanted])


def find_liveness(kernel: Kernel) -> Liveness:
    """The liveness of the locals of a kernel."""
    liveness = Liveness()
    _assigned(kernel.body, liveness)
    _Walk(liveness).region(kernel.body, _NONE)
    return liveness


def _assigned(region: Region, liveness: Liveness) -> dict[Value, None]:
    found: dict[Value, None] = {}
    for op in region.ops:
        if op.row is ops.SET:
            found[op.operands[0]] = None
        elif op.regions:
            inner = liveness.assigned[op] = {}
            for nested in op.regions:
                inner |= _assigned(nested, liveness)
            found |= inner
    return found


class _Walk:
    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._loops: list[tuple[Locals, Locals]] = []
        """Of each open loop: what is live after it, and at the start of an iteration."""
        self._starts: dict[Op, Locals] = {}
        """What is live at the start of an iteration, as far as known."""

    def region(self, region: Region, after: Locals) -> set[Value]:
        """What is live at the start of a region; `after` is live behind a `yield`."""
        live: set[Value] = set()
        for op in reversed(region.ops):
            row = op.row
            if row is ops.GET:
                live.add(op.operands[0])
            elif row is ops.SET:
                live.discard(op.operands[0])
            elif row is ops.VAR:
                live.discard(op.results[0])
            elif row.is_terminator:
                live = self._jump(op, after)
            elif row is ops.IF:
                live = self._branch(op, live)
            elif op.regions:
                live = self._loop(op, live)
        return live

    def _jump(self, op: Op, after: Locals) -> set[Value]:
        if op.row is ops.YIELD:
            return set(after)
        if op.row is ops.BREAK:
            return set(self._loops[-1][0])
        if op.row is ops.CONTINUE:
            return set(self._loops[-1][1])
        return set()

    def _branch(self, op: Op, after: set[Value]) -> set[Value]:
        self._liveness.wanted[op] = frozenset(after)
        live: set[Value] = set()
        for region in op.regions:
            live |= self.region(region, after)
        return live

    def _loop(self, op: Op, after: set[Value]) -> set[Value]:
        """Liveness flows around the loop once, so the second walk finds the fixed point.

        A later walk of an outer loop begins with what was found, which can only grow: else loops
        in loops would be walked two to the power of their depth times.
        """
        before = self._starts.get(op, _NONE)
        while True:
            self._loops.append((after, before))
            start = self.region(op.regions[0], _NONE)
            self._loops.pop()
            if op.row is ops.FOR:
                start |= after  # it may run no iteration
            if start == before:
                break
            before = start
        self._starts[op] = before
        self._liveness.wanted[op] = before | after
        return start
