"""The compiler of Metal targets; the system's own compiler compiles the source."""

from __future__ import annotations

from cubepy.compilers.cstyle.compiler import SourceCompiler
from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.metal.dialect import DIALECT
from cubepy.targets import Target


class MetalCompiler(SourceCompiler):
    """See `compilers.base.Compiler`."""

    def dialect(self, target: Target) -> Dialect:
        return DIALECT
