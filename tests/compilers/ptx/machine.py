"""Runs the units of a cube, each until its next barrier."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Sequence
from typing import Any

from tests.compilers.ptx.numbers import BITS, bits_of
from tests.compilers.ptx.operations import compute, is_known, updated
from tests.compilers.ptx.parser import Instruction, Program, parse
from tests.compilers.ptx.warps import EXCHANGES, PAUSE, Exchange, NamedBarrier, Run, run_cube

LOCAL, SHARED, CONSTANT = 1 << 61, 1 << 60, 1 << 59
"""Where the addresses of these spaces begin; all others are the host's."""
MOST_STEPS = 2_000_000
NEVER_SET = 0xA5A5_5A5A_C3C3_3C3D
_ADDRESS = re.compile(r"\[([%\w$.]+)(?:\+(-?\w+))?\]")
_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)U?$")
_BARRIERS, _FENCES = ("bar", "barrier"), ("membar", "fence", "griddepcontrol")


class Unknown(Exception):
    """An instruction that the machine does not have."""


class Machine:
    """A compiled kernel."""

    def __init__(self, text: str) -> None:
        self.program: Program = parse(text)
        unknown = next((one for one in self.program.code if not is_known(one)), None)
        if unknown is not None:
            raise Unknown(".".join((unknown.name, *unknown.parts)))
        self.places: dict[str, int] = {}
        ends = {"local": LOCAL, "shared": SHARED, "const": CONSTANT, "global": CONSTANT}
        starts = dict(ends)
        for name, variable in self.program.variables.items():
            space = "const" if variable.space == "global" else variable.space
            place = -(-ends[space] // variable.align) * variable.align
            self.places[name], ends[space] = place, place + variable.size
        self.arrivals_of_clusters = 0
        """How often units arrived at barriers of clusters, which are those of cubes here."""
        self.sizes = {space: ends[space] - starts[space] for space in starts}

    def launch(
        self, words: Sequence[int], grid: Sequence[int], dim: Sequence[int], dynamic: int = 0
    ) -> None:
        """Run all cubes; `words` are the parameters, `dynamic` bytes of shared memory are added."""
        for cube in _positions(grid):
            shared = bytearray(self.sizes["shared"] + dynamic)
            units = [_Unit(self, words, shared, unit, cube, grid, dim) for unit in _positions(dim)]
            run_cube([unit.run() for unit in units])


def _positions(extents: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    x, y, z = extents
    return ((i, j, k) for k in range(z) for j in range(y) for i in range(x))


class _Unit:
    def __init__(
        self,
        machine: Machine,
        words: Sequence[int],
        shared: bytearray,
        unit: Sequence[int],
        cube: Sequence[int],
        grid: Sequence[int],
        dim: Sequence[int],
    ) -> None:
        self._machine, self._program = machine, machine.program
        self._params = dict(zip(machine.program.params, words, strict=True))
        self._local, self._shared = bytearray(machine.sizes["local"]), shared
        self._constant = bytearray(machine.sizes["const"])
        for name, variable in machine.program.variables.items():
            at = machine.places[name] - CONSTANT
            if variable.data and at < LOCAL - CONSTANT:
                self._constant[at : at + len(variable.data)] = variable.data
        self._registers: dict[str, int] = {}
        for word, values in (("tid", unit), ("ctaid", cube), ("nctaid", grid), ("ntid", dim)):
            for axis, value in zip("xyz", values, strict=True):
                self._registers[f"%{word}.{axis}"] = value

    def run(self) -> Run:
        """Run; yields None at each barrier, and what it gives to other units of its warp."""
        code, at, steps = self._program.code, 0, 0
        while at < len(code):
            one, at, steps = code[at], at + 1, steps + 1
            assert steps < MOST_STEPS, "a unit does not end"
            if one.guard and bool(self._value(one.guard[0], "pred")) != one.guard[1]:
                continue
            if one.name in ("ret", "exit"):
                return
            if one.name == "bra":
                at = self._program.labels[one.operands[0]]
            elif one.name in _BARRIERS:
                yield self._barrier(one)
            elif one.name in EXCHANGES:
                yield from self._exchange(one)
            elif one.name == "mbarrier":
                yield from self._at_barrier(one)
            elif one.name not in _FENCES:
                self._execute(one)
                if one.name == "ld" and "volatile" in one.parts:
                    yield PAUSE

    def _barrier(self, one: Instruction) -> Exchange | NamedBarrier | None:
        """Of the warp, of some units of the cube, or of all."""
        if "warp" in one.parts:
            return Exchange(one, ())
        self._machine.arrivals_of_clusters += one.parts[:2] == ("cluster", "arrive")
        if len(one.operands) == 2:
            return NamedBarrier(*(self._value(text, "u32") for text in one.operands))
        return None

    def _at_barrier(self, one: Instruction) -> Run:
        """A barrier in shared memory, which holds its count, arrivals that lack, and phases."""
        place = next(text for text in one.operands if text[0] == "[")
        memory = self._memory(self._address(one, place), 8)
        count, lacks, phases = memory[0], memory[1], memory[2]
        if one.parts[0] == "init":
            memory[:] = bytes([count := self._value(one.operands[1], "u32"), count, *[0] * 6])
        elif one.parts[0] == "arrive":
            memory[1], memory[2] = (lacks - 1, phases) if lacks > 1 else (count, phases + 1)
        else:
            ended = phases % 2 != self._value(one.operands[2], "u32")
            self._registers[one.operands[0]] = int(ended)
            if not ended:
                yield PAUSE

    def _exchange(self, one: Instruction) -> Run:
        """A result for the register, and for shuffles whether the lane was there."""
        target, *sources = one.operands
        found = yield Exchange(one, tuple([self._value(s, "b32") for s in sources]))
        for name, bits in zip(target.split("|"), (found, found >> 64), strict=False):
            self._registers[name] = bits & ((1 << 64) - 1)

    def _execute(self, one: Instruction) -> None:
        target, *sources = one.operands
        if one.name == "ld":
            self._load(one, target, sources[0])
        elif one.name == "st":
            self._store(one, target, sources[0])
        elif one.name in ("atom", "red"):
            self._update(one)
        elif one.name == "mov" and (target[0] == "{" or sources[0][0] == "{"):
            self._move_parts(one, target, sources[0])
        elif one.name == "cvta":
            self._registers[target] = self._value(sources[0], "u64")
        else:
            kind = one.type
            self._registers[target] = compute(one, [self._value(s, kind) for s in sources])

    def _value(self, text: str, kind: str) -> int:
        """The bits of an operand."""
        if text[0] == "!":
            return 1 - self._value(text[1:], kind)
        if text in self._registers:
            return self._registers[text]
        if (
            text[0] == "%"
        ):  # NVVM reads registers that nothing has set where no result depends on it
            return NEVER_SET
        if text in self._machine.places:
            return self._machine.places[text]
        if text[:2] in ("0f", "0d"):
            return int(text[2:], 16)
        assert _NUMBER.match(text), f"{text} has no value"
        return bits_of(int(text.rstrip("U"), 0), "u64" if kind[0] == "f" else kind)

    def _address(self, one: Instruction, text: str) -> int:
        found = _ADDRESS.match(text)
        assert found, text
        address = self._value(found[1], "u64") + int(found[2] or "0", 0)
        if "shared" in one.parts or "shared::cta" in one.parts:  # such addresses may have 32 bits
            return SHARED + address % (1 << 32)
        return address

    def _load(self, one: Instruction, target: str, source: str) -> None:
        size, names = BITS[one.type] // 8, _names(target)
        if "param" in one.parts:
            word = self._params[source[1:-1]]
            self._registers[target] = _extended(word, one.type)
            return
        address = self._address(one, source)
        for k, name in enumerate(names):
            bits = int.from_bytes(self._memory(address + k * size, size), "little")
            self._registers[name] = _extended(bits, one.type)

    def _store(self, one: Instruction, target: str, source: str) -> None:
        size, address = BITS[one.type] // 8, self._address(one, target)
        for k, name in enumerate(_names(source)):
            bits = self._value(name, one.type) & ((1 << 8 * size) - 1)
            self._memory(address + k * size, size)[:] = bits.to_bytes(size, "little")

    def _update(self, one: Instruction) -> None:
        """Nothing comes between, as units run one by one."""
        target, place, *given = one.operands if one.name == "atom" else ("", *one.operands)
        size = BITS[one.type] // 8
        memory = self._memory(self._address(one, place), size)
        old = int.from_bytes(memory, "little")
        new = updated(one, old, [self._value(text, one.type) for text in given])
        memory[:] = new.to_bytes(size, "little")
        if target:
            self._registers[target] = old

    def _move_parts(self, one: Instruction, target: str, source: str) -> None:
        """Between a register and its parts, the lowest first."""
        names = _names(target if target[0] == "{" else source)
        size = BITS[one.type] // len(names)
        mask = (1 << size) - 1
        if target[0] == "{":
            whole = self._value(source, one.type)
            self._registers |= {name: whole >> size * k & mask for k, name in enumerate(names)}
            return
        parts = [self._value(name, f"b{size}") & mask for name in names]
        self._registers[target] = sum(part << size * k for k, part in enumerate(parts))

    def _memory(self, address: int, size: int) -> Any:
        for first, memory in (
            (LOCAL, self._local),
            (SHARED, self._shared),
            (CONSTANT, self._constant),
        ):
            if address >= first:
                at = address - first
                assert at + size <= len(memory), "an access outside of its variable"
                return memoryview(memory)[at : at + size]
        return memoryview((ctypes.c_ubyte * size).from_address(address)).cast("B")


def _names(text: str) -> list[str]:
    return re.findall(r"[^\s,{}]+", text)


def _extended(bits: int, kind: str) -> int:
    """As loads leave registers that are wider: signed types with their sign."""
    size = BITS[kind]
    bits &= (1 << size) - 1
    return bits | (-1 << size) % (1 << 64) if kind[0] == "s" and bits >> (size - 1) else bits
