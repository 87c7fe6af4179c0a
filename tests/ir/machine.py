"""A tiny machine that runs KernelIR, with or without locals: what passes must not change.

Runs one unit. All NaN are one: their sign and payload are unspecified.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import repeat

from cubepy.ir import ops
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.evaluate import Lanes, evaluate
from cubepy.ir.numbers import Number, convert, to_bits
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import DType, Ref, element_of, width_of

Memory = dict[Value, list[Number]]
POSITION = {"x": 3, "y": 0, "z": 1, "all": 7}
"""Numbers that may stand for positions."""
UNIT = 3
"""The unit that runs, of a cube along x; it is in the second of three cubes."""
CUBE, CUBES = 1, 3


class Machine:
    """Executes a kernel on `memory`, which maps buffers to lists of elements."""

    def __init__(self, memory: Memory, max_steps: int = 200_000) -> None:
        self.memory = memory
        self._values: dict[Value, Lanes] = {}
        self._steps = max_steps

    def run(self, kernel: Kernel, arguments: Mapping[Value, Number]) -> None:
        self._units = kernel.cube_dim[0]
        self._values = {value: (number,) for value, number in arguments.items()}
        self._region(kernel.body)

    def _get(self, values: Iterable[Value]) -> list[Lanes]:
        return [self._values[value] for value in values]

    def _set(self, values: Iterable[Value], lanes: Iterable[Lanes]) -> None:
        for value, numbers in zip(values, lanes, strict=True):
            self._values[value] = tuple(math.nan if x != x else x for x in numbers)

    def _region(self, region: Region) -> tuple[OpDef, list[Lanes]]:
        """Runs a region; gives its terminator, or the one of a region inside that jumped."""
        for op in region.ops:
            self._steps -= 1
            assert self._steps > 0, "runs too long"
            if op.row.is_terminator:
                return op.row, self._get(op.operands)
            jump = self._control(op) if op.regions else self._plain(op)
            if jump is not None:
                return jump
        raise AssertionError("no terminator")

    def _control(self, op: Op) -> tuple[OpDef, list[Lanes]] | None:
        if op.row is ops.IF:
            ((chosen,),) = self._get(op.operands)
            row, lanes = self._region(op.regions[0 if chosen else 1])
            if row is not ops.YIELD:
                return row, lanes
            self._set(op.results, lanes)
            return None
        return self._loop(op)

    def _loop(self, op: Op) -> tuple[OpDef, list[Lanes]] | None:
        (body,) = op.regions
        lanes = self._get(op.operands)
        positions: Iterable[list[Lanes]] = repeat([])
        if op.row is ops.FOR:
            (start,), (stop,), (step,) = lanes[:3]
            positions = ([(k,)] for k in (range(int(start), int(stop), int(step)) if step else ()))
            lanes = lanes[3:]
        for position in positions:
            self._set(body.args, [*position, *lanes])
            row, lanes = self._region(body)
            if row is ops.RETURN:
                return row, lanes
            if row is ops.BREAK:
                break
        self._set(op.results, lanes)
        return None

    def _plain(self, op: Op) -> None:
        if op.row.is_pure:
            self._pure(op)
        elif op.row is ops.LOAD:
            self._load(op)
        elif op.row is ops.STORE:
            self._store(op)
        elif op.row in (ops.VAR, ops.GET, ops.SET):
            self._local(op)
        elif op.row is ops.ALLOC:
            size = op.attrs["size"]
            assert isinstance(size, int)
            self.memory[op.result] = [convert(0, element_of(op.result.type))] * size
        elif op.results:
            self._atomic(op)

    def _pure(self, op: Op) -> None:
        if op.row is ops.MISALIGNMENT:
            size = op.attrs["bytes"]
            assert isinstance(size, int)
            elements = max(1, size // element_of(op.operands[0].type).itemsize)
            lanes: Lanes | None = ((int(self._values[op.operands[1]][0]) + 1) % elements,)
        elif "axis" in op.attrs:
            lanes = (self.position(op),)
        else:
            types = [value.type for value in op.operands]
            lanes = evaluate(op.row, op.attrs, types, self._get(op.operands))
        if lanes is None:  # bits of a NaN, which are unspecified
            lanes = (convert(0, element_of(op.result.type)),) * width_of(op.result.type)
        self._set(op.results, [lanes])

    def position(self, op: Op) -> int:
        """Where the unit is."""
        along_x = op.attrs["axis"] in ("x", "all")
        unit = min(UNIT, self._units - 1)
        places = {
            ops.UNIT_POS: unit,
            ops.CUBE_POS: CUBE,
            ops.ABSOLUTE_POS: CUBE * self._units + unit,
        }
        if op.row is ops.CUBE_COUNT:
            return CUBES if along_x else 1
        return places[op.row] if along_x else 0

    def _address(self, op: Op) -> tuple[list[Number], int]:
        return self.memory[op.operands[0]], int(self._values[op.operands[1]][0])

    def _load(self, op: Op) -> None:
        memory, offset = self._address(op)
        read = tuple(memory[offset : offset + width_of(op.result.type)])
        if len(op.operands) > 2:
            mask, fill = self._get(op.operands[2:])
            read = tuple(a if on else b for on, a, b in zip(mask, read, fill, strict=True))
        self._set(op.results, [read])

    def _store(self, op: Op) -> None:
        memory, offset = self._address(op)
        value = self._values[op.operands[2]]
        mask = self._values[op.operands[3]] if len(op.operands) > 3 else (True,) * len(value)
        for lane, (number, on) in enumerate(zip(value, mask, strict=True)):
            if on:
                memory[offset + lane] = number

    def _local(self, op: Op) -> None:
        if op.row is ops.VAR:
            t = op.result.type
            assert isinstance(t, Ref)
            self._values[op.result] = (convert(0, element_of(t)),) * width_of(t.of)
        elif op.row is ops.GET:
            self._set(op.results, self._get(op.operands))
        else:
            self._values[op.operands[0]] = self._values[op.operands[1]]

    def _atomic(self, op: Op) -> None:
        memory, offset = self._address(op)
        old = memory[offset]
        given = [lanes[0] for lanes in self._get(op.operands[2:])]
        dtype = element_of(op.operands[0].type)
        if op.row is ops.ATOMIC_CAS:
            memory[offset] = given[1] if old == given[0] else old
        elif op.row is ops.ATOMIC_EXCHANGE:
            memory[offset] = given[0]
        else:
            assert op.row.step is not None and op.row.step.meaning is not None
            meaning = op.row.step.meaning
            memory[offset] = meaning(dtype, old, given[0])
        self._set(op.results, [(old,)])


def bits(numbers: Iterable[Number], dtype: DType) -> list[int]:
    """The bit patterns of numbers; all NaN are one."""
    return [to_bits(math.nan if x != x else x, dtype) for x in numbers]
