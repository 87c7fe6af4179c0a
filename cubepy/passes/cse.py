"""Shares equal computations: a pure operation that was computed before is not computed again."""

from __future__ import annotations

from collections.abc import Mapping

from cubepy.ir.core import Attr, Kernel, Op, Region, Value
from cubepy.passes.rewrite import Rewriter


def cse(kernel: Kernel) -> Kernel:
    """The kernel in which each pure operation is computed once where one dominates the other."""
    return _Cse().run(kernel)


class _Cse(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._found: dict[object, Op] = {}
        """What is computed in this and the enclosing regions, before here."""

    def visit(self, op: Op) -> None:
        op = self.renew(op)
        if op.row.is_pure:
            key = _key(op)
            earlier = self._found.setdefault(key, op)
            if earlier is not op:
                self.replaced.update(zip(op.results, earlier.results, strict=True))
                return
        self.out.append(op)

    def region(self, region: Region) -> Region:
        outer = self._found
        self._found = outer.copy()
        built = super().region(region)
        self._found = outer
        return built


def _key(op: Op) -> object:
    operands: tuple[Value, ...] = op.operands
    if op.row.is_commutative:
        operands = tuple(sorted(operands, key=id))
    return (op.row, operands, _attrs(op.attrs)) if op.attrs else (op.row, operands)


def _attrs(attrs: Mapping[str, Attr]) -> object:
    return tuple([(name, _exactly(attrs[name])) for name in sorted(attrs)])


def _exactly(attr: Attr) -> object:
    """An equal key for equal attributes only: 0.0, -0.0 and 0 differ, and NaN equals itself."""
    return (type(attr), repr(attr)) if isinstance(attr, int | float | tuple) else attr
