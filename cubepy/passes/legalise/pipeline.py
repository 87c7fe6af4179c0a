"""The steps of legalisation: what a target has no form for becomes something else.

One list serves all targets; their `Capabilities` say which steps a kernel takes. Each is dumpable,
as every pass is. Most kernels need few of them: a step is imported when a kernel comes that has
what it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import import_module
from math import prod
from typing import Any

from cubepy.artifact import Fault
from cubepy.ir import ops
from cubepy.ir.core import Kernel
from cubepy.ir.cuda import BARRIER_TRY_WAIT, CLUSTER_SYNC
from cubepy.ir.opdef import OpDef
from cubepy.ir.types import f64
from cubepy.passes.cse import cse
from cubepy.passes.dce import dce
from cubepy.passes.fold import fold
from cubepy.passes.legalise.capabilities import OF_PLANES, Capabilities, Planes
from cubepy.passes.legalise.check_target import check_target
from cubepy.passes.lower_checks import faults_of, lower_checks
from cubepy.passes.pipeline import Pass, run

_POSITIONS = (ops.UNIT_POS, ops.CUBE_POS, ops.CUBE_COUNT, ops.ABSOLUTE_POS)
_WAITS = (BARRIER_TRY_WAIT, ops.SYNC_UNITS)
_DIVISIONS = (ops.FLOORDIV, ops.MOD, ops.DIV_TRUNC, ops.REM_TRUNC)
_HIDDEN_FROM_NVIDIA = ("hide_negations", "hide_guards", "hide_extrema", "hide_zeros")
Dump = Callable[[str, Kernel], None]


def legalise(
    kernel: Kernel, target: Capabilities, dump: Dump | None = None
) -> tuple[Kernel, tuple[Fault, ...]]:
    """The kernel in what the target has, and what each of its checks tests.

    `UnsupportedError` E310 for types and operations that the target has not; `CompileError` E307
    for barriers that only some units reach.
    """
    check_target(kernel, target)
    if prod(kernel.cube_dim) > 1:
        kernel = _late("sink_jumps").run(kernel)
    kernel = _step("lower_named_barriers", target, rows=(ops.SYNC_UNITS,)).run(kernel)
    if prod(kernel.cube_dim) > 1:
        from cubepy.passes.legalise.check_convergence import check_convergence

        check_convergence(kernel, target)
    return run(kernel, steps(target), dump), faults_of(kernel)


def steps(target: Capabilities) -> list[Pass]:
    """The steps that a target needs, in order."""
    loops = target.planes is Planes.LOOPS
    prints = (ops.PRINT,)
    simplify = (Pass("fold", fold), Pass("cse", cse), Pass("dce", dce))
    listed: list[tuple[bool, tuple[Pass, ...]]] = [
        (True, (Pass("lower_checks", lower_checks),)),
        (target.named_barriers, (_step("watch_faults", rows=_WAITS),)),
        (True, (_step("lower_lookups", rows=(ops.LOOKUP,)),)),
        (True, (_step("lower_dots", target, rows=(ops.DOT,)),)),
        (True, (_step("print_nonfinite", rows=prints),)),
        (loops, (_step("unwrap_lines"),)),
        (
            target.planes is Planes.MEMORY or not (loops or target.early_exit),
            (_step("predicate", target),),
        ),
        (target.of_nvidia, (_step("predicate", target, rows=(CLUSTER_SYNC,)),)),
        (True, (_step("lower_planes", target, rows=OF_PLANES),)),
        (
            loops,
            (
                _late("plain_folds", rows=(ops.MIN, ops.MAX)),
                Pass("join_positions", _join),
                _late("hoist_divisions", rows=_DIVISIONS),
                Pass("dce", dce),
            ),
        ),
        (target.vectorise is not False, (Pass("vectorise", _units_as_lanes(target)),)),
        (True, (_step("lower_atomics", target, rows=ops.ATOMICS),)),
        (loops, (Pass("interleave_units", _interleave), Pass("fission", _cut_at_barriers))),
        (not target.of_nvidia, (_step("bound_conversions", rows=(ops.CAST,)),)),
        (not target.reduces_lines, (_step("lower_reductions", rows=ops.REDUCTIONS),)),
        (target.narrows_f16_by_hand, (Pass("widen_f16_fma", _widen_f16_fma),)),
        (bool(target.stored), (_step("print_as_f32", target, rows=prints),)),
        (bool(target.stored), (_step("copy_signs", target, rows=(ops.COPYSIGN,)),)),
        (bool(target.stored - target.soft), (_step("compute_in_f32", target),)),
        (bool(target.soft), (Pass("widen", _widen(target)),)),
        (bool(target.open_cases), (_step("expand_arithmetic", target),)),
        (not target.linear_positions, (_step("lower_positions"),)),
        (not target.bools_in_memory, (_step("store_bools_as_bytes"),)),
        # after folding, which makes sums of sums
        (not target.wraps_signed, (*simplify, _step("wrap_signed"), *simplify)),
        (target.of_nvidia, tuple(map(_step, _HIDDEN_FROM_NVIDIA))),
    ]
    return [step for is_needed, group in listed if is_needed for step in group]


def _step(name: str, *arguments: Any, rows: Collection[OpDef] = ()) -> Pass:
    """A step of this package, for kernels with an operation of `rows`, or for all."""
    return _late(f"legalise.{name}", *arguments, rows=frozenset(rows))


def _late(place: str, *arguments: Any, rows: Collection[OpDef] = ()) -> Pass:
    """The pass of a module that has its name; it is imported when it runs."""
    name = place.rpartition(".")[2]

    def run_it(kernel: Kernel) -> Kernel:
        if rows and not any(op.row in rows for op in kernel.body.walk()):
            return kernel
        return getattr(import_module(f"cubepy.passes.{place}"), name)(kernel, *arguments)

    return Pass(name, run_it)


def _widen(target: Capabilities) -> Callable[[Kernel], Kernel]:
    def widened(kernel: Kernel) -> Kernel:
        from cubepy.passes.widen import widen

        return widen(target.soft, f64 in target.scalars, target.keeps_half_denormals)(kernel)

    return widened


def _widen_f16_fma(kernel: Kernel) -> Kernel:
    from cubepy.passes.widen import widen_f16_fma

    return widen_f16_fma(kernel)


def _units_as_lanes(target: Capabilities) -> Callable[[Kernel], Kernel]:
    def as_lanes(kernel: Kernel) -> Kernel:
        if kernel.cube_dim[0] == 1:
            return kernel
        from cubepy.passes.vectorise import vectorise

        line_bytes, registers = target.line_bytes, target.line_registers
        return vectorise(kernel, line_bytes, target.vectorise, registers).kernel

    return as_lanes


def _join(kernel: Kernel) -> Kernel:
    """Kernels that have nothing but linear positions of one kind need no joining."""
    rows = {op.row for op in kernel.body.walk()}
    axes = {op.attrs["axis"] for op in kernel.body.walk() if op.row in _POSITIONS}
    is_converted = ops.ABSOLUTE_POS in rows and ops.CAST in rows
    if axes <= {"all"} and ops.UNIT_POS not in rows and not is_converted:
        return kernel
    from cubepy.passes.join_positions import join_positions

    return join_positions(kernel)


def _interleave(kernel: Kernel) -> Kernel:
    if prod(kernel.cube_dim) == 1:
        return kernel
    from cubepy.passes.interleave_units import interleave_units

    return interleave_units(kernel)


def _cut_at_barriers(kernel: Kernel) -> Kernel:
    if prod(kernel.cube_dim) == 1:
        return kernel
    from cubepy.passes.fission import fission, needs_fission

    return fission(kernel) if needs_fission(kernel) else kernel
