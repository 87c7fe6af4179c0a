"""The pipeline: which passes run, in which order, each verified and dumpable."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cubepy.ir.core import Kernel
from cubepy.ir.verify import verify
from cubepy.passes.construct_ssa import construct_ssa
from cubepy.passes.remove_dead import remove_dead


@dataclass(frozen=True, slots=True)
class Pass:
    """A named step: a function from kernel to kernel."""

    name: str
    run: Callable[[Kernel], Kernel]


@dataclass(frozen=True, slots=True)
class PassOptions:
    """What a launch may choose: contraction to fused multiply-add, and folding beyond IEEE 754."""

    contract: bool = True
    fast_math: bool = False


def standard_passes(options: PassOptions, expand: Pass | None = None) -> list[Pass]:
    """The passes between the frontend and a compiler; `expand` inlines elementary functions."""
    passes = [
        Pass("construct_ssa", construct_ssa),
        *([expand] if expand else []),
        Pass("remove_dead", remove_dead),
    ]
    return passes


def run(kernel: Kernel, passes: Iterable[Pass],
        dump: Callable[[str, Kernel], None] | None = None) -> Kernel:
    """The kernel after all passes; each result is verified, and shown to `dump` with its name."""
    for step in passes:
        kernel = verify(step.run(kernel), after=step.name)
        if dump is not None:
            dump(step.name, kernel)
    return kernel
