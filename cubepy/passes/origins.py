"""Where values come from: the operation that defines each, and the values that it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value

_JUMPS = (ops.BREAK, ops.CONTINUE)


class Origins:
    """The definitions of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self._owners: dict[Value, Op] = {}
        self._stored: dict[Value, list[Value]] = {}
        for op in kernel.body.walk():
            if op.row is ops.STORE:
                buffer, _, value, *_ = op.operands
                self._stored.setdefault(buffer, []).append(value)
            defined = (*op.results, *(arg for region in op.regions for arg in region.args))
            self._owners |= dict.fromkeys(defined, op)

    def owner(self, value: Value) -> Op | None:
        """The operation that has the value as a result, or as an argument of its region."""
        return self._owners.get(value)

    def stored(self, buffer: Value) -> Sequence[Value]:
        """The values that `store` writes to some element of a memory."""
        return self._stored.get(buffer, ())

    def of(self, value: Value) -> Iterator[Value]:
        """The values that it may be, or is made of; not those that control flow depends on."""
        op = self._owners[value]
        if not op.regions:
            yield from op.operands
            return
        if op.row is ops.IF:
            k = op.results.index(value)
            ends = (region.terminator for region in op.regions)
            yield from (end.operands[k] for end in ends if end.row is ops.YIELD)
            return
        (body,) = op.regions
        carried = body.args[1:] if op.row is ops.FOR else body.args
        if value in body.args and value not in carried:
            return
        k = (op.results if value in op.results else carried).index(value)
        yield op.operands[len(op.operands) - len(carried) + k]
        yield from (jump.operands[k] for jump in jumps(body))


def jumps(region: Region) -> Iterator[Op]:
    """The jumps of the innermost loop around a region."""
    for op in region.ops:
        if op.row in _JUMPS:
            yield op
        elif op.row is ops.IF:
            for inner in op.regions:
                yield from jumps(inner)
