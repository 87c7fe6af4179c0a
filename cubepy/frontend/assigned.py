"""Which names of a function are assigned where: a static look at its AST.

A name assigned at one place may be comptime or a plain SSA value; one that is assigned at several
places becomes a mutable local. Two arms of one `if` exclude each other: see `exclusive`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Assigned:
    """`mutable`: assigned more than once on some path. `exclusive`: only in arms of one `if`."""

    mutable: frozenset[str]
    exclusive: frozenset[str]


@lru_cache(maxsize=4096)
def assigned_names(node: ast.FunctionDef | ast.Lambda) -> Assigned:
    """The names of a function by how they are assigned; parameters count once."""
    a = node.args
    parameters = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs)]
    if isinstance(node, ast.Lambda):
        return Assigned(frozenset(), frozenset())
    most, total = Counter(parameters), Counter(parameters)
    most += _most(node.body)
    total += _total(node.body)
    mutable = frozenset(n for n, count in most.items() if count > 1)
    exclusive = frozenset(n for n, count in total.items() if count > 1) - mutable
    return Assigned(mutable, exclusive)


def names_assigned_in(body: Iterable[ast.stmt]) -> frozenset[str]:
    """Every name that some statement of `body` assigns, at any depth."""
    return frozenset(_total(body))


def _most(body: Iterable[ast.stmt]) -> Counter[str]:
    """The largest number of assignments on a path through `body`, for each name."""
    result: Counter[str] = Counter()
    for statement in body:
        result += _own_targets(statement)
        if isinstance(statement, ast.If):
            result += _most(statement.body) | _most(statement.orelse)
        elif isinstance(statement, ast.Match):
            arms: Counter[str] = Counter()
            for case in statement.cases:
                arms |= _most(case.body) + _pattern_names(case.pattern)
            result += arms
        else:
            for block in _blocks(statement):
                result += _most(block)
    return result


def _total(body: Iterable[ast.stmt]) -> Counter[str]:
    result: Counter[str] = Counter()
    for statement in body:
        result += _own_targets(statement)
        for block in _blocks(statement):
            result += _total(block)
        if isinstance(statement, ast.Match):
            for case in statement.cases:
                result += _total(case.body) + _pattern_names(case.pattern)
    return result


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.FunctionDef):
        return []
    return [b for name in ("body", "orelse", "finalbody") if (b := getattr(statement, name, []))]


def _own_targets(statement: ast.stmt) -> Counter[str]:
    """Names bound by the statement itself, not by statements inside it."""
    result: Counter[str] = Counter()
    if isinstance(statement, ast.FunctionDef):
        result[statement.name] += 1
        return result
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.expr):
            result += _stored_names(child)
    return result


def _stored_names(expression: ast.expr) -> Counter[str]:
    if isinstance(expression, ast.Lambda):
        return Counter()
    result: Counter[str] = Counter()
    if isinstance(expression, ast.Name) and isinstance(expression.ctx, ast.Store):
        result[expression.id] += 1
    for child in ast.iter_child_nodes(expression):
        if isinstance(child, ast.expr):
            result += _stored_names(child)
    return result


def _pattern_names(pattern: ast.pattern) -> Counter[str]:
    names = (getattr(n, "name", None) for n in ast.walk(pattern))
    return Counter(n for n in names if isinstance(n, str))
