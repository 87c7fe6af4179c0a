"""Passes do not change what kernels do: random kernels leave the same memory before and after."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings

from cubepy.artifact import Extent
from cubepy.errors import CompileError, fail
from cubepy.ir.core import NARROW_LIMIT, Kernel
from cubepy.ir.parser import parse_kernel
from cubepy.ir.printer import print_kernel
from cubepy.ir.types import Buffer, element_of
from cubepy.ir.verify import InvalidIR, verify
from cubepy.options import Options
from cubepy.passes import pipeline
from cubepy.passes.pipeline import Pass, run, standard_passes
from tests.compilers.normal import small_indices
from tests.ir.machine import Machine, Memory, bits
from tests.ir.strategies import BUFFER_SIZE, kernels, random_kernel, special_numbers, stable

MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
# Contraction rounds once instead of twice; it has its own tests.
PASSES = standard_passes(Options(contract=False), narrows=True)


def final_memory(kernel: Kernel) -> list[list[int]]:
    """The bits of all buffers after a run of one unit."""
    memory: Memory = {}
    arguments = {}
    for param in kernel.params:
        number = stable(param)  # a pass may drop parameters
        dtype = element_of(param.value.type)
        special = special_numbers(dtype)
        if isinstance(param.value.type, Buffer):
            shuffled = [special[(3 * k + number) % len(special)] for k in range(BUFFER_SIZE)]
            memory[param.value] = shuffled
        else:
            arguments[param.value] = (
                3 if isinstance(param.kind, Extent) else special[number % len(special)]
            )
    buffers = list(memory)
    Machine(memory).run(kernel, arguments)
    return [bits(memory[buffer], element_of(buffer.type)) for buffer in buffers]


def check(kernel: Kernel) -> None:
    kernel = replace(small_indices(kernel), limit=NARROW_LIMIT, flat=True)
    expected = final_memory(kernel)

    def compare(name: str, now: Kernel) -> None:
        assert final_memory(now) == expected, f"{name} changed what the kernel does"

    run(kernel, PASSES, compare)


@MANY
@given(kernels())
def test_hypothesis_finds_no_kernel_that_changes(kernel: Kernel) -> None:
    check(kernel)


@pytest.mark.parametrize("block", range(8))
def test_random_kernels_do_not_change(block: int) -> None:
    for seed in range(100 * block, 100 * block + 40):
        check(random_kernel(seed, 40))


def test_contracted_and_fast_kernels_are_valid() -> None:
    for seed in range(50):
        run(random_kernel(seed), standard_passes(Options(fast_math=True)))


def test_passes_are_deterministic() -> None:
    for seed in range(20):
        first, second = (run(random_kernel(seed), PASSES) for _ in range(2))
        assert print_kernel(first) == print_kernel(second)


def test_a_second_run_finds_nothing_new_to_verify() -> None:
    """The pipeline accepts its own output, and leaves dead code to nobody."""
    for seed in range(20):
        once = run(small_indices(random_kernel(seed)), PASSES)
        again = run(verify(parse_kernel(print_kernel(once))), PASSES)
        assert final_memory(once) == final_memory(again)


def test_dump_sees_every_pass_in_order() -> None:
    names: list[str] = []
    run(random_kernel(1), PASSES, lambda name, kernel: names.append(name))
    assert names == [step.name for step in PASSES]


def test_expand_comes_after_contract() -> None:
    expand = Pass("expand", lambda kernel: kernel)
    names = [step.name for step in standard_passes(Options(), expand)]
    assert names.index("expand") == names.index("contract") + 1


@pytest.mark.parametrize("each", [False, True])
def test_the_pass_that_breaks_the_ir_is_named(each: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where what is verified comes later, or a later pass fails over it."""
    monkeypatch.setattr(pipeline, "VERIFIES_EACH", each)

    def cut(kernel: Kernel) -> Kernel:
        return replace(kernel, body=replace(kernel.body, ops=kernel.body.ops[:-1]))

    def crash(kernel: Kernel) -> Kernel:
        assert kernel.body.terminator.row.is_terminator
        return kernel

    same = Pass("same", lambda kernel: kernel)
    for passes in ([same, Pass("cut", cut), same], [Pass("cut", cut), Pass("crash", crash)]):
        with pytest.raises(InvalidIR, match="after cut"):
            run(random_kernel(1), passes)


def test_a_pass_that_refuses_a_kernel_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "VERIFIES_EACH", False)
    runs: list[Kernel] = []

    def refuse(kernel: Kernel) -> Kernel:
        runs.append(kernel)
        raise fail("E309", None, nbytes=1, limit=0)

    with pytest.raises(CompileError):
        run(random_kernel(1), [Pass("refuse", refuse)])
    assert len(runs) == 1
