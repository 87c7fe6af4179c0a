"""Random kernels do on the interpreter what they do on the machine of the IR's tests."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from cubepy.artifact import Extent
from cubepy.compilers.python import ops as spell
from cubepy.errors import CheckError, UnsupportedError
from cubepy.ir import ops
from cubepy.ir.build import Builder
from cubepy.ir.core import Kernel, Op, Region, Value
from cubepy.ir.numbers import Number
from cubepy.ir.types import Buffer, element_of
from cubepy.options import Options
from cubepy.passes.construct_ssa import construct_ssa
from cubepy.passes.pipeline import run, standard_passes
from cubepy.passes.rewrite import Rewriter
from tests.interpreter.harness import Cells, run_ir
from tests.ir.machine import POSITION, Machine, bits
from tests.ir.strategies import BUFFER_SIZE, kernels, random_kernel, special_numbers

MANY = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def inputs(kernel: Kernel) -> tuple[Cells, dict[Value, Number]]:
    """Special numbers for every buffer and number."""
    memory: Cells = {}
    numbers: dict[Value, Number] = {}
    for number, param in enumerate(kernel.params):
        special = special_numbers(element_of(param.value.type))
        if isinstance(param.value.type, Buffer):
            cells = [special[(3 * k + number) % len(special)] for k in range(BUFFER_SIZE)]
            memory[param.value] = cells
        else:
            numbers[param.value] = (
                3 if isinstance(param.kind, Extent) else special[number % len(special)]
            )
    return memory, numbers


class Placeless(Rewriter):
    """Gives every unit one position, and every address the same alignment."""

    def visit(self, op: Op) -> None:
        if op.row in (*spell.POSITIONS, ops.MISALIGNMENT):
            number = POSITION.get(str(op.attrs.get("axis")), 2)
            self.replaced[op.result] = self.emit_const(op.result.type, number)
        else:
            super().visit(op)


def check(kernel: Kernel) -> bool:
    """Whether the kernel could be compared; it cannot where it reads what nothing wrote."""
    kernel = replace(Placeless().run(kernel), cube_dim=(1, 1, 1))
    expected, numbers = inputs(kernel)
    machine = Machine(expected)
    try:
        machine.run(kernel, numbers)
    except AssertionError:
        return False
    found, _ = inputs(kernel)
    try:
        run_ir(kernel, found, numbers)
    except CheckError as error:
        assert error.code == "E712"
        return False
    for buffer in found:
        dtype = element_of(buffer.type)
        assert bits(found[buffer], dtype) == bits(expected[buffer], dtype), buffer.name
    return True


@MANY
@given(kernels())
def test_hypothesis_finds_no_difference(kernel: Kernel) -> None:
    check(construct_ssa(kernel))


@pytest.mark.parametrize("block", range(4))
def test_random_kernels_agree(block: int) -> None:
    compared = sum(
        check(construct_ssa(random_kernel(seed, 30)))
        for seed in range(100 * block, 100 * block + 30)
    )
    assert compared > 15


def test_optimised_kernels_agree() -> None:
    passes = standard_passes(Options())
    compared = sum(check(run(random_kernel(seed, 40), passes)) for seed in range(500, 530))
    assert compared > 15


def test_what_python_cannot_nest_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="nest"):
        check(deep_loops(25))


def deep_loops(depth: int) -> Kernel:
    """Loops in loops."""
    b = Builder()

    def loop(left: int) -> None:
        with b.region() as body:
            if left:
                loop(left - 1)
            b.emit_op(ops.BREAK)
        b.emit_op(ops.LOOP, regions=[Region((), tuple(body))])

    with b.region() as body:
        loop(depth)
        b.emit_op(ops.RETURN)
    return Kernel("deep", (), Region((), tuple(body)))
