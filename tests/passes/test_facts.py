"""Integer facts against execution: every range and divisor holds on every run of random kernels."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest

from cubepy.artifact import Data, Extent, Scalar, Stride
from cubepy.ir import ops
from cubepy.ir.build import Builder
from cubepy.ir.core import NARROW_LIMIT, Kernel, Op, Param, Region, Value
from cubepy.ir.evaluate import Lanes
from cubepy.ir.numbers import limits
from cubepy.ir.types import Buffer, bool_, element_of, i32, i64, index, u32
from cubepy.ir.verify import verify
from cubepy.passes.construct_ssa import construct_ssa
from cubepy.passes.dce import dce
from cubepy.passes.flow import FactRewriter, analyse, carried_ranges
from cubepy.passes.narrow import narrow
from cubepy.passes.prove import prove
from tests.compilers.normal import small_indices
from tests.ir.machine import Machine
from tests.ir.strategies import BUFFER_SIZE, random_kernel, special_numbers, stable

CORNERS = (0, 1, 2, 3, 7, 31, 32, 1000, NARROW_LIMIT - 1, NARROW_LIMIT)


class Wraps(Exception):
    """A run whose indices wrap, which programs promise not to do."""


class Watch(Machine):
    """A machine that holds every integer against what is claimed of it."""

    def __init__(self, memory, ranges, multiples):
        super().__init__(memory, max_steps=20_000)
        self.ranges = ranges
        self.multiples = multiples
        self.compared = 0

    def _set(self, values: Iterable[Value], lanes: Iterable[Lanes]) -> None:
        values, lanes = list(values), list(lanes)
        super()._set(values, lanes)
        for value, numbers in zip(values, lanes, strict=True):
            if value in self.ranges:
                low, high = self.ranges[value]
                assert low <= numbers[0] <= high, (value.name, numbers[0], low, high)
                self.compared += 1
            multiple = self.multiples.get(value, 1)
            number = int(numbers[0]) if multiple != 1 else 0
            assert number == 0 if multiple == 0 else number % multiple == 0, (number, multiple)

    def _pure(self, op: Op) -> None:
        if op.row in (ops.ADD, ops.SUB, ops.MUL) and op.result.type is index:
            a, b = (int(x) for (x,) in self._get(op.operands))
            exact = {ops.ADD: a + b, ops.SUB: a - b, ops.MUL: a * b}[op.row]
            low, high = limits(index)
            if not low <= exact <= high:
                raise Wraps
        super()._pure(op)


class Multiples(FactRewriter):
    """A walk that keeps every known divisor."""

    def __init__(self, kernel):
        super().__init__(kernel, carried_ranges(kernel))
        self.found = {}

    def visit(self, op):
        super().visit(op)
        for value in (*op.results, *(a for region in op.regions for a in region.args)):
            self.found[value] = self.facts.multiple(value)


class Programs:
    """Random programs of indices: guards, loops, and expressions that divide and compare."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.b = Builder()
        self.buffer = Value(Buffer(index), "b0")
        self.params = [Param(self.buffer, "b0", Data())]
        self.values: dict[object, list[Value]] = {index: [], i32: [], i64: [], u32: [], bool_: []}
        for axis in range(2):
            self.take(Param(Value(index, f"n{axis}"), "x", Extent(axis)))
        self.take(Param(Value(index, "s2"), "x", Stride(0)))
        self.take(Param(Value(i64, "k3"), "k3", Scalar()))
        self.take(Param(Value(i32, "k4"), "k4", Scalar()))

    def take(self, param: Param) -> None:
        self.params.append(param)
        self.values[param.value.type].append(param.value)

    def kernel(self) -> Kernel:
        with self.b.region() as body:
            for row, axis in ((ops.ABSOLUTE_POS, "all"), (ops.UNIT_POS, "x"), (ops.CUBE_POS, "x")):
                self.values[index].append(self.b.emit(row, axis=axis))
            self.locals = [self.b.emit(ops.VAR, type=index, name="v") for _ in range(2)]
            for local in self.locals:
                self.b.emit_op(ops.SET, local, self.one(index))
            self.block(0, 12)
            self.b.emit_op(ops.RETURN)
        kernel = Kernel(
            "k", tuple(self.params), Region((), tuple(body)), (8, 1, 1), limit=NARROW_LIMIT
        )
        return construct_ssa(verify(replace(kernel, flat=True)))

    def one(self, t) -> Value:
        known = self.values[t]
        if not known or self.pick.random() < 0.25:
            if t is bool_:
                return self.compare()
            small = (0, 1, 2, 3, 4, 8, 12, 32, 100, *((-1, -4) if t is not u32 else ()))
            return self.b.const(self.pick.choice(small), t)
        return self.pick.choice(known[-8:] if self.pick.random() < 0.7 else known)

    def compare(self) -> Value:
        t = self.pick.choice((index, index, i32))
        row = self.pick.choice((ops.LT, ops.LE, ops.GT, ops.GE, ops.EQ, ops.NE))
        return self.b.emit(row, self.one(t), self.one(t))

    def block(self, depth: int, size: int) -> None:
        kept = {t: len(v) for t, v in self.values.items()}
        for _ in range(size):
            kind = self.pick.random()
            if depth < 3 and kind < 0.2:
                self.branch(depth)
            elif depth < 2 and kind < 0.28:
                self.count(depth)
            elif depth < 2 and kind < 0.34:
                self.repeat(depth)
            elif kind < 0.42:
                self.b.emit_op(ops.SET, self.pick.choice(self.locals), self.one(index))
            elif kind < 0.5:
                self.values[index].append(self.b.emit(ops.GET, self.pick.choice(self.locals)))
            else:
                self.compute()
        self.b.emit_op(ops.STORE, self.buffer, self.b.index(0), self.one(index))
        for t, n in kept.items():
            del self.values[t][n:]

    def compute(self) -> None:
        t = self.pick.choice((index, index, index, i32, i64, u32))
        rows = (ops.ADD, ops.SUB, ops.MUL, ops.FLOORDIV, ops.MOD, ops.MIN, ops.MAX)
        rows += (ops.DIV_TRUNC, ops.REM_TRUNC, ops.AND, ops.OR, ops.XOR, ops.SHR, ops.SHL)
        kind = self.pick.random()
        if kind < 0.1:
            chosen = self.b.emit(ops.SELECT, self.one(bool_), self.one(t), self.one(t))
            self.values[t].append(chosen)
        elif kind < 0.2:
            source = self.pick.choice((index, i32, i64, u32))
            if source is not t:
                self.values[t].append(self.b.emit(ops.CAST, self.one(source), type=t))
        elif kind < 0.25:
            self.values[t].append(self.b.emit(self.pick.choice((ops.NEG, ops.ABS)), self.one(t)))
        elif kind < 0.3:
            self.values[bool_].append(self.compare())
        else:
            found = self.b.emit(self.pick.choice(rows), self.one(t), self.one(t))
            self.values[t].append(found)

    def branch(self, depth: int) -> None:
        condition = self.one(bool_) if self.pick.random() < 0.4 else self.compare()
        regions = []
        for k in range(2):
            with self.b.region() as body:
                if k == 0 or self.pick.random() < 0.5:
                    self.block(depth + 1, 5)
                leaves = self.pick.random() < 0.15
                self.b.emit_op(ops.RETURN if leaves else ops.YIELD)
            regions.append(Region((), tuple(body)))
        self.b.emit_op(ops.IF, condition, regions=regions)

    def count(self, depth: int) -> None:
        bounds = [self.b.emit(ops.MOD, self.one(index), self.b.index(9)) for _ in range(2)]
        step = self.b.index(self.pick.choice((1, 1, 2, 4, -1, -3)))
        position = Value(index, "p")
        with self.b.region() as body:
            self.values[index].append(position)
            self.block(depth + 1, 5)
            self.b.emit_op(ops.CONTINUE)
        self.b.emit_op(ops.FOR, *bounds, step, regions=[Region((position,), tuple(body))])
        self.values[index] = [v for v in self.values[index] if v is not position]

    def repeat(self, depth: int) -> None:
        """`while v < bound: ...; v += step`, a few times."""
        local = self.pick.choice(self.locals)
        bound, step = self.one(index), self.b.index(self.pick.choice((1, 3, 100, 1 << 29)))
        trips = self.b.emit(ops.VAR, type=index, name="trips")
        self.b.emit_op(ops.SET, trips, self.b.index(0))
        with self.b.region() as body:
            count = self.b.emit(ops.GET, trips)
            few = self.b.emit(ops.LT, count, self.b.index(4))
            below = self.b.emit(ops.LT, self.b.emit(ops.GET, local), bound)
            with self.b.region() as go:
                self.b.emit_op(ops.YIELD)
            with self.b.region() as stop:
                self.b.emit_op(ops.BREAK)
            arms = [Region((), tuple(go)), Region((), tuple(stop))]
            self.b.emit_op(ops.IF, self.b.emit(ops.AND, few, below), regions=arms)
            self.block(depth + 1, 4)
            self.b.emit_op(ops.SET, local, self.b.emit(ops.ADD, self.b.emit(ops.GET, local), step))
            self.b.emit_op(ops.SET, trips, self.b.emit(ops.ADD, count, self.b.index(1)))
            self.b.emit_op(ops.CONTINUE)
        self.b.emit_op(ops.LOOP, regions=[Region((), tuple(body))])


def arguments_of(kernel: Kernel, pick: random.Random) -> dict[str, int]:
    """Numbers that keep the promise: sizes and offsets stay below the limit."""
    while True:
        n0, n1 = pick.choice(CORNERS), pick.choice(CORNERS)
        stride = pick.choice((0, 1, n1, -n1, 64, NARROW_LIMIT))
        reach = abs(stride) * (max(n0, 1) - 1)
        if max(n0, 1) * max(n1, 1) <= NARROW_LIMIT and reach <= NARROW_LIMIT:
            break
    k3 = pick.choice((*CORNERS, -1, -NARROW_LIMIT, *limits(i64)))
    k4 = pick.choice((0, 1, -1, 5, 1000, *limits(i32)))
    return {"n0": n0, "n1": n1, "s2": stride, "k3": k3, "k4": k4}


def run_watched(kernel: Kernel, given: dict[str, int], ranges, multiples) -> list[int] | None:
    memory = {p.value: [0] * BUFFER_SIZE for p in kernel.params if isinstance(p.kind, Data)}
    numbers = {p.value: given[p.value.name] for p in kernel.params if p.value.name in given}
    machine = Watch(memory, ranges, multiples)
    try:
        machine.run(kernel, numbers)
    except Wraps:
        return None
    return [machine.compared, *next(iter(memory.values()))]


@pytest.mark.parametrize("block", range(6))
def test_facts_hold_on_every_run(block: int) -> None:
    compared = 0
    for seed in range(20 * block, 20 * block + 20):
        kernel, pick = Programs(seed).kernel(), random.Random(seed)
        ranges, walk = analyse(kernel), Multiples(kernel)
        walk.run(kernel)
        for _ in range(8):
            try:
                found = run_watched(kernel, arguments_of(kernel, pick), ranges, walk.found)
            except AssertionError as error:
                if str(error) == "runs too long":
                    continue
                error.add_note(f"seed {seed}")
                raise
            compared += found[0] if found else 0
    assert compared > 1_500


@pytest.mark.parametrize("block", range(6))
def test_passes_on_facts_change_nothing(block: int) -> None:
    compared = 0
    for seed in range(1000 + 20 * block, 1020 + 20 * block):
        kernel, pick = Programs(seed).kernel(), random.Random(seed)
        proved = verify(prove(kernel))
        narrowed = verify(dce(verify(narrow(proved))))
        for _ in range(8):
            given = arguments_of(kernel, pick)
            try:
                expected = run_watched(kernel, given, {}, {})
            except AssertionError as error:
                assert str(error) == "runs too long"
                continue
            if expected is not None:
                compared += 1
                for now in (proved, narrowed):
                    assert run_watched(now, given, {}, {}) == expected, seed
    assert compared > 30


def test_facts_hold_on_kernels_of_all_operations() -> None:
    for seed in range(80):
        kernel = construct_ssa(small_indices(random_kernel(seed, 40)))
        memory, numbers = {}, {}
        for p in kernel.params:
            if isinstance(p.kind, Data):
                special = special_numbers(element_of(p.value.type))
                memory[p.value] = [special[k % len(special)] for k in range(BUFFER_SIZE)]
            else:
                special = special_numbers(element_of(p.value.type))
                other = special[stable(p) % len(special)]
                numbers[p.value] = 3 if isinstance(p.kind, Extent) else other
        walk = Multiples(kernel)
        walk.run(kernel)
        machine = Watch(memory, analyse(kernel), walk.found)
        try:
            machine.run(kernel, numbers)
        except Wraps:
            continue
