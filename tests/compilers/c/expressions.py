"""Random kernels of nested scalar expressions, each value used once: what is written in one line.

Conditions that are conditionals, branches that only choose, masked loads, selections, shifts,
comparisons of comparisons, signs of signs.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from cubepy.artifact import Data
from cubepy.ir import ops
from cubepy.ir.build import Builder
from cubepy.ir.core import Kernel, Param, Region, Value
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import Buffer, DType, bool_, f32, i16, i32, i64, u8, u32
from cubepy.ir.verify import verify
from cubepy.options import Options
from cubepy.passes.pipeline import run, standard_passes

_TYPES = (i32, u32, i64, i16, u8, f32, bool_)
_COMPARISONS = (ops.EQ, ops.NE, ops.LT, ops.LE, ops.GT, ops.GE)
_BITS = (ops.AND, ops.OR, ops.XOR)
_SUMS = (ops.ADD, ops.SUB, ops.MUL, ops.MIN, ops.MAX)
_DEPTH = 4


def expression_kernel(seed: int) -> Kernel:
    """The kernel of a seed, optimised, with a few stores of deep expressions."""
    return run(_Maker(random.Random(seed)).kernel(f"k{seed}"), _PASSES)


_PASSES = [p for p in standard_passes(Options(contract=False)) if p.name != "cse"]


class _Maker:
    def __init__(self, chooser: random.Random) -> None:
        self._random = chooser
        self._b = Builder()
        self._buffers = {t: Value(Buffer(t), f"b_{t.name}") for t in _TYPES}

    def kernel(self, name: str) -> Kernel:
        with self._b.region() as body:
            for number in range(3):
                t = self._random.choice(_TYPES)
                value = self._value(t, 0)
                if self._random.random() < 0.3:
                    self._store_under(t, value, number)
                else:
                    self._store(t, value, number)
            self._b.emit_op(ops.RETURN)
        params = tuple(Param(v, v.name, Data()) for v in self._buffers.values())
        written = frozenset(v.name for v in self._buffers.values())
        return verify(Kernel(name, params, Region((), tuple(body)), (1, 1, 1), 1, written))

    def _store(self, t: DType, value: Value, place: int) -> None:
        self._b.emit_op(ops.STORE, self._buffers[t], self._b.index(place), value)

    def _store_under(self, t: DType, value: Value, place: int) -> None:
        condition = self._value(bool_, 1)
        with self._b.region() as then:
            self._store(t, value, place)
            self._b.emit_op(ops.YIELD)
        with self._b.region() as otherwise:
            self._b.emit_op(ops.YIELD)
        regions = [Region((), tuple(then)), Region((), tuple(otherwise))]
        self._b.emit_op(ops.IF, condition, regions=regions)

    def _value(self, t: DType, depth: int) -> Value:
        if depth >= _DEPTH or self._random.random() < 0.08 * depth:
            return self._load(t, depth)
        return self._random.choice(self._kinds(t))(t, depth + 1)

    def _kinds(self, t: DType) -> list[Callable[[DType, int], Value]]:
        kinds = [self._select, self._select, self._branch, self._cast]
        if t is bool_:
            return [*kinds, self._compare, self._compare, self._bits, self._bits, self._not]
        kinds += [self._sum, self._negate]
        return kinds if t.is_float else [*kinds, self._bits, self._shift, self._not]

    def _load(self, t: DType, depth: int) -> Value:
        operands = (self._buffers[t], self._b.index(self._random.randrange(4, 16)))
        if self._random.random() < 0.3 and depth < _DEPTH:
            mask, fill = self._value(bool_, depth + 1), self._value(t, depth + 1)
            return self._b.emit(ops.LOAD, *operands, mask, fill, type=t)
        return self._b.emit(ops.LOAD, *operands, type=t)

    def _two(self, rows: tuple[OpDef, ...], t: DType, depth: int) -> Value:
        return self._b.emit(self._random.choice(rows), self._value(t, depth), self._value(t, depth))

    def _sum(self, t: DType, depth: int) -> Value:
        return self._two(_SUMS[:3] if t.is_float else _SUMS, t, depth)

    def _bits(self, t: DType, depth: int) -> Value:
        return self._two(_BITS, t, depth)

    def _compare(self, t: DType, depth: int) -> Value:
        return self._two(_COMPARISONS, self._random.choice(_TYPES[:-1]), depth)

    def _shift(self, t: DType, depth: int) -> Value:
        count = self._b.const(self._random.randrange(1, t.bits), t)
        row = self._random.choice((ops.SHL, ops.SHR))
        return self._b.emit(row, self._value(t, depth), count)

    def _negate(self, t: DType, depth: int) -> Value:
        return self._b.emit(ops.NEG, self._value(t, depth))

    def _not(self, t: DType, depth: int) -> Value:
        return self._b.emit(ops.NOT, self._value(t, depth))

    def _cast(self, t: DType, depth: int) -> Value:
        sources = [s for s in _TYPES if not s.is_float and s is not t]
        return self._b.emit(ops.CAST, self._value(self._random.choice(sources), depth), type=t)

    def _select(self, t: DType, depth: int) -> Value:
        condition = self._value(bool_, depth)
        return self._b.emit(ops.SELECT, condition, self._value(t, depth), self._value(t, depth))

    def _branch(self, t: DType, depth: int) -> Value:
        """An `if` whose branches only choose a value."""
        condition = self._value(bool_, depth)
        regions: list[Region] = []
        for _ in range(2):
            with self._b.region() as body:
                self._b.emit_op(ops.YIELD, self._value(t, depth + 1))
            regions.append(Region((), tuple(body)))
        return self._b.emit_op(ops.IF, condition, types=[t], regions=regions).result
