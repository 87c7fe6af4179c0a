"""The compiler of HIP targets; HIPRTC, hipcc or clang compiles the source."""

from __future__ import annotations

from cubepy.compilers.cstyle.compiler import SourceCompiler
from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.hip.dialect import dialect
from cubepy.targets import Target


class HipCompiler(SourceCompiler):
    """See `compilers.base.Compiler`."""

    def dialect(self, target: Target) -> Dialect:
        return dialect(target.arch, target.plane_dim)
