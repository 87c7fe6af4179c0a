"""Mutable locals become SSA values: loops carry them, and an `if` yields them.

`var`, `get` and `set` disappear. Only a local that is assigned inside a loop or `if`, and read
afterwards or by a later iteration, is carried. Reading a local that has no value gives zero.
"""

from __future__ import annotations

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.types import Ref
from cubepy.passes.liveness import Liveness, find_liveness
from cubepy.passes.rewrite import Rewriter


def construct_ssa(kernel: Kernel) -> Kernel:
    """The kernel without mutable locals."""
    return _Construct(find_liveness(kernel)).run(kernel)


class _Construct(Rewriter):
    def __init__(self, liveness: Liveness) -> None:
        super().__init__()
        self._liveness = liveness
        self._present: dict[Value, Value] = {}
        """The present value of each local that has one."""
        self._yielded: list[tuple[Value, ...]] = []
        self._carried: list[tuple[Value, ...]] = []
        """The locals that the open `if`s and loops merge."""

    def visit(self, op: Op) -> None:
        row = op.row
        if row is ops.GET:
            self.replaced[op.results[0]] = self._read(op.operands[0])
        elif row is ops.SET:
            self._present[op.operands[0]] = self.value(op.operands[1])
        elif row is ops.VAR:
            self._present.pop(op.results[0], None)
        elif row is ops.IF:
            self._branch(op)
        elif op.regions:
            self._loop(op)
        elif row is ops.YIELD:
            self._jump(op, self._yielded[-1])
        elif row in (ops.BREAK, ops.CONTINUE):
            self._jump(op, self._carried[-1])
        else:
            self.out.append(self.rename(op))

    def _read(self, local: Value) -> Value:
        value = self._present.get(local)
        if value is None:
            assert isinstance(local.type, Ref)
            value = self._present[local] = self.emit_const(local.type.of, 0)
        return value

    def _jump(self, op: Op, merged: tuple[Value, ...]) -> None:
        operands = self.values(op.operands) + tuple([self._read(local) for local in merged])
        self.out.append(op if operands == op.operands else _with(op, operands, op.regions, ()))

    def _branch(self, op: Op) -> None:
        merged = self._liveness.merged(op)
        self._yielded.append(merged)
        regions = tuple([self._scoped(region) for region in op.regions])
        self._yielded.pop()
        self._finish(op, self.values(op.operands), regions, merged)

    def _loop(self, op: Op) -> None:
        merged = self._liveness.merged(op)
        operands = self.values(op.operands) + tuple([self._read(local) for local in merged])
        starts = _fresh(merged)
        self._carried.append(merged)
        body = self._scoped(op.regions[0], dict(zip(merged, starts, strict=True)))
        self._carried.pop()
        if starts:
            body = Region(body.args + starts, body.ops)
        self._finish(op, operands, (body,), merged)

    def _scoped(self, region: Region, starts: dict[Value, Value] | None = None) -> Region:
        """The rewritten region; assignments inside it are forgotten afterwards."""
        outer = self._present
        self._present = outer | (starts or {})
        built = self.region(region)
        self._present = outer
        return built

    def _finish(
        self,
        op: Op,
        operands: tuple[Value, ...],
        regions: tuple[Region, ...],
        merged: tuple[Value, ...],
    ) -> None:
        results = _fresh(merged)
        self._present.update(zip(merged, results, strict=True))
        self.out.append(_with(op, operands, regions, results))


def _fresh(merged: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(
        [Value(local.type.of, local.name) for local in merged if isinstance(local.type, Ref)]
    )


def _with(
    op: Op, operands: tuple[Value, ...], regions: tuple[Region, ...], results: tuple[Value, ...]
) -> Op:
    return Op(op.row, operands, op.attrs, op.results + results, regions, op.span)
