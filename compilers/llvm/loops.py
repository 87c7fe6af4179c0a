"""What the loops of a module leave to LLVM's optimiser, read from its text as it is emitted.

Most loops of a kernel are in their final form: they run over lines, and CubePy's own passes have
computed equal values once, and before the loop where they do not change. LLVM's whole pipeline
takes five times as long as the passes that tidy up behind the emitter, and finds little in such
loops. What CubePy leaves to LLVM is to make lines of scalar loops, and to see through memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cubepy.compilers.llvm.writer import TO_UNROLL

_ACCESS = re.compile(r"(?: |@llvm\.)((?:masked\.)?(?:load|store))\b.*?ptr (?:align \d+ )?(%[\w.]+)")
_ALLOCATED = re.compile(r"^  (%[\w.]+) = alloca ", re.MULTILINE)
_BASE = re.compile(r"getelementptr .*?ptr (%[\w.]+)")
_BRANCH = re.compile(r"(then|else|after)[.\d]*:")
_INDEXED = re.compile(r"getelementptr .*ptr (%[\w.]+), i64 %")
_LINE = re.compile(r"<\d+ x ")
_REGISTER = re.compile(r"%[\w.]+")
_TARGET = re.compile(r"label %([\w.]+)")


def are_final(text: str) -> bool:
    """Whether LLVM's whole pipeline has nothing to do in the loops of a module.

    It has where an innermost loop accesses memory without lines, or carries more than its counter
    without them, such as a sum of integers, which LLVM makes of lines or of a formula; where it
    accesses a place that stays, which LLVM keeps in a register; where it reads a place twice, of
    which LLVM computes what follows once; where the emitter marked a loop to be unrolled; and where
    accesses are checked, of which LLVM removes some.
    """
    if "%faults" in text or TO_UNROLL in text:
        return False
    # Memory of the function whose places are all known becomes registers in any case.
    held = frozenset(_ALLOCATED.findall(text)) - frozenset(_INDEXED.findall(text))
    lines = text.split("\n")
    return all(_is_final(lines[head:end], held) for head, end in _innermost(lines))


def _innermost(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """From the head of a loop to behind its last jump back, for loops without loops in them."""
    blocks: dict[str, int] = {}
    ends: dict[int, int] = {}
    for k, line in enumerate(lines):
        if line.endswith(":"):
            blocks[line[:-1]] = k
        elif line.startswith("  br "):
            for label in _TARGET.findall(line):
                if label in blocks:
                    ends[blocks[label]] = k + 1
        elif line.startswith("define "):
            blocks = {}
    heads = sorted(ends)
    for head, following in zip(heads, [*heads[1:], len(lines)], strict=True):
        if following >= ends[head]:
            yield head, ends[head]


def _is_final(loop: Sequence[str], held: frozenset[str]) -> bool:
    if not any(map(_LINE.search, loop)):
        carried = [line for line in loop if " = phi " in line]
        return len(carried) <= 1 and not any(map(_ACCESS.search, loop))
    values = _Values(held)
    return all(values.note(line) for line in loop)


class _Values:
    """The registers of a loop: which are equal, and which change from turn to turn."""

    def __init__(self, held: frozenset[str]) -> None:
        self._held = set(held)
        self._varying: set[str] = set()
        self._equal: dict[str, str] = {}
        """Of each register, the first of equal value."""
        self._made: dict[str, str] = {}
        self._seen: set[tuple[str, str]] = set()
        self._before: list[set[tuple[str, str]]] = []
        """What was seen in front of each open branch."""

    def note(self, line: str) -> bool:
        """Whether an instruction is no access that LLVM would save."""
        branch = _BRANCH.match(line)
        if branch is not None:
            self._enter(branch[1])
        access = _ACCESS.search(line)
        is_final = access is None or self._is_needed(access[1], access[2])
        register, is_made, text = line.partition(" = ")
        if is_made:
            self._define(register.strip(), text.partition(", !")[0])
        return is_final

    def _enter(self, block: str) -> None:
        """Of the blocks of a branch, none comes behind another in a turn."""
        if block == "then":
            self._before.append(self._seen)
        elif not self._before:
            return  # the branch began before the loop
        self._seen = set(self._before[-1])
        if block == "after":
            self._before.pop()

    def _define(self, register: str, text: str) -> None:
        text = _REGISTER.sub(lambda found: self._equal.get(found[0], found[0]), text)
        base = _BASE.match(text)
        if base is not None and base[1] in self._held:
            self._held.add(register)
        self._equal[register] = self._made.setdefault(text, register)
        if text.startswith("phi ") or not self._varying.isdisjoint(_REGISTER.findall(text)):
            self._varying.add(register)

    def _is_needed(self, how: str, address: str) -> bool:
        if address in self._held:
            return True
        place = self._equal.get(address, address)
        earlier = {how, how.replace("load", "store")}
        if place not in self._varying or any((kind, place) in self._seen for kind in earlier):
            return False
        self._seen.add((how, place))
        return True
