"""From an artifact to Python functions whose code carries the user's files, names and lines."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from typing import Any

from cubepy.artifact import Artifact, Slot
from cubepy.ir.ops import TABLE
from cubepy.ir.types import DType, find_dtype
from cubepy.record import dataclass
from cubepy.runtimes.interpreter.words import WORDS, meaning_of
from cubepy.span import Span

FORMAT = 1
GENERATED = "<cubepy>"


@dataclass(frozen=True, slots=True)
class Site:
    """An operation that reports may name. `facts` is what its row needs to know at run time."""

    row: str
    span: Span | None
    loops: tuple[int, ...]
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Program:
    """A loaded kernel. `run` is its function: a generator function if its units wait for others."""

    kernel: str
    run: Callable[..., Any]
    waits: bool
    plane_dim: int
    cube_dim: tuple[int, int, int]
    slots: tuple[Slot, ...]
    elements: dict[str, DType]
    sites: tuple[Site, ...]


def load_program(artifact: Artifact) -> Program:
    """Compile the source of an artifact; its line map becomes the code's line table."""
    data = json.loads(artifact.code)
    assert data["format"] == FORMAT, "made by another version of CubePy"
    spans = _read_spans(data["spans"])
    namespace = _namespace(data)
    for code in _compile(data, spans):
        exec(code, namespace)
    _rename(data, namespace)
    sites = tuple(_read_site(site, spans, namespace) for site in data["sites"])
    run = namespace[data["root"]]
    return Program(
        data["kernel"],
        run,
        data["waits"],
        data["plane_dim"],
        artifact.cube_dim,
        artifact.slots,
        {name: _dtype(dtype) for name, dtype in data["elements"].items()},
        sites,
    )


def _read_spans(rows: list[list[Any]]) -> list[Span]:
    spans: list[Span] = []
    for row in rows:  # callers come first
        file, line, column, end_line, end_column, function, caller = row
        called = spans[caller] if caller >= 0 else None
        spans.append(Span(file, line, column, end_line, end_column, function, called))
    return spans


def _dtype(name: str) -> DType:
    found = find_dtype(name)
    assert found is not None
    return found


def _read_site(data: dict[str, Any], spans: list[Span], namespace: dict[str, Any]) -> Site:
    """Names of types and functions become what they name."""
    facts = {k: v for k, v in data.items() if k not in ("row", "span", "loops")}
    if "dtype" in facts:
        facts["dtype"] = _dtype(facts["dtype"])
    if "combine" in facts:
        facts["combine"] = namespace[facts["combine"]]
    span = spans[data["span"]] if data["span"] >= 0 else None
    return Site(data["row"], span, tuple(data["loops"]), facts)


def _namespace(data: dict[str, Any]) -> dict[str, Any]:
    """The globals of the generated functions: the runtime's words, and the meanings in use."""
    namespace = {**WORDS, "__name__": f"cubepy.kernel.{data['kernel']}"}
    for name, (row, dtype) in data["meanings"].items():
        namespace[name] = meaning_of(TABLE[row], _dtype(dtype))
    return namespace


def _compile(data: dict[str, Any], spans: list[Span]) -> list[Any]:
    """A code object for each function, with the name of the user's file, and one for the rest."""
    files = {name: file or GENERATED for name, file, _, _ in data["functions"]}
    tree = ast.parse(data["source"])
    if sys.version_info >= (3, 13):
        tree = _StopsAtOnce().visit(tree)
    rest = [node for node in tree.body if not isinstance(node, ast.FunctionDef)]
    codes = [compile(ast.Module(rest, []), GENERATED, "exec")]
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            _place(node, data["lines"], spans)
            codes.append(compile(ast.Module([node], []), files[node.name], "exec"))
    return codes


class _StopsAtOnce(ast.NodeTransformer):
    """From Python 3.13 on `breakpoint()` stops on its own line, and needs no loop around it."""

    def visit_For(self, node: ast.For) -> ast.AST:
        once = isinstance(node.iter, ast.Name) and node.iter.id == "_ONCE"
        return node.body[0] if once else self.generic_visit(node)


def _place(function: ast.FunctionDef, lines: list[int], spans: list[Span]) -> None:
    """Move every node of a function to the user's lines; what has none follows the line before."""
    places: dict[int, tuple[int, int, int, int]] = {}
    last = (1, 0, 1, 0)
    for number in range(function.lineno, (function.end_lineno or function.lineno) + 1):
        span = lines[number - 1]
        last = places[number] = _range(spans[span]) if span >= 0 else last
    for node in ast.walk(function):
        if isinstance(node, ast.expr | ast.stmt | ast.arg):
            place = places[node.lineno]
            node.lineno, node.col_offset, node.end_lineno, node.end_col_offset = place


def _range(span: Span) -> tuple[int, int, int, int]:
    if (span.end_line, span.end_column) < (span.line, span.column):
        return span.line, span.column, span.line, span.column
    return span.line, span.column, span.end_line, span.end_column


def _rename(data: dict[str, Any], namespace: dict[str, Any]) -> None:
    """Debuggers and tracebacks show the user's function names."""
    for name, _, shown, _ in data["functions"]:
        function, shown = namespace[name], shown or name
        function.__code__ = function.__code__.replace(co_name=shown, co_qualname=shown)
