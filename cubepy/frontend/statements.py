"""Execution of statements: control flow that is comptime happens now, the rest becomes regions."""

from __future__ import annotations

import ast
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

from cubepy.errors import Error
from cubepy.frontend import suggest
from cubepy.frontend.assigned import names_assigned_in
from cubepy.frontend.assignments import assign, assign_annotated, assign_augmented, assign_target
from cubepy.frontend.checks import check
from cubepy.frontend.expressions import evaluate, short_circuit
from cubepy.frontend.intrinsics import Range, Unroll
from cubepy.frontend.naming import note_name
from cubepy.frontend.tracer import Frame, LoopContext, Restart
from cubepy.frontend.values import (
    UNSET,
    LocalFunction,
    TensorRef,
    is_comptime,
    is_number,
    is_sequence,
)
from cubepy.frontend.wording import describe
from cubepy.ir import ops
from cubepy.ir.core import Op, Region, Value
from cubepy.ir.types import bool_, index
from cubepy.lang.function import Source


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


def execute_block(frame: Frame, body: list[ast.stmt]) -> Flow:
    """Trace statements in order, up to a jump."""
    for statement in body:
        frame.tracer.b.span = frame.span(statement)
        flow = execute(frame, statement)
        if flow is not Flow.NEXT:
            return flow
    return Flow.NEXT


def execute(frame: Frame, node: ast.stmt) -> Flow:
    """Trace one statement."""
    handler = HANDLERS.get(type(node))
    if handler is None:
        raise suggest.unsupported(frame, node)
    return handler(frame, node) or Flow.NEXT


# Simple statements


def _expression(frame: Frame, node: ast.Expr) -> None:
    if not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
        evaluate(frame, node.value)


def _assert(frame: Frame, node: ast.Assert) -> None:
    """Comptime conditions hold or stop the compilation; runtime ones are tested in checked mode."""
    condition = evaluate(frame, node.test)
    message = evaluate(frame, node.msg) if node.msg else ast.unparse(node.test)
    if is_comptime(condition):
        if not condition:
            raise frame.tracer.error("E114", message=message)
    elif frame.tracer.checked:
        check(frame.tracer, frame.tracer.truth(condition), "assert", str(message), 0)


def _define(frame: Frame, node: ast.FunctionDef) -> None:
    source = Source(node, frame.source.file, node.name, frame.source.column_offset)
    defaults = tuple(evaluate(frame, d) for d in node.args.defaults)
    frame.env[node.name] = LocalFunction(source, frame, defaults)


# Branches


def _if(frame: Frame, node: ast.If) -> Flow:
    test = evaluate(frame, node.test)
    if is_comptime(test):
        return execute_block(frame, node.body if test else node.orelse)
    frame.tracer.b.span = frame.span(node.test)
    condition = frame.tracer.truth(test)
    return runtime_branch(
        frame,
        condition,
        lambda: execute_block(frame, node.body),
        lambda: execute_block(frame, node.orelse),
        names_assigned_in([*node.body, *node.orelse]),
        frame.span(node.test),
    )


def runtime_branch(
    frame: Frame,
    condition: Value,
    then: Callable[[], Flow],
    otherwise: Callable[[], Flow],
    names: frozenset[str],
    span: Any,
) -> Flow:
    """Trace both arms into regions of an `if`, and join what they bound."""
    frame.forced |= names & frame.assigned.exclusive
    before = frame.env
    then_ops, then_env, then_flow = _arm(frame, before, then)
    else_ops, else_env, else_flow = _arm(frame, before, otherwise)
    frame.tracer.b.span = span
    frame.tracer.if_(condition, then_ops, else_ops)
    if then_flow is not Flow.NEXT and else_flow is not Flow.NEXT:
        frame.env = before
        return Flow.DEAD
    if then_flow is not Flow.NEXT:
        frame.env = else_env
    elif else_flow is not Flow.NEXT:
        frame.env = then_env
    else:
        frame.env = _join(then_env, else_env)
    return Flow.NEXT


def _arm(
    frame: Frame, env: dict[str, Any], action: Callable[[], Flow]
) -> tuple[list[Op], dict[str, Any], Flow]:
    frame.env = dict(env)
    frame.depth += 1
    with frame.tracer.b.region() as body:
        flow = action()
        frame.tracer.close(ops.YIELD)
    frame.depth -= 1
    return body, frame.env, flow


def _join(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """What both arms bound to the same thing; other names are unset."""
    joined: dict[str, Any] = {}
    for name in (*a, *(n for n in b if n not in a)):
        same = name in a and name in b and (a[name] is b[name] or _equal(a[name], b[name]))
        joined[name] = a[name] if same else UNSET
    return joined


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and is_comptime(a) and isinstance(a, int | float | str) and a == b


def _match(frame: Frame, node: ast.Match) -> Flow:
    subject = evaluate(frame, node.subject)
    return _match_cases(frame, node, subject, 0)


def _match_cases(frame: Frame, node: ast.Match, subject: Any, k: int) -> Flow:
    from cubepy.frontend.patterns import pattern_test

    if k == len(node.cases):
        return Flow.NEXT
    case = node.cases[k]
    frame.tracer.b.span = frame.span(case.pattern)
    test = pattern_test(frame, case.pattern, subject)
    if case.guard is not None and test is not False:
        guard = partial(evaluate, frame, case.guard)
        test = guard() if test is True else short_circuit(frame, test, guard, True)
    if is_comptime(test):
        return (
            execute_block(frame, case.body) if test else _match_cases(frame, node, subject, k + 1)
        )
    rest = [s for c in node.cases for s in c.body]
    return runtime_branch(
        frame,
        frame.tracer.truth(test),
        lambda: execute_block(frame, case.body),
        lambda: _match_cases(frame, node, subject, k + 1),
        names_assigned_in(rest),
        frame.span(case.pattern),
    )


# Loops


def _for(frame: Frame, node: ast.For) -> Flow:
    sequence = evaluate(frame, node.iter)
    if isinstance(sequence, range):
        sequence = Range(sequence.start, sequence.stop, sequence.step)
    if isinstance(sequence, Range):
        return _runtime_for(frame, node, sequence)
    if isinstance(sequence, Unroll):
        return _unrolled_for(frame, node, sequence.items)
    if is_sequence(sequence):
        return _unrolled_for(frame, node, tuple(sequence))
    frame.tracer.b.span = frame.span(node.iter)
    raise frame.tracer.error(
        "E207",
        what="a loop",
        expected="range(...), a tuple or cp.unroll(...)",
        given=describe(sequence),
        hint=_loop_hint(sequence),
    )


def _loop_hint(sequence: Any) -> str:
    if isinstance(sequence, TensorRef):
        return f"loop over range({sequence.name}.shape[0]), and index the tensor"
    return "write range(n)" if isinstance(sequence, Value) else ""


def _runtime_for(frame: Frame, node: ast.For, bounds: Range) -> Flow:
    tracer = frame.tracer
    name = node.target.id if isinstance(node.target, ast.Name) else "i"
    position = Value(index, name)
    parts = [tracer.index_value(p) for p in (bounds.start, bounds.stop, bounds.step)]

    def body() -> None:
        assign_target(frame, node.target, position)

    region, context = _loop_body(frame, node, body, (position,))
    tracer.b.emit_op(ops.FOR, *parts, regions=(region,))
    return _after_loop(frame, node, context)


def _while(frame: Frame, node: ast.While) -> Flow:
    known = _comptime_test(frame, node)
    if known is False:
        return execute_block(frame, node.orelse)

    def test() -> None:
        condition = evaluate(frame, node.test)
        if known is None:
            frame.tracer.b.span = frame.span(node.test)
            _leave_unless(frame, frame.tracer.truth(condition))

    region, context = _loop_body(frame, node, test, ())
    frame.tracer.b.emit_op(ops.LOOP, regions=(region,))
    flow = _after_loop(frame, node, context)
    return flow if known is None or _breaks(node.body) else Flow.DEAD


def _comptime_test(frame: Frame, node: ast.While) -> bool | None:
    """The truth of a loop's condition where it is comptime, so that it never changes; else None."""
    frame.depth += 1
    with frame.tracer.b.region():
        condition = evaluate(frame, node.test)
    frame.depth -= 1
    return bool(condition) if is_comptime(condition) else None


def _breaks(body: list[ast.stmt]) -> bool:
    """Whether a `break` in `body` leaves the loop of this body."""
    for statement in body:
        if isinstance(statement, ast.Break):
            return True
        if isinstance(statement, ast.For | ast.While):
            if _breaks(statement.orelse):
                return True
        elif not isinstance(statement, ast.FunctionDef) and any(
            _breaks(block) for block in _blocks(statement)
        ):
            return True
    return False


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    blocks = [getattr(statement, "body", []), getattr(statement, "orelse", [])]
    return blocks + [case.body for case in getattr(statement, "cases", [])]


def _leave_unless(frame: Frame, condition: Value) -> None:
    tracer = frame.tracer
    with tracer.b.region() as stay:
        tracer.close(ops.YIELD)
    with tracer.b.region() as leave:
        tracer.close(ops.BREAK)
    tracer.if_(condition, stay, leave)


def _loop_body(
    frame: Frame, node: ast.For | ast.While, start: Callable[[], None], args: tuple[Value, ...]
) -> tuple[Region, LoopContext]:
    """Trace the body of a runtime loop; names that it alone binds are unset afterwards."""
    tracer = frame.tracer
    frame.forced |= names_assigned_in(node.body) & frame.assigned.exclusive
    context = LoopContext(True, frame.depth + 1, frame.key(node))
    if node.orelse and _breaks(node.body):
        context.else_flag = tracer.flag("broke")
    before = frame.env
    frame.env = dict(before)
    frame.depth += 1
    frame.loops.append(context)
    with tracer.b.region() as body:
        start()
        execute_block(frame, node.body)
        tracer.close(ops.CONTINUE)
    frame.loops.pop()
    frame.depth -= 1
    frame.env = {
        n: before.get(n, UNSET) for n in (*before, *(n for n in frame.env if n not in before))
    }
    tracer.b.span = frame.span(node)
    return Region(args, tuple(body)), context


def _after_loop(frame: Frame, node: ast.For | ast.While, context: LoopContext) -> Flow:
    """Leave outer loops where the body returned from an inlined function; run the `else`."""
    tracer = frame.tracer
    if frame.return_flag is not None and _returns(node.body):
        _leave_unless(frame, tracer.b.emit(ops.NOT, tracer.read(frame.return_flag)))
    if context.else_flag is None:
        return execute_block(frame, node.orelse)
    broke = tracer.read(context.else_flag)
    return runtime_branch(
        frame,
        tracer.b.emit(ops.NOT, broke),
        lambda: execute_block(frame, node.orelse),
        lambda: Flow.NEXT,
        names_assigned_in(node.orelse),
        frame.span(node),
    )


def _returns(body: list[ast.stmt]) -> bool:
    return any(isinstance(n, ast.Return) for s in body for n in ast.walk(s))


def _unrolled_for(frame: Frame, node: ast.For, items: tuple[Any, ...]) -> Flow:
    key = frame.key(node, "unrolled")
    context = LoopContext(False, frame.depth, key, key in frame.tracer.learned.looping)
    if context.is_wrapped:
        return _wrapped_for(frame, node, items, context)
    outer = frame.unrolled
    flow = Flow.NEXT
    frame.loops.append(context)
    for k, item in enumerate(items):
        frame.unrolled = (*outer, (node.lineno, k))
        _take_item(frame, node.target, item, names_assigned_in(node.body))
        flow = execute_block(frame, node.body)
        if flow not in (Flow.NEXT, Flow.CONTINUE):
            break
    frame.loops.pop()
    frame.unrolled = outer
    _release(frame, node)
    if flow in (Flow.RETURN, Flow.DEAD):
        return flow
    if node.orelse and flow is not Flow.BREAK:
        return execute_block(frame, node.orelse)
    return Flow.NEXT


def _take_item(frame: Frame, target: ast.expr, item: Any, assigned: frozenset[str]) -> None:
    """Assign the target; in the body it is comptime where the body does not assign it too."""
    if isinstance(target, ast.Tuple) and is_sequence(item) and len(target.elts) == len(item):
        for part, value in zip(target.elts, item, strict=True):
            _take_item(frame, part, value, assigned)
    elif not isinstance(target, ast.Name) or not is_comptime(item) or target.id in assigned:
        assign_target(frame, target, item)
    else:
        if is_number(item):
            assign_target(frame, target, item)
        frame.env[target.id] = item


def _release(frame: Frame, node: ast.For) -> None:
    """After the loop its target is an ordinary name again."""
    for name in ast.walk(node.target):
        if isinstance(name, ast.Name) and is_number(frame.env.get(name.id)):
            frame.env[name.id] = frame.slots.get(name.id, frame.env[name.id])


def _wrapped_for(frame: Frame, node: ast.For, items: tuple[Any, ...], context: LoopContext) -> Flow:
    """An unrolled loop that is left, or continued, under runtime control.

    Each iteration is a loop that runs once, so that `continue` and `break` can leave it; a flag
    tells the two apart.
    """
    tracer, outer = frame.tracer, frame.unrolled
    context.leave_flag = tracer.flag("left")
    if node.orelse:
        context.else_flag = context.leave_flag
    frame.forced |= names_assigned_in(node.body) & frame.assigned.exclusive
    with tracer.b.region() as chain:
        frame.depth += 1
        context.depth = frame.depth + 1
        for k, item in enumerate(items):
            frame.unrolled = (*outer, (node.lineno, k))
            _wrapped_iteration(frame, node, item, context)
        frame.depth -= 1
        tracer.close(ops.BREAK)
    frame.unrolled = outer
    tracer.b.emit_op(ops.LOOP, regions=(Region((), tuple(chain)),))
    return _after_loop(frame, node, context)


def _wrapped_iteration(frame: Frame, node: ast.For, item: Any, context: LoopContext) -> None:
    tracer = frame.tracer
    before = frame.env
    frame.env = dict(before)
    frame.depth += 1
    frame.loops.append(context)
    with tracer.b.region() as body:
        _take_item(frame, node.target, item, names_assigned_in(node.body))
        flow = execute_block(frame, node.body)
        if flow is Flow.BREAK and context.leave_flag is not None:
            tracer.set_number(context.leave_flag, tracer.b.const(True, bool_))
        tracer.close(ops.BREAK)
    frame.loops.pop()
    frame.depth -= 1
    frame.env = {
        n: before.get(n, UNSET) for n in (*before, *(n for n in frame.env if n not in before))
    }
    tracer.b.emit_op(ops.LOOP, regions=(Region((), tuple(body)),))
    assert context.leave_flag is not None
    stop = tracer.read(context.leave_flag)
    if frame.return_flag is not None:
        stop = tracer.b.emit(ops.OR, stop, tracer.read(frame.return_flag))
    _leave_unless(frame, tracer.b.emit(ops.NOT, stop))


# Jumps


def _jump(frame: Frame, node: ast.Break | ast.Continue) -> Flow:
    tracer = frame.tracer
    if not frame.loops:
        raise tracer.error(
            "E101", what=f"`{ast.unparse(node)}` outside a loop", instead="remove it"
        )
    context = frame.loops[-1]
    is_break = isinstance(node, ast.Break)
    if not context.is_runtime:
        return _jump_unrolled(frame, context, is_break)
    if is_break and context.else_flag is not None:
        tracer.set_number(context.else_flag, tracer.b.const(True, bool_))
    tracer.close(ops.BREAK if is_break else ops.CONTINUE)
    return Flow.DEAD


def _jump_unrolled(frame: Frame, context: LoopContext, is_break: bool) -> Flow:
    if frame.depth == context.depth:
        return Flow.BREAK if is_break else Flow.CONTINUE
    tracer = frame.tracer
    if not context.is_wrapped:
        tracer.learned.looping.add(context.key)
        raise Restart
    if is_break and context.leave_flag is not None:
        tracer.set_number(context.leave_flag, tracer.b.const(True, bool_))
    tracer.close(ops.BREAK)
    return Flow.DEAD


def _return(frame: Frame, node: ast.Return) -> Flow:
    tracer = frame.tracer
    value = None if node.value is None else evaluate(frame, node.value)
    tracer.b.span = frame.span(node)
    if frame.is_kernel:
        if value is not None:
            raise tracer.error("E115")
        if frame.depth == 0:
            return Flow.RETURN
        tracer.close(ops.RETURN)
        return Flow.DEAD
    note_name(frame, "__return__", value)
    if not frame.is_looping:
        if frame.depth > 0:
            tracer.learned.looping.add((*frame.path, "returns"))
            raise Restart
        frame.result, frame.has_result = value, True
        return Flow.RETURN
    return _return_from_loop(frame, value)


def _return_from_loop(frame: Frame, value: Any) -> Flow:
    tracer = frame.tracer
    if frame.has_result and (frame.result is None) != (value is None):
        raise tracer.error("E116", name=frame.source.name)
    if value is not None:
        key = (*frame.path, "result")
        try:
            frame.result = tracer.assign(frame.result, value, key, "result", 1)
        except Error as error:
            if error.code != "E206":
                raise
            raise tracer.error("E116", name=frame.source.name) from None
    frame.has_result = True
    assert frame.return_flag is not None
    tracer.set_number(frame.return_flag, tracer.b.const(True, bool_))
    tracer.close(ops.BREAK)
    return Flow.DEAD


def _pass(frame: Frame, node: ast.Pass) -> None:
    pass


HANDLERS: dict[type[ast.stmt], Callable[[Frame, Any], Flow | None]] = {
    ast.Assign: assign,
    ast.AnnAssign: assign_annotated,
    ast.AugAssign: assign_augmented,
    ast.Expr: _expression,
    ast.Assert: _assert,
    ast.FunctionDef: _define,
    ast.If: _if,
    ast.Match: _match,
    ast.For: _for,
    ast.While: _while,
    ast.Break: _jump,
    ast.Continue: _jump,
    ast.Return: _return,
    ast.Pass: _pass,
}
