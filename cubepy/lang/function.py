"""The undecorated half of a cube function: its source as an AST, its captures; no launch.

`read_source` serves kernels, helpers and plain Python functions alike.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import textwrap
import weakref
from collections.abc import Callable
from threading import RLock
from types import CodeType, FunctionType
from typing import Any, TypeGuard

from cubepy.errors import Error, fail
from cubepy.forks import at_fork
from cubepy.lang.edited import edit_behind, remember, text_of
from cubepy.lang.private import mangle, may_be_private
from cubepy.lang.unfiled import find_text, name_of, typed_lines
from cubepy.record import dataclass
from cubepy.span import Span


class CubeFunction:
    """A Python function marked as kernel-language code; kernels and helpers alike."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function: FunctionType = function  # type: ignore[assignment]
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__wrapped__ = function
        remember(function)


class BoundFunction:
    """A cube function that an object has as a method: the object is its first argument."""

    def __init__(self, function: CubeFunction, owner: Any) -> None:
        self.function = function
        self.owner = owner
        self.__name__ = function.__name__

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, BoundFunction)
            and self.function is other.function
            and self.owner is other.owner
        )

    def __hash__(self) -> int:
        return hash((id(self.function), id(self.owner)))


@dataclass(frozen=True, slots=True)
class Source:
    """The AST of a function, and where it stands."""

    node: ast.FunctionDef | ast.Lambda
    file: str
    name: str
    column_offset: int = 0
    has_walrus: bool = True
    """Whether `:=` may stand in it, which then is looked for."""

    @property
    def body(self) -> list[ast.stmt]:
        """The statements; a lambda is one `return`."""
        if isinstance(self.node, ast.FunctionDef):
            return self.node.body
        result = ast.Return(self.node.body)
        ast.copy_location(result, self.node.body)
        return [result]


_sources: dict[int, tuple[Any, Source]] = {}
"""By the identity of code, with a weak reference that removes the entry when the code dies."""


def read_source(code: Any) -> Source:
    """The source of a code object, parsed once; `CompileError` E105 where there is none.

    Kept by identity: equal code may come from different text, as annotations of locals leave no
    trace in it.
    """
    key = id(code)
    found = _sources.get(key)
    if found is None:
        with _reading:
            found = _sources.get(key)
            if found is None:
                found = weakref.ref(code, lambda _: _sources.pop(key, None)), _read_source(code)
                _sources[key] = found
    return found[1]


_reading = RLock()  # Python's own `linecache` is made for threads from 3.14 on
at_fork(_reading)


def _read_source(code: Any) -> Source:
    linecache.checkcache(code.co_filename)
    shown = linecache.getlines(code.co_filename) or typed_lines(code)
    lines = text_of(code, shown)
    if shown and not lines:
        raise fail("E105", name=code.co_name)
    file = code.co_filename if lines == shown else name_of("".join(lines), code.co_filename)
    edit = edit_behind(code, lines) if lines else None
    if edit is not None:
        raise fail("E105", name=code.co_name, hint=edit)
    block = _own_lines(lines, code)
    tree, offset = _parse_block(block, code.co_firstlineno)
    if tree is None or not [n for n in tree.body if isinstance(n, ast.FunctionDef)]:
        try:
            block, first = inspect.getsourcelines(code)
        except (OSError, TypeError, IndexError):
            return _read_unfiled(code)
        tree, offset = _parse_block(block, first)
    if tree is None:
        block = lines
        tree, offset = _parse("".join(lines)) if lines else None, 0
    if tree is None:
        raise fail("E105", name=code.co_name)
    node = _find(tree, code, offset)
    if node is None and code.co_flags & inspect.CO_COROUTINE:
        raise _asynchronous(tree, code, offset)
    if node is None:
        raise fail("E105", name=code.co_name)
    if any(map(may_be_private, block)):
        mangle(node, code)
    has_walrus = any(":=" in line for line in block)
    return Source(node, file, code.co_name, offset, has_walrus)


def _parse_block(block: list[str], first: int) -> tuple[ast.Module | None, int]:
    """The tree of lines that begin at line `first`, and the columns that they were indented by."""
    text = "".join(block)
    dedented = textwrap.dedent(text)
    offset = len(text.split("\n", 1)[0]) - len(dedented.split("\n", 1)[0])
    return _parse("\n" * (first - 1) + dedented), offset


def _own_lines(lines: list[str], code: Any) -> list[str]:
    """The lines of a function: those that its code comes from, and what is indented behind them.

    `inspect` finds them too, but looks through all modules of the process, and through the tokens.
    """
    first = code.co_firstlineno - 1
    if code.co_name == "<lambda>" or not 0 <= first < len(lines):
        return []
    end, depth = min(_last_line(code), len(lines)), _indentation(lines[first])
    last = end
    for number in range(end, len(lines)):
        text = lines[number].strip()
        if text and not text.startswith("#"):
            if _indentation(lines[number]) <= depth:
                break
            last = number + 1
    return lines[first:last]


def _last_line(code: Any) -> int:
    """The last line that code, or the code of a function inside it, comes from."""
    ends = [end or line or 0 for line, end, _, _ in code.co_positions()]
    inner = [_last_line(c) for c in code.co_consts if isinstance(c, CodeType)]
    return max([code.co_firstlineno, *ends, *inner])


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _read_unfiled(code: Any) -> Source:
    """The source of code of `python -c` or a prompt; E105 for any other that has no file."""
    found = find_text(code)
    if found is None:
        raise fail("E105", name=code.co_name)
    file, text = found
    tree = ast.parse(text)
    node = _find(tree, code, 0)
    if node is None and code.co_flags & inspect.CO_COROUTINE:
        raise _asynchronous(tree, code, 0)
    if node is None:
        raise fail("E105", name=code.co_name)
    if may_be_private(text):
        mangle(node, code)
    return Source(node, file, code.co_name, 0)


def _asynchronous(tree: ast.Module, code: Any, offset: int) -> Error:
    """E101 for an `async def`, at its place."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef) and node.name == code.co_name:
            line, column = node.lineno, node.col_offset + offset
            span = Span(code.co_filename, line, column, line, column + len("async def"), node.name)
            instead = "kernels are synchronous; write `def`"
            return fail("E101", span, what="`async def`", instead=instead)
    return fail("E105", name=code.co_name)


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _find(tree: ast.Module, code: Any, offset: int) -> ast.FunctionDef | ast.Lambda | None:
    """The function of `code` in `tree`: by name and, among several, by its place and parameters."""
    wanted = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    is_lambda = code.co_name == "<lambda>"
    top = tree.body[0] if tree.body else None
    if _is_function(top, code.co_name) and _starts_at(top, code) and _parameters(top) == wanted:
        return top
    candidates: list[ast.FunctionDef | ast.Lambda] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) if is_lambda else _is_function(node, code.co_name):
            candidates.append(node)  # type: ignore[arg-type]
    candidates = [n for n in candidates if _parameters(n) == wanted] or candidates
    if is_lambda:
        holding = [n for n in candidates if _holds(n, code, offset)]
        is_placed = any(column is not None for _, _, column, _ in code.co_positions())
        return _innermost(holding) if is_placed or len(holding) == 1 else None
    matching = [n for n in candidates if _starts_at(n, code)]
    return (matching or candidates or [None])[0]


def _is_function(node: ast.AST | None, name: str) -> TypeGuard[ast.FunctionDef]:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _parameters(node: ast.FunctionDef | ast.Lambda) -> tuple[str, ...]:
    a = node.args
    return tuple(arg.arg for arg in (*a.posonlyargs, *a.args, *a.kwonlyargs))


def _starts_at(node: ast.FunctionDef | ast.Lambda, code: Any) -> bool:
    first = node.lineno
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        first = node.decorator_list[0].lineno
    return first <= code.co_firstlineno <= node.lineno


def _holds(node: ast.FunctionDef | ast.Lambda, code: Any, offset: int) -> bool:
    """Whether all instructions of `code` come from the body of `node`."""
    assert isinstance(node, ast.Lambda)
    body, end = node.body, node.body.end_lineno or node.lineno
    first, last = (body.lineno, body.col_offset), (end, body.end_col_offset or 0)
    for line, end_line, column, end_column in code.co_positions():
        if None in (line, end_line, column, end_column) or column == end_column:
            continue  # the prologue has no text
        if not (first <= (line, column - offset) and (end_line, end_column - offset) <= last):
            return False
    return node.lineno <= code.co_firstlineno <= end


def _innermost(nodes: list[ast.FunctionDef | ast.Lambda]) -> ast.FunctionDef | ast.Lambda | None:
    return max(nodes, key=lambda n: (n.lineno, n.col_offset), default=None)


class Captures:
    """Reads the names that a function captures: closure cells, globals, builtins."""

    def __init__(self, function: FunctionType) -> None:
        self.function = function

    def lookup(self, name: str) -> Any:
        """The captured value; `KeyError` where the name is not bound."""
        code = self.function.__code__
        if name in code.co_freevars and self.function.__closure__:
            cell = self.function.__closure__[code.co_freevars.index(name)]
            try:
                return cell.cell_contents
            except ValueError:
                raise KeyError(name) from None
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        return vars(builtins)[name]

    def names(self) -> set[str]:
        """What the user could mean, for suggestions; of Python's own names none."""
        return {*self.function.__code__.co_freevars, *self.function.__globals__}


class _Absent:
    """What an attribute is that is missing."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = _Absent()


@dataclass(frozen=True, slots=True)
class Attributes:
    """Reads attributes of a captured object again, to compare them at later launches."""

    owner: Any

    def lookup(self, name: str) -> Any:
        """The attribute's present value; `ABSENT` where the object has none."""
        return getattr(self.owner, name, ABSENT)


def unwrap(function: Any) -> FunctionType | None:
    """The plain Python function of a cube function, function or lambda; else None."""
    if isinstance(function, CubeFunction):
        return function.function
    return function if isinstance(function, FunctionType) else None
