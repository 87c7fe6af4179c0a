"""From a function and a signature to a kernel: `specialise`.

Traces the function until its guesses of types are right (see `joins`), then closes the kernel.
"""

from __future__ import annotations

import math
from typing import Any

from cubepy.artifact import Data, Extent, ParamKind, Scalar, Stride, TensorMapOf
from cubepy.errors import Error
from cubepy.frontend import (
    amx,
    assignments,
    bits,
    comprehensions,
    cooperation,
    cuda,
    derived,
    expressions,
    folds,
    higher,
    hooks,
    intrinsics,
    invocations,
    memory,
    numeric,
    sequences,
    sorting,
    statements,
)
from cubepy.frontend.captured import note_code
from cubepy.frontend.dispatch import Flow, execute_block
from cubepy.frontend.facts import Facts
from cubepy.frontend.joins import Learned
from cubepy.frontend.lanewise import is_lanewise
from cubepy.frontend.running import place_of_user
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
from cubepy.frontend.tracer import Frame, Tracer, bind
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
from cubepy.ir.depth import deep_calls
from cubepy.ir.types import Buffer, Space, Type, index
from cubepy.lang.function import Captures, read_source
from cubepy.targets import Target

MAX_TRACES = 100
"""A guard: two suffice for most, as types settle at once. A trace that ends in an error, for a type
that it guessed wrong, has not seen what follows; the next one goes further."""
HANDLING = (
    *(amx, assignments, bits, comprehensions, cooperation, cuda, derived),
    *(expressions, folds, higher, hooks, intrinsics, invocations, memory, numeric),
    *(sequences, sorting, statements),
)
"""The modules that bind their handlers to the dispatcher when they are imported."""


def specialise(function: Any, signature: Signature, target: Target) -> tuple[Kernel, Facts]:
    """The kernel of a plain Python function for one signature, with mutable locals still in it.

    Raises `CompileError` at the user's line.
    """
    learned = Learned()
    with deep_calls():
        for _ in range(MAX_TRACES):
            before = learned.copy()
            kernel = _Specialisation(function, signature, target, learned).attempt()
            if kernel is not None:
                return kernel
            if learned == before:
                break
        return _Specialisation(function, signature, target, learned).last_attempt()


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

    def attempt(self) -> tuple[Kernel, Facts] | None:
        """The kernel; None if the trace went wrong for a guess that the next one knows better."""
        try:
            kernel = self.kernel()
            return kernel if self._tracer.finish() else None
        except Error:
            if self._tracer.was_wrong():
                return None
            raise
        except Exception as error:
            if self._tracer.was_wrong():
                return None
            raise self._defect(error) from error

    def last_attempt(self) -> tuple[Kernel, Facts]:
        """The kernel of the last trace; E121 if that too guessed the type of a local wrong."""
        try:
            kernel = self.kernel()
            if not self._tracer.finish():
                raise self._tracer.unsettled()
            return kernel
        except Error:
            raise
        except Exception as error:
            raise self._defect(error) from error

    def _defect(self, error: Exception) -> Error:
        """E119 at the line that was traced when the compiler itself failed; E122 for its depth, and
        E113 for what the user's code raised in it."""
        if isinstance(error, RecursionError):
            return self._tracer.error("E122")
        text, place = f"{type(error).__name__}: {error}"[:200], place_of_user(error)
        if place:
            return self._tracer.error("E113", error=text + place, hint=None)
        return self._tracer.error("E119", error=text)

    def kernel(self) -> tuple[Kernel, Facts]:
        tracer, code = self._tracer, self._function.__code__
        source = read_source(code)
        frame = Frame(tracer, source, Captures(self._function), (), None)
        frame.is_kernel = True
        note_code(frame, self._function, code)
        tracer.b.span = frame.span(source.node)
        for name, arg in self._signature.args:
            frame.given[name] = self._argument(name, arg)
            bind(frame, name, frame.given[name])
        flow = execute_block(frame, source.body)
        if flow is not Flow.DEAD or not tracer.b.is_terminated:
            tracer.close(ops.RETURN)
        body = Region((), (*tracer.locals, *tracer.b.ops))
        facts = tracer.facts
        written = frozenset(p.argument for p in self._params if p.argument in facts.written)
        name = _identifier(source.name)
        kernel = Kernel(
            name,
            tuple(self._params),
            body,
            self._signature.cube_dim,
            self._signature.plane_dim,
            written,
            noalias=True,
            attributes=self._signature.attributes,
        )
        tensors = (arg for _, arg in self._signature.args if isinstance(arg, TensorArg))
        if any(arg.is_collapsible for arg in tensors):
            facts.lanewise = is_lanewise(kernel)
        return self._signature.states(kernel), facts

    def _param(self, t: Type, argument: str, kind: ParamKind) -> Value:
        suffix = f"_{kind.word}{kind.axis}" if isinstance(kind, Extent | Stride) else ""
        value = Value(t, argument.replace(".", "_") + suffix)
        self._params.append(Param(value, argument, kind))
        return value

    def _argument(self, name: str, arg: Arg) -> Any:
        if isinstance(arg, ComptimeArg):
            return comptime_value(arg.value)
        if isinstance(arg, ScalarArg):
            return self._param(arg.dtype, name, Scalar())
        if isinstance(arg, StructArg):
            return self._struct(name, arg)
        if isinstance(arg, TensorMapArg):
            kind = TensorMapOf(arg.box, arg.swizzle, arg.axes)
            value = self._param(Buffer(arg.dtype, Space.TENSOR_MAP), name, kind)
            return TensorMapRef(name, value, arg.dtype, arg.box, arg.swizzle, arg.axes)
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
        lanes, whole = arg.width, arg.width > 1 and arg.is_divisible
        kind = Data(arg.rank, arg.is_linear, arg.axis, arg.alignment, lanes, whole)
        buffer = self._param(Buffer(arg.dtype), name, kind)
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
        return known if known is not None else self._param(index, name, Extent(axis))

    def _strides(self, name: str, arg: TensorArg, shape: tuple[Index, ...]) -> tuple[Index, ...]:
        strides: list[Index] = []
        for axis in range(arg.rank):
            if axis == arg.axis:
                strides.append(1)
            elif arg.is_linear:
                strides.append(self._linear_stride(shape, axis))
            else:
                strides.append(self._param(index, name, Stride(axis)))
        return tuple(strides)

    def _linear_stride(self, shape: tuple[Index, ...], axis: int) -> Index:
        inner = shape[axis + 1 :]
        if all(isinstance(n, int) for n in inner):
            return math.prod(n for n in inner if isinstance(n, int))
        return self._tracer.product(inner)


def _identifier(name: str) -> str:
    cleaned = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name)
    return cleaned if cleaned[:1].isalpha() or cleaned[:1] == "_" else f"k_{cleaned}"
