"""Errors about names and syntax, with what to write instead."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from dataclasses import replace

from cubepy.errors import Error
from cubepy.frontend.foreign import translation
from cubepy.frontend.tracer import Frame
from cubepy.ir.types import find_dtype
from cubepy.span import Span, line_text

_INSTEAD: dict[type[ast.AST], tuple[str, str]] = {
    ast.Try: ("`try`", "kernels raise nothing; test the condition with `if`"),
    ast.With: ("`with`", "open and close things outside the kernel"),
    ast.Yield: ("`yield`", "store results in an output tensor"),
    ast.YieldFrom: ("`yield from`", "store results in an output tensor"),
    ast.Await: ("`await`", "kernels are synchronous"),
    ast.AsyncFunctionDef: ("`async def`", "kernels are synchronous; write `def`"),
    ast.AsyncFor: ("`async for`", "kernels are synchronous; write `for`"),
    ast.AsyncWith: ("`async with`", "open and close things outside the kernel"),
    ast.ClassDef: ("`class`", "define the dataclass outside the kernel"),
    ast.Import: ("`import`", "import at the head of the file"),
    ast.ImportFrom: ("`import`", "import at the head of the file"),
    ast.Global: ("`global`", "pass values as arguments, and store results in an output tensor"),
    ast.Nonlocal: ("`nonlocal`", "pass values as arguments, and return or store the result"),
    ast.Delete: ("`del`", "leave this line out; names need no deleting"),
    ast.Raise: ("`raise`", "use `assert`, or store an error code in an output tensor"),
    ast.Set: ("a set", "use a tuple"),
    ast.SetComp: ("a set comprehension", "use a tuple"),
    ast.DictComp: ("a dict comprehension", "build the dict outside the kernel"),
    ast.MatchClass: ("a class pattern", "test fields with `if`"),
    ast.MatchMapping: ("a mapping pattern", "test items with `if`"),
}
if sys.version_info >= (3, 12):
    _INSTEAD[ast.TypeAlias] = ("`type`", "define types outside the kernel")


def unsupported(frame: Frame, node: ast.AST) -> Error:
    """E101 for a construct that the language does not have."""
    what, instead = _INSTEAD.get(
        type(node), (f"`{type(node).__name__}`", "write it with simple statements")
    )
    frame.tracer.b.span = _first_word(frame.span(node))
    return frame.tracer.error("E101", what=what, instead=instead)


def first_line(span: Span) -> Span:
    """The part of a span that lies in its first line."""
    if span.end_line == span.line:
        return span
    return replace(span, end_line=span.line, end_column=len(line_text(span).encode()))


def _first_word(span: Span) -> Span:
    """The first word of a statement over several lines."""
    if span.end_line == span.line:
        return span
    word = re.match(r"\w*", line_text(span)[span.column :])
    end = span.column + (word.end() if word else 0)
    return replace(span, end_line=span.line, end_column=end)


def closest(name: str, names: Iterable[str], prefix: str = "", cutoff: float = 0.6) -> str:
    """A sentence that names the closest of `names`, or nothing."""
    import difflib  # an error needs it, a launch does not

    found = difflib.get_close_matches(name, list(names), _LOOKED_AT, cutoff)
    if not found:
        return ""
    return f"did you mean `{prefix}{min(found, key=lambda known: edits(name, known))}`?"


_LOOKED_AT = 8
"""Names that share most characters, of which the closest is the one with the fewest edits."""


def edits(a: str, b: str) -> int:
    """How many characters were left out, added, changed or swapped with their neighbour: the
    distance of Damerau and Levenshtein (F. J. Damerau, CACM 7 (3), 1964), in which no part of the
    text is edited twice."""
    before: list[int] = []
    row = list(range(len(b) + 1))
    for i in range(1, len(a) + 1):
        last, before, row = before, row, [i]
        for j in range(1, len(b) + 1):
            changed = before[j - 1] + (a[i - 1] != b[j - 1])
            found = min(before[j] + 1, row[j - 1] + 1, changed)
            if min(i, j) > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                found = min(found, last[j - 2] + 1)
            row.append(found)
    return row[-1]


def no_attribute(name: str, names: Iterable[str]) -> AttributeError:
    """The error for a name that is none of CubePy's: it says which dtype another library calls so,
    or what is like it."""
    dtype = find_dtype(name)
    hint = f"did you mean `cp.{dtype.name}`?" if dtype else closest(name, names, "cp.", 0.7)
    return AttributeError(f"module 'cubepy' has no attribute {name!r}{hint and '; '}{hint}")


def undefined(frame: Frame, owner: Frame, name: str) -> Error:
    """E102 for an unknown name."""
    known = set(frame.env) | (owner.captures.names() if owner.captures else set[str]())
    suggestion = translation(name) or closest(name, known | OF_PYTHON) or _DEFINE
    return frame.tracer.error("E102", name=name, suggestion=suggestion)


OF_PYTHON = frozenset(
    (
        *("abs", "all", "any", "bool", "breakpoint", "divmod", "enumerate", "filter", "float"),
        *("getattr", "hasattr", "int", "isinstance", "len", "list", "map", "max", "min", "pow"),
        *("print", "range", "reversed", "round", "sorted", "sum", "super", "tuple", "type", "zip"),
    )
)
"""Python's own functions that kernels call."""


def of_whole_arrays(name: str) -> str:
    """What to do in place of NumPy's function of all elements; nothing for other names."""
    if name in PRODUCTS:
        return "multiply and add in a loop, or call cp.kernels.matmul outside the kernel"
    if name in REDUCTIONS:
        loop = f"write {name}(x) of one axis" if name in OF_PYTHON else "loop over the elements"
        return f"{loop}, or call cp.kernels.{name} outside the kernel"
    return ""


PRODUCTS = ("dot", "inner", "matmul", "vdot")
REDUCTIONS = (
    *("all", "any", "argmax", "argmin", "cumprod", "cumsum", "max", "mean", "min", "prod", "std"),
    *("sum", "var"),
)
"""Names that are those of `cp.kernels` too."""


_DEFINE = "set it in the kernel, pass it as an argument, or define it at the head of the file"
