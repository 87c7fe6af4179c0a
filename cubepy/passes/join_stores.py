"""Branches that both end by storing to one place store there once, behind the branch.

As in `if x > t: out[i] = 1` with `else: out[i] = 0`, where lanes would store twice, each time some
of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.ir.opdef import is_speculatable
from cubepy.passes.rewrite import Rewriter, copy_op


def join_stores(kernel: Kernel) -> Kernel:
    """The kernel with such stores behind their branches."""
    return _Join(kernel).run(kernel)


class _Join(Rewriter):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self._definitions = {v: op for op in kernel.body.walk() for v in op.results}

    def visit(self, op: Op) -> None:
        made, stores = self.renew(op), list[Op]()
        while made.row is ops.IF:
            pair = self._pair(made)
            if pair is None:
                break
            made, store = self._joined(made, pair)
            stores.insert(0, store)
        self.out += [made, *stores]

    def _pair(self, op: Op) -> tuple[Op, Op] | None:
        """The last stores of both branches, where they are to one place."""
        a, b = (_last_store(region.ops) for region in op.regions)
        if a is None or b is None or a.operands[0] is not b.operands[0]:
            return None
        inside = [{v for o in region.walk() for v in o.results} for region in op.regions]
        is_one_place = self._is_same(a.operands[1], b.operands[1], inside)
        same_types = a.operands[2].type == b.operands[2].type
        return (a, b) if is_one_place and same_types and _hints(a) == _hints(b) else None

    def _is_same(self, x: Value, y: Value, inside: Sequence[set[Value]]) -> bool:
        """Whether places of both branches are computed alike of what is known before."""
        if x is y:
            return x not in inside[0] and x not in inside[1]
        a, b = self._definitions.get(x), self._definitions.get(y)
        if a is None or b is None or a.row is not b.row or dict(a.attrs) != dict(b.attrs):
            return False
        if not is_speculatable(a) or len(a.operands) != len(b.operands):
            return False
        pairs = zip(a.operands, b.operands, strict=True)
        return all(self._is_same(v, w, inside) for v, w in pairs)

    def _joined(self, op: Op, pair: tuple[Op, Op]) -> tuple[Op, Op]:
        """The branch without its last stores, and the store behind it."""
        first = pair[0]
        place = self._before(
            first.operands[1], {v for o in op.regions[0].walk() for v in o.results}
        )
        result = Value(first.operands[2].type, first.operands[2].name)
        sides = [_without(r, s) for r, s in zip(op.regions, pair, strict=True)]
        made = replace(op, results=(*op.results, result), regions=tuple(sides))
        self._definitions[result] = made
        attrs = {**_hints(first), **_alignment(*pair)}
        return made, Op(first.row, (first.operands[0], place, result), attrs, (), (), first.span)

    def _before(self, value: Value, inside: set[Value]) -> Value:
        """A value of a branch, computed before it."""
        if value not in inside:
            return value
        op = self._definitions[value]
        copies = {v: self._before(v, inside) for v in op.operands}
        made = copy_op(op, copies)
        self.out.append(made)
        self._definitions[made.result] = made
        return made.result


def _last_store(body: Sequence[Op]) -> Op | None:
    """A plain store that only pure operations come after; None for other ends of a branch."""
    if body[-1].row is not ops.YIELD:
        return None
    for op in reversed(body[:-1]):
        if op.row is ops.STORE and len(op.operands) == 3:
            return op
        if not op.row.is_pure:
            return None
    return None


def _without(region: Region, store: Op) -> Region:
    """A branch that yields what it stored."""
    kept = [op for op in region.ops[:-1] if op is not store]
    end = region.terminator
    last = replace(end, operands=(*end.operands, store.operands[2]))
    return Region(region.args, (*kept, last))


def _hints(store: Op) -> dict[str, Attr]:
    return {name: value for name, value in store.attrs.items() if name != "align"}


def _alignment(a: Op, b: Op) -> dict[str, Attr]:
    """What both stores are aligned to."""
    found = [op.attrs.get("align") for op in (a, b)]
    return {"align": min(n for n in found if isinstance(n, int))} if None not in found else {}
