"""Where an iteration ends: `break` and `continue`, and what names are bound to behind a loop.

A name that every exit binds is bound behind it. Where exits bind it to different locals, a first
trace that reads it there takes note, and the next gives it one local that each exit assigns.
"""

from __future__ import annotations

import ast
from typing import Any

from cubepy.errors import Error
from cubepy.frontend.assigned import names_assigned_in
from cubepy.frontend.dispatch import Flow, statement
from cubepy.frontend.tracer import Bound, Frame, LoopContext, store_back
from cubepy.frontend.values import (
    SLOTS,
    UNSET,
    Conflict,
    memory_of,
    values_in,
)
from cubepy.ir import ops
from cubepy.ir.core import Region, Value
from cubepy.ir.types import bool_


@statement(ast.Break, ast.Continue)
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
    store_back(frame, context)
    (context.broken if is_break else context.ended).append(note_exit(frame, context))
    tracer.close(ops.BREAK if is_break else ops.CONTINUE)
    return Flow.DEAD


def _jump_unrolled(frame: Frame, context: LoopContext, is_break: bool) -> Flow:
    if frame.depth == context.depth:
        return Flow.BREAK if is_break else Flow.CONTINUE
    tracer = frame.tracer
    if not context.is_wrapped:
        tracer.learned.looping.add(context.key)
        tracer.is_stale = True  # the next trace wraps the loop; this one goes on for what it finds
        return Flow.DEAD
    end_iteration(frame, context, is_break)
    tracer.close(ops.BREAK)
    return Flow.DEAD


def end_iteration(frame: Frame, context: LoopContext, is_break: bool) -> None:
    """Where an iteration of a wrapped loop ends, or leaves the loop."""
    tracer = frame.tracer
    if is_break and context.leave_flag is not None:
        tracer.set_number(context.leave_flag, tracer.b.const(True, bool_))
    store_back(frame, context)
    context.ended.append(note_exit(frame, context))
    if is_break:
        context.broken.append(context.ended[-1])


# Names


def open_loop(frame: Frame, node: ast.For | ast.While, context: LoopContext) -> None:
    """Note what the names that a loop, or an iteration of it, assigns are bound to before it."""
    context.names, context.before = names_assigned_in([node]), frame.env
    context.ended.clear()
    joining = frame.tracer.learned.joining
    frame.forced |= {n for n in context.names if (*context.key, n) in joining}


def note_exit(frame: Frame, context: LoopContext) -> Bound:
    """What the names that a loop alone binds are bound to at an exit."""
    bound: Bound = {}
    for name in context.names:
        slot = frame.env.get(name, UNSET)
        if slot is UNSET:
            continue
        before = context.before.get(name)
        if isinstance(before, SLOTS):
            bound[name] = before  # `store_back` has assigned it
        elif (*context.key, name) in frame.tracer.learned.joining and isinstance(slot, SLOTS):
            bound[name] = _join(frame, context, name, slot)
        else:
            bound[name] = slot
    return bound


def _join(frame: Frame, context: LoopContext, name: str, slot: Any) -> Any:
    """Assign what an exit bound a name to, to the local that all exits share."""
    tracer, old = frame.tracer, context.joined.get(name)
    if isinstance(old, Conflict):
        return old
    key = (*context.key, name, "exit")
    try:
        joined = tracer.assign(old, tracer.read(slot), key, name, context.depth, joins=True)
    except Error as error:
        if error.code != "E206":
            raise
        joined = Conflict(old, slot)
    context.joined[name] = joined
    return joined


def set_at_ends(frame: Frame, context: LoopContext, body: Region) -> None:
    """Behind an iteration of a wrapped loop: what each of its ends binds is bound."""
    _set(frame, context, _bound_at_all(context.before, context.ended, body))


def set_behind(frame: Frame, context: LoopContext) -> None:
    """Behind a loop without `else`: what each exit binds is bound."""
    if context.is_wrapped:  # each iteration has set what its ends bind
        for name, slot in _own_names(frame, context).items():
            if any(exit_.get(name) is not slot for exit_ in context.broken):
                frame.env[name] = UNSET
    elif context.is_sure or context.is_endless:
        ends = [] if context.is_endless else context.ended
        _set(frame, context, _bound_at_all(context.start, [*ends, *context.broken], context.body))


def set_where_complete(frame: Frame, context: LoopContext) -> None:
    """In the `else` of a loop: what its last iteration binds is bound."""
    if context.is_sure and not context.is_wrapped:
        _set(frame, context, _bound_at_all(context.start, context.ended, context.body))


def set_where_broken(frame: Frame, context: LoopContext) -> None:
    """Behind a loop that a `break` left: what each leaves it with is bound."""
    if context.is_sure or context.is_wrapped:
        frame.env |= dict.fromkeys(_own_names(frame, context), UNSET)
    _set(frame, context, _bound_at_all(context.start, context.broken, context.body))


def _own_names(frame: Frame, context: LoopContext) -> Bound:
    """What is bound of the names that the loop alone binds."""
    bound = {name: frame.env.get(name, UNSET) for name in context.names}
    return {
        name: slot
        for name, slot in bound.items()
        if slot is not UNSET and context.start.get(name, UNSET) is UNSET
    }


def _set(frame: Frame, context: LoopContext, kept: Bound) -> None:
    """Bind what all exits bind; where another name is read, the next trace is to join them."""
    frame.env |= kept
    frame.loose |= kept.keys()
    for bound in (*context.ended, *context.broken):
        for name, slot in bound.items():
            if frame.env.setdefault(name, UNSET) is UNSET:
                frame.lost.setdefault(name, {})[*context.key, name] = slot


def _bound_at_all(before: Bound, exits: list[Bound], body: Region) -> Bound:
    """The names that were not bound before, and that each of the exits binds to one local."""
    first, *others = exits or [{}]
    bound = {
        name: slot
        for name, slot in first.items()
        if before.get(name, UNSET) is UNSET
        and isinstance(slot, (*SLOTS, Conflict))
        and all(other.get(name) is slot for other in others)
    }
    made = _made_in(body) if bound else frozenset[Value]()  # a walk, which few loops need
    return {
        name: slot
        for name, slot in bound.items()
        if made.isdisjoint((*memory_of(slot), *values_in(slot)))
    }


def _made_in(region: Region) -> frozenset[Value]:
    """The values and memory of a region, which are none behind it."""
    made = set(region.args)
    for op in region.walk():
        made.update(op.results, *(inner.args for inner in op.regions))
    return frozenset(made)
