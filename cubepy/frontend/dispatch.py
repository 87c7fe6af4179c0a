"""Which function traces which part of the language: AST nodes, and functions that kernels call.

The modules beside this one bind their handlers by decorator when they are imported (`specialise`
imports them all). They reach each other's through `evaluate` and `execute_block`, so that none has
to import the others.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

from cubepy.frontend import suggest
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import READ, UNSET
from cubepy.record import dataclass

F = TypeVar("F", bound=Callable[..., Any])


class Flow(Enum):
    """How a block ended while it was traced.

    NEXT: its end was reached. DEAD: a terminator was emitted, what follows cannot run. The others
    are comptime jumps.
    """

    NEXT = 0
    DEAD = 1
    BREAK = 2
    CONTINUE = 3
    RETURN = 4


_EXPRESSIONS: dict[type[ast.expr], Callable[[Frame, Any], Any]] = {}
_STATEMENTS: dict[type[ast.stmt], Callable[[Frame, Any], Flow | None]] = {}


def expression(*kinds: type[ast.expr]) -> Callable[[F], F]:
    """Decorator: the function gives the value of expressions of these kinds."""

    def bind(handler: F) -> F:
        _EXPRESSIONS.update(dict.fromkeys(kinds, handler))
        return handler

    return bind


def statement(*kinds: type[ast.stmt]) -> Callable[[F], F]:
    """Decorator: the function traces statements of these kinds; None means `Flow.NEXT`."""

    def bind(handler: F) -> F:
        _STATEMENTS.update(dict.fromkeys(kinds, handler))
        return handler

    return bind


def evaluate(frame: Frame, node: ast.expr) -> Any:
    """The value of an expression: a Python object if comptime, else a runtime value."""
    kind = type(node)
    if kind is ast.Constant:
        return node.value  # type: ignore[attr-defined]
    if kind is ast.Name:
        bound = frame.env.get(node.id, UNSET)  # type: ignore[attr-defined]
        if type(bound) not in READ:
            return bound
    handler = _EXPRESSIONS.get(kind)
    builder = frame.tracer.b
    outer, builder.span = builder.span, frame.span(node)
    try:
        if handler is None:
            raise suggest.unsupported(frame, node)
        return handler(frame, node)
    finally:
        builder.span = outer


def execute(frame: Frame, node: ast.stmt) -> Flow:
    """Trace one statement."""
    handler = _STATEMENTS.get(type(node))
    if handler is None:
        raise suggest.unsupported(frame, node)
    return handler(frame, node) or Flow.NEXT


def execute_block(frame: Frame, body: list[ast.stmt]) -> Flow:
    """Trace statements in order, up to a jump."""
    for node in body:
        frame.tracer.b.span = frame.span(node)
        flow = execute(frame, node)
        if flow is not Flow.NEXT:
            return flow
    return Flow.NEXT


# Functions


@dataclass(frozen=True, slots=True, eq=False)
class Intrinsic:
    """A function that the compiler knows: what traces it, and the stub whose signature it has."""

    handler: Callable[..., Any]
    stub: Any

    @property
    def name(self) -> str:
        """How errors call it."""
        return getattr(self.stub, "__cubepy_builtin__", self.stub.__name__)


_INTRINSICS: dict[int, tuple[Any, Intrinsic]] = {}
"""By identity, since not every callable has a hash; the function is kept, so that the id is its."""
_NUMPY: dict[str, Intrinsic] = {}
"""NumPy's functions by name: the frontend does not import NumPy."""


def intrinsic(stub: Any, *twins: Any, numpy: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Decorator: the handler stands for calls of `stub`, its twins, and NumPy's of these names."""

    def bind(handler: F) -> F:
        found = Intrinsic(handler, stub)
        for function in (stub, *twins):
            _INTRINSICS[id(function)] = function, found
        _NUMPY.update(dict.fromkeys(numpy, found))
        return handler

    return bind


def intrinsic_of(function: Any) -> Intrinsic | None:
    """The intrinsic that `function` is; None for functions of the user."""
    found = _INTRINSICS.get(id(function))
    if found is not None:
        return found[1]
    module = getattr(function, "__module__", "") or type(function).__module__
    if module != "numpy" or isinstance(function, type):
        return None
    return _NUMPY.get(getattr(function, "__name__", ""))
