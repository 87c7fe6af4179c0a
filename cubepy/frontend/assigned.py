"""Which names of a function are assigned where: a static look at its AST.

A name assigned at one place may be comptime or a plain SSA value; one that is assigned at several
places becomes a mutable local. Two arms of one `if` exclude each other: see `exclusive`.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from cubepy.frontend.syntax import parts_of
from cubepy.frontend.walrus import all_targets, conditional_targets, evaluated_around
from cubepy.record import dataclass

_EXPRESSIONS = (ast.expr, ast.keyword)
_ASSIGNMENTS = (ast.Assign, ast.AnnAssign, ast.AugAssign)


@dataclass(frozen=True, slots=True)
class Assigned:
    """`mutable`: assigned more than once on some path, or by a `:=` that may not run (`walrus.py`).

    `exclusive`: only in arms of one `if`. `straight`: outside of all branches and loops.
    """

    mutable: frozenset[str]
    exclusive: frozenset[str]
    straight: frozenset[str]
    names: frozenset[str]
    """All names that are the function's own, as in Python: also where no assignment has run yet."""


_known: WeakKeyDictionary[ast.AST, Assigned] = WeakKeyDictionary()
_known_targets: WeakKeyDictionary[ast.AST, tuple[str, ...]] = WeakKeyDictionary()
_known_names: WeakKeyDictionary[ast.AST, frozenset[str]] = WeakKeyDictionary()


def assigned_names(node: ast.FunctionDef | ast.Lambda, has_walrus: bool = True) -> Assigned:
    """The names of a function by how they are assigned; parameters count once.

    `has_walrus`: whether a `:=` may stand in it. Looking for one takes longer than all else.
    """
    found = _known.get(node)
    if found is None:
        found = _known[node] = _assigned_names(node, has_walrus)
    return found


def _assigned_names(node: ast.FunctionDef | ast.Lambda, has_walrus: bool) -> Assigned:
    a = node.args
    stars = [arg for arg in (a.vararg, a.kwarg) if arg is not None]
    parameters = [arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs, *stars)]
    if isinstance(node, ast.Lambda):
        own = frozenset(parameters) | all_targets(node.body)
        return Assigned(frozenset(), frozenset(), own, own)
    most, total = _most(node.body), Counter[str]()
    _count(node.body, total)
    direct = Counter(parameters)
    for name in parameters:
        most[name] += 1
        total[name] += 1
    for statement in node.body:
        if isinstance(statement, _ASSIGNMENTS):
            direct.update(_own_targets(statement))
    named = all_targets(*node.body) if has_walrus else frozenset[str]()
    conditional = conditional_targets(node) if named else frozenset[str]()
    mutable = frozenset(n for n, count in most.items() if count > 1) | conditional
    exclusive = frozenset(n for n, count in total.items() if count > 1) - mutable
    straight = frozenset(n for n, count in direct.items() if count == total[n]) - named
    return Assigned(mutable, exclusive, straight, frozenset(total) | named)


def names_assigned_in(body: Iterable[ast.stmt]) -> frozenset[str]:
    """Every name that some statement of `body` assigns, at any depth."""
    return frozenset[str]().union(*map(_names, body))


def names_read_beside(function: ast.AST, loop: ast.stmt) -> frozenset[str]:
    """Every name of its own that a function reads, but for what a loop of it reads."""
    found: set[str] = set()
    left: list[tuple[ast.AST, frozenset[str]]] = [
        (part, frozenset()) for part in parts_of(function)
    ]
    while left:
        node, hidden = left.pop()
        if node is loop:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found |= {node.id} - hidden
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found |= {node.target.id} - hidden
        inside = hidden | _names_of_scope(node)
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            left += [(part, hidden) for part in evaluated_around(node)]
        generators = getattr(node, "generators", ())
        left += [(g.iter, hidden) for g in generators[:1]]  # evaluated in the scope around
        left += [(part, inside) for part in parts_of(node)]
    return frozenset(found)


def _names_of_scope(node: ast.AST) -> frozenset[str]:
    """The names that a function within a function, or a comprehension, has for itself."""
    if isinstance(node, ast.FunctionDef | ast.Lambda):
        return assigned_names(node).names
    targets = (g.target for g in getattr(node, "generators", ()))
    return frozenset(n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))


def _names(statement: ast.stmt) -> frozenset[str]:
    known = _known_names.get(statement)
    if known is None:
        found: Counter[str] = Counter()
        _count([statement], found)
        known = _known_names[statement] = frozenset(found)
    return known


def _most(body: Iterable[ast.stmt]) -> Counter[str]:
    """The largest number of assignments on a path through `body`, for each name."""
    result: Counter[str] = Counter()
    for statement in body:
        result.update(_own_targets(statement))
        if isinstance(statement, ast.If):
            result.update(_most(statement.body) | _most(statement.orelse))
        elif isinstance(statement, ast.Match):
            arms: Counter[str] = Counter()
            for case in statement.cases:
                arms |= _most(case.body) + _pattern_names(case.pattern)
            result.update(arms)
        else:
            for block in _blocks(statement):
                result.update(_most(block))
    return result


def _count(body: Iterable[ast.stmt], result: Counter[str]) -> None:
    """Add the assignments of `body`, on all paths."""
    for statement in body:
        result.update(_own_targets(statement))
        for block in _blocks(statement):
            _count(block, result)
        if isinstance(statement, ast.Match):
            for case in statement.cases:
                _count(case.body, result)
                result.update(_pattern_names(case.pattern))


def _blocks(statement: ast.stmt) -> list[list[ast.stmt]]:
    if isinstance(statement, ast.FunctionDef):
        return []
    return [b for name in ("body", "orelse", "finalbody") if (b := getattr(statement, name, []))]


def _own_targets(statement: ast.stmt) -> tuple[str, ...]:
    """Names bound by the statement itself, not by statements inside it."""
    known = _known_targets.get(statement)
    if known is None:
        known = _known_targets[statement] = tuple(_find_targets(statement))
    return known


def _find_targets(statement: ast.stmt) -> list[str]:
    found: list[str] = []
    waiting: list[ast.AST] = [statement]
    if isinstance(statement, ast.FunctionDef):
        found, waiting = [statement.name], [*evaluated_around(statement)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                found.append(node.id)
        elif isinstance(node, ast.Lambda):
            waiting += evaluated_around(node)
        else:
            waiting += [n for n in parts_of(node) if isinstance(n, _EXPRESSIONS)]
    return found


def _pattern_names(pattern: ast.pattern) -> Counter[str]:
    names = (getattr(n, "name", None) for n in ast.walk(pattern))
    return Counter(n for n in names if isinstance(n, str))
