"""What C has no form for becomes something else, in rewritings that all dialects share.

The order: checks become branches, and units that end early stay where others meet; planes and
atomics give plain operations; small floats are computed in f32; operations
with edge cases become operations without; positions become those of the dialect; bools in memory
become bytes; signed sums, which C lets overflow, become unsigned ones. Then all is simplified.
"""

from __future__ import annotations

from collections.abc import Callable

from cubepy.artifact import Fault
from cubepy.compilers.base import refuse_foreign
from cubepy.compilers.cstyle.arithmetics import (
    expand_arithmetic,
    lower_reductions,
    wrap_signed,
)
from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.cstyle.meetings import check_meetings
from cubepy.compilers.cstyle.planes import lower_planes
from cubepy.compilers.cstyle.positions import lower_positions
from cubepy.compilers.cstyle.stay import stay
from cubepy.compilers.cstyle.storage import bools_as_bytes, in_f32, lower_atomics, print_as_f32
from cubepy.errors import fail
from cubepy.ir.core import Kernel, Op
from cubepy.ir.types import Type, element_of, f16, f64
from cubepy.ir.verify import verify
from cubepy.passes.fold import fold
from cubepy.passes.lower_checks import lower_checks
from cubepy.passes.remove_dead import remove_dead
from cubepy.passes.share import share
from cubepy.passes.widen import widen, widen_f16_fma

Step = Callable[[Kernel], Kernel]


def legalize(kernel: Kernel, dialect: Dialect) -> tuple[Kernel, tuple[Fault, ...]]:
    """The kernel in what the dialect can spell, and what its checks test.

    `UnsupportedError` E310 for types and operations that the target has not.
    """
    refuse_foreign(kernel, dialect.name)
    check_types(kernel, dialect)
    check_cluster(kernel, dialect)
    check_meetings(kernel, dialect)
    kernel, faults = lower_checks(kernel)
    for step in (stay, lower_planes, lower_atomics):
        kernel = step(kernel, dialect)
    for step in _steps(dialect):
        kernel = step(kernel)
    return verify(kernel, after=f"legalisation for {dialect.name}"), faults


def _steps(dialect: Dialect) -> list[Step]:
    exact_f16 = f16 not in dialect.native_fma and f64 in dialect.scalars
    return [
        lower_reductions,
        *([widen_f16_fma] if exact_f16 else []),
        lambda kernel: print_as_f32(kernel, dialect),
        lambda kernel: in_f32(kernel, dialect),
        widen(dialect.soft),
        lambda kernel: expand_arithmetic(kernel, dialect),
        lower_positions,
        bools_as_bytes,
        fold,
        share,
        remove_dead,
        wrap_signed,  # after folding, which makes sums of sums
        fold,
        share,
        remove_dead,
    ]


def check_types(kernel: Kernel, dialect: Dialect) -> None:
    """`UnsupportedError` E310 for a scalar type or an operation that the dialect has not."""
    for param in kernel.params:
        dtype = element_of(param.value.type)
        what = f"`{param.argument}`, an argument of type {dtype.name},"
        _check_type(param.value.type, dialect, None, what)
    for op in kernel.body.walk():
        reason = dialect.refused.get(op.row)
        if reason is not None:
            raise refusal(op, dialect, reason)
        for value in (*op.operands, *op.results):
            what = f"`{op.row.name}` of type {element_of(value.type).name}"
            _check_type(value.type, dialect, op, what)


def check_cluster(kernel: Kernel, dialect: Dialect) -> None:
    """`UnsupportedError` E310 for clusters of cubes where the hardware runs cubes one by one."""
    if kernel.cluster != (1, 1, 1) and not dialect.cluster:
        raise fail(
            "E310",
            kernel.body.terminator.span,
            op="a cluster of cubes",
            target=dialect.name,
            reason=dialect.no_cluster,
            suggestion="",
        )


def _check_type(t: Type, dialect: Dialect, op: Op | None, what: str) -> None:
    dtype = element_of(t)
    if dtype not in dialect.scalars:
        raise fail(
            "E310",
            op.span if op is not None else None,
            op=what,
            target=dialect.name,
            reason=dialect.reasons.get(dtype, "it has no such type"),
            suggestion="use f32" if dtype.is_float else "",
        )


def refusal(op: Op, dialect: Dialect, reason: str) -> Exception:
    """`UnsupportedError` E310 for an operation."""
    return fail(
        "E310", op.span, op=f"`{op.row.name}`", target=dialect.name, reason=reason, suggestion=""
    )
