"""The steps from a kernel to source, and to an artifact that holds it, for all C dialects."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from cubepy.artifact import Artifact, Fault, Listing
from cubepy.compilers.base import dumper, show, slots
from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.cstyle.emit import Emitter
from cubepy.config import get
from cubepy.ir.core import Kernel
from cubepy.options import Options
from cubepy.passes.legalise.capabilities import Planes
from cubepy.passes.legalise.check_convergence import has_barrier_in_loop
from cubepy.passes.legalise.lower_planes import fit_planes
from cubepy.passes.legalise.pipeline import legalise
from cubepy.targets import Target


class Source:
    """A kernel's text in a dialect, the name of its entry, and what a launch must know.

    `shared_bytes`: dynamic shared memory that a launch must ask for; 0 where all is declared.
    """

    def __init__(self, kernel: Kernel, dialect: Dialect) -> None:
        can = fit_planes(kernel, dialect.can)
        if can.planes is not Planes.SHUFFLES:
            dialect = replace(dialect, head_of_planes="")
        legal, faults = legalise(kernel, can, dumper())
        emitter = Emitter(legal, dialect)
        self.kernel = kernel
        self.text: Listing = emitter.source()
        self.entry: str = emitter.signature.name
        self.faults: tuple[Fault, ...] = faults
        self.shared_bytes: int = emitter.shared.size if emitter.shared.is_dynamic else 0
        self.has_barrier_in_loop: bool = has_barrier_in_loop(legal)


class SourceCompiler(ABC):
    """A compiler whose product is source; see `compilers.base.Compiler`."""

    stages: tuple[str, ...] = ("source",)

    @abstractmethod
    def dialect(self, target: Target) -> Dialect:
        """The dialect of a target."""

    def build(self, kernel: Kernel, target: Target, options: Options) -> Artifact:
        """The source, or what `code` makes of it."""
        source = Source(kernel, self.dialect(target))
        if "source" in get("dump"):
            show("source", kernel.name, source.text)
        code = self.code(source, target)
        return Artifact(
            target,
            source.entry,
            code,
            slots(kernel),
            kernel.cube_dim,
            source.faults,
            source.shared_bytes,
            has_barrier_in_loop=source.has_barrier_in_loop,
        )

    def code(self, source: Source, target: Target) -> bytes:
        """What the runtime loads: by default the text, which its driver compiles."""
        return source.text.encode()

    def text(self, kernel: Kernel, target: Target, options: Options, stage: str) -> str:
        """The source; comments name the lines of Python."""
        return Source(kernel, self.dialect(target)).text
