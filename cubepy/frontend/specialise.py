"""From a function and a signature to a kernel: `specialise`.

Traces the function until nothing new is learned (see `tracer.Restart`), then closes the kernel.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from cubepy.errors import Error, fail
from cubepy.frontend.signature import (
    Arg,
    ComptimeArg,
    ScalarArg,
    Signature,
    StructArg,
    TensorArg,
    TensorMapArg,
    comptime_value,
)
from cubepy.frontend.statements import Flow, execute_block
from cubepy.frontend.tracer import Facts, Frame, Learned, Restart, Tracer, bind
from cubepy.frontend.values import (
    Index,
    Record,
    TensorMapRef,
    TensorRef,
    is_comptime,
    is_tuple_type,
    make_tuple,
)
from cubepy.ir import ops
from cubepy.ir.core import Kernel, Param, Region, Value
from cubepy.ir.types import Buffer, Space, Type, index
from cubepy.lang.function import Captures, read_source
from cubepy.targets import Target

MAX_RESTARTS = 200


def specialise(function: Any, signature: Signature, target: Target) -> tuple[Kernel, Facts]:
    """The kernel of a plain Python function for one signature, with mutable locals still in it.

    Raises `CompileError` at the user's line.
    """
    learned = Learned()
    with _deep_calls():
        for _ in range(MAX_RESTARTS):
            attempt = _Specialisation(function, signature, target, learned)
            try:
                kernel = attempt.kernel()
            except Restart:
                continue
            except Error:
                raise
            except Exception as error:
                raise attempt.defect(error) from error
            if learned.settled or not attempt.has_weak_locals:
                return kernel
            learned.settled = True
    raise fail("E119", None, error=f"a trace that does not come to rest ({MAX_RESTARTS} tries)")


_PYTHON_FRAMES = 20_000
"""Room for the deepest chain of inlined calls; each takes some dozens of Python's frames."""
_lock = Lock()
_deep = 0
_shallow = 0


@contextmanager
def _deep_calls() -> Generator[None]:
    """Raise Python's recursion limit while any thread traces."""
    global _deep, _shallow
    with _lock:
        if _deep == 0:
            _shallow = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_shallow, _PYTHON_FRAMES))
        _deep += 1
    try:
        yield
    finally:
        with _lock:
            _deep -= 1
            if _deep == 0:
                sys.setrecursionlimit(_shallow)


class _Specialisation:
    def __init__(
        self, function: Any, signature: Signature, target: Target, learned: Learned
    ) -> None:
        self._function = function
        self._signature = signature
        self._tracer = Tracer(
            target, signature.cube_dim, signature.plane_dim, learned, signature.checked
        )
        self._params: list[Param] = []

    @property
    def has_weak_locals(self) -> bool:
        """Whether a local was read that has no type but that of its literals."""
        return bool(self._tracer.weak)

    def defect(self, error: Exception) -> Error:
        """E119 at the line that was traced when the compiler itself failed."""
        return self._tracer.error("E119", error=f"{type(error).__name__}: {error}"[:200])

    def kernel(self) -> tuple[Kernel, Facts]:
        tracer, source = self._tracer, read_source(self._function.__code__)
        frame = Frame(tracer, source, Captures(self._function), (), None)
        frame.is_kernel = True
        tracer.b.span = frame.span(source.node)
        for name, arg in self._signature.args:
            bind(frame, name, self._argument(name, arg))
        flow = execute_block(frame, source.body)
        if flow is not Flow.DEAD or not tracer.b.is_terminated:
            tracer.close(ops.RETURN)
        body = Region((), (*tracer.locals, *tracer.b.ops))
        facts = tracer.facts
        written = frozenset(p.argument for p in self._params if p.argument in facts.written)
        name = _identifier(source.name)
        return Kernel(
            name,
            tuple(self._params),
            body,
            self._signature.cube_dim,
            self._signature.plane_dim,
            written,
            self._signature.noalias,
            self._signature.cluster,
        ), facts

    def _param(self, t: Type, argument: str, role: str, axis: int = 0) -> Value:
        suffix = "" if role in ("data", "value", "tensor_map") else f"_{role}{axis}"
        value = Value(t, argument.replace(".", "_") + suffix)
        self._params.append(Param(value, argument, role, axis))
        return value

    def _argument(self, name: str, arg: Arg) -> Any:
        if isinstance(arg, ComptimeArg):
            return comptime_value(arg.value)
        if isinstance(arg, ScalarArg):
            return self._param(arg.dtype, name, "value")
        if isinstance(arg, StructArg):
            return self._struct(name, arg)
        if isinstance(arg, TensorMapArg):
            value = self._param(Buffer(arg.dtype, Space.TENSOR_MAP), name, "tensor_map")
            return TensorMapRef(name, value, arg.dtype, arg.box, arg.swizzle)
        return self._tensor(name, arg)

    def _struct(self, name: str, arg: StructArg) -> Any:
        items = [
            self._argument(f"{name}.{n}", a) for n, a in zip(arg.names, arg.items, strict=True)
        ]
        if is_tuple_type(arg.cls):
            return make_tuple(arg.cls, items)
        if all(is_comptime(i) for i in items):
            return arg.cls(**dict(zip(arg.names, items, strict=True)))
        return Record(arg.cls, dict(zip(arg.names, items, strict=True)))

    def _tensor(self, name: str, arg: TensorArg) -> TensorRef:
        buffer = self._param(Buffer(arg.dtype), name, "data")
        shape = tuple(self._extent(name, arg, axis) for axis in range(arg.rank))
        strides = self._strides(name, arg, shape)
        axis = arg.axis if arg.axis is not None else max(arg.rank - 1, 0)
        return TensorRef(
            name,
            buffer,
            arg.dtype,
            0,
            shape,
            strides,
            arg.is_line,
            arg.width,
            axis,
            arg.is_linear,
            arg.is_divisible,
            arg.alignment,
            is_argument=True,
        )

    def _extent(self, name: str, arg: TensorArg, axis: int) -> Index:
        known = arg.shape[axis] if arg.shape is not None else None
        return known if known is not None else self._param(index, name, "shape", axis)

    def _strides(self, name: str, arg: TensorArg, shape: tuple[Index, ...]) -> tuple[Index, ...]:
        strides: list[Index] = []
        for axis in range(arg.rank):
            if axis == arg.axis:
                strides.append(1)
            elif arg.is_linear:
                strides.append(self._linear_stride(shape, axis))
            else:
                strides.append(self._param(index, name, "stride", axis))
        return tuple(strides)

    def _linear_stride(self, shape: tuple[Index, ...], axis: int) -> Index:
        inner = shape[axis + 1 :]
        if all(isinstance(n, int) for n in inner):
            return math.prod(n for n in inner if isinstance(n, int))
        return self._tracer.product(inner)


def _identifier(name: str) -> str:
    cleaned = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return cleaned if cleaned[:1].isalpha() or cleaned[:1] == "_" else f"k_{cleaned}"
