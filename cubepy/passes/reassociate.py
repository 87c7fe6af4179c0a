"""Minima and maxima of several values: what an iteration waits for goes last.

Each iteration of `left = cost + min(min(left, up), diagonal)` needs the `left` before it, so that a
loop takes as long as this chain. The minimum of the others does not wait, and is taken first. The
least of some numbers is the same in any order, with NaN and zeros too.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.passes.rewrite import Rewriter

_EXTREMES = (ops.MIN, ops.MAX)
_LOOPS = (ops.FOR, ops.LOOP)


def reassociate(kernel: Kernel) -> Kernel:
    """The kernel in which extremes take operands that a loop carries to themselves last."""
    made = {op.result: op for op in kernel.body.walk() if op.row in _EXTREMES}
    if not any(v in made and made[v].row is op.row for op in made.values() for v in op.operands):
        return kernel
    order = _Order(Counter(v for op in kernel.body.walk() for v in op.operands))
    for op in kernel.body.walk():
        if op.row in _LOOPS:
            order.find(op.regions[0], _late(op))
    return _Reassociation(order).run(kernel) if order.leaves else kernel


def _late(loop: Op) -> set[Value]:
    """The values of a body that an iteration makes of what the one before made of them."""
    (body,) = loop.regions
    carried = body.args[loop.row is ops.FOR :]
    if body.terminator.row is not ops.CONTINUE:
        return set()
    behind = {arg: 1 << k for k, arg in enumerate(carried)}
    _follow(body, behind)
    following = [behind.get(v, 0) for v in body.terminator.operands]
    for _ in carried:  # through other carried values, which are fewer than turns
        following = [mask | _joined(mask, following) for mask in following]
    recurrent = sum(1 << k for k, mask in enumerate(following) if mask >> k & 1)
    return {v for v, mask in behind.items() if mask & recurrent}


def _joined(mask: int, following: list[int]) -> int:
    found = 0
    for k, more in enumerate(following):
        found |= more if mask >> k & 1 else 0
    return found


def _follow(region: Region, behind: dict[Value, int]) -> int:
    """Note for each value the carried ones that it is made of; gives those of all operands."""
    read = 0
    for op in region.ops:
        mask = 0
        for v in op.operands:
            mask |= behind.get(v, 0)
        for inner in op.regions:
            mask |= _follow(inner, behind)
        read |= mask
        if mask:
            behind.update(dict.fromkeys(op.results, mask))
    return read


class _Order:
    """Which extremes are made anew, and of what."""

    def __init__(self, uses: Counter[Value]) -> None:
        self._uses = uses
        self.leaves: dict[Op, list[Value]] = {}
        """Of the last extreme of a tree: the operands of all, in their new order."""
        self.inner: set[Op] = set()
        """The others of such trees, which are no longer needed."""

    def find(self, region: Region, late: set[Value]) -> None:
        """Look at the trees of a region and of its branches, but not of loops in it."""
        if not late:
            return
        trees: dict[Value, _Tree] = {}
        for op in region.ops:
            if op.row in _EXTREMES:
                trees[op.result] = self._tree(op, trees)
            elif op.row not in _LOOPS:
                for inner in op.regions:
                    self.find(inner, late)
        for tree in trees.values():
            ordered = sorted(tree.leaves, key=late.__contains__)
            if ordered != tree.leaves and len(tree.ops) > 1:
                self.leaves[tree.ops[-1]] = ordered
                self.inner.update(tree.ops[:-1])

    def _tree(self, op: Op, trees: dict[Value, _Tree]) -> _Tree:
        """An extreme with those that only it reads, which are trees no longer. Of two such operands
        the second one is left as it is."""
        first, *others = sorted(op.operands, key=lambda v: v not in trees)
        below = trees.get(first)
        if below is None or below.ops[-1].row is not op.row or self._uses[first] != 1:
            return _Tree([op], list(op.operands))
        del trees[first]
        return _Tree([*below.ops, op], [*below.leaves, *others])


class _Tree(NamedTuple):
    """Extremes that each but the first take the one before, and the other operands."""

    ops: list[Op]
    leaves: list[Value]


class _Reassociation(Rewriter):
    def __init__(self, order: _Order) -> None:
        super().__init__()
        self._order = order

    def visit(self, op: Op) -> None:
        if op in self._order.inner:
            return
        leaves = self._order.leaves.get(op)
        if leaves is None:
            self.out.append(self.renew(op))
            return
        first, *middle, last = map(self.value, leaves)
        for v in middle:
            first = self.emit(op.row, (first, v), {}, op.span)
        self.out.append(Op(op.row, (first, last), op.attrs, op.results, (), op.span))
