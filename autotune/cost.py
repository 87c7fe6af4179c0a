"""What a launch does, counted from its kernel: operations, bytes, and how many units do them.

One unit in the middle of the grid stands for all: its positions are numbers, and so are most
extents, trip counts and conditions. What depends on the contents of arrays is taken to be in the
middle: half of a branch, `TRIPS` rounds of a loop. Nothing runs, and nothing is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from math import prod
from typing import Any

from cubepy.artifact import TensorMapOf
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.evaluate import evaluate
from cubepy.ir.opdef import Lanes
from cubepy.ir.types import Buffer, DType, Space, element_of, width_of
from cubepy.record import dataclass

TRIPS = 8
"""Rounds of a loop whose number is not known."""
HALF = 0.5
_WITHIN = (0.0, 0.5)
"""Units of the cube in the middle that are looked at, the busier one of which stands for all: the
first may only copy for others, the one in the middle may lie outside of the arrays."""
_POSITIONS = ("unit_pos", "cube_pos", "cube_count", "absolute_pos")
_FREE = ("const", "splat", "yield", "continue", "break", "return", "alloc", "shared")
_COPIES = ("tensor_load", "tensor_multicast", "tensor_store", "tensor_reduce", "im2col_load")
_BYTES = {"bf16": 2, "f16": 2, "tf32": 4, "f8e4m3": 1, "f8e5m2": 1, "i8": 1, "u8": 1}


@dataclass
class Work:
    """What one unit does, or all of them together.

    `issued`: instructions; `floats`, `integers`: operations, each lane and both halves of an fma
    counted; `products`: those of matrix units; `loaded`, `stored`: bytes of global memory; `near`:
    bytes of shared memory and locals; `copied`: bytes that the copy engine moves, asked for by one
    unit of a cube; `barriers`.
    """

    issued: float = 0.0
    floats: float = 0.0
    integers: float = 0.0
    products: float = 0.0
    loaded: float = 0.0
    stored: float = 0.0
    near: float = 0.0
    copied: float = 0.0
    barriers: float = 0.0


@dataclass(frozen=True, slots=True)
class Launch:
    """The work of one unit of a launch, its grid, and what it takes of a multiprocessor."""

    unit: Work
    cubes: int
    cube_dim: int
    shared_bytes: int = 0
    registers: int = 0

    @property
    def total(self) -> Work:
        """The work of all units."""
        count = self.cubes * self.cube_dim
        found = Work(*(getattr(self.unit, f.name) * count for f in fields(Work)))
        return replace(found, copied=self.unit.copied * self.cubes)


def work_of(kernel: Kernel, words: Sequence[int], counts: tuple[int, int, int]) -> Work:
    """What a unit of a kernel does in a launch with this argument block and grid."""
    found = [_work_of(kernel, words, counts, within) for within in _WITHIN]
    busiest = max(found, key=lambda w: w.issued + w.floats + w.products)
    return replace(busiest, copied=max(w.copied for w in found))


def _work_of(
    kernel: Kernel, words: Sequence[int], counts: tuple[int, int, int], within: float
) -> Work:
    counter = _Counter(kernel, counts, within)
    for param, word in zip(kernel.params, words, strict=False):
        if isinstance(param.value.type, DType) and param.value.type.is_integer:
            counter.known[param.value] = (word,)
    counter.region(kernel.body, 1.0)
    return counter.found


class _Counter:
    """Walks a kernel with the numbers that are known."""

    def __init__(self, kernel: Kernel, counts: tuple[int, int, int], within: float) -> None:
        self.found = Work()
        self.known: dict[Value, Lanes] = {}
        self._dim, self._counts = kernel.cube_dim, counts
        self._boxes = {
            p.value: prod(p.kind.box) * element_of(p.value.type).itemsize
            for p in kernel.params
            if isinstance(p.kind, TensorMapOf)
        }
        self._unit = [int(n * within) for n in kernel.cube_dim]

    def region(self, region: Region, weight: float) -> str:
        """Count a region; the name of what ends it."""
        for op in region.ops:
            name = op.row.name
            if name == "if":
                if self._branch(op, weight) == "return":
                    return "return"
            elif name == "for":
                self._for(op, weight)
            elif name == "loop":
                self.region(op.regions[0], weight * TRIPS)
            elif name in _POSITIONS:
                self.known[op.result] = (self._position(name, op.attrs.get("axis", "x")),)
            else:
                self._operation(op, weight)
        return region.terminator.row.name

    def _branch(self, op: Op, weight: float) -> str:
        condition = self.known.get(op.operands[0])
        if condition is None:
            for region in op.regions:
                self.region(region, weight * HALF)
            return ""
        region = op.regions[0 if condition[0] else 1]
        ending = self.region(region, weight)
        if ending == "yield":
            for result, value in zip(op.results, region.terminator.operands, strict=True):
                if value in self.known:
                    self.known[result] = self.known[value]
        return ending

    def _for(self, op: Op, weight: float) -> None:
        bounds = [self.known.get(v) for v in op.operands[:3]]
        body, trips = op.regions[0], TRIPS
        if None not in bounds:
            start, stop, step = (int(b[0]) for b in bounds if b is not None)
            trips = max(0, -(-(stop - start) // step)) if step else 0
            self.known[body.args[0]] = (start + trips // 2 * step,)
        self.region(body, weight * trips)

    def _position(self, name: str, axis: Any) -> int:
        """Of the unit that is looked at."""
        unit, cube = self._unit, [n // 2 for n in self._counts]
        absolute = [c * d + u for c, d, u in zip(cube, self._dim, unit, strict=True)]
        numbers = {
            "unit_pos": (unit, self._dim),
            "cube_pos": (cube, self._counts),
            "cube_count": (self._counts, self._counts),
            "absolute_pos": (absolute, self._counts),
        }
        at, extents = numbers[name]
        if axis != "all":
            return at["xyz".index(str(axis))]
        if name == "cube_count":
            return prod(self._counts)
        if name == "absolute_pos":
            within = self._position("unit_pos", "all")
            return self._position("cube_pos", "all") * prod(self._dim) + within
        return at[0] + extents[0] * (at[1] + extents[1] * at[2])

    def _operation(self, op: Op, weight: float) -> None:
        name, found = op.row.name, self.found
        if name in _FREE:
            self._evaluate(op)
            return
        found.issued += weight
        if name in ("load", "store"):
            self._access(op, weight)
        elif name in ("mma", "wgmma"):
            found.products += weight * _products(op)
        elif name in _COPIES:
            found.copied += weight * sum(self._boxes.get(v, 0) for v in op.operands)
        elif name == "dot":
            lanes = weight * 2 * width_of(op.operands[0].type)
            if element_of(op.result.type).is_float:
                found.floats += lanes
            else:
                found.integers += lanes
        elif op.row.convergent is not None and not op.results:
            found.barriers += weight
        elif op.results and not isinstance(op.results[0].type, Buffer):
            self._evaluate(op)
            lanes = weight * width_of(op.results[0].type) * (2 if name == "fma" else 1)
            if element_of(op.results[0].type).is_float:
                found.floats += lanes
            else:
                found.integers += lanes
        for region in op.regions:
            self.region(region, weight)

    def _access(self, op: Op, weight: float) -> None:
        buffer = op.operands[0].type
        value = op.result.type if op.results else op.operands[-1].type
        count = weight * width_of(value) * element_of(value).itemsize
        if not isinstance(buffer, Buffer) or buffer.space is not Space.GLOBAL:
            self.found.near += count
        elif op.results:
            self.found.loaded += count
        else:
            self.found.stored += count

    def _evaluate(self, op: Op) -> None:
        """Keep the result where it is an integer of known numbers."""
        if len(op.results) != 1 or not op.row.is_pure:
            return
        values = [self.known.get(v) for v in op.operands]
        known = [v for v in values if v is not None]
        if len(known) < len(values) or width_of(op.result.type) > 1:
            return
        if element_of(op.result.type).is_float:
            return
        try:
            found = evaluate(op.row, op.attrs, [v.type for v in op.operands], known)
        except (ArithmeticError, ValueError, TypeError, IndexError, AssertionError):
            return
        if found is not None:
            self.known[op.result] = found


def _products(op: Op) -> float:
    """Operations of one unit's share of a product of matrices."""
    if op.row.name == "mma":
        size = _BYTES.get(str(op.attrs.get("elements")), 2)
        depth = 8 * width_of(op.operands[0].type) / size
        return 2 * 16 * 8 * depth / 32
    depth = 32 / _BYTES.get(str(op.attrs.get("a_elements")), 2)
    return 2 * 64 * 2 * width_of(op.results[0].type) * depth / 128
