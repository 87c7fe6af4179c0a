"""KernelIR from text: the inverse of `printer`.

A recursive-descent parser over tokens; wrong text raises `SyntaxError` with line and column.
"""

from __future__ import annotations

import ast
import re
from dataclasses import fields
from typing import Any, NoReturn

from cubepy.artifact import KINDS, ParamKind
from cubepy.ir.core import ALIGNMENT, UNLIMITED, Attr, Kernel, Op, Param, Region, Value
from cubepy.ir.ops import TABLE
from cubepy.ir.types import Buffer, DType, Ref, Space, Type, find_dtype, make_line
from cubepy.span import Span
from cubepy.targets import LAUNCH_ATTRIBUTES

_TOKEN = re.compile(
    r"\s*(?:;[^\n]*\n\s*)*(?P<token>"
    r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|->|%[\w.$]+|@[\w.:<>-]+|"
    r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan)(?![\w.])|[A-Za-z_][\w.]*|[{}()\[\]<>,:=])",
)

_LINE_END = re.compile(r"[ \t]*(?:;[^\n]*)?\n")


def parse_kernel(text: str, file: str = "") -> Kernel:
    """The kernel that `text` describes; it is not verified.

    With `file`, its name, operations that name no place in a source are at their line of the text.
    """
    parser = _Parser(text, file)
    kernel = parser.kernel()
    parser.expect_end()
    return kernel


class _Parser:
    def __init__(self, text: str, file: str = "") -> None:
        self._text = text
        self._file = file
        self._name = ""
        self._position = 0
        self._values: dict[str, Value] = {}
        self._files: list[str] = []
        self._functions: list[str] = []

    # Tokens

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._position)
        return match["token"] if match else ""

    def _next(self) -> str:
        match = _TOKEN.match(self._text, self._position)
        if not match:
            self._fail("unexpected text")
        self._position = match.end()
        return match["token"]

    def _accept(self, token: str) -> bool:
        if self._peek() == token:
            self._next()
            return True
        return False

    def _expect(self, token: str) -> None:
        found = self._peek()
        if found != token:
            self._fail(f"expected {token!r}, found {found!r}")
        self._next()

    def expect_end(self) -> None:
        """Only blanks and comments may follow."""
        if self._peek() or re.sub(r";[^\n]*", "", self._text[self._position :]).strip():
            self._fail("expected the end")

    def _fail(self, message: str) -> NoReturn:
        line, column = self._place(self._position)
        found = SyntaxError(f"line {line}, column {column + 1}: {message}")
        found.lineno, found.offset = line, column
        raise found

    def _place(self, position: int) -> tuple[int, int]:
        """The line, counted from 1, and the column, from 0."""
        before = self._text[:position]
        return before.count("\n") + 1, len(before) - before.rfind("\n") - 1

    def _integer(self) -> int:
        token = self._next()
        try:
            return int(token)
        except ValueError:
            self._fail(f"expected an integer, found {token!r}")

    # Kernels

    def kernel(self) -> Kernel:
        self._tables()
        self._expect("kernel")
        name = self._name = self._next().removeprefix("@")
        params = self._params()
        self._expect("cube_dim")
        dims = (self._integer(), self._integer(), self._integer())
        self._expect("plane_dim")
        plane = self._integer()
        attributes = self._launch_attributes()
        limit = self._integer() if self._accept("limit") else UNLIMITED
        flat = self._accept("flat")
        alignment = self._integer() if self._accept("alignment") else ALIGNMENT
        aligned, small = self._counted("aligned"), self._counted("small")
        written = self._written()
        noalias = self._accept("noalias")
        body = self._region(())
        facts = (limit, flat, aligned, small, alignment)
        return Kernel(name, params, body, dims, plane, written, noalias, attributes, *facts)

    def _tables(self) -> None:
        while (kind := self._peek()) in ("file", "function"):
            self._next()
            self._integer()
            table = self._files if kind == "file" else self._functions
            table.append(ast.literal_eval(self._next()))

    def _params(self) -> tuple[Param, ...]:
        params: list[Param] = []
        self._expect("(")
        while not self._accept(")"):
            value = self._definition_with_type()
            self._expect("=")
            word, argument = self._next(), self._next()
            params.append(Param(value, argument, self._kind(word)))
            self._accept(",")
        return tuple(params)

    def _kind(self, word: str) -> ParamKind:
        """What a parameter holds: an axis, or facts in braces, follow its word and argument."""
        cls = KINDS.get(word)
        if cls is None:
            self._fail(f"{word!r} is no kind of parameter: {', '.join(KINDS)}")
        facts: dict[str, Any] = {}
        if re.fullmatch(r"\d+", self._peek()):
            facts["axis"] = self._integer()
        elif self._peek() == "{":
            facts = dict(self._attrs())
        names = {f.name for f in fields(cls)}
        if not names >= facts.keys():
            self._fail(f"a {word} has no {', '.join(sorted(facts.keys() - names))}")
        return cls(**facts)

    def _launch_attributes(self) -> tuple[tuple[str, Attr], ...]:
        found = self._attrs() if self._accept("attributes") else {}
        if not LAUNCH_ATTRIBUTES.keys() >= found.keys():
            self._fail(f"launches have the attributes {', '.join(LAUNCH_ATTRIBUTES)}")
        return tuple(sorted(found.items()))

    def _counted(self, keyword: str) -> frozenset[str]:
        count = self._integer() if self._accept(keyword) else 0
        return frozenset([self._next() for _ in range(count)])

    def _written(self) -> frozenset[str]:
        names: list[str] = []
        if self._accept("written"):
            while self._peek() not in ("{", "noalias"):
                names.append(self._next())
        return frozenset(names)

    def _definition_with_type(self) -> Value:
        name = self._next()
        self._expect(":")
        return self._define(name, self._type())

    def _define(self, name: str, t: Type) -> Value:
        if name in self._values:
            self._fail(f"{name} is defined twice")
        hint = re.sub(r"\.\d+$", "", name[1:])
        value = Value(t, "" if hint.isdigit() else hint)
        self._values[name] = value
        return value

    # Regions and operations

    def _region(self, args: tuple[Value, ...]) -> Region:
        self._expect("{")
        body: list[Op] = []
        while not self._accept("}"):
            body.append(self._op())
        return Region(args, tuple(body))

    def _op(self) -> Op:
        start = self._position
        names = self._result_names()
        word = self._next()
        row = TABLE.get(word)
        if row is None:
            self._fail(f"unknown operation {word!r}")
        operands = () if _LINE_END.match(self._text, self._position) else self._operands()
        attrs = self._attrs() if self._peek() == "{" and not row.regions else {}
        if row.regions and self._peek() == "{":
            attrs = self._attrs()
        regions = tuple(self._named_region(name) for name in row.regions)
        if row.regions and self._accept("->"):
            names = self._operand_names()
        results = self._results(names)
        own = self._line_span(start) if self._file else None
        return Op(row, operands, attrs, results, regions, self._span() or own)

    def _line_span(self, start: int) -> Span:
        """The first line of an operation in this text."""
        token = _TOKEN.match(self._text, start)
        assert token is not None
        line, column = self._place(token.start("token"))
        end = self._text.find("\n", token.start("token"))
        width = (len(self._text) if end < 0 else end) - token.start("token")
        return Span(self._file, line, column, line, column + width, self._name)

    def _result_names(self) -> list[str]:
        if not self._peek().startswith("%"):
            return []
        names = self._operand_names()
        self._expect("=")
        return names

    def _operand_names(self) -> list[str]:
        names: list[str] = []
        while self._peek().startswith("%"):
            names.append(self._next())
            if not self._accept(","):
                break
        return names

    def _operands(self) -> tuple[Value, ...]:
        return tuple(self._use(name) for name in self._operand_names())

    def _use(self, name: str) -> Value:
        if name not in self._values:
            self._fail(f"{name} is not defined")
        return self._values[name]

    def _named_region(self, name: str) -> Region:
        self._expect(name)
        args: list[Value] = []
        if self._accept("("):
            while not self._accept(")"):
                args.append(self._definition_with_type())
                self._accept(",")
        return self._region(tuple(args))

    def _results(self, names: list[str]) -> tuple[Value, ...]:
        if not names:
            return ()
        self._expect(":")
        results = [self._define(names[0], self._type())]
        for name in names[1:]:
            self._expect(",")
            results.append(self._define(name, self._type()))
        return tuple(results)

    # Attributes, types, spans

    def _attrs(self) -> dict[str, Attr]:
        attrs: dict[str, Attr] = {}
        self._expect("{")
        while not self._accept("}"):
            key = self._next()
            self._expect("=")
            attrs[key] = self._attr()
            self._accept(",")
        return attrs

    def _attr(self) -> Attr:
        token = self._peek()
        if token == "[":
            return self._tuple()
        if token in ("true", "false"):
            return self._next() == "true"
        if token[:1] in "'\"":
            return str(ast.literal_eval(self._next()))
        if re.match(r"-?(\d|inf|nan)", token):
            return _number(self._next())
        return self._type()

    def _tuple(self) -> tuple[Attr, ...]:
        items: list[Attr] = []
        self._expect("[")
        while not self._accept("]"):
            items.append(self._attr())
            self._accept(",")
        return tuple(items)

    def _type(self) -> Type:
        word = self._next()
        if word == "line":
            self._expect("<")
            element = self._dtype(self._next())
            self._expect(",")
            width = self._integer()
            self._expect(">")
            return make_line(element, width)
        if word == "buffer":
            return self._buffer()
        if word == "ref":
            return self._ref()
        return self._dtype(word)

    def _buffer(self) -> Buffer:
        self._expect("<")
        element = self._dtype(self._next())
        self._expect(",")
        space = Space(self._next())
        self._expect(">")
        return Buffer(element, space)

    def _ref(self) -> Ref:
        self._expect("<")
        t = self._type()
        self._expect(">")
        if isinstance(t, Buffer | Ref):
            self._fail("a reference refers to a scalar or a line")
        return Ref(t)

    def _dtype(self, name: str) -> DType:
        dtype = find_dtype(name)
        if dtype is None or dtype.name != name:
            self._fail(f"unknown type {name!r}")
        return dtype

    def _span(self) -> Span | None:
        if not self._peek().startswith("@"):
            return None
        span: Span | None = None
        for position in reversed(self._next()[1:].split("<")):
            file, function, line, column, end_line, end_column = map(
                int, re.split("[:-]", position)
            )
            span = Span(
                self._files[file],
                line,
                column,
                end_line,
                end_column,
                self._functions[function],
                span,
            )
        return span


def _number(token: str) -> int | float:
    return int(token) if re.fullmatch(r"-?\d+", token) else float(token)
