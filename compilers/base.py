"""What every compiler offers, and the steps from a function to compiled code that they share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

from cubepy.artifact import Artifact, Slot
from cubepy.config import get
from cubepy.frontend.facts import Facts
from cubepy.frontend.signature import Signature
from cubepy.frontend.specialise import specialise
from cubepy.ir.core import Kernel
from cubepy.ir.printer import print_kernel
from cubepy.ir.types import Buffer, element_of
from cubepy.options import Options
from cubepy.passes.expand import expand
from cubepy.passes.pipeline import Pass, definition_passes, run, standard_passes
from cubepy.targets import Target


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
    return optimise(kernel, target, options), facts


def optimise(kernel: Kernel, target: Target, options: Options) -> Kernel:
    """The optimised, verified kernel; prints the stages that CUBEPY_DUMP names."""
    kernel = run(kernel, _passes(target, options), dumper())
    if "ir" in get("dump"):
        show("ir", kernel.name, print_kernel(kernel, spans=False))
    return kernel


def _passes(target: Target, options: Options) -> list[Pass]:
    """All passes; for the interpreter only those that decide what a kernel means."""
    if "names" in target.features:
        return definition_passes(options)
    return standard_passes(
        options, Pass("expand", expand(target.functions, options.fast_math)), target.narrows
    )


def dumper() -> Callable[[str, Kernel], None] | None:
    """Prints the kernel after each pass that CUBEPY_DUMP names; None where the setting is empty."""
    return _dump if get("dump") else None


def _dump(name: str, kernel: Kernel) -> None:
    wanted = get("dump")
    if "passes" in wanted or f"after:{name}" in wanted:
        show(f"after {name}", kernel.name, print_kernel(kernel, spans=False))


def show(stage: str, kernel: str, text: str) -> None:
    """Print a stage on stderr, where CUBEPY_DUMP asks for it."""
    print(f"; {stage} of {kernel}\n{text}", file=sys.stderr)


def slots(kernel: Kernel) -> tuple[Slot, ...]:
    """The layout of a kernel's argument block."""
    return tuple(
        Slot(
            p.argument,
            p.kind,
            element_of(p.value.type).name if not isinstance(p.value.type, Buffer) else "",
        )
        for p in kernel.params
    )
