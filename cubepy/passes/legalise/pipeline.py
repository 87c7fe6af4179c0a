"""The steps of legalisation: what a target has no form for becomes something else.

One list serves all targets; their `Capabilities` say which steps a kernel takes. Each is verified
and dumpable, as every pass is.
"""

from __future__ import annotations

from collections.abc import Callable

from cubepy.artifact import Fault
from cubepy.ir.core import Kernel
from cubepy.ir.types import f64
from cubepy.passes.cse import cse
from cubepy.passes.dce import dce
from cubepy.passes.fission import fission, needs_fission
from cubepy.passes.fold import fold
from cubepy.passes.interleave_units import interleave_units
from cubepy.passes.legalise.capabilities import Capabilities, Planes
from cubepy.passes.legalise.check_convergence import check_convergence
from cubepy.passes.legalise.check_target import check_target
from cubepy.passes.legalise.compute_in_f32 import compute_in_f32
from cubepy.passes.legalise.expand_arithmetic import expand_arithmetic
from cubepy.passes.legalise.hide_negations import hide_negations
from cubepy.passes.legalise.lower_atomics import lower_atomics
from cubepy.passes.legalise.lower_dots import lower_dots
from cubepy.passes.legalise.lower_lookups import lower_lookups
from cubepy.passes.legalise.lower_named_barriers import lower_named_barriers
from cubepy.passes.legalise.lower_planes import lower_planes
from cubepy.passes.legalise.lower_positions import lower_positions
from cubepy.passes.legalise.lower_reductions import lower_reductions
from cubepy.passes.legalise.predicate import predicate
from cubepy.passes.legalise.print_as_f32 import print_as_f32
from cubepy.passes.legalise.print_nonfinite import print_nonfinite
from cubepy.passes.legalise.store_bools_as_bytes import store_bools_as_bytes
from cubepy.passes.legalise.unwrap_lines import unwrap_lines
from cubepy.passes.legalise.wrap_signed import wrap_signed
from cubepy.passes.lower_checks import faults_of, lower_checks
from cubepy.passes.pipeline import Pass, run
from cubepy.passes.sink_jumps import sink_jumps
from cubepy.passes.vectorise import vectorise
from cubepy.passes.widen import widen, widen_f16_fma

Dump = Callable[[str, Kernel], None]


def legalise(
    kernel: Kernel, target: Capabilities, dump: Dump | None = None
) -> tuple[Kernel, tuple[Fault, ...]]:
    """The kernel in what the target has, and what each of its checks tests.

    `UnsupportedError` E310 for types and operations that the target has not; `CompileError` E307
    for barriers that only some units reach.
    """
    check_target(kernel, target)
    kernel = lower_named_barriers(sink_jumps(kernel), target)
    check_convergence(kernel, target)
    return run(kernel, steps(target), dump), faults_of(kernel)


def steps(target: Capabilities) -> list[Pass]:
    """The steps that a target needs, in order."""
    loops = target.planes is Planes.LOOPS
    simplify = (Pass("fold", fold), Pass("cse", cse), Pass("dce", dce))
    listed: list[tuple[bool, tuple[Pass, ...]]] = [
        (True, (Pass("lower_checks", lower_checks), Pass("lower_lookups", lower_lookups))),
        (True, (_for(lower_dots, target),)),
        (True, (Pass("print_nonfinite", print_nonfinite),)),
        (loops, (Pass("unwrap_lines", unwrap_lines),)),
        (
            target.planes is Planes.MEMORY or not (loops or target.early_exit),
            (_for(predicate, target),),
        ),
        (True, (_for(lower_planes, target),)),
        (target.vectorise is not False, (_for(_units_as_lanes, target),)),
        (True, (_for(lower_atomics, target),)),
        (loops, (Pass("interleave_units", interleave_units), Pass("fission", _cut_at_barriers))),
        (not target.reduces_lines, (Pass("lower_reductions", lower_reductions),)),
        (target.narrows_f16_by_hand, (Pass("widen_f16_fma", widen_f16_fma),)),
        (bool(target.stored), (_for(print_as_f32, target),)),
        (bool(target.stored - target.soft), (_for(compute_in_f32, target),)),
        (bool(target.soft), (Pass("widen", widen(target.soft, f64 in target.scalars)),)),
        (bool(target.open_cases), (_for(expand_arithmetic, target),)),
        (not target.linear_positions, (Pass("lower_positions", lower_positions),)),
        (not target.bools_in_memory, (Pass("store_bools_as_bytes", store_bools_as_bytes),)),
        # after folding, which makes sums of sums
        (not target.wraps_signed, (*simplify, Pass("wrap_signed", wrap_signed), *simplify)),
        (target.loses_negations, (_for(hide_negations, target),)),
    ]
    return [step for is_needed, group in listed if is_needed for step in group]


def _for(step: Callable[[Kernel, Capabilities], Kernel], target: Capabilities) -> Pass:
    return Pass(step.__name__, lambda kernel: step(kernel, target))


def _units_as_lanes(kernel: Kernel, target: Capabilities) -> Kernel:
    return vectorise(kernel, target.line_bytes, target.vectorise, target.line_registers).kernel


def _cut_at_barriers(kernel: Kernel) -> Kernel:
    return fission(kernel) if needs_fission(kernel) else kernel
