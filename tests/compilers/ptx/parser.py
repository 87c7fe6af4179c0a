"""PTX as instructions: NVIDIA's PTX ISA, chapters 4 and 7, as far as NVVM writes it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_COMMENT = re.compile(r"//[^\n]*")
_PARAM = re.compile(r"\.param\s+\.\w+\s+(?:\.ptr[^%]*?)?(\w+)\s*(?:,|$)")
_VARIABLE = re.compile(
    r"\.(local|shared|const|global)\s+\.align\s+(\d+)\s+\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?"
    r"(?:\s*=\s*(?:\{([^}]*)\}|(\S+)))?;"
)
_OPERAND = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_GUARD = re.compile(r"@(!?)(%\w+)\s+")
_LABEL = re.compile(r"(\$?\w+):\s*")


@dataclass(frozen=True, slots=True)
class Instruction:
    """`guard`: the predicate under which it runs, and what that must be."""

    name: str
    parts: tuple[str, ...]
    operands: tuple[str, ...]
    guard: tuple[str, bool] | None = None

    @property
    def type(self) -> str:
        """The last type in its name."""
        return self.parts[-1]


@dataclass(frozen=True, slots=True)
class Variable:
    """Memory with a name; `data` is what it begins with."""

    space: str
    align: int
    size: int
    data: bytes = b""


@dataclass(slots=True)
class Program:
    """A kernel."""

    params: list[str]
    variables: dict[str, Variable]
    code: list[Instruction] = field(default_factory=list[Instruction])
    labels: dict[str, int] = field(default_factory=dict[str, int])


def parse(text: str) -> Program:
    """The only kernel of a module."""
    text = _COMMENT.sub("", text)
    entry = text.index(".entry")
    head = text[entry : text.index(")", entry)]
    program = Program(_PARAM.findall(head), _variables(text))
    body = text[text.index("{", entry + len(head)) :]
    for statement in _statements(_VARIABLE.sub("", body)):
        _add(program, statement)
    return program


def _variables(text: str) -> dict[str, Variable]:
    found: dict[str, Variable] = {}
    for space, align, kind, name, count, numbers, number in _VARIABLE.findall(text):
        size = int(kind[1:]) // 8
        data = b"".join(_bytes(n, size) for n in (numbers or number).split(",") if n.strip())
        found[name] = Variable(space, int(align), max(int(count or 1) * size, len(data)), data)
    return found


def _bytes(number: str, size: int) -> bytes:
    return (int(number.strip(), 0) % (1 << 8 * size)).to_bytes(size, "little")


def _statements(body: str) -> list[str]:
    """What stands between semicolons, with the braces of blocks taken away."""
    found: list[str] = []
    for statement in body.split(";"):
        text = statement.strip()
        while text[:1] in ("{", "}"):
            text = text[1:].strip()
        if text and not text.startswith("."):
            found.append(text)
    return found


def _add(program: Program, text: str) -> None:
    while label := _LABEL.match(text):
        program.labels[label[1]] = len(program.code)
        text = text[label.end() :].lstrip("{} \t\n")
    guard = _GUARD.match(text)
    if guard:
        text = text[guard.end() :]
    word, _, rest = text.replace("\t", " ").partition(" ")
    if not word or word.startswith("."):
        return
    name, *parts = word.split(".")
    when = (guard[2], not guard[1]) if guard else None
    program.code.append(
        Instruction(name, tuple(parts) or ("",), tuple(_OPERAND.findall(rest)), when)
    )
