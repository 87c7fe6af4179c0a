"""The compiler of OpenCL targets; the driver of a device compiles the source."""

from __future__ import annotations

from cubepy.compilers.cstyle.compiler import SourceCompiler
from cubepy.compilers.cstyle.dialect import Dialect
from cubepy.compilers.opencl.dialect import dialect
from cubepy.targets import Target


class OpenclCompiler(SourceCompiler):
    """See `compilers.base.Compiler`."""

    def dialect(self, target: Target) -> Dialect:
        return dialect(target.features, target.plane_dim)
