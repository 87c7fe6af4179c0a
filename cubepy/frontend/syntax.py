"""Python's AST, walked quickly: traces look through every function that they inline."""

from __future__ import annotations

import ast
from collections.abc import Iterator


def parts_of(node: ast.AST) -> list[ast.AST]:
    """As `ast.iter_child_nodes`."""
    parts: list[ast.AST] = []
    for name in node._fields:
        part = getattr(node, name, None)
        if isinstance(part, ast.AST):
            parts.append(part)
        elif isinstance(part, list):
            parts += [item for item in part if isinstance(item, ast.AST)]  # type: ignore[misc]
    return parts


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all in it, in no particular order."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += parts_of(node)


def breaks(body: list[ast.stmt]) -> bool:
    """Whether a `break` in `body` leaves the loop of this body."""
    for node in body:
        if isinstance(node, ast.Break):
            return True
        if isinstance(node, ast.For | ast.While):
            if breaks(node.orelse):
                return True
        elif not isinstance(node, ast.FunctionDef) and any(
            breaks(block) for block in _blocks(node)
        ):
            return True
    return False


def _blocks(node: ast.stmt) -> list[list[ast.stmt]]:
    blocks = [getattr(node, "body", []), getattr(node, "orelse", [])]
    return blocks + [case.body for case in getattr(node, "cases", [])]


def returns(body: list[ast.stmt]) -> bool:
    """Whether a `return` is in `body`."""
    return any(isinstance(n, ast.Return) for s in body for n in walk(s))
