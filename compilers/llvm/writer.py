"""LLVM IR as text: blocks, fresh names, declarations, positions. Knows no KernelIR ops."""

from __future__ import annotations

import struct

from cubepy.ir.numbers import to_bits
from cubepy.ir.types import DType, f16, f32, f64
from cubepy.span import Span

_LOOPS = 1_000_000  # numbers of metadata from here on belong to loops
UNROLLED = 8
"""How often a short body is unrolled that cannot be vectorised."""
TO_UNROLL = f", !{_LOOPS - 2}"
"""Marks a loop, in its metadata, that LLVM unrolls."""
_SCALAR = f"!{_LOOPS - 3}"
IN_PARALLEL = f", !llvm.access.group !{_LOOPS - 1}"
"""Marks an access that is not ordered with those of other units."""


class Writer:
    """Collects the lines of one module with one kernel function."""

    def __init__(self, debug: bool = False) -> None:
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.block = "entry"
        self._once: dict[str, str] = {}
        self._count = 0
        self._declarations: dict[str, str] = {}
        self._debug = debug
        self._span: Span | None = None
        self._files: dict[str, int] = {}
        self._places: dict[tuple[int, int, int], int] = {}
        self.has_stream_stores = False
        self.prints = False
        self._texts: list[str] = []
        self._tables: dict[str, str] = {}
        self._loops: list[list[str]] = []

    def fresh(self, hint: str = "v") -> str:
        """A new register name."""
        self._count += 1
        cleaned = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in hint)
        return f"%{cleaned or 'v'}.{self._count}"

    def label(self, hint: str) -> str:
        """A new block name."""
        self._count += 1
        return f"{hint}.{self._count}"

    def at(self, span: Span | None) -> None:
        """Following lines come from `span`."""
        self._span = span

    def line(self, text: str) -> None:
        """One instruction."""
        place = self._place()
        self.lines.append(f"  {text}{place}")

    def value(self, text: str, hint: str = "v") -> str:
        """An instruction with a result; gives its register."""
        name = self.fresh(hint)
        self.line(f"{name} = {text}")
        return name

    def once(self, text: str) -> str:
        """The same, for what depends on its operands alone: made once in a block."""
        found = self._once.get(text)
        if found is None:
            found = self._once[text] = self.value(text)
        return found

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label
        self._once.clear()

    def jump(self, label: str) -> None:
        """An unconditional branch."""
        self.line(f"br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        """A conditional branch."""
        self.line(f"br i1 {condition}, label %{yes}, label %{no}")

    def call(self, name: str, result: str, *args: tuple[str, str], hint: str = "v") -> str:
        """A call of an intrinsic or function, declared on first use; gives the result register."""
        self._declarations[name] = f"declare {result} @{name}({', '.join(t for t, _ in args)})"
        text = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in args)})"
        if result == "void":
            self.line(text)
            return ""
        return self.value(text, hint)

    def hide(self, text: str, name: str, suffix: str) -> str:
        """A number of a type in a register whose value LLVM does not know."""
        intrinsic = f"llvm.arithmetic.fence.{suffix}"
        self._declarations[intrinsic] = f"declare {name} @{intrinsic}({name})"
        register = self.fresh("hidden")
        self.entry.append(f"  {register} = call {name} @{intrinsic}({name} {text})")
        return register

    def declare(self, name: str, text: str) -> None:
        """A function of the runtime."""
        self._declarations[name] = text

    def jump_back(
        self, label: str, *, parallel: bool = False, unrolled: bool = False, scalar: bool = False
    ) -> None:
        """The jump to the head of a loop. Iterations of a `parallel` one do not depend on each
        other's accesses `IN_PARALLEL`; a `scalar` one is not vectorised."""
        wishes = [(parallel, f"!{_LOOPS}"), (unrolled, TO_UNROLL[2:]), (scalar, _SCALAR)]
        named = [name for is_wished, name in wishes if is_wished]
        if not named:
            self.jump(label)
            return
        self._loops.append(named)
        self.line(f"br label %{label}, !llvm.loop !{_LOOPS + len(self._loops)}")

    def call_variadic(self, name: str, first: str, args: list[str]) -> None:
        """A call of a C function that takes a pointer and anything."""
        self._declarations[name] = f"declare i32 @{name}(ptr, ...)"
        passed = ", ".join([f"ptr {first}", *args])
        self.value(f"call i32 (ptr, ...) @{name}({passed})")

    def text(self, content: str) -> str:
        """A constant string of C; gives its address."""
        data = content.encode() + b"\0"
        escaped = "".join(
            chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02X}" for c in data
        )
        name = f"@text.{len(self._texts)}"
        self._texts.append(f'{name} = private constant [{len(data)} x i8] c"{escaped}"')
        return name

    def table(self, text: str) -> str:
        """A constant array, made once for each text; gives its address."""
        name = self._tables.setdefault(text, f"@table.{len(self._tables)}")
        return name

    def allocate(self, text: str, hint: str) -> str:
        """Stack memory of the function, made once at its entry."""
        name = self.fresh(hint)
        self.entry.append(f"  {name} = alloca {text}")
        return name

    # Debug positions

    def _place(self) -> str:
        span = self._span
        if not self._debug or span is None:
            return ""
        key = (self._files.setdefault(span.file, len(self._files)), span.line, span.column)
        return f", !dbg !{100 + self._places.setdefault(key, len(self._places))}"

    def module(self, functions: list[str], triple: str, layout: str) -> str:
        """The whole module."""
        head = [f'target triple = "{triple}"', f'target datalayout = "{layout}"'] if triple else []
        tables = [f"{name} = private constant {text}" for text, name in self._tables.items()]
        tail = [*self._texts, *tables, *self._declarations.values(), "", "!0 = !{i32 1}"]
        return "\n".join([*head, *functions, *tail, *self._metadata(), *self._loop_metadata(), ""])

    def _loop_metadata(self) -> list[str]:
        group, about = f"!{_LOOPS - 1}", f"!{_LOOPS}"
        lines = [f"{group} = distinct !{{}}"]
        lines.append(f'{about} = !{{!"llvm.loop.parallel_accesses", {group}}}')
        lines.append(f'{TO_UNROLL[2:]} = !{{!"llvm.loop.unroll.count", i32 {UNROLLED}}}')
        lines.append(f'{_SCALAR} = !{{!"llvm.loop.vectorize.enable", i1 false}}')
        for k, named in enumerate(self._loops, _LOOPS + 1):
            lines.append(f"!{k} = distinct !{{{', '.join([f'!{k}', *named])}}}")
        return lines

    def _metadata(self) -> list[str]:
        if not self._places:
            return []
        base, scope = 100 + len(self._places), self._scope
        about = f"file: !{base}, line: 1, type: !4, unit: !3, spFlags: DISPFlagDefinition"
        lines = [
            "!llvm.module.flags = !{!1, !2}",
            "!llvm.dbg.cu = !{!3}",
            '!1 = !{i32 2, !"Debug Info Version", i32 3}',
            '!2 = !{i32 2, !"Dwarf Version", i32 4}',
            (
                f"!3 = distinct !DICompileUnit(language: DW_LANG_C99, file: !{base}, "
                'producer: "CubePy", emissionKind: LineTablesOnly)'
            ),
            "!4 = !DISubroutineType(types: !{})",
            f'!{scope} = distinct !DISubprogram(name: "cubes", {about})',
            f'!{scope + 1} = distinct !DISubprogram(name: "kernel", {about})',
            f"!{scope + 2} = !DILocation(line: 0, scope: !{scope + 1})",
        ]
        for file, k in self._files.items():
            own = base + 2 * k
            lines.append(f'!{own} = !DIFile(filename: "{_escape(file)}", directory: "")')
            block = f"scope: !{scope}, file: !{own}, discriminator: 0"
            lines.append(f"!{own + 1} = !DILexicalBlockFile({block})")
        for (file, line, column), k in self._places.items():
            where = f"line: {line}, column: {column + 1}, scope: !{base + 2 * file + 1}"
            lines.append(f"!{100 + k} = !DILocation({where})")
        return lines

    @property
    def _scope(self) -> int:
        """The number of the debug scope of `cubes`; the wrapper's and its call's follow."""
        return 100 + len(self._places) + 2 * len(self._files)

    def attach(self, offset: int) -> str:
        """The debug attachment of `cubes` (0), of the wrapper (1) and of the call in it (2)."""
        comma = "," if offset == 2 else ""
        return f"{comma} !dbg !{self._scope + offset}" if self._places else ""


def _escape(text: str) -> str:
    return (
        "".join(
            c if 32 <= ord(c) < 127 and c not in '"\\' else f"\\{b:02X}"
            for c in text
            for b in c.encode()[:1]
        )
        if text.isascii()
        else "".join(
            chr(b) if 32 <= b < 127 and chr(b) not in '"\\' else f"\\{b:02X}" for b in text.encode()
        )
    )


def constant(value: float | int | bool, dtype: DType) -> str:
    """A scalar constant; floats as exact bit patterns."""
    if dtype.bits == 1:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    if dtype.bits == 8:
        return str(to_bits(value, dtype))  # floats of 8 bits are bytes to LLVM
    if dtype is f16:
        return f"0xH{to_bits(value, dtype):04X}"
    if dtype not in (f32, f64):
        return str(to_bits(value, dtype))
    wide = float(value) if dtype is f64 else struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{to_bits(wide, f64):016X}"
