"""KernelIR as text. `parser` reads it back; the two are inverse.

A line is `%result = op %operand, ... {attr = value} : type @span`. Constants show their value with
enough digits; NaN and infinities are words. A span is `file:line:col-line:col` with `file` an index
into the list at the head; the spans of inlined calls follow behind `<`.
"""

from __future__ import annotations

from dataclasses import fields

from cubepy.artifact import Listing, Place
from cubepy.ir.core import ALIGNMENT, UNLIMITED, Attr, Kernel, Op, Param, Region, Value
from cubepy.ir.types import Buffer, DType, Line, Ref
from cubepy.span import Span


def print_kernel(kernel: Kernel, *, spans: bool = True) -> Listing:
    """The text of a kernel; without spans it is shorter, and parses too."""
    return _Printer(spans).kernel(kernel)


class _Printer:
    def __init__(self, spans: bool) -> None:
        self._spans = spans
        self._names: dict[Value, str] = {}
        self._counts: dict[str, int] = {}
        self._files: list[str] = []
        self._functions: list[str] = []
        self._lines: list[str] = []
        self._places: dict[int, Place] = {}

    def kernel(self, kernel: Kernel) -> Listing:
        params = ", ".join(map(self._param, kernel.params))
        dims = " ".join(str(d) for d in kernel.cube_dim)
        head = f"kernel @{kernel.name}({params}) cube_dim {dims} plane_dim {kernel.plane_dim}"
        if kernel.attributes:
            pairs = (f"{name} = {self._attr(value)}" for name, value in kernel.attributes)
            head += f" attributes {{{', '.join(pairs)}}}"
        if kernel.limit != UNLIMITED:
            head += f" limit {kernel.limit}"
        if kernel.flat:
            head += " flat"
        if kernel.alignment != ALIGNMENT:
            head += f" alignment {kernel.alignment}"
        for keyword, names in (("aligned", kernel.aligned), ("small", kernel.small)):
            if names:
                head += f" {keyword} {len(names)} " + " ".join(sorted(names))
        if kernel.written:
            head += " written " + " ".join(sorted(kernel.written))
        if kernel.noalias:
            head += " noalias"
        self._region(kernel.body, 1)
        table = [f"file {i} {name!r}" for i, name in enumerate(self._files)]
        table += [f"function {i} {name!r}" for i, name in enumerate(self._functions)]
        lines = [(text, self._places.get(k)) for k, text in enumerate(self._lines)]
        head_lines = [(row, None) for row in [*table, head + " {"]]
        return Listing.of([*head_lines, *lines, ("}", None)])

    def _param(self, param: Param) -> str:
        """Its kind, the argument, and in braces what the kind says besides: not its defaults."""
        kind = param.kind
        said = {f.name: getattr(kind, f.name) for f in fields(kind)}
        facts = [
            f"{f.name} = {self._attr(said[f.name])}"
            for f in fields(kind)
            if said[f.name] != f.default
        ]
        axis = f" {said['axis']}" if "axis" in said else ""
        braces = f" {{{', '.join(facts)}}}" if facts and not axis else ""
        value = param.value
        return f"{self._define(value)}: {value.type!r} = {kind.word} {param.argument}{axis}{braces}"

    def _define(self, value: Value) -> str:
        count = self._counts.get(value.name, 0)
        self._counts[value.name] = count + 1
        name = value.name or str(count)
        if value.name and count:
            name += f".{count}"
        self._names[value] = name
        return f"%{name}"

    def _region(self, region: Region, depth: int) -> None:
        for op in region.ops:
            self._op(op, depth)

    def _op(self, op: Op, depth: int) -> None:
        text = op.row.name
        if op.operands:
            text += " " + ", ".join(f"%{self._names[v]}" for v in op.operands)
        if op.attrs:
            pairs = (f"{k} = {self._attr(v)}" for k, v in sorted(op.attrs.items()))
            text += " {" + ", ".join(pairs) + "}"
        line = len(self._lines)
        self._lines.append("")
        for name, region in zip(op.row.regions, op.regions, strict=True):
            text = self._open(text, name, region, line, depth)
            self._region(region, depth + 1)
            line = len(self._lines)
            self._lines.append("")
            text = "}"
        results = ", ".join(self._define(v) for v in op.results)
        self._finish(op, text, results, line, depth)

    def _open(self, text: str, name: str, region: Region, line: int, depth: int) -> str:
        args = ", ".join(f"{self._define(v)}: {v.type!r}" for v in region.args)
        inner = f" {name}" + (f"({args})" if args else "") + " {"
        self._lines[line] = "  " * depth + text + inner
        return text

    def _finish(self, op: Op, text: str, results: str, line: int, depth: int) -> None:
        types = ", ".join(repr(v.type) for v in op.results)
        if op.regions:
            text += f" -> {results} : {types}" if results else ""
        elif results:
            text = f"{results} = {text} : {types}"
        self._lines[line] = "  " * depth + text + self._span(op.span)
        if op.span is not None:
            self._places[line] = op.span.file, op.span.line

    def _attr(self, value: Attr) -> str:
        if isinstance(value, tuple):
            return "[" + ", ".join(self._attr(v) for v in value) + "]"
        if isinstance(value, str):
            return repr(value)
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return repr(value)
        assert isinstance(value, DType | Line | Buffer | Ref)
        return repr(value)

    def _span(self, span: Span | None) -> str:
        if span is None or not self._spans:
            return ""
        return " @" + "<".join(self._position(s) for s in span.chain())

    def _position(self, span: Span) -> str:
        file, function = (
            self._intern(self._files, span.file),
            self._intern(self._functions, span.function),
        )
        return f"{file}:{function}:{span.line}:{span.column}-{span.end_line}:{span.end_column}"

    @staticmethod
    def _intern(table: list[str], text: str) -> int:
        if text not in table:
            table.append(text)
        return table.index(text)
