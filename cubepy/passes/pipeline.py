"""The pipeline: which passes run, in which order, each dumpable, and verified with the last."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from cubepy.errors import Error
from cubepy.ir.core import Kernel, Op
from cubepy.ir.verify import verify
from cubepy.options import Options
from cubepy.passes.construct_ssa import construct_ssa
from cubepy.passes.contract import contract
from cubepy.passes.cse import cse
from cubepy.passes.dce import dce
from cubepy.passes.fold import fold
from cubepy.passes.licm import licm
from cubepy.passes.narrow import narrow
from cubepy.passes.prove import prove
from cubepy.passes.prune import prune
from cubepy.passes.reassociate import reassociate
from cubepy.passes.unroll import unroll
from cubepy.record import dataclass


@dataclass(frozen=True, slots=True)
class Pass:
    """A named step: a function from kernel to kernel."""

    name: str
    run: Callable[[Kernel], Kernel]


def standard_passes(
    options: Options, expand: Pass | None = None, narrows: bool = False
) -> list[Pass]:
    """The passes between the frontend and a compiler; `expand` inlines elementary functions.

    `narrows`: the target computes faster with integers of 32 bits.
    """
    simplify = Pass("fold", partial(fold, fast_math=options.fast_math))
    sharing = Pass("cse", cse)
    return [
        *_defining_passes(options),
        *([expand] if expand else []),  # after contract: expansions say themselves what is fused
        simplify,
        sharing,
        Pass("licm", licm),  # before unroll, so that what is hoisted is copied nowhere
        Pass("unroll", unroll),
        simplify,  # unrolled positions are constants
        Pass("prove", prove),  # after unroll, before what it leaves unused is removed
        sharing,  # and copies of a body have much in common
        Pass("reassociate", reassociate),
        *([Pass("narrow", narrow)] if narrows else []),
        Pass("dce", dce),
        Pass("prune", prune),
    ]


def definition_passes(options: Options) -> list[Pass]:
    """What the interpreter runs: the kernel as it was written, without the optimiser's help."""
    return [*_defining_passes(options), Pass("dce", dce)]


def _defining_passes(options: Options) -> list[Pass]:
    """The passes that decide what a kernel means, and so are the same for all devices.

    Contraction looks at products as they are written, before others merge or move them.
    """
    contraction = [Pass("contract", contract)] if options.contract else []
    return [Pass("construct_ssa", construct_ssa), *contraction]


VERIFIES_EACH = False
"""Whether what every pass gives is verified, as the tests want it; else what the last one gives."""


def run(
    kernel: Kernel, passes: Iterable[Pass], dump: Callable[[str, Kernel], None] | None = None
) -> Kernel:
    """The kernel after all passes, verified; what each gives is shown to `dump` with its name.

    Verifying takes as long as a pass. So it waits for the end, and where a rule is broken there, or
    a pass fails, the passes run again: `InvalidIR` names the first that broke one.
    """
    listed = tuple(passes)
    if VERIFIES_EACH or dump is not None:
        return _run_verified(kernel, listed, dump)
    found = kernel
    try:
        for step in listed:
            found = step.run(found)
        return verify(found)
    except Error:
        raise  # what a pass refuses
    except Exception:
        _run_verified(kernel, listed, None)
        raise


def _run_verified(
    kernel: Kernel, passes: Iterable[Pass], dump: Callable[[str, Kernel], None] | None
) -> Kernel:
    typed: set[Op] = set()
    for step in passes:
        before, kernel = kernel, step.run(kernel)
        if kernel is not before or not typed:
            verify(kernel, step.name, typed)
        if dump is not None:
            dump(step.name, kernel)
    return kernel
