"""What every compiler offers, and the steps from a function to compiled code that they share."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Protocol

from cubepy.artifact import Artifact, Slot
from cubepy.config import get
from cubepy.errors import fail
from cubepy.frontend.signature import Signature
from cubepy.frontend.specialise import specialise
from cubepy.frontend.tracer import Facts
from cubepy.ir.core import Kernel
from cubepy.ir.printer import print_kernel
from cubepy.ir.types import Buffer, Space, element_of
from cubepy.passes.expand import expand
from cubepy.passes.pipeline import Pass, PassOptions, definition_passes, run, standard_passes
from cubepy.targets import Target


@dataclass(frozen=True, slots=True)
class Options:
    """What a launch may choose about compilation."""

    contract: bool = True
    fast_math: bool = False


class Compiler(Protocol):
    """One kind of target. `stages` are the texts that `text` can give, besides `ir`."""

    stages: tuple[str, ...]

    def build(self, kernel: Kernel, target: Target, options: Options) -> Artifact:
        """Compile a verified kernel."""
        ...

    def text(self, kernel: Kernel, target: Target, options: Options, stage: str) -> str:
        """The text of a stage."""
        ...


def to_kernel(
    function: Any, signature: Signature, target: Target, options: Options
) -> tuple[Kernel, Facts]:
    """The optimised, verified kernel of a function; prints the stages that CUBEPY_DUMP names."""
    kernel, facts = specialise(function, signature, target)
    passes = _passes(target, PassOptions(options.contract, options.fast_math))
    wanted = get("dump")
    kernel = run(kernel, passes, _dump if wanted else None)
    if "ir" in wanted:
        show("ir", kernel.name, print_kernel(kernel, spans=False))
    return kernel, facts


def _passes(target: Target, options: PassOptions) -> list[Pass]:
    """All passes; where the definition is asked for, only those that decide what a kernel means."""
    if "names" in target.features:
        return definition_passes(options)
    return standard_passes(options, Pass("expand", expand(target.functions)))


def _dump(name: str, kernel: Kernel) -> None:
    wanted = get("dump")
    if "passes" in wanted or f"after:{name}" in wanted:
        show(f"after {name}", kernel.name, print_kernel(kernel, spans=False))


def show(stage: str, kernel: str, text: str) -> None:
    """Print a stage on stderr, where CUBEPY_DUMP asks for it."""
    print(f"; {stage} of {kernel}\n{text}", file=sys.stderr)


def refuse_foreign(kernel: Kernel, target: str) -> None:
    """`UnsupportedError` E310 for what another kind of target alone has.

    `target` is the name of the one asked for: its kind, perhaps with an architecture behind it.
    """
    kind = target.partition(":")[0]
    for op in kernel.body.walk():
        if op.row.kind not in ("", kind):
            reason = f"it is of the hardware of {op.row.kind} targets"
            what = f"`{op.row.name}`"
            raise fail("E310", op.span, op=what, target=target, reason=reason, suggestion="")
    if kind == "cuda":
        return
    span = kernel.body.terminator.span
    reason = "it is of the hardware of cuda targets"
    for param in kernel.params:
        if isinstance(param.value.type, Buffer) and param.value.type.space is Space.TENSOR_MAP:
            what = f"`{param.argument}`, a tensor map,"
            raise fail("E310", span, op=what, target=target, reason=reason, suggestion="")
    if kernel.cluster != (1, 1, 1):
        what = "a cluster of cubes"
        raise fail("E310", span, op=what, target=target, reason=reason, suggestion="")


def slots(kernel: Kernel) -> tuple[Slot, ...]:
    """The layout of a kernel's argument block."""
    return tuple(
        Slot(
            p.argument,
            p.role,
            p.axis,
            element_of(p.value.type).name if not isinstance(p.value.type, Buffer) else "",
        )
        for p in kernel.params
    )
