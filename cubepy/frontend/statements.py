"""Execution of statements: control flow that is comptime happens now, the rest becomes regions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any

from cubepy.errors import Error
from cubepy.frontend.assigned import names_assigned_in, names_read_beside
from cubepy.frontend.assignments import assign_target
from cubepy.frontend.branches import LONG, Branch, chain_of_branches, runtime_branch
from cubepy.frontend.checks import check
from cubepy.frontend.comprehensions import items_one_by_one
from cubepy.frontend.dispatch import Flow, evaluate, execute_block, statement
from cubepy.frontend.exits import (
    end_iteration,
    note_exit,
    open_loop,
    set_at_ends,
    set_behind,
    set_where_broken,
    set_where_complete,
)
from cubepy.frontend.expressions import condition, local_function, reveal, short_circuit
from cubepy.frontend.iterables import count_of, is_lazy, item_at
from cubepy.frontend.naming import note_name
from cubepy.frontend.patterns import Captured, pattern_test
from cubepy.frontend.syntax import breaks, returns, walk
from cubepy.frontend.tracer import Frame, LoopContext, bind, leave_loop, store_back
from cubepy.frontend.unpacking import items_of, limited, paired
from cubepy.frontend.values import (
    UNSET,
    ComptimeSlot,
    Conflict,
    Formatted,
    LocalFunction,
    Range,
    TensorRef,
    Unroll,
    holds_values,
    is_comptime,
    is_number,
)
from cubepy.frontend.walrus import all_targets, certain_targets, targets_where_true
from cubepy.frontend.wording import describe
from cubepy.ir import ops
from cubepy.ir.core import Region, Value
from cubepy.ir.types import bool_, index

# Simple statements


@statement(ast.Expr)
def _expression(frame: Frame, node: ast.Expr) -> None:
    if not (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)):
        evaluate(frame, node.value)


@statement(ast.Assert)
def _assert(frame: Frame, node: ast.Assert) -> None:
    """Comptime conditions hold or stop the compilation; runtime ones are tested in checked mode."""
    holds = condition(frame, node.test)
    if node.msg is None and is_comptime(holds) and holds:
        return
    message = evaluate(frame, node.msg) if node.msg else ast.unparse(node.test)
    if is_comptime(holds):
        if not holds:
            raise frame.tracer.error("E114", message=message)
    elif frame.tracer.checked:
        is_text = is_comptime(message) and not isinstance(message, Formatted)
        text = message if is_text else ast.unparse(node.msg or node.test)
        check(frame.tracer, frame.tracer.truth(holds), "assert", str(text), 0)


@statement(ast.FunctionDef)
def _define(frame: Frame, node: ast.FunctionDef) -> None:
    frame.env[node.name] = local_function(frame, node, node.name)


# Branches


@statement(ast.If)
def _if(frame: Frame, node: ast.If) -> Flow:
    chain, otherwise = _branches_of(node)
    if len(chain) > LONG and not any(all_targets(n.test) for n in chain):
        frame.forced |= names_assigned_in([node]) & frame.assigned.exclusive
        branches = (
            Branch(
                partial(condition, frame, n.test),
                partial(execute_block, frame, n.body),
                frame.span(n.test),
            )
            for n in chain
        )
        return chain_of_branches(frame, branches, partial(execute_block, frame, otherwise))
    test = condition(frame, node.test)
    if is_comptime(test):
        return execute_block(frame, node.body if test else node.orelse)
    frame.tracer.b.span = frame.span(node.test)
    return runtime_branch(
        frame,
        frame.tracer.truth(test),
        lambda: _block_where(frame, node.test, node.body),
        lambda: execute_block(frame, node.orelse),
        names_assigned_in([*node.body, *node.orelse]),
        frame.span(node.test),
    )


def _branches_of(node: ast.If) -> tuple[list[ast.If], list[ast.stmt]]:
    """An `if` with its `elif`s, and the body of its `else`."""
    chain = [node]
    while len(chain[-1].orelse) == 1 and isinstance(chain[-1].orelse[0], ast.If):
        chain.append(chain[-1].orelse[0])
    return chain, chain[-1].orelse


def _block_where(frame: Frame, test: ast.expr | None, body: list[ast.stmt]) -> Flow:
    """A block that runs where `test` was true."""
    reveal(frame, targets_where_true(test))
    return execute_block(frame, body)


@statement(ast.Match)
def _match(frame: Frame, node: ast.Match) -> Flow:
    subject = evaluate(frame, node.subject)
    if len(node.cases) > LONG and not any(map(_binds, node.cases)):
        frame.forced |= names_assigned_in([node]) & frame.assigned.exclusive
        branches = (
            Branch(
                partial(_case_test, frame, case, subject, {}),
                partial(execute_block, frame, case.body),
                frame.span(case.pattern),
            )
            for case in node.cases
        )
        return chain_of_branches(frame, branches, lambda: Flow.NEXT)
    return _match_cases(frame, node, subject, 0)


def _binds(case: ast.match_case) -> bool:
    """Whether the pattern or guard of a case binds names."""
    names = [getattr(n, "name", None) for n in walk(case.pattern)]
    return any(names) or (case.guard is not None and bool(all_targets(case.guard)))


def _case_test(frame: Frame, case: ast.match_case, subject: Any, captured: Captured) -> Any:
    """Whether the pattern and the guard of a case hold.

    What the pattern captures is bound for its guard, and added to `captured`.
    """
    frame.tracer.b.span = frame.span(case.pattern)
    test = pattern_test(frame, case.pattern, subject, captured)
    guard = partial(_guard, frame, case, captured)
    if test is False or (test is not True and case.guard is None):
        return test
    return guard() if test is True else short_circuit(frame, test, guard, True)


def _guard(frame: Frame, case: ast.match_case, captured: Captured) -> Any:
    """Whether the guard of a case holds, where its pattern does."""
    _bind_captured(frame, captured)
    return True if case.guard is None else condition(frame, case.guard)


def _bind_captured(frame: Frame, captured: Captured) -> None:
    for name, value in captured.items():
        bind(frame, name, value)


def _match_cases(frame: Frame, node: ast.Match, subject: Any, k: int) -> Flow:
    if k == len(node.cases):
        return Flow.NEXT
    case = node.cases[k]
    captured: Captured = {}
    test = _case_test(frame, case, subject, captured)
    if is_comptime(test):
        return (
            execute_block(frame, case.body) if test else _match_cases(frame, node, subject, k + 1)
        )

    def body() -> Flow:
        _bind_captured(frame, captured)
        return _block_where(frame, case.guard, case.body)

    return runtime_branch(
        frame,
        frame.tracer.truth(test),
        body,
        lambda: _match_cases(frame, node, subject, k + 1),
        names_assigned_in([node]),
        frame.span(case.pattern),
    )


# Loops


@statement(ast.For)
def _for(frame: Frame, node: ast.For) -> Flow:
    if isinstance(node.iter, ast.GeneratorExp):
        return _unrolled_for(frame, node, items_one_by_one(frame, node.iter))
    sequence = evaluate(frame, node.iter)
    if isinstance(sequence, range):
        sequence = Range(sequence.start, sequence.stop, sequence.step)
    if isinstance(sequence, Range):
        return _runtime_for(frame, node, sequence)
    if is_lazy(sequence):
        bounds = Range(0, count_of(frame, sequence), 1)
        return _runtime_for(frame, node, bounds, partial(item_at, frame, sequence))
    if isinstance(sequence, Unroll):
        return _unrolled_for(frame, node, sequence.items)
    items = items_of(sequence)
    if items is not None:
        return _unrolled_for(frame, node, limited(frame, items))
    frame.tracer.b.span = frame.span(node.iter)
    raise frame.tracer.error(
        "E207",
        what="a loop",
        expected="range(...), a tensor, a tuple or cp.unroll(...)",
        given=describe(sequence),
        hint=_loop_hint(sequence),
    )


def _loop_hint(sequence: Any) -> str:
    if isinstance(sequence, TensorRef):
        return f"it has no axes: read it as {sequence.name}[()]"
    return "write range(n)" if isinstance(sequence, Value) else ""


def _runtime_for(
    frame: Frame, node: ast.For, bounds: Range, item: Callable[[Value], Any] | None = None
) -> Flow:
    """A loop whose target takes a counter, or the `item` of one."""
    tracer = frame.tracer
    name = node.target.id if isinstance(node.target, ast.Name) and item is None else "i"
    position = Value(index, name)
    parts = [tracer.index_value(p) for p in (bounds.start, bounds.stop, bounds.step)]

    def body() -> None:
        assign_target(frame, node.target, position if item is None else item(position))

    region, context = _loop_body(frame, node, body, (position,), _is_sure(bounds))
    tracer.b.emit_op(ops.FOR, *parts, regions=(region,))
    return _after_loop(frame, node, context)


def _is_sure(bounds: Range) -> bool:
    """Whether a loop is known to have an iteration."""
    start, stop, step = bounds.start, bounds.stop, bounds.step
    if not (isinstance(start, int) and isinstance(stop, int) and isinstance(step, int)):
        return False
    return step != 0 and (stop - start) * step > 0


@statement(ast.While)
def _while(frame: Frame, node: ast.While) -> Flow:
    known = _comptime_test(frame, node)
    if known is False:
        return execute_block(frame, node.orelse)
    if known and not breaks(node.body) and not returns(node.body):
        frame.tracer.b.span = frame.span(node.test)
        raise frame.tracer.error("E117")

    if known:
        _keep_names(frame, node)
    tested: dict[str, Any] = {}

    def test() -> None:
        holds = condition(frame, node.test)
        tested.update((n, frame.env[n]) for n in certain_targets(node.test) if n in frame.env)
        if known is None:
            frame.tracer.b.span = frame.span(node.test)
            store_back(frame, frame.loops[-1])
            _leave_unless(frame, frame.tracer.truth(holds))
            reveal(frame, targets_where_true(node.test))

    region, context = _loop_body(frame, node, test, is_endless=known is True)
    frame.env |= {n: slot for n, slot in tested.items() if frame.env.get(n, UNSET) is UNSET}
    frame.tracer.b.emit_op(ops.LOOP, regions=(region,))
    flow = _after_loop(frame, node, context)
    return flow if known is None or breaks(node.body) else Flow.DEAD


def _comptime_test(frame: Frame, node: ast.While) -> bool | None:
    """The truth of a loop's condition where it is comptime, so that it never changes; else None."""
    before = frame.env
    frame.env = dict(before)
    frame.depth += 1
    with frame.tracer.b.region():
        holds = condition(frame, node.test)
    frame.depth -= 1
    frame.env = before
    return bool(holds) if is_comptime(holds) else None


def _leave_unless(frame: Frame, condition: Value) -> None:
    tracer = frame.tracer
    with tracer.b.region() as go_on:
        tracer.close(ops.YIELD)
    with tracer.b.region() as leave:
        tracer.close(ops.BREAK)
    tracer.if_(condition, go_on, leave)


def _loop_body(
    frame: Frame,
    node: ast.For | ast.While,
    start: Callable[[], None],
    args: tuple[Value, ...] = (),
    is_sure: bool = False,
    is_endless: bool = False,
) -> tuple[Region, LoopContext]:
    """Trace the body of a runtime loop; names that it alone binds are unset afterwards."""
    tracer = frame.tracer
    frame.forced |= names_assigned_in(node.body) & frame.assigned.exclusive
    context = LoopContext(True, frame.depth + 1, frame.key(node), start=frame.env)
    context.is_sure, context.is_endless = is_sure, is_endless
    open_loop(frame, node, context)
    if node.orelse and breaks(node.body) and not is_endless:
        context.else_flag = tracer.flag("broke")
        _keep_names(frame, node)
    before = frame.env
    frame.env = dict(before)
    frame.depth += 1
    frame.loops.append(context)
    tracer.loops += 1
    with tracer.b.region() as body:
        start()
        if execute_block(frame, node.body) is Flow.NEXT:
            store_back(frame, context)
            context.ended.append(note_exit(frame, context))
        tracer.close(ops.CONTINUE)
    tracer.loops -= 1
    frame.loops.pop()
    frame.depth -= 1
    leave_loop(frame, context)
    tracer.b.span = frame.span(node)
    context.body = Region(args, tuple(body))
    return context.body, context


def _keep_names(frame: Frame, node: ast.For | ast.While) -> None:
    """Names that a loop binds, and that are read behind it where a `break` left it, are locals."""
    read = names_read_beside(frame.source.node, node)
    frame.forced |= names_assigned_in([node]) & read


def _after_loop(frame: Frame, node: ast.For | ast.While, context: LoopContext) -> Flow:
    """Leave outer loops where the body returned from an inlined function; run the `else`."""
    tracer = frame.tracer
    if frame.return_flag is not None and returns(node.body):
        _leave_unless(frame, tracer.b.emit(ops.NOT, tracer.read(frame.return_flag)))
    if context.else_flag is None:
        set_behind(frame, context)
        return Flow.NEXT if context.is_endless else execute_block(frame, node.orelse)
    broke = tracer.read(context.else_flag)

    def complete() -> Flow:
        set_where_complete(frame, context)
        return execute_block(frame, node.orelse)

    def where_broken() -> Flow:
        set_where_broken(frame, context)
        return Flow.NEXT

    return runtime_branch(
        frame,
        tracer.b.emit(ops.NOT, broke),
        complete,
        where_broken,
        names_assigned_in(node.orelse),
        frame.span(node),
    )


def _unrolled_for(frame: Frame, node: ast.For, items: Iterable[Any]) -> Flow:
    key = frame.key(node, "unrolled")
    context = LoopContext(False, frame.depth, key, key in frame.tracer.learned.looping)
    if context.is_wrapped:
        return _wrapped_for(frame, node, items, context)
    outer = frame.unrolled
    flow = Flow.NEXT
    frame.tracer.unrolling.append(frame.tracer.branches)
    frame.loops.append(context)
    assigned = names_assigned_in(node.body)
    for k, item in enumerate(items):
        frame.unrolled = (*outer, (node.lineno, k))
        _take_item(frame, node.target, item, assigned)
        flow = execute_block(frame, node.body)
        if flow not in (Flow.NEXT, Flow.CONTINUE):
            break
    frame.loops.pop()
    frame.tracer.unrolling.pop()
    frame.unrolled = outer
    _release(frame, node)
    if flow in (Flow.RETURN, Flow.DEAD):
        return flow
    if node.orelse and flow is not Flow.BREAK:
        return execute_block(frame, node.orelse)
    return Flow.NEXT


def _take_item(frame: Frame, target: ast.expr, item: Any, assigned: frozenset[str]) -> None:
    """Assign the target; in the body it is comptime where the body does not assign it too."""
    for part, value in _parts_of_target(frame, target, item):
        is_fixed = is_comptime(value) or isinstance(value, LocalFunction)
        if not isinstance(part, ast.Name) or not is_fixed or part.id in assigned:
            assign_target(frame, part, value)
        else:
            if is_number(value):
                assign_target(frame, part, value)
            frame.env[part.id] = value


def _parts_of_target(frame: Frame, target: ast.expr, item: Any) -> Iterator[tuple[ast.expr, Any]]:
    """The names and places that a target consists of, with what they take of an item."""
    if not isinstance(target, ast.Tuple | ast.List):
        yield target, item
        return
    for part, value in paired(frame, target, item):
        yield from _parts_of_target(frame, part, value)


def _release(frame: Frame, node: ast.For) -> None:
    """After the loop its target is an ordinary name again."""
    for name in walk(node.target):
        if isinstance(name, ast.Name) and is_number(frame.env.get(name.id)):
            frame.env[name.id] = frame.slots.get(name.id, frame.env[name.id])


def _wrapped_for(frame: Frame, node: ast.For, items: Iterable[Any], context: LoopContext) -> Flow:
    """An unrolled loop that is left, or continued, under runtime control.

    Each iteration is a loop that runs once, so that `continue` and `break` can leave it; a flag
    distinguishes the two.
    """
    tracer, outer, items = frame.tracer, frame.unrolled, iter(items)
    first = list(islice(items, 1))
    if not first:
        return execute_block(frame, node.orelse)
    _declare_target(frame, node, first[0])
    context.start = frame.env
    context.leave_flag = tracer.flag("left")
    if node.orelse:
        context.else_flag = context.leave_flag
    frame.forced |= names_assigned_in(node.body) & frame.assigned.exclusive
    tracer.unrolling.append(tracer.branches)
    tracer.loops += 1
    with tracer.b.region() as iterations:
        frame.depth += 1
        context.depth = frame.depth + 1
        last: Any = first[0]
        for k, last in enumerate(chain(first, items)):
            frame.unrolled = (*outer, (node.lineno, k))
            if _wrapped_iteration(frame, node, last, context) is Flow.BREAK:
                break
        frame.depth -= 1
        tracer.close(ops.BREAK)
    tracer.loops -= 1
    tracer.unrolling.pop()
    frame.unrolled = outer
    context.body = Region((), tuple(iterations))
    tracer.b.emit_op(ops.LOOP, regions=(context.body,))
    _forget_target(frame, node, first[0], last)
    return _after_loop(frame, node, context)


def _declare_target(frame: Frame, node: ast.For, item: Any) -> None:
    """Locals for numbers that the target takes and that the function reads elsewhere as well."""
    inside = {id(n) for statement in node.body for n in walk(statement)}
    read = {
        n.id
        for n in walk(frame.source.node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and id(n) not in inside
    }
    for part, value in _parts_of_target(frame, node.target, item):
        if isinstance(part, ast.Name) and part.id in read and _is_numeric(value):
            frame.forced.add(part.id)
            bind(frame, part.id, value)


def _forget_target(frame: Frame, node: ast.For, first: Any, last: Any) -> None:
    """E210 where an object that the target took is read behind the loop: which one is not known."""
    pairs = zip(*(_parts_of_target(frame, node.target, x) for x in (first, last)), strict=True)
    for (part, a), (_, b) in pairs:
        if isinstance(part, ast.Name) and frame.env.get(part.id, UNSET) is UNSET:
            frame.env[part.id] = Conflict(ComptimeSlot(a), ComptimeSlot(b))


def _is_numeric(x: Any) -> bool:
    return isinstance(x, Value) or is_number(x)


def _wrapped_iteration(frame: Frame, node: ast.For, item: Any, context: LoopContext) -> Flow:
    tracer, breaks_before = frame.tracer, len(context.broken)
    open_loop(frame, node, context)
    frame.env = dict(context.before)
    frame.depth += 1
    frame.loops.append(context)
    with tracer.b.region() as body:
        _take_item(frame, node.target, item, names_assigned_in(node.body))
        flow = execute_block(frame, node.body)
        if not tracer.b.is_terminated:
            end_iteration(frame, context, flow is Flow.BREAK)
        tracer.close(ops.BREAK)
    frame.loops.pop()
    frame.depth -= 1
    context.reads.clear()  # the iterations are no loop: what follows reads what they bound
    leave_loop(frame, context)
    context.conflicts.clear()
    region = Region((), tuple(body))
    set_at_ends(frame, context, region)
    tracer.b.emit_op(ops.LOOP, regions=(region,))
    assert context.leave_flag is not None
    stop = tracer.read(context.leave_flag)
    if frame.return_flag is not None:
        stop = tracer.b.emit(ops.OR, stop, tracer.read(frame.return_flag))
    _leave_unless(frame, tracer.b.emit(ops.NOT, stop))
    goes_on = len(context.ended) > len(context.broken) - breaks_before  # where it is continued
    return Flow.NEXT if goes_on else flow


# Returns


@statement(ast.Return)
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
    if frame.return_flag is None and frame.depth == 0:
        frame.result, frame.has_result = value, True
        return Flow.RETURN
    return _return_from_loop(frame, value)


def _return_from_loop(frame: Frame, value: Any) -> Flow:
    """A return under runtime control, or after one: it leaves the loop that the body becomes."""
    tracer = frame.tracer
    if frame.return_flag is None:
        frame.return_flag = tracer.new_local(bool_, "returned")
    if frame.has_result and (frame.result is None) != (value is None):
        raise tracer.error("E116", name=frame.source.name)
    if value is not None:
        key = (*frame.path, "result")
        try:
            frame.result = tracer.assign(frame.result, value, key, "result", 1, True)
        except Error as error:
            if error.code != "E206":
                raise
            raise tracer.error("E116", name=frame.source.name) from None
    if holds_values(frame.result):
        what, kinds = "a `return` that may not run", "numbers, tensors, tuples or records"
        given = describe(value)
        raise tracer.error("E207", what=what, expected=kinds, given=given)
    frame.has_result = True
    tracer.set_number(frame.return_flag, tracer.b.const(True, bool_))
    tracer.close(ops.BREAK)
    return Flow.DEAD


@statement(ast.Pass)
def _pass(frame: Frame, node: ast.Pass) -> None:
    pass
