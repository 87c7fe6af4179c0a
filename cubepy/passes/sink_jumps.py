"""Jumps that only some units take, behind the last barrier on their way, become plain branches.

`if c: continue` with no barrier between it and the end of the loop is the same as an `else` around
what follows; an `else` with a barrier beside a branch that returns is the same as what follows it.
Then control flow around barriers is uniform, which is all that targets can take.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.passes.emulate_planes import PLANE_OPS
from cubepy.passes.rewrite import copy_op
from cubepy.passes.uniformity import Uniform

_LOOPS = (ops.FOR, ops.LOOP)
_BARRIERS = (ops.SYNC_CUBE, ops.SYNC_PLANE, ops.SYNC_UNITS)


def sink_jumps(kernel: Kernel) -> Kernel:
    """The kernel without jumps of some units that a later barrier does not concern."""
    barriers = {*_BARRIERS, *PLANE_OPS}
    rows = {op.row for op in kernel.body.walk()}
    if prod(kernel.cube_dim) == 1 or not rows & barriers:
        return kernel
    if not any(_jumps(op) for op in kernel.body.walk() if op.row is ops.IF):
        return kernel
    body = _Sinker(Uniform(kernel)).region(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _jumps(op: Op) -> bool:
    ends = {region.terminator.row for region in op.regions}
    return bool(ends & {ops.CONTINUE, ops.RETURN})


def _waits(body: list[Op] | tuple[Op, ...]) -> bool:
    """Whether units wait for each other somewhere in `body`."""
    return any(
        op.row in _BARRIERS
        or op.row in PLANE_OPS
        or any(_waits(region.ops) for region in op.regions)
        for op in body
    )


def _leaves(body: list[Op] | tuple[Op, ...], row: ops.OpDef) -> bool:
    """Whether `body` holds a jump of the loop around it."""
    return any(
        op.row is row or (op.row is ops.IF and any(_leaves(r.ops, row) for r in op.regions))
        for op in body
    )


class _Sinker:
    def __init__(self, uniform: Uniform) -> None:
        self._uniform = uniform

    def region(self, region: Region) -> Region:
        """A region of the kernel; the same object where nothing changes."""
        found = self._hoisted(list(region.ops))
        found = [self._op(op) for op in found]
        same = len(found) == len(region.ops) and all(
            a is b for a, b in zip(found, region.ops, strict=True)
        )
        return region if same else Region(region.args, tuple(found))

    def _op(self, op: Op) -> Op:
        if not op.regions or not _waits([op]):
            return op
        regions = tuple(self.region(r) for r in op.regions)
        if op.row in _LOOPS and self._diverges(regions[0].ops):
            body = self._closed(list(regions[0].ops), ops.CONTINUE)
            regions = (Region(regions[0].args, tuple(body)),)
        if all(a is b for a, b in zip(regions, op.regions, strict=True)):
            return op
        return Op(op.row, op.operands, op.attrs, op.results, regions, op.span)

    def _diverges(self, body: tuple[Op, ...], inside: bool = False) -> bool:
        """Whether some units alone may continue the loop around `body`."""
        for op in body:
            if op.row is ops.CONTINUE and inside:
                return True
            if op.row is ops.IF:
                varying = inside or self._uniform.is_varying(op.operands[0])
                if any(self._diverges(r.ops, varying) for r in op.regions):
                    return True
        return False

    def _closed(self, body: list[Op], end: ops.OpDef) -> list[Op]:
        """A way to the end of a loop's body, its jumps made into values of `end`."""
        for k, op in enumerate(body):
            rest = body[k + 1 :]
            if op.row is not ops.IF or not _leaves([op], ops.CONTINUE):
                continue
            if _waits(rest) or _leaves(rest, ops.BREAK):
                continue
            ways = [self._closed(self._way(op, r, rest), ops.YIELD) for r in op.regions]
            carried = next((w[-1].operands for w in ways if w[-1].row is ops.YIELD), None)
            if carried is None:
                continue
            results = tuple(Value(v.type, v.name) for v in carried)
            regions = tuple(Region((), tuple(way)) for way in ways)
            branch = Op(ops.IF, op.operands, op.attrs, results, regions, op.span)
            return [*body[:k], branch, Op(end, results, {}, (), (), body[-1].span)]
        last = body[-1]
        if last.row is ops.CONTINUE:
            return [*body[:-1], Op(end, last.operands, {}, (), (), last.span)]
        return body

    @staticmethod
    def _way(op: Op, region: Region, rest: list[Op]) -> list[Op]:
        """What a branch does until the end of the loop's body: its own copy of what follows it."""
        last = region.ops[-1]
        if last.row is not ops.YIELD:
            return list(region.ops)
        copies = dict(zip(op.results, last.operands, strict=True))
        return [*region.ops[:-1], *(copy_op(o, copies) for o in rest)]

    def _hoisted(self, body: list[Op]) -> list[Op]:
        """Branches beside one that returns come after it where they wait."""
        for k, op in enumerate(body):
            if op.row is not ops.IF or not self._uniform.is_varying(op.operands[0]):
                continue
            for region, other in (op.regions, reversed(op.regions)):
                if region.terminator.row is not ops.RETURN or not _waits(other.ops):
                    continue
                if _waits(region.ops):
                    continue
                leave, pass_ = region, Region((), (Op(ops.YIELD, span=op.span),))
                regions = (leave, pass_) if region is op.regions[0] else (pass_, leave)
                branch = Op(ops.IF, op.operands, op.attrs, (), regions, op.span)
                if other.terminator.row is not ops.YIELD:
                    return [*body[:k], branch, *self._hoisted(list(other.ops))]
                rest = body[k + 1 :]
                if op.results:
                    copies = dict(zip(op.results, other.terminator.operands, strict=True))
                    rest = [copy_op(o, copies) for o in rest]
                return [*body[:k], branch, *self._hoisted([*other.ops[:-1], *rest])]
        return body
