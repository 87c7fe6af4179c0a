"""Which names the `:=` of an expression assign, and when: a static look at its AST.

Operands that may not run (of `and`, `or`, conditional expressions, chains of comparisons) assign
their names only where they run. Such a name is unset after the expression, but not where the
expression being true means that it was assigned: `if i < n and (v := x[i]) > 0: use(v)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from cubepy.frontend.syntax import parts_of

_SCOPES = (ast.Lambda, ast.FunctionDef)


def evaluated_around(function: ast.FunctionDef | ast.Lambda) -> list[ast.expr]:
    """What a function's definition evaluates where it stands: the defaults of its parameters."""
    defaults = [*function.args.defaults, *function.args.kw_defaults]
    return [default for default in defaults if default is not None]


def _in_scope(nodes: Iterable[ast.AST]) -> list[ast.AST]:
    """The nodes, of functions what is evaluated around them."""
    found: list[ast.AST] = []
    for node in nodes:
        found += evaluated_around(node) if isinstance(node, _SCOPES) else [node]
    return found


def all_targets(*nodes: ast.AST) -> frozenset[str]:
    """Every name that a `:=` in the nodes assigns, inside of functions not counted."""
    found: set[str] = set()
    waiting = _in_scope(nodes)
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.NamedExpr):
            found.add(inner.target.id)
        waiting += _in_scope(parts_of(inner))
    return frozenset(found)


def certain_targets(node: ast.expr) -> frozenset[str]:
    """The names that are assigned whenever `node` is evaluated."""
    found = frozenset({node.target.id}) if isinstance(node, ast.NamedExpr) else frozenset[str]()
    return found.union(*(certain_targets(part) for part in _certain_parts(node)))


def _certain_parts(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BoolOp):
        return node.values[:1]
    if isinstance(node, ast.IfExp):
        return [node.test]
    if isinstance(node, ast.Compare):
        return [node.left, node.comparators[0]]
    if isinstance(node, ast.Lambda):
        return evaluated_around(node)
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return [node.generators[0].iter]
    return [child for child in parts_of(node) if isinstance(child, ast.expr)]


def targets_where_true(node: ast.expr | None) -> frozenset[str]:
    """The names that have been assigned where `node` is true."""
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return frozenset[str]().union(*(targets_where_true(v) for v in node.values))
    if isinstance(node, ast.Compare):
        parts = [node.left, *node.comparators]
        return frozenset[str]().union(*(certain_targets(part) for part in parts))
    return frozenset() if node is None else certain_targets(node)


def conditional_targets(node: ast.AST) -> frozenset[str]:
    """The names of a function's body that are assigned where operands may not run, or in a loop."""
    found: set[str] = set()
    for child in _in_scope(parts_of(node)):
        if isinstance(child, ast.expr):
            is_repeated = isinstance(node, ast.While | ast.match_case)
            found |= all_targets(child) - (frozenset() if is_repeated else certain_targets(child))
        else:
            found |= conditional_targets(child)
    return frozenset(found)
