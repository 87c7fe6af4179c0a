"""The names that a function refers to, from its source: what stands behind them is its meaning."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CodeType
from typing import TypeAlias

from cubepy.lang.function import Source
from cubepy.record import dataclass

Chain: TypeAlias = tuple[str, ...]
"""The attributes behind a name, as in `("linalg", "norm")` for `np.linalg.norm`."""
_STATEFUL = (ast.Global, ast.Nonlocal, ast.Import, ast.ImportFrom, ast.Await, ast.AsyncFor)
_INNARDS = {
    *("__builtins__", "__class__", "__closure__", "__code__", "__dict__", "__globals__"),
    "__subclasses__",
}


@dataclass(frozen=True, slots=True)
class Names:
    """`free`: names from outside of a function, with all chains behind each, `()` for the name
    alone; `attributes`: all attribute names; `stateful`: what reads or writes state that no
    name shows, empty if nothing does."""

    free: dict[str, frozenset[Chain]]
    attributes: frozenset[str]
    stateful: str


def names_of(source: Source, code: CodeType) -> Names:
    """The names of a function whose code was compiled from this source.

    Python knows which names are local; the source also has those that leave no trace in code, such
    as annotations of locals.
    """
    node = source.node
    parts = node.body if isinstance(node, ast.FunctionDef) else [node.body]
    uses: dict[str, set[Chain]] = {}
    attributes: set[str] = set()
    stateful = ""
    for part in parts:
        for found in _walk(part):
            if isinstance(found, _STATEFUL):
                stateful = type(found).__name__.lower()
            elif isinstance(found, tuple):
                uses.setdefault(found[0], set()).add(found[1:])
                attributes.update(found[1:])
            elif isinstance(found, ast.Attribute):
                attributes.add(found.attr)
            elif isinstance(found, ast.MatchClass):
                attributes |= _matched(found)
    known, local = _of_code(code)
    free = {n: frozenset(c) for n, c in uses.items() if n in known or n not in local}
    inside = attributes & _INNARDS
    return Names(free, frozenset(attributes), stateful or next(iter(sorted(inside)), ""))


def _matched(pattern: ast.MatchClass) -> set[str]:
    """The attributes that a pattern reads; those without a name stand in `__match_args__`."""
    return {*pattern.kwd_attrs, *(["__match_args__"] if pattern.patterns else [])}


def _walk(node: ast.AST) -> Iterator[ast.AST | Chain]:
    """All nodes; names with the attributes behind them as one chain."""
    todo = [node]
    while todo:
        inner = node = todo.pop()
        chain: list[str] = []
        while isinstance(inner, ast.Attribute):
            chain.append(inner.attr)
            inner = inner.value
        if isinstance(inner, ast.Name):
            yield (inner.id, *reversed(chain))
        else:
            yield node
            todo += reversed(list(ast.iter_child_nodes(node)))


def _of_code(code: CodeType) -> tuple[set[str], set[str]]:
    """The names that code, and the code inside it, takes from outside, and those of its own."""
    known = {*code.co_names, *code.co_freevars}
    local = {*code.co_varnames, *code.co_cellvars}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names, own = _of_code(inner)
            known |= names - {*inner.co_freevars}
            local |= own
    return known, local
