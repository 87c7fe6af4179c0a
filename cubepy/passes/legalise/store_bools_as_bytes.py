"""Buffers of bools become buffers of bytes, for targets without bools in memory."""

from __future__ import annotations

from dataclasses import replace

from cubepy.ir import ops
from cubepy.ir.core import Attr, Kernel, Op, Param, Value
from cubepy.ir.types import Buffer, DType, bool_, u8, with_element
from cubepy.passes.rewrite import Rewriter


def store_bools_as_bytes(kernel: Kernel) -> Kernel:
    """The kernel with bytes in memory: any nonzero byte is true, and 1 is written."""
    rewriter = _Bytes()
    params = tuple(rewriter.param(p) for p in kernel.params)
    return replace(rewriter.run(kernel), params=params)


class _Bytes(Rewriter):
    def param(self, param: Param) -> Param:
        """The parameter of a buffer of bools, as one of bytes."""
        t = param.value.type
        if not isinstance(t, Buffer) or t.element is not bool_:
            return param
        value = Value(Buffer(u8, t.space), param.value.name)
        self.replaced[param.value] = value
        return replace(param, value=value)

    def visit(self, op: Op) -> None:
        if op.row is ops.ALLOC and op.attrs["type"] is bool_:
            attrs: dict[str, Attr] = {**op.attrs, "type": u8}
            self.replaced[op.result] = self.emit(op.row, (), attrs, op.span, op.result.name)
        elif op.operands and self._is_bytes(op.operands[0]) and len(op.operands) > 1:
            self._access(op)
        else:
            self.out.append(self.renew(op))

    @staticmethod
    def _is_bytes(value: Value) -> bool:
        return isinstance(value.type, Buffer) and value.type.element is bool_

    def _access(self, op: Op) -> None:
        """The values of an access as bytes; masks stay bools."""
        operands = list(self.values(op.operands))
        data = [2] if op.row is ops.STORE else [3] if op.row is ops.LOAD else [2, 3]
        for k in data:
            if k < len(operands):
                operands[k] = self._cast(op, operands[k], u8)
        attrs = dict(op.attrs)
        if op.row is ops.LOAD:
            attrs["type"] = with_element(op.result.type, u8)
        results = tuple(Value(with_element(v.type, u8), v.name) for v in op.results)
        if op.row is ops.MISALIGNMENT:
            results = op.results
        self.out.append(Op(op.row, tuple(operands), attrs, results, (), op.span))
        for old, new in zip(op.results, results, strict=True):
            if new is not old:
                self.replaced[old] = self._cast(op, new, bool_)

    def _cast(self, op: Op, value: Value, dtype: DType) -> Value:
        t = with_element(value.type, dtype)
        return self.emit(ops.CAST, (value,), {"type": t}, op.span)
