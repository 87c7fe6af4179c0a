"""Errors about names and syntax, with what to write instead."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable

from cubepy.errors import Error
from cubepy.frontend.tracer import Frame

_INSTEAD: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("try/except", "kernels raise nothing; test the condition with `if`"),
    ast.With: ("with", "call the function instead"),
    ast.Yield: ("yield", "store results in an output tensor"),
    ast.YieldFrom: ("yield from", "store results in an output tensor"),
    ast.Await: ("await", "kernels are synchronous"),
    ast.AsyncFunctionDef: ("async def", "kernels are synchronous"),
    ast.ClassDef: ("class", "define the dataclass outside the kernel"),
    ast.Import: ("import", "import at the head of the file"),
    ast.ImportFrom: ("import", "import at the head of the file"),
    ast.Global: ("global", "pass the value as an argument"),
    ast.Nonlocal: ("nonlocal", "return the value from the inner function"),
    ast.Delete: ("del", "leave the name alone"),
    ast.Raise: ("raise", "use `assert`, or store an error code in an output tensor"),
    ast.Set: ("a set", "use a tuple"),
    ast.SetComp: ("a set comprehension", "use a tuple"),
    ast.DictComp: ("a dict comprehension", "build it outside the kernel"),
    ast.NamedExpr: (":=", "assign in a statement of its own"),
    ast.MatMult: ("@", "write the loops, or call cp.kernels.matmul outside the kernel"),
    ast.Assert: ("assert on a runtime value", "use cp.static_assert for comptime conditions"),
    ast.Match: ("match", "use if/elif/else"),
}


def unsupported(frame: Frame, node: ast.AST) -> Error:
    """E101 for a construct that the language does not have."""
    frame.tracer.b.span = frame.span(node)
    what, instead = _INSTEAD.get(
        type(node), (type(node).__name__, "write it with simple statements")
    )
    return frame.tracer.error("E101", what=f"`{what}`", instead=instead)


def closest(name: str, names: Iterable[str], prefix: str = "") -> str:
    """A sentence that names the closest of `names`, or nothing."""
    found = difflib.get_close_matches(name, list(names), 1, 0.6)
    return f"did you mean `{prefix}{found[0]}`?" if found else ""


def undefined(frame: Frame, owner: Frame, name: str) -> Error:
    """E102 for an unknown name."""
    known = set(frame.env) | (owner.captures.names() if owner.captures else set[str]())
    return frame.tracer.error("E102", name=name, suggestion=closest(name, known))
