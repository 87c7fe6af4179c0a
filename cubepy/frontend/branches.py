"""Branches under runtime control: regions of an `if`, and the names that their paths join."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from cubepy.frontend.dispatch import Flow
from cubepy.frontend.joins import Key
from cubepy.frontend.locals import Bodies
from cubepy.frontend.tracer import Frame
from cubepy.frontend.values import (
    PARTS,
    SLOTS,
    UNSET,
    VIEWS,
    ComptimeSlot,
    Conflict,
    Flag,
    NumberSlot,
    Row,
    is_comptime,
    is_dict,
    is_sequence,
    make_tuple,
    memory_of,
    type_of,
)
from cubepy.ir import ops
from cubepy.ir.core import Op, Value
from cubepy.ir.types import bool_
from cubepy.record import dataclass
from cubepy.span import Span


def runtime_branch(
    frame: Frame,
    condition: Value,
    then: Callable[[], Flow],
    otherwise: Callable[[], Flow],
    names: frozenset[str],
    span: Any,
) -> Flow:
    """Trace both arms into regions of an `if`, and join what they bound."""
    tracer, before = frame.tracer, frame.env
    frame.forced |= names & frame.assigned.exclusive
    arms = [_arm(frame, before, action) for action in (then, otherwise)]
    tracer.b.span = span
    flow, kept = _leave_arms(frame, before, arms)
    for body, _, _ in arms:
        with tracer.b.reopen(body):
            tracer.close(ops.YIELD)
    tracer.if_(condition, arms[0][0], arms[1][0])
    _restore(frame, kept)
    return flow


Arm: TypeAlias = tuple[list[Op], dict[str, Any], Flow]
"""What a branch emitted, what it bound, and how it ended."""


def _leave_arms(
    frame: Frame, before: dict[str, Any], arms: list[Arm]
) -> tuple[Flow, dict[str, Any]]:
    """Join the names of the arms whose end is reached; gives what `_keep` does, where it is one."""
    open_ = [(body, env) for body, env, flow in arms if flow is Flow.NEXT]
    if not open_:
        frame.env = before
        return Flow.DEAD, {}
    if len(open_) > 1:
        bodies, envs = zip(*open_, strict=True)
        frame.env = _join(frame, bodies, envs)
        return Flow.NEXT, {}
    body, frame.env = open_[0]
    return Flow.NEXT, _keep(frame, before, body)


def _keep(frame: Frame, before: dict[str, Any], body: list[Op]) -> dict[str, Any]:
    """Keep what the only arm whose end is reached bound to values of its own: its memory is that of
    the branch, and locals hold its values. Gives what names are bound to, with such locals."""
    bound = {name: x for name, x in frame.env.items() if x is not before.get(name, UNSET)}
    own = {result for op in body for result in op.results}
    memory = {v for value in bound.values() for v in memory_of(value)} & own
    for op in [op for op in body if op.row is ops.ALLOC and op.result in memory]:
        body.remove(op)
        frame.tracer.b.ops.append(op)
    own -= memory

    def hold(value: Any, key: Key, name: str) -> Any:
        if not isinstance(value, Value):
            return _changed(value, lambda part, k: hold(part, (*key, k), f"{name}_{k}"))
        return frame.tracer.assign(None, value, key, name, frame.depth) if value in own else value

    kept: dict[str, Any] = {}
    with frame.tracer.b.reopen(body):
        for name, value in bound.items():
            held = hold(value, (*frame.path, *frame.unrolled, name, "arm"), name)
            if isinstance(held, ComptimeSlot):
                held = replace(held, depth=frame.depth)  # behind the branch its path is straight
            if held is not value:
                kept[name] = held
    return kept


def _restore(frame: Frame, kept: dict[str, Any]) -> None:
    """Behind the branch: bind names to what `_keep` gave, with what the locals hold."""

    def read(value: Any, _: Any = None) -> Any:
        return frame.tracer.read(value) if isinstance(value, NumberSlot) else _changed(value, read)

    frame.env |= {name: read(value) for name, value in kept.items()}


def _changed(value: Any, change: Callable[[Any, Any], Any]) -> Any:
    """A value with other parts, each of which `change` gets with its key; itself where all of them
    are the same."""
    cls = type_of(value)
    if cls in PARTS:
        fields = {name: getattr(value, name) for name in PARTS[cls]}
        made = change(fields, "fields")
        return value if made is fields else replace(value, **made)
    if cls in VIEWS:
        items = dict(value.mapping)
        made = change(items, "items")
        return value if made is items else getattr(made, VIEWS[cls])()
    if isinstance(value, Row):
        parts = tuple(value), value.table
        made = change(parts, "row")
        return value if made is parts else Row(*made)
    if is_dict(value):
        found = {k: change(part, k) for k, part in value.items()}
        return value if all(found[k] is part for k, part in value.items()) else found
    if is_sequence(value):
        items = [change(part, k) for k, part in enumerate(value)]
        same = all(a is b for a, b in zip(items, value, strict=True))
        return value if same else make_tuple(cls, items)
    return value


# Chains of many branches: nested, they would be too deep for compilers


LONG = 32
"""So many branches are nested in each other; longer chains stand in a row, with a flag."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A test of a chain, and what runs where it is the first that holds."""

    test: Callable[[], Any]
    body: Callable[[], Flow]
    span: Span


def chain_of_branches(
    frame: Frame, branches: Iterable[Branch], otherwise: Callable[[], Flow]
) -> Flow:
    """Branches in a row, of which a flag lets the first run whose test holds, or `otherwise`.

    A test of each stands where the flag is false; all names join at the end.
    """
    tracer, before = frame.tracer, frame.env
    done = tracer.flag("done")
    tests: list[tuple[list[Op], Value]] = []
    arms: list[Arm] = []
    frame.depth += 1
    for branch in branches:
        frame.env = before
        with tracer.b.region() as body:
            tracer.b.span = branch.span
            test = branch.test()
            tracer.b.span = branch.span
            chosen = None if is_comptime(test) else tracer.truth(test)
        if chosen is not None:
            tests.append((body, chosen))
            arms.append(_arm(frame, before, branch.body))
        elif test:
            otherwise = branch.body
            break
    frame.depth -= 1
    arms.append(_arm(frame, before, otherwise))
    flow, kept = _leave_arms(frame, before, arms)
    for (body, chosen), arm in zip(tests, arms, strict=False):
        _append_branch(frame, done, body, (chosen, arm[0]))
    _append_branch(frame, done, arms[-1][0], None)
    _restore(frame, kept)
    return flow


def _append_branch(
    frame: Frame, done: Flag, body: list[Op], branch: tuple[Value, list[Op]] | None
) -> None:
    """Append `if not done: body`, where `body` ends with the branch that it decides on."""
    tracer = frame.tracer
    with tracer.b.reopen(body):
        if branch is not None:
            with tracer.b.region() as chosen:
                tracer.set_number(done, tracer.b.const(True, bool_))
                tracer.b.ops.extend(branch[1])
                tracer.close(ops.YIELD)
            with tracer.b.region() as passed:
                tracer.close(ops.YIELD)
            tracer.if_(branch[0], chosen, passed)
        tracer.close(ops.YIELD)
    with tracer.b.region() as skipped:
        tracer.close(ops.YIELD)
    tracer.if_(tracer.b.emit(ops.NOT, tracer.read(done)), body, skipped)


def _arm(frame: Frame, env: dict[str, Any], action: Callable[[], Flow]) -> Arm:
    frame.env = dict(env)
    frame.depth += 1
    with frame.tracer.b.region() as body:
        flow = action()
    frame.depth -= 1
    return body, frame.env, flow


def _join(frame: Frame, bodies: Bodies, envs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What all arms bound to the same thing or to locals that join; other names are unset."""
    joined: dict[str, Any] = {}
    for name in dict.fromkeys(name for env in envs for name in env):
        bound = [env.get(name, UNSET) for env in envs]
        first = bound[0]
        if all(x is first or _equal(first, x) for x in bound):
            joined[name] = first
        elif all(isinstance(x, SLOTS) for x in bound):
            key = (*frame.path, *frame.unrolled, name, "if")
            joined[name] = frame.tracer.merge(bodies, bound, key, name, frame.depth)
        else:
            joined[name] = next((x for x in bound if isinstance(x, Conflict)), UNSET)
    return joined


def _equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and is_comptime(a) and isinstance(a, int | float | str) and a == b
