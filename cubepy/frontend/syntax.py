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
