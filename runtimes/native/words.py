"""A small language for native code over 64-bit words, written as LLVM IR text.

It is not the kernels' compiler: it serves the runtime's own routines, whose control flow is too
rich to write by hand. Every value is a word, a truth value or a double; an address is a word.
Locals are stack slots, which LLVM turns into registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias


class Value:
    """A value of a routine: its LLVM type and its name, or its text if it is a constant."""

    def __init__(self, routine: Routine, kind: str, text: str) -> None:
        self.routine, self.kind, self.text = routine, kind, text

    def __add__(self, other: Operand) -> Value:
        return self._with("add", other)

    def __sub__(self, other: Operand) -> Value:
        return self._with("sub", other)

    def __mul__(self, other: Operand) -> Value:
        return self._with("mul", other)

    def __and__(self, other: Operand) -> Value:
        return self._with("and", other)

    def __or__(self, other: Operand) -> Value:
        return self._with("or", other)

    def __xor__(self, other: Operand) -> Value:
        return self._with("xor", other)

    def __lshift__(self, other: Operand) -> Value:
        return self._with("shl", other)

    def __rshift__(self, other: Operand) -> Value:
        """The arithmetic shift."""
        return self._with("ashr", other)

    def __lt__(self, other: Operand) -> Value:
        return self._with("icmp slt", other, "i1")

    def __le__(self, other: Operand) -> Value:
        return self._with("icmp sle", other, "i1")

    def __gt__(self, other: Operand) -> Value:
        return self._with("icmp sgt", other, "i1")

    def __ge__(self, other: Operand) -> Value:
        return self._with("icmp sge", other, "i1")

    def equals(self, other: Operand) -> Value:
        """Whether the words are equal."""
        return self._with("icmp eq", other, "i1")

    def differs(self, other: Operand) -> Value:
        """Whether the words differ."""
        return self._with("icmp ne", other, "i1")

    def over(self, other: Operand) -> Value:
        """The quotient of two numbers that are not negative."""
        return self._with("udiv", other)

    def modulo(self, other: Operand) -> Value:
        """The rest of a division of two numbers that are not negative."""
        return self._with("urem", other)

    def most(self, other: Operand) -> Value:
        """The larger of two signed words."""
        return self.routine.choose(self > other, self, other)

    def least(self, other: Operand) -> Value:
        """The smaller of two signed words."""
        return self.routine.choose(self < other, self, other)

    def __getitem__(self, k: Operand) -> Value:
        """The word at an index from this address."""
        return self.load(self.routine.word(k) * 8)

    def load(self, offset: Operand = 0, kind: str = "i64") -> Value:
        """What lies so many bytes from this address; narrow integers are sign-extended."""
        f = self.routine
        found = f.value(kind, f"load {kind}, ptr {f.pointer(self + offset)}, align 1")
        if kind in ("i64", "double"):
            return found
        return f.value("i64", f"sext {kind} {found.text} to i64")

    def store(self, value: Operand, offset: Operand = 0, kind: str = "i64") -> None:
        """Store a word, or its low bits, so many bytes from this address."""
        f = self.routine
        held = value if isinstance(value, Value) else f.word(value)
        text = held.text
        if kind not in ("i64", "double"):
            text = f.value(kind, f"trunc i64 {text} to {kind}").text
        f.line(f"store {kind} {text}, ptr {f.pointer(self + offset)}, align 1")

    def call(self, *args: Operand) -> Value:
        """Call the function at this address, which gives a word."""
        f = self.routine
        return f.value("i64", f"call i64 {f.pointer(self)}({f.arguments(args)})")

    def _with(self, operation: str, other: Operand, kind: str = "") -> Value:
        held = other.text if isinstance(other, Value) else str(other)
        if self.text.lstrip("-").isdigit() and held == "0" and operation == "add":
            return self
        return self.routine.value(kind or self.kind, f"{operation} {self.kind} {self.text}, {held}")


Operand: TypeAlias = Value | int


class Local:
    """A word that changes."""

    def __init__(self, routine: Routine, place: str) -> None:
        self._routine, self._place = routine, place

    def get(self) -> Value:
        """Its value now."""
        return self._routine.value("i64", f"load i64, ptr {self._place}")

    def set(self, value: Operand) -> None:
        """Give it a value."""
        self._routine.line(f"store i64 {self._routine.word(value).text}, ptr {self._place}")


class Routine:
    """One function, whose parameters and result are words.

    Statements are written in order; `when` and `times` are contexts, which nest. Code behind
    `leave` in the same block is never reached. `is_inlined`: it becomes a part of its callers, as
    those should that every launch goes through and few call.
    """

    def __init__(
        self, name: str, parameters: int, is_exported: bool = False, is_inlined: bool = False
    ) -> None:
        self._name, self._count = name, 0
        self._parameters = [f"%p{k}" for k in range(parameters)]
        self._linkage = "" if is_exported else "internal "
        self._attributes = "nounwind alwaysinline" if is_inlined else "nounwind"
        self._slots: list[str] = []
        self._lines: list[str] = []
        self.parameters = [Value(self, "i64", p) for p in self._parameters]

    def text(self) -> str:
        """The definition."""
        parameters = ", ".join(f"i64 {p}" for p in self._parameters)
        head = f"define {self._linkage}i64 @{self._name}({parameters}) {self._attributes} {{"
        return "\n".join((head, *self._slots, *self._lines, "  ret i64 0", "}"))

    # Values

    def word(self, value: Operand) -> Value:
        """A constant as a value."""
        return value if isinstance(value, Value) else Value(self, "i64", str(value))

    def value(self, kind: str, text: str) -> Value:
        """An instruction with a result."""
        self._count += 1
        self.line(f"%v{self._count} = {text}")
        return Value(self, kind, f"%v{self._count}")

    def pointer(self, address: Value) -> str:
        """An address as LLVM's pointer."""
        return self.value("ptr", f"inttoptr i64 {address.text} to ptr").text

    def choose(self, condition: Value, yes: Operand, no: Operand) -> Value:
        """One of two words."""
        a, b = self.word(yes).text, self.word(no).text
        return self.value("i64", f"select i1 {condition.text}, i64 {a}, i64 {b}")

    def truth(self, condition: Value) -> Value:
        """A truth value as a word, 0 or 1."""
        return self.value("i64", f"zext i1 {condition.text} to i64")

    def local(self, value: Operand = 0) -> Local:
        """A new local."""
        place = self._slot("i64")
        made = Local(self, place)
        made.set(value)
        return made

    def room(self, words: int) -> Value:
        """The address of so many words on the stack, which hold anything."""
        place = self._slot(f"[{words} x i64]")
        return self.value("i64", f"ptrtoint ptr {place} to i64")

    def address(self, symbol: str) -> Value:
        """Where a symbol is."""
        return self.value("i64", f"ptrtoint ptr @{symbol} to i64")

    def invoke(self, name: str, *args: Operand) -> Value:
        """Call a routine, or a function that was declared."""
        return self.value("i64", f"call i64 @{name}({self.arguments(args)})")

    def arguments(self, args: tuple[Operand, ...]) -> str:
        """Words as the arguments of a call."""
        return ", ".join(f"i64 {self.word(a).text}" for a in args)

    # Statements

    def line(self, text: str) -> None:
        """One instruction."""
        self._lines.append(f"  {text}")

    def leave(self, value: Operand) -> None:
        """Return a word."""
        self.line(f"ret i64 {self.word(value).text}")
        self._begin(self._label("after"))

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Statements that run where a condition holds."""
        then, done = self._label("then"), self._label("done")
        self.line(f"br i1 {condition.text}, label %{then}, label %{done}")
        self._begin(then)
        yield
        self.line(f"br label %{done}")
        self._begin(done)

    @contextmanager
    def times(self, count: Operand, backwards: bool = False) -> Iterator[Value]:
        """Statements that run for each index below a count."""
        head, body, done = self._label("head"), self._label("body"), self._label("done")
        index = self.local()
        self.line(f"br label %{head}")
        self._begin(head)
        k = index.get()
        self.line(f"br i1 {(k < count).text}, label %{body}, label %{done}")
        self._begin(body)
        yield self.word(count) - 1 - k if backwards else k
        index.set(k + 1)
        self.line(f"br label %{head}")
        self._begin(done)

    @contextmanager
    def loop(self, holds: Callable[[], Value]) -> Iterator[None]:
        """Statements that run while a condition holds, which is computed before each turn."""
        head, body, done = self._label("head"), self._label("body"), self._label("done")
        self.line(f"br label %{head}")
        self._begin(head)
        self.line(f"br i1 {holds().text}, label %{body}, label %{done}")
        self._begin(body)
        yield
        self.line(f"br label %{head}")
        self._begin(done)

    def refuse(self, condition: Value, value: Operand = 0) -> None:
        """Return a word, by default 0, where a condition holds."""
        with self.when(condition):
            self.leave(value)

    def _slot(self, kind: str) -> str:
        self._count += 1
        self._slots.append(f"  %s{self._count} = alloca {kind}, align 8")
        return f"%s{self._count}"

    def _label(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def _begin(self, label: str) -> None:
        self._lines.append(f"{label}:")
